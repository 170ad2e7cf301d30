"""Half of a durable ledger that does not depend on its database: its opening, its rows, their check, and checkpoints.

Events and answers are in tables that only grow. The database never calculates with what is in them.

A checkpoint has the sums of a history when it was last read, so that the next opening continues from there. It is used
only if its event is still in the ledger with the same chain, and if the checkpoint and the events since then add up to
the terms and balances of the ledger. Otherwise the whole history is read. Once values of a column have budgets none is
written any more: the ledger's balances would not tell whether it is right. A checkpoint is as well protected as the
mark: its digest detects truncation and accidental changes, but not a forger who knows the format.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import chain, islice, repeat
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, CertificateTerms, Periods
from dpsql.errors import Error, LedgerError
from dpsql.ledger.base_ledger import Ledger, new_terms
from dpsql.ledger.history import History, Sums, refuse_unlinked, tampered
from dpsql.ledger.record import (
    GENESIS,
    Body,
    Clock,
    Event,
    LedgerTerms,
    NamedTable,
    decode_fraction,
    decode_present,
    decode_ratio,
    encode_account_prefix,
    encode_fraction,
    encode_present,
    encode_version,
    make_event,
    utc,
)

HISTORY = "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq"
LINKED = """SELECT seq, at, kind, body, chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = events.seq - 1
) FROM events"""  # with the chain of the event before
# Settlements after a number, each with its reservation, whose body begins with the account, and the chain before that.
_ANSWERED = """SELECT asked.seq, asked.at, asked.kind, asked.body, asked.chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = asked.seq - 1
) FROM events AS settled JOIN events AS asked ON asked.seq = {entry}
WHERE settled.kind = 'settled' AND settled.seq > ? AND substr(asked.body, 1, ?) = ? ORDER BY settled.seq"""
FIRST, LAST = -(2**63), 2**63 - 1  # numbers that a row can have, also where no event has them
_PAGE = 100


class RowsFound(Protocol):
    """Result of a statement."""

    def fetchone(self) -> Any:  # noqa: ANN401 - as the database says
        """Return the next row, or None."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the rows."""
        ...


