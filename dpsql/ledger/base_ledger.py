"""Operations of every ledger, on the transaction that its store opens.

A store begins, commits and rolls back transactions, and stores rows. What is admitted, charged and recorded is decided
here, once for all stores.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from dpsql.accounting import (
    ApproximateDP,
    BudgetState,
    BudgetVector,
    CertificateTerms,
    Filter,
    Periods,
    Rise,
    add_largest,
    add_worst_case,
    check_settlement,
    fold_values,
    measure_rise,
)
from dpsql.errors import LedgerError, Place, Refusal
from dpsql.ledger.answer_count import AnswerCount
from dpsql.ledger.base import (
    RESERVING,
    Failures,
    Outcome,
    Request,
    Reservation,
    Settled,
    admit,
    compute_remaining,
    mark_charge,
    release_on_interrupt,
)
from dpsql.ledger.history import History, refuse_unlinked, tampered, unlinked
from dpsql.ledger.record import (
    GENESIS,
    MAX_NAMED_BYTES,
    MAX_PUBLISHED_BYTES,
    Body,
    Calendar,
    Clock,
    Division,
    Entry,
    Event,
    LedgerTerms,
    NamedTable,
    TableContent,
    decode_fraction,
    decode_table,
    encode_fraction,
    encode_periods,
    encode_table,
    encode_terms,
    extended,
    now,
    read_entries,
    utc,
)

_PAGE = 1000
MAX_NAMES = 500  # of the answers of one account
_TERMS, _HEAD, _DIVISION, _TABLES = ("terms",), ("head",), ("division",), ("tables",)
_MAX_FINDINGS = 1000  # that are remembered of one version

Result = TypeVar("Result")
_LAW = re.compile(r'"law":"([0-9a-f]*)"')  # in a body, whose texts have no quote that is not escaped


class LedgerTransaction(Protocol):
    """One transaction's view of a ledger. None in place of an account means the total."""

    def terms(self) -> LedgerTerms:
        """Return the present terms."""
        ...

    def set_terms(self, terms: LedgerTerms) -> None:
        """Put other terms in place of the present ones."""
        ...

    def balance(self, account: str | None) -> BudgetState:
        """Return the spent and reserved amounts; zeros for an account that has made no request."""
        ...

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        """Put another state in place of the present one."""
        ...

    def start_afresh(self) -> None:
        """Put a fresh state in place of every balance: that of the total, and of all accounts."""
        ...

    def append(self, kind: str, body: Body, *, at: str) -> int:
        """Write an event after all others and return its number."""
        ...

    def settlement(self, entry: int) -> Event | None:
        """Return the event that settled the entry, if it has one."""
        ...

    def keep(self, entry: int, answer: bytes) -> None:
        """Keep the answer of an entry, for good."""
        ...

    def asked(self, key: str, *, account: str | None, version: int) -> Iterator[Event]:
        """Return the reservations under a key, newest first, without those of other accounts on this data version."""
        ...

    def first_asked(self, key: str, *, version: int) -> Iterator[Event]:
        """Return the reservations under a key on a data version, oldest first."""
        ...

    def answer(self, entry: int) -> bytes | None:
        """Return the stored answer of an entry, if there is one."""
        ...

    def answered(self, account: str | None, *, after: int) -> Iterator[int]:
        """Return the entries of an account that were settled after event number `after`, in the order of settling."""
        ...

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        ...

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        ...

    def tell_repeats(self) -> bool:
        """Say in the ledger's version that entries may repeat others; return whether that could be done."""
        ...

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets; return whether that could be done."""
        ...

    def tell_tables(self) -> bool:
        """Say in the ledger's version that tables may be stored; return whether that could be done."""
        ...

    def registrations(self) -> Iterator[Event]:
        """Return the declarations of units, oldest first."""
        ...

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        ...


@dataclass(frozen=True, slots=True)
class _Findings:
    """Results of reading one version of a store, by what was read."""

    version: Hashable
    results: dict[tuple[Hashable, ...], Any] = field(default_factory=dict)


