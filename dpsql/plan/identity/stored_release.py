"""Stored releases: a release as bytes, for the ledger that stores the answer it charged for, and back to an answer.

    dpsql release 2 <SHA-256 of the mark and the rest>
    {"key": ..., "release": ..., "items": ..., "reading": 2, "loss": ..., "bottom": ..., "terms": {...}, "keys": [...]}
    <an Arrow stream>

The table is the canonical one, as it was drawn; the answer to any query with the same release key is computed from it.
`keys` has the identity of each key (`identify_keys`), by which later queries find the names; older answers have none,
and their names are not known. Where no counts share a total the mark is "dpsql release 1", and no part of what is
hashed: earlier versions wrote, and read, no others.

Answers that 0.10 and the first 0.11 stored are found again by the keys that these versions gave them. Such an answer
stands under the digest of its release: the rows, the counted groups, and the mechanism with its parameters. A question
that names a mechanism is looked up under that release alone. One that names none is looked up under that of the
mechanism that the earlier version chose for it, and then of the others that it chose among; of these the newest answer
is found. Both versions released numbers of units alone, as TOP k.

A name that an answer released is public for good, on every version of the data and in every period. Names are found in
the answers that are stored for the account alone: the guarantee against one analyst says nothing of names that another
was given.

The cache has answers that cost nothing, for dashboards that repeat them. One is returned again only while the ledger
has the stamp that it had before the answer was made: no process has charged, granted, stored or deleted anything since.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Container, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dpsql.accounting import ZCDP
from dpsql.errors import LedgerError, Refusal, Unsupported
from dpsql.intervals import SharedNoise
from dpsql.ledger.base_ledger import Ledger
from dpsql.plan.identity.replay_key import (
    READING,
    UNREADABLE,
    MeasuredRows,
    compute_release_key,
    identify_keys,
    list_measured_rows,
    order_canonically,
)
from dpsql.plan.mechanisms.base import CountNoise, NoisyTotal
from dpsql.plan.mechanisms.names import ReleasedNames, arrow_type, int64_array, list_rows
from dpsql.plan.plan import Plan
from dpsql.plan.release import Release, ReleaseTerms, present
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.analysis.domains import count_covering_groups, find_group_query, find_partition_query
from dpsql.sql.ir.statements import Explained, Option, OuterSelect, PrivateQuery, PublicQuery, ReleasedDomain, Statement
from dpsql.sql.ir.tree import has_scan

if TYPE_CHECKING:
    import pyarrow as pa


_MARK, _SHARED_MARK = b"dpsql release 1 ", b"dpsql release 2 "  # the second where counts share a total
_PLAIN = ("mechanism", "k", "k_bar", "chooses", "partitions", "bounded_by")  # terms that JSON has as they are


@dataclass(frozen=True, slots=True)
class PackedRelease:
    """A release ready to be settled: the bytes to store, the digest of what is shown, and the amount to charge."""

    answer: bytes
    digest: str
    loss: Fraction


def pack_bytes(drawn: bytes, loss: Fraction) -> PackedRelease:
    """Return a release that is no table, with its loss, as the ledger settles it."""
    return PackedRelease(drawn, hashlib.sha256(drawn).hexdigest(), loss)


def pack_release(plan: Plan, release: Release, *, day: str, has_one_value: Callable[[], bool]) -> PackedRelease:
    """Return the release of `plan`, drawn on a day in UTC, as the ledger settles it.

    The sole key of the groups `has_one_value` for each unit, by the policy, or may have several.
    """
    loss, terms = plan.price(release.loss), release.terms
    facts = {
        "key": plan.key,
        "release": plan.release_key,
        "items": release.items_charged,
        "reading": READING,
        "loss": [str(loss.refundable), str(loss.permanent)],
        "bottom": release.stopped_at_bottom,
        "chosen": release.chosen,
        **({"legs": release.legs} if release.legs else {}),
        **({"known_before": release.known_before} if release.terms.known else {}),
        "terms": _encode_terms(terms),
        "keys": identify_keys(plan.query),
        "day": day,
        **({} if plan.series is None else {"series": plan.series}),
        **({} if release.prefix is None else {"prefix": release.prefix.value}),
        **({"cells": _describe_cells(plan, release)} if terms.noises and plan.query.partitions is None else {}),
        **({"disjoint": True} if terms.noises and has_one_value() else {}),
        "columns": release.table.column_names,
    }
    digest = hashlib.sha256(_write_table(release.table)).hexdigest()
    mark = _MARK if release.terms.total is None else _SHARED_MARK
    return PackedRelease(_write(facts, release.canonical, mark=mark), digest, loss.refundable)


def _describe_cells(plan: Plan, release: Release) -> dict[str, object]:
    """Return what decides which other questions the released numbers answer: all of it public.

    Their noise is `independent` of which groups are returned, or is not. The `total` that counts share is that of all
    units, or is not. Where the text tells that every row is in one of so many `groups`, that is their number.
    """
    query, rows = plan.query, next(list_measured_rows(plan.query))
    return {
        "measures": rows.measures,
        "keys": rows.keys,
        "independent": query.clause.shape != "top" or (plan.record.draws_after and not release.terms.evident),
        "total": query.counts_units_alone and query.domain is None and not plan.spec.rows.known,
        "groups": count_covering_groups(query),
    }


def derive_stored(stored: bytes, canonical: pa.Table, *, terms: ReleaseTerms, **changed: object) -> bytes:
    """Return the stored answer to another question, which follows from `stored`, with the facts that are `changed`."""
    read = _read(stored)
    facts = {**({} if read is None else read[0]), **changed, "terms": _encode_terms(terms)}
    return _write({name: each for name, each in facts.items() if each is not None}, canonical, mark=_MARK)


def is_same_release(plan: Plan, stored: bytes) -> bool:
    """Return whether stored bytes are an answer that was drawn as `plan` draws one; True for damaged ones, too."""
    known = _read(stored)  # `unpack` refuses a damaged answer, which is not charged again in silence
    return known is None or _is_release_of(known[0], plan)


def read_stored(stored: bytes) -> tuple[dict[str, Any], pa.Table] | None:
    """Return the facts of a stored answer and its canonical table; None for one that is not whole."""
    read = _read(stored)
    return None if read is None else (read[0], _read_table(read[1]))


def read_terms(facts: dict[str, Any]) -> ReleaseTerms:
    """Return the terms among the facts of a stored answer."""
    return _decode_terms(facts["terms"])


def _read(stored: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return the facts and the Arrow stream of a stored answer; None for one that is not whole."""
    head, _, content = stored.partition(b"\n")
    if head + b"\n" not in {_head(content, mark) for mark in (_MARK, _SHARED_MARK)}:
        return None
    facts, _, stream = content.partition(b"\n")
    return json.loads(facts), stream


