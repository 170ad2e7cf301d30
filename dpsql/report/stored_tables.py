"""Tables that the ledger stores: answers by the names of their account, and published tables, which everybody reads.

Their rows were charged for when they were drawn, so that a SELECT over them is free. They are tables of the catalog:

    answers.weekly             the answer that this account named 'weekly', on the present version of the data
    weekly                     the last one that was published under this name
    "weekly@2026-11-27"        that of a day, in UTC; "weekly@2026-11-27#2" is the second of the day
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, cast

from dpsql.engines.arrow_types import find_type_name
from dpsql.errors import Place, Refusal
from dpsql.ledger.base_ledger import Ledger, find_named, refuse_many_names, refuse_taken
from dpsql.ledger.record import Entry, NamedTable, TableContent
from dpsql.plan import Plan
from dpsql.plan.identity.stored_release import list_columns
from dpsql.plan.outer_select import OuterSelectView, ResultView
from dpsql.report.balance import trace_rises
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.statements import PublicQuery
from dpsql.sql.ir.tree import Scan, parse_type
from dpsql.sql.lexer import ascii_lower

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.report.balance import Balance

ANSWERS = "answers"  # the schema of named answers
_INTERVAL_OF = "dpsql.interval_of"  # metadata of a column that is an end of the interval of another
AGREES = "dpsql.agrees"  # metadata of a column in which totals are the sums of their parts
_LOW, _HIGH = "_low", "_high"
_STORED = "dpsql stored"  # first part of the path of a stored table, which no engine has
NAME = re.compile(r"[^\W\d]\w{0,62}")
_NAMING = re.compile(  # the option as it is usually written, alone or among others
    r"\bWITH\s*\(\s*name\s*=\s*'\w+'\s*\)|\bname\s*=\s*'\w+'\s*,|,\s*name\s*=\s*'\w+'", re.IGNORECASE
)


@dataclass(slots=True)
class StoredTables:
    """Stored tables that an account may read; the content of each is read from the ledger once."""

    ledger: Ledger
    account: str | None
    _contents: dict[int, TableContent] = field(default_factory=dict)
    _tables: dict[int, pa.Table] = field(default_factory=dict)

    def list_tables(self, stored: tuple[int, Sequence[NamedTable]]) -> tuple[Table, ...]:
        """Return those that the account may read as tables of the catalog, the published ones first.

        `stored` is what the ledger has, and the present version of the data.
        """
        version, tables = stored
        found = {ascii_lower(name): self._describe(name, each) for name, each in name_versions(tables)}
        for each in tables:
            if not each.is_published and each.account == self.account:
                name, has_ended = f"{ANSWERS}.{each.name}", each.data_version != version
                found[ascii_lower(name)] = self._describe(name, each, has_ended=has_ended)
        return tuple(found.values())

    def _describe(self, name: str, stored: NamedTable, *, has_ended: bool = False) -> Table:
        columns = tuple((each.name, parse_type(find_type_name(each.type))) for each in self.read(stored.number).schema)
        content = self._contents[stored.number]
        comment = content.text if has_ended else describe_stored(stored, content, table=self._tables[stored.number])
        path = (_STORED, str(stored.number))
        kind = "published" if stored.is_published else "answer"
        return Table(name, path, columns, None, stored_kind=kind, has_ended=has_ended, comment=comment)

    def answer(self, query: PublicQuery) -> pa.Table | None:
        """Return the columns of a stored table that a query fetches; None for a query that reads another table."""
        if not is_stored(query):
            return None
        table = self.read(int(cast("Scan", query.body.source).path[1]))
        names = [name for name in query.names if name in table.column_names]
        return table.select(names) if names else _count_rows(table, query.names[0])

    def describe_days(self, queries: Sequence[PublicQuery]) -> str:
        """Return of which day the stored tables are that some queries fetch, and that their numbers have noise."""
        numbers = {int(cast("Scan", query.body.source).path[1]) for query in queries if is_stored(query)}
        if not numbers:
            return ""
        read = [each for each in self.ledger.tables()[1] if each.number in numbers]
        names = [each.name if each.is_published else f"{ANSWERS}.{each.name}" for each in read]
        days = [f"{name} is of {each.at.astimezone(UTC):%Y-%m-%d}" for name, each in zip(names, read, strict=True)]
        return f"{', '.join(days)}: released numbers have the noise of that day."

    def read(self, number: int) -> pa.Table:
        """Return the rows of the stored table of this number."""
        import pyarrow as pa

        if number not in self._tables:
            self._contents[number] = self.ledger.read_table(number)
            with pa.ipc.open_stream(self._contents[number].stream) as reader:
                self._tables[number] = reader.read_all()
        return self._tables[number]

    def find_content(self, number: int) -> TableContent:
        """Return the content of a stored table, with the words of its query."""
        self.read(number)
        return self._contents[number]


def is_stored(query: PublicQuery) -> bool:
    """Return whether a query fetches columns of a stored table."""
    return isinstance(query.body.source, Scan) and query.body.source.path[0] == _STORED


def name_versions(tables: Sequence[NamedTable]) -> Iterator[tuple[str, NamedTable]]:
    """Yield the published tables with their names: the last of each under its own, and each with its day."""
    last, days = dict[str, NamedTable](), defaultdict[tuple[str, str], list[NamedTable]](list)
    for stored in tables:
        if stored.is_published:
            last[ascii_lower(stored.name)] = stored
            days[ascii_lower(stored.name), f"{stored.at.astimezone(UTC):%Y-%m-%d}"].append(stored)
    for stored in last.values():
        yield stored.name, stored
    for (_, day), all_of_day in days.items():
        for at, stored in enumerate(all_of_day, 1):
            yield f"{stored.name}@{day}" + (f"#{at}" if at > 1 else ""), stored


def add_intervals(answer: Answer) -> pa.Table:
    """Return the table of an answer with the ends of the 95 % interval beside each released number.

    Of a number `users` they are `users_low` and `users_high`; none are added where a column has such a name.
    """
    import pyarrow as pa

    table, taken = answer.arrow(), {ascii_lower(name) for name in answer.columns}
    # From the last column to the first: what is added behind a column moves none that is still to come.
    for position, columns in sorted(answer.column_intervals().items(), reverse=True):
        name = table.column_names[position]
        if not any(ascii_lower(name) + end in taken for end in (_LOW, _HIGH)):
            for end, column in zip((_HIGH, _LOW), reversed(columns), strict=True):
                field = pa.field(name + end, column.type, metadata={_INTERVAL_OF: name})
                table = table.add_column(position + 1, field, column)
    return table


def describe_stored(stored: NamedTable, content: TableContent, *, table: pa.Table) -> str:
    """Return what a stored table is: the comment of its curator, its day and data version, intervals and SQL."""
    known = [(each.name, each.metadata or {}) for each in table.schema]
    found = [str(each[_INTERVAL_OF.encode()], "utf-8") for _, each in known if _INTERVAL_OF.encode() in each]
    agree = ", ".join(name for name, each in known if AGREES.encode() in each)
    made = f"{'Published on' if stored.is_published else 'Answer of'} {stored.at.astimezone(UTC):%Y-%m-%d} (UTC)"
    parts = [
        content.comment,
        f"{made} from version {stored.data_version} of the data; free to read.",
        *(f"{name}{_LOW} and {name}{_HIGH}: 95 % interval of {name}." for name in dict.fromkeys(found)),
        f"{agree}: totals are the sums of their parts, by least squares." if agree else "",
        f"SQL: {content.text.strip()}",
    ]
    return "\n".join(filter(None, parts))


def _count_rows(table: pa.Table, name: str) -> pa.Table:
    """Return a column of ones, as many as a table has rows."""
    import pyarrow as pa

    return pa.table({name: pa.array([1] * table.num_rows, pa.int64())})


class _Planned(Protocol):
    """A private query of a statement, with its plan."""

    @property
    def plan(self) -> Plan: ...


def find_name(parts: Sequence[_Planned], view: ResultView | OuterSelectView, *, stored: StoredTables) -> str:
    """Return the name that a statement gives its answer; "" for none.

    Raises `Refusal` for a name that cannot be one, for several, and for that of the answer to another question.
    """
    options = [each.plan.query.clause.options["name"] for each in parts if "name" in each.plan.query.clause.options]
    if not options:
        return ""
    name, place = options[0].value, options[0].place
    if options[0].word or not isinstance(name, str) or not NAME.fullmatch(name):
        hint = "Write a text of letters, digits and underscores, such as name = 'weekly'."
        raise Refusal("option", "name is a text of at most 63 characters.", hint=hint, place=place)
    other = next((option for option in options if option.value != name), None)
    if other is not None:
        hint = "Leave all but one out: the name is that of the whole statement's answer."
        raise Refusal("option", "This statement gives two names.", hint=hint, place=other.place)
    check_free(name, digest_question(parts, view), stored=stored, place=place)
    return name


def check_free(name: str, question: str, *, stored: StoredTables, place: Place | str | None) -> None:
    """Raise `Refusal` if the name is that of the answer to another question of this account."""
    tables = stored.ledger.tables()[1]
    known = find_named(tables, name, account=stored.account)
    if known is None:
        refuse_many_names(tables, stored.account, place=place)
    elif stored.ledger.read_table(known.number).question != question:
        raise refuse_taken(name, place=place)


def digest_question(parts: Sequence[_Planned], view: ResultView | OuterSelectView) -> str:
    """Return a digest of what a statement asks, in these words or in others."""
    around = "" if isinstance(view, ResultView) else f"{view.query.sql}\n{view.query.parameters!r}"
    return _digest([each.plan.key for each in parts], around)


def _digest(keys: Sequence[str], around: str = "") -> str:
    return hashlib.sha256("\n".join([*keys, around]).encode("utf-8", "replace")).hexdigest()


def store_answer(
    name: str, text: str, *, table: pa.Table, question: str, stored: StoredTables, is_charged: bool
) -> None:
    """Store an answer under a name of the account."""
    content = TableContent(text, write_stream(table), question)
    stored.ledger.name_answer(name, content, account=stored.account, is_charged=is_charged)


def write_stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _strip_name(text: str) -> str:
    """Return the words of a statement without the name that it gives its answer, and without its spaces."""
    return "".join(_NAMING.sub("", text).split())


def answers_table(stored: StoredTables, balance: Balance, *, now: datetime) -> pa.Table:
    """Return SHOW ANSWERS: the stored answers of an account on the present version of the data, the newest first.

    A name is NULL for an answer that has none. percent_used is by how much queries of these words raised the used share
    of the budget; NULL where all parts of a statement were answered before.
    """
    import pyarrow as pa

    ledger, account = stored.ledger, stored.account
    (version, tables), entries = ledger.tables(), ledger.entries()
    rises = trace_rises(entries, balance.limit, account=account)
    charged, keys = defaultdict[str, Decimal](Decimal), dict[str, Entry]()
    for entry in entries:
        if entry.account == account and entry.data_version == version and entry.key:
            charged[entry.query] += rises[entry.number].percent
            keys[entry.key] = entry
    # A statement may be named afterwards: it is found by the question of a query alone, or by its words.
    asked = {_digest([key]): entry.query for key, entry in keys.items()}
    words = {_strip_name(text): text for text in charged}
    own = [each for each in tables if not each.is_published and each.account == account]
    named = {ascii_lower(each.name): each for each in own if each.data_version == version}
    rows, texts = list[tuple[str | None, str, datetime, str | None, float | None]](), set[str]()
    for each in named.values():
        content, columns = stored.find_content(each.number), ", ".join(stored.read(each.number).column_names)
        text = asked.get(content.question, words.get(_strip_name(content.text)))
        text = content.text if content.text in charged else text
        price = None if text is None else float(charged[text])
        texts |= {content.text, text or ""}
        rows.append((each.name, content.text, each.at, columns, price))
    for key, entry in keys.items():
        is_other = entry.settlement is not None and entry.query not in texts
        answer = ledger.stored(key, account) if is_other else None
        if answer is not None:
            texts.add(entry.query)
            columns = ", ".join(list_columns(answer))
            rows.append((None, entry.query, entry.opened_at, columns or None, float(charged[entry.query])))
    rows.sort(key=lambda row: row[2], reverse=True)
    names, queries, times, outputs, percents = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return pa.table(
        {
            "name": pa.array(names, pa.string()),
            "query": pa.array(queries, pa.string()),
            "asked_at": pa.array(times, pa.timestamp("us", "UTC")),
            "days": pa.array([(now - at).days for at in times], pa.int64()),
            "columns": pa.array(outputs, pa.string()),
            "percent_used": pa.array(percents, pa.float64()),
        }
    )