class Ledger(ABC):
    """The record of one budget, without its store; safe to share among threads."""

    _terms: LedgerTerms  # the last that were seen, for a ledger that is closed
    _history: History  # what the events read so far add up to
    _seen: tuple[int, str] = (0, GENESIS)  # number and chain of the last of them
    _failures: Failures
    _clock: Clock = staticmethod(utc)  # read inside a transaction, once for each act that writes
    _findings = _Findings(None)
    _counted: AnswerCount | None = None  # of the events read for it, which most sessions never need

    @abstractmethod
    def _writing(self) -> AbstractContextManager[LedgerTransaction]:
        """Open a transaction as the only writer; committed when the block ends, rolled back if it raises."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[LedgerTransaction]:
        """Open a transaction for reading."""

    @abstractmethod
    def _find_version(self) -> Hashable:
        """Return a value that every commit to the store changes, of whichever process, and that never comes back.

        None is a version that is not known.
        """

    @abstractmethod
    def _peek_version(self) -> Hashable:
        """Return the version at once; None also where another thread uses the ledger, and where it would be awaited."""

    @property
    @abstractmethod
    def durable(self) -> bool:
        """Whether what was spent outlives the process and the power."""

    @abstractmethod
    def close(self) -> None:
        """Close the ledger; closing it twice is allowed. Open reservations stay reserved."""

    def hurry(self) -> None:  # noqa: B027 - a store without a server waits for none
        """Wait no longer than a few seconds for a server from now on, because the process is ending."""

    @release_on_interrupt
    def stamp(self) -> Hashable:
        """Return a value that stays equal while this ledger returns the same as now; None where that is not known.

        It changes with what any process writes, and with the period. Take it before what it is to be the stamp of.
        """
        version = self._find_version()
        if version is None:
            return None
        terms = self._find_known_terms(version)
        return version, self._present(self._seen_terms() if terms is None else terms)

    def peek_stamp(self) -> Hashable:
        """Return the stamp without waiting; None also where it cannot be found at once."""
        version = self._peek_version()
        terms = None if version is None else self._find_known_terms(version)
        return None if terms is None else (version, self._present(terms))

    def _find_known_terms(self, version: Hashable) -> LedgerTerms | None:
        """Return the terms at a version of the store if they were read at this version."""
        findings = self._findings
        known: LedgerTerms | None = findings.results.get(_TERMS) if findings.version == version else None
        return known

    def _recall(
        self,
        question: tuple[Hashable, ...],
        read: Callable[[LedgerTransaction], object] | None = None,
        *,
        account: str | None = None,
    ) -> Any:  # noqa: ANN401 - the answer to the question
        """Return what `read` returns in a transaction, read once while the store does not change.

        The version is read before the transaction: a result is never remembered for a version later than its own.
        """
        version = self._find_version()
        findings = self._findings
        if version is None or findings.version != version or len(findings.results) > _MAX_FINDINGS:
            findings = _Findings(version)
        if question not in findings.results:
            with self._reading() as book:
                self._agree(book, account)
                # Terms, head, division and tables are found with every question: a query asks for them one by one.
                findings.results[_TERMS] = book.terms()
                findings.results[_HEAD] = book.head()[0]
                findings.results[_DIVISION] = self._history.division
                findings.results[_TABLES] = (book.terms().data_version, tuple(self._history.tables))
                if read is not None:
                    findings.results[question] = read(book)
            self._findings = findings
        return findings.results[question]

    @property
    def terms(self) -> LedgerTerms:
        """Recorded terms, with the periods as they stand now. Read `state` first: a grant in between only adds."""
        terms = self._seen_terms()
        return terms if terms.calendar is None else replace(terms, calendar=self._present(terms))

    @property
    def budget(self) -> BudgetVector:
        """Recorded budget, in all or of a period. Read `state` first: a grant in between only adds."""
        return self._seen_terms().budget

    @property
    def total(self) -> ApproximateDP:
        """Guarantee of the budget, once or in each period."""
        return self._seen_terms().total

    @property
    def certified(self) -> CertificateTerms:
        """The certificate by which the budget is counted, and what it fixes; the ledger's for good."""
        return self._seen_terms().certified

    @property
    def calendar(self) -> Calendar | None:
        """The periods in which the budget is granted, as they stand now; None for a budget that is granted once."""
        return self.terms.calendar

    @property
    def data_version(self) -> int:
        """An operator's public counter, 0 at first; answers of another version are not found again."""
        return self._seen_terms().data_version

    @release_on_interrupt
    def reserve(self, request: Request) -> Reservation | Settled:
        """Reserve the worst case durably if the total and the limit of the account admit it; else raise `Shortfall`.

        For a request that may be repeated, return the stored answer if there is one, and reserve nothing. Raises
        `Refusal` for an account with too many recent failures of the engine. The ledger is then as it was.
        """
        account, worst = request.account, request.worst_case
        name = account.name if account else None
        with mark_charge(RESERVING) as begun, self._writing() as book:
            for amounts in (worst, account.budget) if account else (worst,):
                amounts.require(book.terms().certified.certificate)
            self._agree(book, name)
            # another process of this account may have been answered since the session looked
            if request.repeated:
                found = _find_stored(book, request.key, account=name, version=book.terms().data_version)
                if found is not None:
                    return Settled(found[1], repeats=True)
            if request.values and request.division != self._history.division:
                raise LedgerError(
                    "ledger-divided",
                    "The data version or the policy changed while this query was prepared; nothing was charged.",
                    hint="Run it again.",
                )
            # the first writer of a period begins it: from here on balances are those of the new period
            at, terms = self._turn(book)
            self._failures.refuse(name, request.most_failures, at=at)
            if terms.calendar is not None and terms.calendar.is_over:
                # All periods are over. Balances are those of a new, empty period, and would admit it.
                of_total = BudgetVector(0, 0, certificate=worst.certificate)
            else:
                of_total = compute_remaining(terms.budget, self._find_state(book, None, values=request.values))
            of_account = of_total
            if account:
                state = self._find_state(book, account.name, values=request.values)
                of_account = compute_remaining(account.budget, state)
            admit(request, of_total, of_account=of_account)
            limit = account.budget if account else None
            rise = self._measure_rise(
                book,
                change=lambda state: add_worst_case(state, worst),
                account=name,
                limit=limit,
                values=request.values,
            )
            # what is charged to values is in the events alone: a balance is what every unit may have lost
            for holder in dict.fromkeys((None, name)) if not request.values else ():
                book.set_balance(holder, add_worst_case(book.balance(holder), worst))
            number = book.append("reserved", encode_request(request, data_version=terms.data_version), at=at)
            # From here on the commit may have reached the store, so that an error leaves open whether this is charged.
            begun.append(True)
        # The transaction has ended: only now is the reservation durable, and may the engine be asked.
        question = request.key, terms.data_version
        return Reservation(
            number, worst, name, question, self._settle, request.repeated, request.law, request.values, limit, rise
        )

    @release_on_interrupt
    def state(self, account: str | None = None, *, values: Iterable[str] | None = None) -> BudgetState:
        """Return the spent and reserved amounts of the total or of an account, in the current period.

        They are those that a unit of these values may have lost at most, or, without values, a unit of any. When all
        periods are over, the whole budget counts as spent.
        """
        wanted = tuple(values or ())

        def read(book: LedgerTransaction) -> tuple[LedgerTerms, BudgetState]:
            return book.terms(), self._find_state(book, account, values=wanted)

        terms, state = self._recall(("state", account, wanted), read, account=account)
        return self._find_present(terms, account, state=state)

    @release_on_interrupt
    def states(self, account: str | None = None) -> Mapping[str, BudgetState]:
        """Return `state` for each value that a query of the total, or of the account, named since units keep it."""

        def read(book: LedgerTransaction) -> tuple[LedgerTerms, dict[str, BudgetState]]:
            values = sorted(self._find_values(book, account))
            return book.terms(), {value: self._find_state(book, account, values=(value,)) for value in values}

        terms, states = self._recall(("states", account), read, account=account)
        if self._present(terms) != terms.calendar:  # of a period that is over
            return {}
        return {value: self._find_present(terms, account, state=state) for value, state in states.items()}

    def _find_present(self, terms: LedgerTerms, account: str | None, *, state: BudgetState) -> BudgetState:
        """Return a state of the ledger's last period as it is in the present one."""
        present = self._present(terms)
        if present is not None and present.is_over and account is None:
            return BudgetState(terms.budget.refundable, terms.budget.permanent)
        return state if present == terms.calendar else BudgetState()

    @property
    @release_on_interrupt
    def division(self) -> Division | None:
        """What gives each unit its value now; None where no value has a budget, or the data version is new."""
        division: Division | None = self._recall(_DIVISION)
        return division

    def entries(self) -> tuple[Entry, ...]:
        """Return all reservations and how they ended, oldest first."""
        return read_entries(self.events())

    def today(self) -> str:
        """Return the day in UTC, by the clock of the ledger."""
        return now(self._clock)[:10]

    @release_on_interrupt
    def stored(self, key: str, account: str | None, *others: str) -> bytes | None:
        """Return the newest stored answer for this key or the others, this account and the current data version."""
        with self._reading() as book:
            self._agree(book)
            version = book.terms().data_version
            newest: tuple[int, bytes] | None = None
            for each in (key, *others):
                found = _find_stored(book, each, account=account, version=version)
                if found is not None and (newest is None or found[0] > newest[0]):
                    newest = found
        return None if newest is None else newest[1]

    @release_on_interrupt
    def answers(self, account: str | None, after: int) -> tuple[int, list[bytes]]:
        """Return the answers of an account, of all data versions, that were stored after event number `after`.

        They come in the order in which they were settled, the oldest first, with the number of the last event of the
        ledger, from which a later call goes on.
        """
        if after and after == self._recall(_HEAD):
            return after, []
        with self._reading() as book:
            self._agree(book)
            last = book.head()[0]
            found = list[bytes]()
            for entry in book.answered(account, after=after) if last > after else ():
                answer = book.answer(entry)
                found += [] if answer is None else [answer]
        return last, found

    @release_on_interrupt
    def count_answers(self, account: str | None) -> int:
        """Return how many queries of an account have a stored answer of the current data version.

        Each event is read once, so that a later call reads the new ones alone.
        """

        def read(book: LedgerTransaction) -> int:
            counted, self._counted = self._counted or AnswerCount(), None  # a reading that is cut short begins again
            while page := book.events(counted.seq, _PAGE):
                counted.read(page)
            self._counted = counted
            return counted.of(account)

        count: int = self._recall(("answers", account), read)
        return count

    @release_on_interrupt
    def grant(self, budget: BudgetVector, total: ApproximateDP, *, note: str, periods: Periods | None = None) -> None:
        """Replace the total by one that is smaller in nothing; a curator's act, recorded with its `note`.

        With `periods` it is granted in each from now on, the present one among them, or in more of the same length.
        """
        with self._writing() as book:
            self._agree(book)
            at, terms = self._turn(book)
            _refuse_less(terms, budget, total=total)
            calendar = extended(terms.calendar, periods, at=datetime.fromisoformat(at))
            terms = replace(terms, budget=budget, total=total, calendar=calendar)
            book.set_terms(terms)
            told = {**encode_terms(budget, total, certified=terms.certified), **encode_periods(terms.periods)}
            book.append("granted", {**told, "note": note}, at=at)
        self._terms = terms

    @release_on_interrupt
    def bump(self, note: str, *, to: int | None = None) -> int:
        """Raise the data version by one, or to `to` if it is below, and return it.

        An operator's act, never a function of the data; nothing is recorded where nothing is raised.
        """
        with self._writing() as book:
            self._agree(book)
            at, terms = self._turn(book)
            version = terms.data_version + 1 if to is None else max(to, terms.data_version)
            if version != terms.data_version:
                terms = replace(terms, data_version=version)
                book.set_terms(terms)
                self._fold(book)
                book.append("bumped", {"data_version": version, "note": note}, at=at)
        self._terms = terms
        return version

    @release_on_interrupt
    def divide(self, division: Division) -> None:
        """Record what gives each unit its value, where that is not the ledger's present division.

        Where another rule gave units their values, the most that was charged to one of them is charged to all. Raises
        `ledger-data` if the rule is the present one and the data are others, although the data version is the same.
        """
        with self._writing() as book:
            self._agree(book)
            known = self._history.division
            if known == division:
                return
            if known is not None and known.rule == division.rule:
                raise LedgerError(
                    "ledger-data",
                    "The data file is not the one of this data version, and budget_by needs one file for each.",
                    hint="After every change of the file, increment the version: dpsql data bump --note why.",
                )
            if not book.tell_divisions():
                raise LedgerError(
                    "ledger-older",
                    "The ledger has the format of an earlier version, without budgets of values.",
                    hint="Let the owner of its tables open it once with this policy.",
                )
            at, _ = self._turn(book)
            if known is not None:
                self._fold(book)
            book.append("divided", {"rule": division.rule, "data": division.data}, at=at)

    @release_on_interrupt
    def register(self, units: Mapping[str, str], *, note: str = "") -> dict[str, str]:
        """Record the privacy unit of each table that is new or declared otherwise than before; nothing is refunded.

        The unit of a public table is "", and one that was never private is left out. Returns what was recorded. Raises
        `ledger-unit` for a table that is declared otherwise in a ledger with a query, without a note.
        """
        with self._writing() as book:
            self._agree(book)
            known = _read_units(book)
            fresh = {table: unit for table, unit in units.items() if known.get(table, "") != unit}
            other = find_other_unit(known, fresh)
            if other is not None and not note and _has_query(book):
                raise other
            if fresh:
                at, _ = self._turn(book)
                book.append("registered", {"units": fresh, **({"note": note} if note else {})}, at=at)
            return fresh

    @release_on_interrupt
    def units(self) -> dict[str, str]:
        """Return the privacy unit of each table as it was declared last."""
        with self._reading() as book:
            return _read_units(book)

    @release_on_interrupt
    def tables(self, stamp: Hashable = None) -> tuple[int, tuple[NamedTable, ...]]:
        """Return the data version, and the tables that are stored under a name, the oldest first.

        What was read at a `stamp` that was taken just now is not asked for again.
        """
        findings, known = self._findings, stamp[0] if isinstance(stamp, tuple) else None
        if known is not None and findings.version == known and _TABLES in findings.results:
            found: tuple[int, tuple[NamedTable, ...]] = findings.results[_TABLES]
        else:
            found = self._recall(_TABLES)
        return found

    @release_on_interrupt
    def read_table(self, number: int) -> TableContent:
        """Return the content of the stored table of this number."""
        with self._reading() as book:
            self._agree(book)
            return _read_content(book, number)

    @release_on_interrupt
    def name_answer(self, name: str, content: TableContent, *, account: str | None, is_charged: bool = True) -> None:
        """Store an answer under a name of its account.

        What was not charged is written once for each name and data version, so that nothing free makes a ledger grow
        without bounds. Raises `Refusal` for the name of the answer to another question, and for too many names.
        """
        with self._writing() as book:
            self._agree(book)
            version, known = book.terms().data_version, find_named(self._history.tables, name, account=account)
            if known is not None:
                stored = _read_content(book, known.number)
                if stored.question != content.question:
                    raise refuse_taken(name)
                if known.data_version == version and (stored == content or not is_charged):
                    return
            else:
                refuse_many_names(self._history.tables, account)
            body = encode_table(name, account, data_version=version, content=content, most=MAX_NAMED_BYTES)
            self._store_table(book, "named", body=body)

    @release_on_interrupt
    def publish(
        self,
        name: str,
        content: TableContent,
        *,
        account: str | None,
        again: bool = False,
        data_version: int | None = None,
    ) -> bool:
        """Store a table for everybody; with `again` another one under the name of a published table.

        With a `data_version`, which is that of the content, a name has one table of it: return False, and store
        nothing, where another process has refreshed it. Raises `Refusal` for a name that is taken or, with `again`, not
        there, and for a data version that has ended.
        """
        with self._writing() as book:
            self._agree(book)
            version, last = book.terms().data_version, find_published(self._history.tables, name)
            if (last is not None) != again:
                raise refuse_unpublished(name) if again else refuse_taken(name)
            if data_version is not None and data_version != version:
                reason = "The data version was incremented while the table was made; nothing was published."
                hint = "Run it again: it is then made, and charged, for the new version."
                raise Refusal("answer-ended", reason, hint=hint)
            if last is not None and last.data_version == data_version:
                return False
            body = encode_table(name, account, data_version=version, content=content, most=MAX_PUBLISHED_BYTES)
            self._store_table(book, "published", body=body)
        return True

    @release_on_interrupt
    def withdraw(self, name: str) -> None:
        """Withdraw a published table, with all that were made of it before. Raises `Refusal` if there is none."""
        with self._writing() as book:
            self._agree(book)
            if find_published(self._history.tables, name) is None:
                raise refuse_unpublished(name)
            self._store_table(book, "withdrawn", body={"name": name})

    def _store_table(self, book: LedgerTransaction, kind: str, *, body: Body) -> None:
        if not book.tell_tables():
            raise LedgerError(
                "ledger-older",
                "The ledger has the format of an earlier version, without stored tables.",
                hint="Let the owner of its tables publish a table first.",
            )
        at, _ = self._turn(book)
        book.append(kind, body, at=at)

    def events(self) -> Iterator[Event]:
        """Yield the whole history, oldest first; check the link of each event to the one before it."""
        after, chain = 0, GENESIS
        while True:
            with self._reading() as book:
                # Each page is a transaction of its own, so that writers need not wait; the chain ties the pages
                # together.
                page = book.events(after, _PAGE)
            for event in page:
                if event.seq != after + 1:
                    raise unlinked(after + 1)
                refuse_unlinked(event, chain)
                after, chain = event.seq, event.chain
                yield event
            if len(page) < _PAGE:
                return

    @release_on_interrupt
    def _settle(self, held: Reservation, outcome: Outcome) -> Settled:
        """Record what a reservation cost, and free the rest of it; the settlement is durable when this returns."""
        with self._writing() as book:
            self._agree(book, held.account)
            if book.settlement(held.number) is not None:
                hint = "Reserve again for a new query."
                raise LedgerError("already-settled", "A reservation is settled exactly once.", hint=hint)
            key, version = held.question
            # The answer that the account received meanwhile comes first, and is free. Otherwise, where accounts share
            # answers, it is the first one of any account, at what that cost.
            repeated = _find_repeated(book, held) if outcome.answer else None
            if repeated is not None:
                outcome = repeated
            elif outcome.shared:
                outcome = _find_first(book, key, law=held.law, data_version=version) or outcome
            check_settlement(held.worst_case, outcome.loss)
            # delta is given back by a repeat alone, which released nothing new; an earlier dpsql does not know of that
            frees_delta = repeated is not None and book.tell_repeats()
            if not frees_delta:
                outcome = replace(outcome, repeats=None)
            at, terms = self._turn(book)

            def charge(state: BudgetState) -> BudgetState:
                state = Filter(terms.budget).settle(state, held.worst_case, loss=outcome.loss)
                freed = held.worst_case.permanent if frees_delta else 0
                return replace(state, permanent=state.permanent - freed)

            rise = self._measure_query(book, held, charge=charge, loss=outcome.loss)
            # a reservation of an earlier period is settled against that period, whose balances are gone
            if not held.values and (terms.calendar is None or terms.calendar.includes(held.number)):
                for holder in dict.fromkeys((None, held.account)):
                    book.set_balance(holder, charge(book.balance(holder)))
            told = encode_settlement(held.number, outcome, kept=repeated is None)
            if frees_delta:
                told["freed_delta"] = encode_fraction(held.worst_case.permanent)
            book.append("settled", told, at=at)
            if outcome.answer and repeated is None:
                book.keep(held.number, outcome.answer)
        # The transaction has ended: the charge and the answer are durable before anybody sees the answer.
        return Settled(outcome.answer, repeats=repeated is not None, rise=rise)

    def _measure_query(
        self,
        book: LedgerTransaction,
        held: Reservation,
        *,
        charge: Callable[[BudgetState], BudgetState],
        loss: Fraction,
    ) -> Rise:
        """Return by how much a query, with its settlement, raises the used share of its account.

        The share of a period that is over, or of values before a new data version, is gone: the larger of what the
        reservation raised, and of the most that the loss can have raised, is then the most of both together.
        """
        calendar, is_folded = book.terms().calendar, bool(held.values) and held.number <= self._history.folded
        if not is_folded and (calendar is None or calendar.includes(held.number)):
            rise = self._measure_rise(book, change=charge, account=held.account, limit=held.limit, values=held.values)
            return held.rise + rise
        limit = held.limit or book.terms().budget
        lost = BudgetState(spent=held.worst_case.refundable if is_folded else loss)
        states: dict[str, BudgetState] | None = {} if held.values else None
        rise = measure_rise(limit, BudgetState(), change=lambda _: lost, states=states, values=held.values)
        return held.rise.larger(rise)

    def _measure_rise(
        self,
        book: LedgerTransaction,
        *,
        change: Callable[[BudgetState], BudgetState],
        account: str | None,
        limit: BudgetVector | None,
        values: tuple[str, ...],
    ) -> Rise:
        """Return by how much a change, which is yet to be made, raises the used share of an account or of the total."""
        granted = limit or book.terms().budget
        states = None if self._history.division is None and not values else self._find_values(book, account)
        return measure_rise(granted, book.balance(account), change=change, states=states, values=values)

    def _agree(self, book: LedgerTransaction, account: str | None = None) -> None:
        """Read the new events, and check that terms, total and account are what all events add up to.

        Called at the beginning of an operation, before it writes, because its writes may be rolled back. Finds every
        change that was made to balances or events by other means since the ledger was opened. Raises
        `ledger-tampered`.
        """
        replay = self._history
        # the opening has read a history already, and this is the first operation
        if replay.seq > self._seen[0]:
            self._seen = replay.seq, replay.chain
        # the last event that was read must still be there: a chain covers all before it
        seq, chain = self._seen
        if seq and book.chain_at(seq) != chain:
            raise unlinked(seq)
        # A reading that is cut short, by damage or an interrupt, leaves half an event: the next begins at the first.
        while page := book.events(replay.seq, _PAGE):
            self._history = History()
            replay.read((event.seq, event.at, event.kind, event.body, event.chain) for event in page)
        self._history = replay
        self._failures.take(replay.failed)
        if book.terms() != replay.terms:
            raise tampered("its terms are not those of its events")
        for holder in dict.fromkeys((None, account)):
            if book.balance(holder) != replay.state(holder):
                raise tampered("its balances are not those of its events")

    def _find_values(self, book: LedgerTransaction, account: str | None) -> dict[str, BudgetState]:
        """Return what was charged for units of each value; nothing where this transaction has begun a period."""
        terms = self._history.terms
        is_same = terms is not None and book.terms().calendar == terms.calendar
        return self._history.values(account) if is_same else {}

    def _find_state(self, book: LedgerTransaction, account: str | None, *, values: Iterable[str] | None) -> BudgetState:
        """Return the state that decides on a query of these values, or of all where there are none."""
        states = {} if self._history.division is None else self._find_values(book, account)
        if not states:
            return book.balance(account)
        wanted = tuple(values or states)
        return add_largest(book.balance(account), (states[value] for value in wanted if value in states))

    def _fold(self, book: LedgerTransaction) -> None:
        """Charge the most that was charged to one value to all units, as reading the next event does."""
        for holder in self._history.holders_of_values:
            book.set_balance(holder, fold_values(book.balance(holder), self._find_values(book, holder).values()))

    def _turn(self, book: LedgerTransaction) -> tuple[str, LedgerTerms]:
        """Return time and terms for an operation that writes; the first one in a new period begins the period."""
        at, terms = now(self._clock), book.terms()
        present = self._present(terms, at)
        if present is None or present == terms.calendar:
            return at, terms
        # The event comes before anything else of the period: entries with a number above it belong to the period.
        since = book.append("period", {"number": present.number}, at=at)
        terms = replace(terms, calendar=replace(present, since=since))
        book.set_terms(terms)
        book.start_afresh()
        return at, terms

    def _present(self, terms: LedgerTerms, at: str | None = None) -> Calendar | None:
        """Return the calendar now, or at a given time."""
        if terms.calendar is None:
            return None
        return terms.calendar.at(datetime.fromisoformat(now(self._clock) if at is None else at))

    @release_on_interrupt
    def _seen_terms(self) -> LedgerTerms:
        """Return the terms; those that were seen last where the ledger is closed."""
        try:
            self._terms = self._recall(_TERMS)
        except LedgerError as error:
            if error.code != "ledger-closed":
                raise
        return self._terms