def _is_release_of(known: dict[str, Any], plan: Plan) -> bool:
    return plan.release_key in (known.get("release"), known["key"])  # before 0.11 the key was that of the release


def unpack(plan: Plan, stored: bytes) -> Release:
    """Return a stored release as the answer to `plan`, at the cost at which it was drawn.

    Raises `LedgerError` for bytes that `pack_release` did not write, and for the release of another key.
    """
    read = _read(stored)
    if read is None:
        reason = "A stored answer is damaged, or another version of dpsql wrote it."
        raise LedgerError("ledger-answer", reason, hint="Run it with fresh = true: new noise, charged again.")
    known, stream = read
    if known["key"] not in (plan.key, *plan.named_keys) and not _is_release_of(known, plan):
        reason = "The stored answer is that of another query."
        raise LedgerError("ledger-answer", reason, hint="Run it with fresh = true: new noise, charged again.")
    canonical = _read_table(stream)
    rho, delta = known["loss"]
    # Under zcdp the stored amounts are rho and delta. Other certificates count another currency, so that the loss is
    # made again from the items.
    loss = plan.mechanism_plan.price.loss(known["items"], plan.delta) if plan.rule else ZCDP(Rho(rho), Delta(delta))
    chosen = known.get("chosen")  # older answers have none
    terms = ReleaseTerms.of(plan).choose(chosen)  # of an older answer too, whose key is that of the release
    if "terms" in known:
        terms = _decode_terms(known["terms"])
    shown, rows = present(plan, canonical, terms=terms)
    return Release(
        table=shown,
        canonical=canonical,
        rows=rows,
        terms=terms,
        loss=loss,
        items_charged=known["items"],
        stopped_at_bottom=known["bottom"],
        chosen=chosen,
        legs=known.get("legs", ""),
        known_before=known.get("known_before"),
    )


def list_columns(stored: bytes) -> list[str]:
    """Return the columns of a stored answer as they were shown; none for an older answer."""
    read = _read(stored)
    return [] if read is None else list(read[0].get("columns", ()))


