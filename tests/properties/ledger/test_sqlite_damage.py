"""A file with bytes that dpsql did not write: every call and command says so in one error of the ledger's."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path

import pytest
from support.command_kit import dpsql_command
from support.ledger_kit import ALICE, ITEM, code_of, opened

from dpsql.curator import back_up, bump, read_history
from dpsql.errors import LedgerError
from dpsql.ledger import Request, SQLiteLedger, verify

PAGE = 4096


def verified(path: Path) -> object:
    return verify(path)


def exported(path: Path) -> object:
    return [json.loads(event.body) for event in read_history(path)]


def used(path: Path) -> None:
    with opened(path) as ledger:
        ledger.register({"another": "user_id"})
        ledger.stored("key", "alice")
        ledger.reserve(Request("q", ITEM, ALICE, "key")).settle(Fraction(0), "d", answer=b"x", shared=True)
        assert ledger.entries()


def copied(path: Path) -> None:
    back_up(path, path.with_name("copy"))


def bumped(path: Path) -> None:
    bump(path, note="n")


def damages(size: int, *, seed: int) -> Iterator[tuple[int, Callable[[bytes], bytes]]]:
    """Yield places and what becomes of the bytes there: the page of the schema densely, the others here and there."""
    choose = random.Random(seed)
    for start, end, stride in ((0, 100, 3), (100, PAGE, 11), (PAGE, size, 149)):
        for offset in range(start + choose.randrange(stride), end, stride):
            mask, length = choose.choice((0x01, 0x02, 0x08, 0x80, 0xFF)), choose.choice((1, 1, 1, 4, 30))
            yield offset, lambda old, mask=mask, length=length: bytes(each ^ mask for each in old[:length])


@pytest.mark.parametrize(
    ("act", "seed"), [(verified, 0), (exported, 1), (used, 0), (used, 1), (copied, 1), (bumped, 0)]
)  # all of them open the file alike
def test_whatever_byte_is_damaged_only_errors_of_the_ledger_come_out(
    rich: Path, act: Callable[[Path], object], seed: int
) -> None:
    content = rich.read_bytes()
    refused = 0
    for offset, change in damages(len(content), seed=seed):
        folder = rich.with_name("damaged")
        folder.mkdir()
        new = change(content[offset : offset + 30])
        (folder / "ledger").write_bytes(content[:offset] + new + content[offset + len(new) :])
        try:
            with suppress(LedgerError):
                act(folder / "ledger")
                refused -= 1
            refused += 1
        except Exception as error:  # pragma: no cover
            raise AssertionError(offset, new, error) from error
        finally:
            shutil.rmtree(folder)
    assert refused > 100


@pytest.mark.parametrize("act", [verified, exported, used, copied])
def test_text_of_the_schema_that_is_no_text_is_damage(rich: Path, act: Callable[[Path], object]) -> None:
    content = rich.read_bytes()
    at = content.index(b"CREATE TRIGGER events_stay")
    rich.write_bytes(content[:at] + b"\xc3\x28\xff" + content[at + 3 :])
    with pytest.raises(LedgerError) as caught:
        act(rich)
    assert caught.value.code == "ledger-damaged"


def test_an_index_that_names_another_event_is_found(rich: Path) -> None:
    content = rich.read_bytes()
    assert content.count(b"key\x05") == 1  # in the index of questions: the key, and the number of its event
    rich.write_bytes(content.replace(b"key\x05", b"key\x08"))
    with closing(SQLiteLedger.open(rich)) as ledger:
        assert code_of(lambda: ledger.stored("key", "alice")) == "ledger-tampered"


@pytest.mark.parametrize("command", ["verify", "export"])
def test_the_commands_say_it_in_a_line(rich: Path, command: str) -> None:
    content = rich.read_bytes()
    at = content.index(b"CREATE TRIGGER events_stay")
    rich.write_bytes(content[:at] + b"\xc3\x28\xff" + content[at + 3 :])
    code, out, err = dpsql_command("ledger", command, rich.name, cwd=rich.parent)
    assert (code, out) == (7, b"")
    assert "ledger-damaged" in err
    assert "Traceback" not in err