def _find_stored(book: LedgerTransaction, key: str, *, account: str | None, version: int) -> tuple[int, bytes] | None:
    """Return number and answer of the newest entry of this key, account and data version that has one; none for "".

    Versions only increase, so reading stops at the first entry of an earlier version, or at the first answer: a query
    may have been repeated with fresh noise very often.
    """
    for event in book.asked(key, account=account, version=version) if key else ():
        body = json.loads(event.body)
        if body["data_version"] < version:
            return None
        is_same = (body["key"], body["account"], body["data_version"]) == (key, account, version)
        if is_same and (answer := book.answer(event.seq)) is not None:
            return event.seq, answer
    return None


def _find_repeated(book: LedgerTransaction, held: Reservation) -> Outcome | None:
    """Return the outcome to repeat if the account of a reservation has received an answer since, else None.

    The release is then a function of that answer alone, and costs nothing more.
    """
    key, version = held.question
    if not held.repeated:
        return None
    found = _find_stored(book, key, account=held.account, version=version)
    settlement = None if found is None else book.settlement(found[0])
    if found is None or settlement is None:
        return None
    return Outcome(Fraction(0), json.loads(settlement.body)["digest"], found[1], repeats=found[0])


def _find_first(book: LedgerTransaction, key: str, *, law: str, data_version: int) -> Outcome | None:
    """Return the outcome of the entry of this key, law and data version that was settled with an answer first.

    What was reserved after a settlement is settled after it, so nothing is read beyond.
    """
    first: Event | None = None
    for event in book.first_asked(key, version=data_version) if key else ():
        if first is not None and first.seq < event.seq:
            break
        if _LAW.findall(event.body) != ([law] if law else []):
            continue
        found = book.settlement(event.seq)
        if found and json.loads(found.body)["answer"] and (first is None or found.seq < first.seq):
            first = found
    if first is None:
        return None
    told = json.loads(first.body)
    answer = book.answer(told["entry"])
    return None if answer is None else Outcome(decode_fraction(told["loss"]), told["digest"], answer)