def is_of_0_11(stored: bytes) -> bool:
    """Return whether an answer was stored before readings had numbers."""
    read = _read(stored)
    return read is not None and "reading" not in read[0]


def _encode_noise(noise: CountNoise) -> list[object]:
    known: list[object] = [str(noise.variance), None if noise.scale is None else str(noise.scale)]
    parts = noise.parts
    return known if parts is None else [*known, [str(parts.own), str(parts.shared), parts.factor]]


def _encode_terms(terms: ReleaseTerms) -> dict[str, object]:
    """Return terms as JSON has them, numbers exactly."""
    return {
        **{name: getattr(terms, name) for name in _PLAIN},
        "epsilon": str(terms.epsilon.value),
        "delta": str(terms.delta.value),
        "threshold_offset": str(terms.threshold_offset),
        "counts": None if terms.counts is None else _encode_noise(terms.counts),
        **({"others": list(map(_encode_noise, terms.others))} if terms.others else {}),
        **({"known": terms.known, "evident": terms.evident} if terms.known else {}),
        **({} if terms.total is None else {"total": [terms.total.value, str(terms.total.variance)]}),
    }


def _decode_noise(known: list[Any]) -> CountNoise:
    variance, scale, *more = known
    parts = [SharedNoise(Fraction(own), Fraction(shared), factor) for own, shared, factor in more]
    return CountNoise(Fraction(variance or 0), None if scale is None else Fraction(scale), next(iter(parts), None))


def _decode_terms(known: dict[str, Any]) -> ReleaseTerms:
    return ReleaseTerms(
        **{name: known[name] for name in _PLAIN},
        epsilon=Epsilon(known["epsilon"]),
        delta=Delta(known["delta"]),
        threshold_offset=Fraction(known["threshold_offset"]),
        counts=None if known["counts"] is None else _decode_noise(known["counts"]),
        others=tuple(map(_decode_noise, known.get("others", ()))),
        known=known.get("known", 0),
        evident=known.get("evident", False),
        total=None if (total := known.get("total")) is None else NoisyTotal(total[0], Fraction(total[1])),
    )


def _write(facts: dict[str, Any], canonical: pa.Table, *, mark: bytes) -> bytes:
    content = json.dumps(facts).encode("ascii") + b"\n" + _write_table(canonical)
    return _head(content, mark) + content


def _head(content: bytes, mark: bytes) -> bytes:
    start = b"" if mark == _MARK else mark
    return mark + hashlib.sha256(start + content).hexdigest().encode("ascii") + b"\n"


def _read_table(stream: bytes) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


