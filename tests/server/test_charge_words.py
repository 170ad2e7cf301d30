"""What may have been charged before an error is said in the same words by every surface."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest
from mcp.types import TextContent

from dpsql.dbapi.errors import translate_errors
from dpsql.engines.base import engine_closed
from dpsql.errors import BudgetExceeded, EngineError, Error, LedgerError
from dpsql.ledger.base import RESERVING, SETTLING, STORED, ChargeLog
from dpsql.server.http_requests import plain_problem, without_paths
from dpsql.server.mcp import _failure
from dpsql.server.wire.codec import to_wire_error

WORDS = {
    RESERVING: ("may have been charged in full", "again is charged again"),
    SETTLING: ("is charged, in full unless its answer was stored", "it is free if the answer was stored"),
    STORED: ("was charged, and its answer is stored", "Run it again: it is free."),
}


def failed(charge: str) -> Error:
    error = LedgerError("ledger-disk-full", "The disk under the ledger is full.", hint="Make room.", place="a path")
    error.charge = charge
    ChargeLog().describe(error)
    return error


def raised(error: Error) -> Error:
    with pytest.raises(Error) as caught:
        translate_errors(lambda: throw(error))()
    return caught.value


def throw(error: Error) -> None:
    raise error


def tell_mcp(error: Error) -> str:
    (content,) = _failure(error).content
    assert isinstance(content, TextContent)
    return content.text


SURFACES: dict[str, Callable[[Error], str]] = {
    "python": str,
    "pickle": lambda error: str(pickle.loads(pickle.dumps(error))),
    "dbapi": lambda error: str(raised(error)),
    "http": lambda error: json.dumps(plain_problem(without_paths(error))),
    "wire": lambda error: f"{to_wire_error(error).reason} {to_wire_error(error).hint}",
    "mcp": tell_mcp,
}


@pytest.mark.parametrize("charge", WORDS)
@pytest.mark.parametrize("surface", SURFACES)
def test_a_surface_says_what_may_have_been_charged(surface: str, charge: str) -> None:
    told = SURFACES[surface](failed(charge))
    assert all(words in told for words in WORDS[charge])
    assert "ledger-disk-full" in told
    assert "Nothing was charged" not in told


@pytest.mark.parametrize("surface", SURFACES)
def test_a_ledger_that_failed_before_says_that_nothing_was_charged(surface: str) -> None:
    assert "The disk under the ledger is full. Nothing was charged." in SURFACES[surface](failed(""))


@pytest.mark.parametrize(
    ("charge", "state", "status"), [("", "58030", 503), (RESERVING, "40003", 500), (SETTLING, "40003", 500)]
)
def test_no_client_sends_again_by_itself_what_may_be_charged_twice(charge: str, state: str, status: int) -> None:
    assert to_wire_error(failed(charge)).sqlstate == state
    assert plain_problem(without_paths(failed(charge)))["status"] == status
    assert raised(failed(charge)).charge == charge
    assert pickle.loads(pickle.dumps(failed(charge))).charge == charge


@pytest.mark.parametrize("surface", SURFACES)
def test_a_query_that_is_refused_after_another_of_its_statement_does_not_say_that_nothing_was_charged(
    surface: str,
) -> None:
    charges = ChargeLog()
    charges.answers = 1
    error = BudgetExceeded("budget-exceeded", "This query may cost more than is left.", hint="Ask for less.")
    charges.describe(error)
    told = SURFACES[surface](error)
    assert "What this statement asked before was charged, and is stored." in told
    assert "Nothing was charged" not in told


def test_a_query_that_failed_after_another_of_its_statement_keeps_its_own_words() -> None:
    charges = ChargeLog()
    charges.answers = 1
    failed, closed = EngineError("engine-failed", "It is charged in full."), engine_closed()
    for error in (failed, closed):
        charges.describe(error)
        assert error.reason.endswith("What this statement asked before was charged, and is stored.")
        assert "Nothing was charged" not in str(error)
    assert (failed.charge, closed.charge) == ("", STORED)


def test_a_statement_that_was_stopped_after_its_charge_says_that_its_answer_is_stored() -> None:
    charges = ChargeLog()
    charges.answers, charges.is_complete, charges.is_fresh = 1, True, True
    error = EngineError("statement-stopped", "The statement was stopped; nothing was charged.", hint="Send it again.")
    charges.describe(error)
    assert error.reason == "The statement was stopped. The query was charged, and its answer is stored."
    assert error.hint == "Run it again without fresh = true: it is free. Send it again."