def _read_units(book: LedgerTransaction) -> dict[str, str]:
    units = dict[str, str]()
    for event in book.registrations():
        units |= json.loads(event.body)["units"]
    return units


def _has_query(book: LedgerTransaction) -> bool:
    after = 0
    while events := book.events(after, 100):
        if any(event.kind == "reserved" for event in events):
            return True
        after = events[-1].seq
    return False


def find_other_unit(known: Mapping[str, str], units: Mapping[str, str]) -> LedgerError | None:
    """Return the refusal of the first table that is declared with another privacy unit than the known one."""
    table = next((name for name, unit in units.items() if known.get(name) and known[name] != unit), None)
    if table is None:
        return None
    now = f"and the policy says {units[table]}: what was answered so far does not protect the new one"
    if not units[table]:
        now = "and the policy says that the table is public: nobody in it is protected any more"
    return LedgerError(
        "ledger-unit",
        f'The privacy unit of "{table}" was {known[table]}, {now}.',
        hint="Write the former into the policy again; or, if the new one is meant, the curator runs: "
        'dpsql ledger units --note "why"',
        place=f"tables.{table}.{'privacy_unit' if units[table] else 'public'}",
    )


def find_named(tables: Sequence[NamedTable], name: str, *, account: str | None) -> NamedTable | None:
    """Return the newest answer that an account has under a name, in lower case or not."""
    for table in reversed(tables):
        if not table.is_published and table.account == account and table.name.lower() == name.lower():
            return table
    return None