def _write_table(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_AUTO_BEFORE_0_11 = ("limited_domain", "gaussian_histogram", "weighted_gaussian", "domain_discovery")
_KNOWN_DOMAIN = ("peeling",)
_GATED = frozenset(["gaussian_histogram", "weighted_gaussian", "domain_discovery", "joint"])
_WITH_POPULATION = frozenset(["limited_domain", "domain_discovery"])  # those preferred where few units were enough


def list_earlier_plans(
    query: PrivateQuery, build: Callable[[PrivateQuery], Plan], *, stored: Container[str]
) -> Iterator[tuple[str, Plan]]:
    """Yield the keys that are `stored` and may have an answer to a question, each with the plan of its release.

    First comes what the earlier version chose. The plans have the clause of the `query`, whatever their mechanism is.
    """
    if query.clause.shape != "top" or not query.counts_units_alone:
        return
    query = replace(query, names=None, key_values=None)  # k was that of the text
    option = query.clause.options.get("mechanism")
    is_auto = option is None or option.value == "auto"
    names: Sequence[str] = ()
    if is_auto and not query.clause.is_adaptive:
        names = _AUTO_BEFORE_0_11 if query.domain is None else _KNOWN_DOMAIN
    elif option is not None and option.value in _GATED:
        names = (str(option.value),)
    plans, clause = [] if names else [build(query)], query.clause
    for name in names:  # each mechanism that can answer the query; none had a gate in front
        options = {**clause.options, "mechanism": Option(name, clause.place, word=True)}
        if name in _GATED:
            options["gate"] = Option("false", clause.place, word=True)
        with suppress(Refusal, Unsupported):
            plans.append(build(replace(query, clause=replace(clause, options=options))))
    # The plan that would have been chosen is needed only where some stored answer can be the one.
    found = [(key, plan) for plan in plans if (key := compute_release_key(plan, as_in_0_10=True)) in stored]
    chosen = _find_chosen(plans) if found else None
    for key, plan in sorted(found, key=lambda each: each[1] is not chosen):
        yield key, replace(plan, query=replace(plan.query, clause=clause))


def _find_chosen(plans: Sequence[Plan]) -> Plan | None:
    """Return the plan that the earlier version chose: the least price, and of that the fewest units a group needs.

    Where the policy says how many units there are, the last of k groups was taken to have one k-th of them, and a
    mechanism that needs no more and ranks by counts went before the others.
    """
    predicted = [(plan, plan.need) for plan in plans]
    needs = [(plan, need) for plan, need in predicted if need is not None]
    usual = [(plan, need) for plan, need in needs if plan.mechanism != "domain_discovery"]
    if not usual:
        return None
    best, least = min(usual, key=lambda each: (each[1].items, each[1].units))
    if best.population is not None:
        for plan, need in needs:
            is_enough = need.units <= best.population / best.k and need.items <= least.items
            if plan.mechanism in _WITH_POPULATION and is_enough:
                return plan
    return best


MOST_NAMES = 100_000  # of the same keys: the oldest of them


@dataclass(slots=True)
class _Names:
    """Names of the same keys, each once, the oldest first; `seen` has their values."""

    table: pa.Table
    seen: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, table: pa.Table) -> None:
        """Add the names of another answer that are new."""
        import pyarrow as pa

        if table.schema.types != self.table.schema.types:
            return
        new = list[int]()
        for at, row in enumerate(list_rows(table)):
            # The order of arrival breaks ties between names, so that a name which is there stays where it is.
            if row in self.seen or len(self.seen) >= MOST_NAMES:
                continue
            if not any(isinstance(value, str) and UNREADABLE in value for value in row):
                self.seen.add(row)
                new.append(at)
        if new:
            self.table = pa.concat_tables([self.table, table.take(int64_array(new))]).combine_chunks()


