"""Sixty-four clients at once lose nothing, and the ledger is what they were told.

`python tests/support/server_load.py --help` says how to send thousands each.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from support.server_load import ANALYSTS, KINDS, QUESTION, Told, check, load, serving_many
from support.service_kit import ask

CLIENTS, STATEMENTS, QUESTIONS = 64, 6, 12


def test_sixty_four_clients_lose_nothing_and_are_charged_what_they_are_told(tmp_path: Path) -> None:
    with serving_many(tmp_path) as served:
        told = asyncio.run(load(served, Random(3), clients=CLIENTS, statements=STATEMENTS, questions=QUESTIONS))
        assert check(served, told, statements=CLIENTS * STATEMENTS) == []
    assert len(told.answers) > len(ANALYSTS) * QUESTIONS // 2
    assert told.kinds.keys() >= KINDS.keys()
    assert "fault" not in served.log.getvalue()


@pytest.mark.parametrize("fault", ["untold", "twice", "another", "lost", "unlike"])
def test_what_does_not_hold_is_found(tmp_path: Path, fault: str) -> None:
    with serving_many(tmp_path) as served:
        answer = ask(served.front.service, "ana", QUESTION.format(number=1))
        told, asked = Told(), ("ana", 1)
        told.kinds["ask"] = 1
        told.answered(asked, [("a0", 1)])
        told.noticed(asked, "; ".join(f"{name}: {value}" for name, value in answer.receipt.details()))
        assert check(served, told, statements=1) == []
        match fault:
            case "untold":
                told.charges.clear()
            case "twice":
                told.charges[asked] *= 2
            case "another":
                told.charges[asked][0] *= 1.001
            case "lost":
                told.kinds.clear()
            case "unlike":
                told.answered(asked, [("a0", 2)])
        assert len(check(served, told, statements=1)) == 1