def find_published(tables: Sequence[NamedTable], name: str) -> NamedTable | None:
    """Return the last table that was published under a name, in lower case or not."""
    for table in reversed(tables):
        if table.is_published and table.name.lower() == name.lower():
            return table
    return None


def _read_content(book: LedgerTransaction, number: int) -> TableContent:
    try:
        (event,) = book.events(number - 1, 1)
        return decode_table(json.loads(event.body))
    except (KeyError, ValueError) as error:
        raise tampered(f"event {number} has no table") from error


def refuse_many_names(tables: Sequence[NamedTable], account: str | None, *, place: Place | str | None = None) -> None:
    """Raise `Refusal` for an account that can name no further answer."""
    names = {each.name.lower() for each in tables if not each.is_published and each.account == account}
    if len(names) >= MAX_NAMES:
        reason = f"An account names at most {MAX_NAMES} answers."
        raise Refusal(
            "too-many-names", reason, hint="Leave the name out: the answer is stored without one.", place=place
        )


def refuse_taken(name: str, *, place: Place | str | None = None) -> Refusal:
    """Return the refusal of a name that a table has already."""
    hint = "Take another name; SHOW ANSWERS and SHOW TABLES list those that are taken."
    return Refusal("name-taken", f'The name "{name}" is taken.', hint=hint, place=place)