@dataclass(slots=True)
class NamesOfAccount:
    """Names of one account, read from the ledger once; a later look reads what was stored since.

    The names stand under the identity of their keys in ascending order, which is the order of their columns, too. A
    query that does not say whether it uses names does so `by_default`, or not. The questions of each series that were
    answered have their keys by their k, with counts or without, and those that measured some rows have theirs by what
    was measured.
    """

    ledger: Ledger
    account: str | None
    by_default: bool = True
    _earlier: dict[str, None] | None = None
    _position: int = 0
    _has_answers: bool = False
    _found: dict[tuple[str, ...], _Names] = field(default_factory=dict)
    _series: dict[str, dict[tuple[int, bool], str]] = field(default_factory=dict)
    _measured: dict[str, dict[str, None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, query: PrivateQuery) -> PrivateQuery:
        """Return the query with the names of its keys that are known, if it may use any."""
        known = query.clause.options.get("known")
        if not isinstance(query.domain, ReleasedDomain):  # of other queries, TOP k of all groups may use names
            is_ranked = query.clause.shape == "top" and not query.clause.is_adaptive
            is_wanted = self.by_default if known is None else known.value != "false"
            if not (is_wanted and is_ranked) or query.domain is not None or query.partitions is not None:
                return query
        with self._lock:
            self._read()
            if not self._found:
                return query
            query = order_canonically(query)
            keys = identify_keys(query)
            found = self._found.get(tuple(sorted(keys)))
            table = None if found is None else found.table
        if table is None or not table.num_rows:
            return query
        order = sorted(range(len(keys)), key=keys.__getitem__)
        # Stored columns are in the order of the identities of their keys; `order.index(at)` is where key `at` stands
        # there.
        table = table.select([order.index(at) for at in range(len(keys))])
        # A column may have changed its type since its names were released: `'1'` is no name of an INTEGER.
        if list(table.schema.types) != [arrow_type(key.type) for key in query.keys]:
            return query
        return replace(query, names=ReleasedNames(table, evident=known is None or known.value != "all"))

    def earlier_keys(self) -> Collection[str]:
        """Return the keys of the answers that versions before 0.11 stored, on any version of the data."""
        if self._earlier is None:
            with self._lock:
                self._read()
        return self._earlier or ()

    def has_answers(self) -> bool:
        """Return whether any answer is stored, on any version of the data."""
        with self._lock:
            self._read()
            return self._has_answers

    def list_longer(self, series: str, k: int, *, has_counts: bool) -> list[tuple[int, str]]:
        """Return the larger k of a series that were answered, and the keys of these questions, in ascending order.

        Without counts those with counts are among them, also of the same k. They may have been answered on another
        version of the data.
        """
        with self._lock:
            self._read()
            every = self._series.get(series, {}).items()
            return sorted((each[0], key) for each, key in every if each > (k, has_counts) and each[1] >= has_counts)

    def list_measured(self, query: PrivateQuery) -> Iterator[tuple[MeasuredRows, str]]:
        """Yield what a query measures, with the keys of questions that measured it, in other groups or among others."""
        with self._lock:
            self._read()
            measured = {name: tuple(keys) for name, keys in self._measured.items()}
        for rows in list_measured_rows(query) if measured else ():
            for key in measured.get(rows.measures[0], ()):
                yield rows, key

    def _read(self) -> None:
        """Read the answers that were stored since the last look.

        Of those that a version before 0.11 stored the keys are kept.
        """
        position, answers = self.ledger.answers(self.account, self._position)
        earlier = {} if self._earlier is None else self._earlier
        self._has_answers |= bool(answers)
        for answer in answers:
            found = _read(answer)
            if found is None:
                continue
            known, stream = found
            if "series" in known:
                series, k = known["series"]
                self._series.setdefault(series, {})[k, known["terms"]["counts"] is not None] = known["key"]
            for name in known.get("cells", {}).get("measures", ()):
                self._measured.setdefault(name, {})[known["key"]] = None
            keys = known.get("keys", ())
            if not keys:
                earlier.update({} if "release" in known else {known["key"]: None})
                continue
            order = sorted(range(len(keys)), key=keys.__getitem__)
            table = _read_table(stream).select(order).rename_columns([f"key_{at + 1}" for at in range(len(keys))])
            self._found.setdefault(tuple(keys[at] for at in order), _Names(table.slice(0, 0))).add(table)
        self._position, self._earlier = position, earlier


Value = TypeVar("Value")
_MAX_ANSWERS = 64
_MAX_BYTES = 256 * 1024  # of the rows of one


@dataclass(frozen=True, slots=True)
class AnswerCache(Generic[Value]):
    """Answers of one session, at most 64, by the keys of their statements; threads may share it."""

    ledger: Ledger
    _known: dict[Hashable, tuple[Hashable, Value]] = field(default_factory=dict)

    def find(self, key: Hashable) -> Value | None:
        """Return the answer of a statement, or None if there is none that is right now."""
        known = self._known.get(key)  # once, as another thread may be replacing it
        return None if known is None else _choose(known, self.ledger.stamp())

    def peek(self, key: Hashable) -> Value | None:
        """Return the answer without waiting for the ledger; None also where the ledger cannot be read at once."""
        known = self._known.get(key)
        return None if known is None else _choose(known, self.ledger.peek_stamp())

    def add(self, key: Hashable, answer: Value, *, stamp: Hashable, size: int = 0) -> None:
        """Add an answer of `size` bytes; `stamp` is that of the ledger before the answer was made."""
        if stamp is None or size > _MAX_BYTES:
            return
        # A dict keeps the place of a key that is set again: popped first, it is the newest, and the oldest is dropped.
        self._known.pop(key, None)
        self._known[key] = stamp, answer
        if len(self._known) > _MAX_ANSWERS:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread may have
                del self._known[next(iter(self._known))]


def _choose(known: tuple[Hashable, Value], stamp: Hashable) -> Value | None:
    return known[1] if stamp is not None and known[0] == stamp else None


def is_repeatable(statement: Statement) -> bool:
    """Return whether the text and the ledger alone decide the answer of a statement that is free or stored.

    Rows of public tables may change, DuckDB's own functions may read a clock, and EXPLAIN draws noise.
    """
    match statement:
        case PublicQuery():
            return not has_scan(statement)
        case PrivateQuery(explained=Explained.NO, partitions=None, domain=None):
            return True
        case PrivateQuery(explained=explained):
            return not explained and find_partition_query(statement) is None and find_group_query(statement) is None
        case OuterSelect(inners=inners, beside=beside, is_deterministic=is_deterministic):
            return is_deterministic and not beside and all(map(is_repeatable, inners))
    return True