class EventRows(ABC):
    """Events and answers as rows. The database never calculates with what is in them."""

    # Each finds events as `LINKED` has them. The last two values for reservations are the number beyond which a page of
    # them begins, and how many it has.
    SETTLEMENT: ClassVar[str]  # of an entry
    ASKED: ClassVar[str]  # reservations under a key, given as JSON, of an account or another data version, newest first
    FIRST_ASKED: ClassVar[str]  # reservations under a key on a data version, oldest first
    ENTRY: ClassVar[str]  # the entry that the body of the event `settled` settles, as an expression

    _terms: LedgerTerms | None = None  # read once in a transaction

    @abstractmethod
    def _run(self, statement: str, *values: object) -> RowsFound:
        """Run a statement with values in place of its question marks."""

    @abstractmethod
    def _read_terms(self) -> LedgerTerms:
        """Read the present terms."""

    @abstractmethod
    def balances(self) -> Mapping[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""

    @abstractmethod
    def history(self, after: int = ...) -> Iterable[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first."""

    def terms(self) -> LedgerTerms:
        """Return the present terms."""
        if self._terms is None:
            self._terms = self._read_terms()
        return self._terms

    def append(self, kind: str, body: Body, *, at: str) -> int:
        """Write an event after all others and return its number."""
        event = make_event(self.head(), kind, body=body, at=at)
        self._insert(event)
        return event.seq

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        row = self._run("SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, GENESIS) if row is None else row

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        row = self._run("SELECT chain FROM events WHERE seq = ?", seq).fetchone()
        return None if row is None else row[0]

    def settlement(self, entry: int) -> Event | None:
        """Return the event that settled the entry, if it has one."""
        row = self._run(self.SETTLEMENT, entry).fetchone()
        return None if row is None else _linked(row, "settled", part=f'"entry":{entry},')

    def keep(self, entry: int, answer: bytes) -> None:
        """Keep the answer of an entry, for good."""
        self._run("INSERT INTO answers (entry, content) VALUES (?, ?)", entry, answer)

    def asked(self, key: str, *, account: str | None, version: int) -> Iterator[Event]:
        """Return the reservations under a key, newest first, without those of other accounts on this data version."""
        whose = encode_account_prefix(account)
        return self._pages(self.ASKED, key, given=(len(whose), whose, _like(version)), beyond=LAST)

    def first_asked(self, key: str, *, version: int) -> Iterator[Event]:
        """Return the reservations under a key on a data version, oldest first."""
        return self._pages(self.FIRST_ASKED, key, given=(_like(version),), beyond=FIRST)

    def _pages(self, statement: str, key: str, *, given: tuple[object, ...], beyond: int) -> Iterator[Event]:
        """Yield the reservations under a key, in pages: mostly the first of all is the one that is wanted."""
        text = json.dumps(key)
        for most in chain((1,), repeat(_PAGE)):
            found = [_linked(row, "reserved") for row in self._run(statement, text, *given, beyond, most)]
            yield from (event for event in found if f'"key":{text}' in event.body)  # SQLite takes "a\0b" for "a"
            if len(found) < most:
                return
            beyond = found[-1].seq

    def answer(self, entry: int) -> bytes | None:
        """Return the stored answer of an entry, if there is one; its digest must be that of the settlement."""
        settlement = self.settlement(entry)
        digest = "" if settlement is None else json.loads(settlement.body)["answer"]
        if not digest:
            return None
        row = self._run("SELECT content FROM answers WHERE entry = ?", entry).fetchone()
        if row is None or not isinstance(row[0], bytes) or hashlib.sha256(row[0]).hexdigest() != digest:
            raise tampered(f"the answer of event {entry} is not the one it was given")
        return row[0]

    def answered(self, account: str | None, *, after: int) -> Iterator[int]:
        """Return the entries of an account that were settled after event number `after`, in the order of settling."""
        whose = encode_account_prefix(account)
        rows = self._run(_ANSWERED.format(entry=self.ENTRY), after, len(whose), whose)
        events = [_linked(row, "reserved") for row in rows]
        return (event.seq for event in events if event.body.startswith(whose))

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order."""
        return (entry for (entry,) in self._run("SELECT entry FROM answers ORDER BY entry"))

    def registrations(self) -> Iterator[Event]:
        """Return the declarations of units, oldest first."""
        rows = self._run(f"{LINKED} WHERE kind = 'registered' ORDER BY seq")
        return (_linked(row, "registered") for row in rows)

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        rows = self._run(
            "SELECT seq, at, kind, body, chain FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, most
        )
        return [Event(*row) for row in rows]

    def _insert(self, event: Event) -> None:
        self._run(
            "INSERT INTO events (seq, at, kind, body, chain) VALUES (?, ?, ?, ?, ?)",
            *(event.seq, event.at, event.kind, event.body, event.chain),
        )


def _like(version: int) -> str:
    return f"%{encode_version(version)}%"


def _linked(row: tuple[Any, ...], kind: str, *, part: str = "") -> Event:
    """Return the event of a row that ends with the chain before, as an index found it.

    It may be one that no replay here has read. A damaged index may find one of another kind, or without the part of a
    body by which it was looked for.
    """
    *told, before = row
    event = Event(*told)
    refuse_unlinked(event, str(before))
    if event.kind != kind or part not in event.body:
        raise tampered(f"event {event.seq} is not the one that its index names")
    return event


def encode_holder(account: str | None) -> str:
    """Return the key of a balance: no account has the key of the total."""
    return "total" if account is None else f"account {account}"


Where = TypeVar("Where")


class Durable(Ledger, Generic[Where]):
    """A ledger that outlives the process."""

    def __init__(
        self,
        place: Where,
        budget: BudgetVector,
        *,
        total: ApproximateDP,
        periods: Periods | None = None,
        certified: CertificateTerms | None = None,
        clock: Clock = utc,
    ) -> None:
        """Open the ledger at `place`, or create it with these terms.

        An existing ledger must have the same certificate (zcdp unless `certified` says otherwise), and at most this
        `total` and these `periods`; its budget stays as it was created or last granted. `clock` gives the time of
        events, and so decides when a period begins.
        """
        terms = new_terms(budget, total, periods=periods, certified=certified or CertificateTerms())
        self._start(place, terms, clock=clock)

    @classmethod
    def open(cls, place: Where, *, clock: Clock = utc) -> Self:
        """Open the ledger at `place` on the terms that it records; raise `ledger-missing` if there is none."""
        ledger = cls.__new__(cls)
        ledger._start(place, None, clock=clock)  # noqa: SLF001 - its own
        return ledger

    @property
    def durable(self) -> bool:
        """Always: the opening refuses a place where it would not be."""
        return True

    @abstractmethod
    def _start(self, place: Where, wanted: LedgerTerms | None, *, clock: Clock) -> None:
        """Open the ledger at `place`, or create it with the wanted terms."""


LEAST = 10_000  # events; fewer are read in about the time in which a process imports what it needs
_SHARE = 4  # things that a checkpoint may tell of for each event that was added
_FORM = 1


def checkpoint_if_due(replay: History) -> str | None:
    """Return the checkpoint to write, if enough events were read to make it worth writing."""
    read = replay.seq - replay.began
    if read < LEAST or replay.divides:
        return None
    sums = replay.sums()
    return encode_checkpoint(sums) if _SHARE * read >= sums.size else None


def encode_checkpoint(sums: Sums) -> str:
    """Return a checkpoint as text: a line of JSON, and its SHA-256."""
    told = {
        "form": _FORM,
        "seq": sums.seq,
        "chain": sums.chain,
        "terms": encode_present(sums.terms),
        "states": [
            [holder, *map(encode_fraction, (state.spent, state.permanent, state.reserved))]
            for holder, state in sums.states.items()
        ],
        "held": [[entry, f"{rho[0]}/{rho[1]}", account] for entry, (rho, account) in sums.held.items()],
        "failed": [[account, when.isoformat()] for account, when in sums.failed],
        "tables": [
            [each.number, each.name, each.at.isoformat(), each.data_version, each.account, each.is_published]
            for each in sums.tables
        ],
    }
    line = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return f"{line}\n{_digest(line)}\n"


def decode_checkpoint(text: str | None) -> Sums | None:
    """Return the sums that `encode_checkpoint` encoded; None for any other text."""
    line, _, rest = (text or "").partition("\n")
    if rest != f"{_digest(line)}\n":
        return None
    # The digest is right, but another version of dpsql may have written other parts: the whole history is read then.
    with suppress(ArithmeticError, AttributeError, Error, KeyError, RecursionError, TypeError, ValueError):
        return _read_sums(json.loads(line))
    return None


def _read_sums(told: Mapping[str, Any]) -> Sums | None:
    if told["form"] != _FORM:
        return None
    sums = Sums(
        int(told["seq"]),
        str(told["chain"]),
        decode_present(told["terms"]),
        {_checked_name(holder): _state(values) for holder, *values in told["states"]},
        {int(entry): (decode_ratio(rho), _checked_name(account)) for entry, rho, account in told["held"]},
        tuple((_checked_name(account), _moment(when)) for account, when in told["failed"]),
        # an earlier version wrote none, and knew no ledger that has any
        tuple(map(_decode_stored, told.get("tables", ()))),
    )
    # What open reservations hold must be what the balances reserve, or a settlement would free too much.
    return sums if _held_by(sums) == {holder: state.reserved for holder, state in sums.states.items()} else None


def _held_by(sums: Sums) -> dict[str | None, Fraction]:
    """Return what the open reservations of the present period hold, in all and by each account."""
    calendar = sums.terms.calendar
    held = dict.fromkeys(sums.states, Fraction(0))
    for entry, ((numerator, denominator), account) in sums.held.items():
        if calendar is None or calendar.includes(entry):
            for holder in dict.fromkeys((None, account)):
                held[holder] += Fraction(numerator, denominator)
    return held


def _checked_name(account: object) -> str | None:
    if not (account is None or isinstance(account, str)):
        raise TypeError
    return account


def _decode_stored(told: list[Any]) -> NamedTable:
    number, name, at, version, account, is_published = told
    return NamedTable(int(number), str(name), _moment(at), int(version), _checked_name(account), bool(is_published))


def _moment(when: str) -> datetime:
    moment = datetime.fromisoformat(when)
    if moment.tzinfo is None:  # it could not be compared with others
        raise ValueError
    return moment


def _state(values: list[object]) -> BudgetState:
    spent, permanent, reserved = map(decode_fraction, values)
    return BudgetState(spent, permanent, reserved)


def _digest(line: str) -> str:
    # A text that was read may hold lone surrogates, which UTF-8 does not have.
    return hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """Last known end of a ledger: its data set, its last event and the chain of that event."""

    data_set: str
    seq: int
    chain: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Verified ledger: the number of its events, and the chain of the last one, which identifies the whole history."""

    events: int
    head: str


def replayed(rows: EventRows, checkpoint: Sums | None = None) -> tuple[History, LedgerTerms]:
    """Return what the history adds up to, and the terms; raise `ledger-tampered` where the rows say otherwise.

    It is read on from a checkpoint if that is one of this history and nothing disagrees with it, else from the first
    event, which decides.
    """
    # a checkpoint that is of another history, or leads to something else than the rows, is no reason to refuse
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        with suppress(LedgerError):
            return _agreeing(rows, History(checkpoint))
    return _agreeing(rows, History())


def _agreeing(rows: EventRows, replay: History) -> tuple[History, LedgerTerms]:
    replay.read(rows.history(replay.began) if replay.began else rows.history())
    terms = rows.terms()
    if terms != replay.terms:
        raise tampered("its terms are not those of its events")
    if rows.balances() != {encode_holder(account): state for account, state in replay.states().items()}:
        raise tampered("its balances are not those of its events")
    return replay, terms


def verify_rows(rows: EventRows, checkpoint: Sums | None = None) -> tuple[History, LedgerTerms]:
    """Replay from the first event, and check the stored answers and the checkpoint as well."""
    replay, terms = replayed(rows)
    _check_answers(rows, replay)
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        before = History()
        # A checkpoint is checked against the events up to its own, since later ones have changed the sums.
        before.read(islice(rows.history(), checkpoint.seq))
        if before.sums() != checkpoint:
            raise tampered("its checkpoint is not what its events add up to")
    return replay, terms


def _check_answers(rows: EventRows, replay: History) -> None:
    """Raise `ledger-tampered` if an answer was changed, is missing, belongs to no event, or to another question.

    None is missing if there are as many answers as events that name one, and each has the digest of its event.
    """
    count = 0
    for entry in rows.answers():
        if rows.answer(entry) is None:
            raise tampered("it holds an answer that no event was given")
        count += 1
    if count != replay.answers:
        for _, _, kind, body, _ in rows.history():
            if kind == "settled":
                rows.answer(json.loads(body)["entry"])  # raises for the first that is missing
    for seq, _, kind, body, _ in rows.history() if replay.repeats else ():
        told = json.loads(body) if kind == "settled" else {}
        if "repeats" in told:
            questions = []
            for entry in (told["entry"], told["repeats"]):
                (event,) = rows.events(entry - 1, 1)
                asked = json.loads(event.body)
                is_question = event.kind == "reserved" and asked["key"]
                questions.append((asked["key"], asked["account"], asked["data_version"]) if is_question else None)
            if None in questions or questions[0] != questions[1] or rows.answer(told["repeats"]) is None:
                raise tampered(f"event {seq} repeats an answer to another question")


def is_behind(rows: EventRows, mark: Mark, *, data_set: str) -> bool:
    """Say whether the ledger never came to what its mark says."""
    return mark.data_set != data_set or rows.chain_at(mark.seq) != mark.chain