def refuse_unpublished(name: str) -> Refusal:
    """Return the refusal of a published table that is not there."""
    hint = "SHOW TABLES lists the published tables; a ledger that was restored from a backup has those of its day."
    return Refusal("not-published", f'No table "{name}" is published.', hint=hint)


def begin(book: LedgerTransaction, terms: LedgerTerms, *, at: str) -> LedgerTerms:
    """Write the first event of a ledger, and the present that it makes, which is returned; periods count from it."""
    terms = replace(terms, calendar=extended(None, terms.periods, at=datetime.fromisoformat(at)))
    book.set_terms(terms)
    book.start_afresh()
    told = {**encode_terms(terms.budget, terms.total, certified=terms.certified), **encode_periods(terms.periods)}
    book.append("created", {"data_set": terms.data_set, **told}, at=at)
    return terms


def new_terms(
    budget: BudgetVector, total: ApproximateDP, *, periods: Periods | None, certified: CertificateTerms
) -> LedgerTerms:
    """Return the terms of a new data set, with a name that no other has; periods count from what `begin` writes."""
    budget.require(certified.certificate)
    calendar = None if periods is None else Calendar(periods, datetime.min.replace(tzinfo=UTC))
    return LedgerTerms(uuid.uuid4().hex, budget, total, data_version=0, calendar=calendar, certified=certified)


def encode_request(request: Request, *, data_version: int) -> dict[str, object]:
    """Return the body of a reservation."""
    first, second = request.worst_case.certificate.currencies
    law = {"law": request.law} if request.law else {}
    return {
        **law,
        "query": request.query,
        first: encode_fraction(request.worst_case.refundable),
        second: encode_fraction(request.worst_case.permanent),
        "account": request.account.name if request.account else None,
        "key": request.key,
        "data_version": data_version,
        **({"values": sorted(set(request.values))} if request.values else {}),
    }


def encode_settlement(entry: int, outcome: Outcome, *, kept: bool = True) -> dict[str, object]:
    """Return the body of a settlement, with the digest of its stored answer or the entry that it repeats."""
    answer = hashlib.sha256(outcome.answer).hexdigest() if outcome.answer and kept else ""
    told = {"entry": entry, "loss": encode_fraction(outcome.loss), "digest": outcome.digest, "answer": answer}
    return told if outcome.repeats is None else {**told, "repeats": outcome.repeats}


def _refuse_less(terms: LedgerTerms, budget: BudgetVector, *, total: ApproximateDP) -> None:
    if terms.certified.fixes:
        raise LedgerError(
            "ledger-grant",
            f"With the certificate {terms.certified.certificate.value} the number of items is fixed for good, before "
            "anything is asked.",
            hint="Plan with the certificate zcdp or pure where more may be granted later.",
        )
    budget.require(terms.certified.certificate)
    less = (
        total.epsilon < terms.total.epsilon
        or total.delta < terms.total.delta
        or budget.refundable < terms.budget.refundable
        or budget.permanent < terms.budget.permanent
    )
    if less:
        raise LedgerError(
            "ledger-grant",
            f"The ledger has the total {terms.total} ({terms.budget} for queries); no part of it may become smaller.",
            hint="Grant the same or more.",
        )
