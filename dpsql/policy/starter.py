"""Starter policy for a data set: a proposal of a privacy unit for each table, with the reason, written as TOML.

It comes from names and keys alone, and is never a silent guess. A table is decided when one column is clear and no
other is. Everything else is left to the curator: until a policy names a table, it does not exist for analysts.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.dialects import CsvFormat, propose_query
from dpsql.policy.model import Budget
from dpsql.policy.name_evidence import NO_IDS, find_identifier, find_people, judge_name
from dpsql.policy.settings import Limits
from dpsql.policy.source import DataSource
from dpsql.policy.toml import quote, spell
from dpsql.policy.validation import fold
from dpsql.quantities import Delta


def policy_names(tables: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what a policy calls each table, given by schema and name; those that no name means alone are left out.

    >>> policy_names([("main", "reads"), ("web", "reads"), ("main", "a.b"), ("a", "b"), ("a.b", "c")]).values()
    dict_values(['reads', 'web.reads', 'main.a.b'])
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for schema, table in tables:
        # A table "a.b" of main would be read as the table b of a schema a.
        name = table if schema == "main" and "." not in table else f"{schema}.{table}"
        spoken = fold(name).removeprefix("main.")  # what statements may say for it
        if "." not in schema and "\0" not in name and spoken not in taken:
            names[schema, table] = name
            taken.add(spoken)
    return names


_MEASURES = frozenset(["DOUBLE", "FLOAT"])


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the data: whether dpsql computes with its type, whether the type can name units, and a note."""

    name: str
    type: str
    readable: bool
    may_be_unit: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of the data, its name as a policy writes it, and its keys; the foreign ones lead to such names.

    `source` is the path of its file or folder as the policy writes it, "" for a table of a database. The types of a CSV
    file are `guessed` from its rows, and so is its format, `csv`, where it is not that of RFC 4180.
    """

    name: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...] = ()
    unique: frozenset[str] = frozenset()
    leads_to: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    guessed: bool = False
    csv: CsvFormat | None = None


@dataclass(frozen=True, slots=True)
class UnitCandidate:
    """A column that could be the privacy unit: how sure that is, and the reasons for and against."""

    column: FoundColumn
    is_clear: bool
    is_own_key: bool
    is_role: bool
    reasons: tuple[str, ...]
    is_near: bool = False

    @property
    def why(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons)

    @property
    def is_somebody(self) -> bool:
        """Whether it names a person, be it beside the one the row is about."""
        return self.is_clear or self.is_role


@dataclass(frozen=True, slots=True)
class Decision:
    """A table, the unit that was decided (None: left to the curator), and the other columns that could name someone.

    `through` is the column whose foreign key leads to a table of units when the table itself has none.
    """

    table: FoundTable
    unit: UnitCandidate | None
    others: tuple[UnitCandidate, ...]
    through: str | None = None

    @property
    def candidates(self) -> tuple[UnitCandidate, ...]:
        """The unit, if one was decided, and the others."""
        return self.others if self.unit is None else (self.unit, *self.others)

    @property
    def open_question(self) -> str:
        """Why the table was not decided, in one sentence."""
        clear = [candidate for candidate in self.others if candidate.is_clear]
        if len(clear) > 1:
            return f"{len(clear)} columns could be the privacy unit."
        if clear:
            return "The column that looks like the privacy unit has a type that cannot be one."
        if self.others:
            return "Only weak candidates for a privacy unit."
        if self.through is not None:
            return "Its rows seem to belong to units of another table."
        return "No column looks like a privacy unit."


def decide(tables: Sequence[FoundTable]) -> tuple[Decision, ...]:
    """Return a decision for every table, in the order given."""
    spread = Counter(fold(column.name) for table in tables for column in table.columns)
    decisions = {table.name: _decide(table, spread) for table in tables}
    ways = _ways(decisions)
    return tuple(replace(decision, through=ways.get(name)) for name, decision in decisions.items())


def _decide(table: FoundTable, spread: Mapping[str, int]) -> Decision:
    found = [candidate for column in table.columns if (candidate := _candidate(column, table, spread=spread))]
    found.sort(key=lambda candidate: (not candidate.is_clear, -len(candidate.reasons)))
    clear = [candidate for candidate in found if candidate.is_clear]
    own = [candidate for candidate in clear if candidate.is_own_key]
    if own and all(other.is_role for other in clear if other not in own):
        clear = own  # in a table of people, one row a unit, the others stand beside the one it is about
    if not clear and len(found) == 1 and found[0].is_near:
        clear = found  # no person is named; what comes near one is better than no unit, and its reason says so
    unit = clear[0] if len(clear) == 1 and clear[0].column.may_be_unit else None
    return Decision(table, unit, tuple(candidate for candidate in found if candidate is not unit))


def _candidate(column: FoundColumn, table: FoundTable, *, spread: Mapping[str, int]) -> UnitCandidate | None:
    """Return what the schema says for `column`, or None when it says nothing."""
    if column.type in NO_IDS:
        return None
    naming, target, people = judge_name(column.name), table.leads_to.get(column.name), find_people(table.name)
    leads = target is not None and find_people(target) is not None
    is_key = table.primary_key == (column.name,)
    is_own_key = is_key and people is not None
    is_person = naming is not None and naming.is_person
    unnamed_key = fold(column.name) == "id" and people is not None and not is_key
    if naming is None and not (leads or is_own_key or unnamed_key):
        return None
    if column.type in _MEASURES and not (leads or is_own_key or is_person):
        return None
    reasons = [] if naming is None else [naming.reason]
    reasons += _reasons_of_keys(column, table, leads_to=target if leads else None)
    if unnamed_key and not leads:
        reasons.append("usually a row's own key, in a table that seems to list people; but no key is declared")
    if naming is not None and (others := spread[fold(column.name)] - 1):
        reasons.append(f"the same name in {others} other {'table' if others == 1 else 'tables'}")
    return UnitCandidate(
        column,
        is_clear=leads or is_own_key or is_person,
        is_own_key=is_own_key
        and people != "account",  # a person may have several accounts, so an account outranks no person
        is_role=not is_own_key and (naming.is_role if naming else leads),
        reasons=tuple(reasons),
        is_near=naming is not None and naming.is_near,
    )


def _reasons_of_keys(column: FoundColumn, table: FoundTable, *, leads_to: str | None) -> Iterator[str]:
    if leads_to is not None:
        yield f"foreign key to {spell(leads_to)}, a table of people"
    if table.primary_key == (column.name,):
        listed = " of a table of people" if find_people(table.name) else ""
        yield f"primary key{listed}: one row for each unit"
    elif column.name in table.unique:
        yield "unique: one row for each unit"
    if not column.may_be_unit:
        yield f"but a {column.type} cannot be a unit" if column.readable else f"but dpsql does not read {column.type}"


def _ways(decisions: Mapping[str, Decision]) -> dict[str, str]:
    """Return the column by which each table leads, perhaps through others, to one with candidates, if it has none."""
    # orders -> customers -> households: each round finds the tables that lead to those of the rounds before
    about_people = {name for name, decision in decisions.items() if decision.candidates}
    ways: dict[str, str] = {}
    grew = True
    while grew:
        known = about_people | ways.keys()
        further = {
            name: column
            for name, decision in decisions.items()
            if name not in known
            for column, target in decision.table.leads_to.items()
            if target in known
        }
        ways |= further
        grew = bool(further)
    return ways


LEDGER = "ledger.sqlite"
_BUDGET = Budget(1.0, "1e-6")
_LIMITS = Limits()
_WIDTH = 118
_HEAD = """\
A starter policy for dpsql, written from the schema of {origin}: from names, types and keys. {rows}
A table that this file does not name does not exist for analysts. Commented lines that look like settings are choices.

Please read every line, and decide what no schema can say:
* Is every value of a privacy unit one person? Somebody with two ids is protected as two.
* Are ids given again to somebody else? Then two people are protected as one, and counted as one.
* Do rows tell of people under another column too: a recipient, a manager, a name in a text?
* Is a table without privacy units really public? Nothing in a public table is protected.
* How many units are there? delta must be far less than 1 divided by their number.
* Does epsilon suit? It is the total for every unit, over all queries and analysts, as long as the data is asked.
"""
_LEDGER_NOTE = "the record of what was spent, beside this file; a second ledger would be a second total"
_BUDGET_NOTES = {
    "epsilon": "total for every privacy unit, over all queries and analysts; 1 is a strong guarantee, 10 a weak one",
    "delta": "how likely the guarantee may fail, in all; far less than 1 / number of units",
    "items": "how many returned keys and counts this is meant to buy: sets the default epsilon of one",
    "queries": "how many queries it is meant to buy: sets the default delta of one",
}
_LIMIT_NOTES = {
    "max_epsilon": "the largest epsilon of one item",
    "min_epsilon": "the smallest",
    "max_delta": "the largest delta of one query; by default all that queries may draw from, half of the budget's",
    "max_k": "the most keys of one query",
    "default_k": "the keys of standard SQL that does not say how many it wants",
    "max_k_bar": "the most leading groups that a query may read",
    "max_rows_fetched": "the most rows that a query may fetch from an engine; not limited by default",
    "failures_per_day": "after so many queries that the engine failed, an analyst waits for a day",
    "consent": "true: run queries that can hardly return a row without being asked for consent",
    "share_replays": "true: the first answer to a query is that of all analysts, each of whom is charged for it",
}
_LIMIT_EXAMPLES = {"max_rows_fetched": 100_000}  # of those without a default
_SQL = ["# [sql]", "# implicit = true  # read standard SQL over private tables as private, as dashboards write it"]
_TIME = re.compile(r"DATE|TIMESTAMP")
_SUMMED = re.compile(r"DOUBLE|DECIMAL\(.*\)"), re.compile(r"(?:SMALL|BIG)INT|INTEGER")  # the likeliest first
_IDENTIFIER = re.compile(r"(?:^|_)(?i:id|no|nr|key|code)$|[a-z]Id$")
_UNNAMED = "No name in a policy would mean it alone: rename it, or make a view of it."
_UNREAD = "This view cannot be read: it names something that no longer exists, or a file outside the database."
_ELSEWHERE = "an environment variable or a file that the client of the engine reads"
_WITH_OPTIONS = "Add them below [source.options], and let only yourself read the file."
_WITH_ADDRESS = "url again, and let only yourself read the file"
_SECRETS = {
    "mysql": "$MYSQL_PWD",
    "mariadb": "$MYSQL_PWD",
    "redshift": "$PGPASSWORD or ~/.pgpass",
    **dict.fromkeys(["snowflake", "databricks", "trino"], _WITH_ADDRESS),
    "postgresql": "$PGPASSWORD or ~/.pgpass",
    "postgres": "$PGPASSWORD or ~/.pgpass",
    "sc": "$SPARK_CONNECT_AUTHENTICATE_TOKEN",
}
_UNKNOWN = 'privacy_unit = "..."  # the column that names the person of each row, if one does'
_PUBLIC = "public = true  # unprotected: your word that no row of it says anything about any unit"
_BEFORE_BOUNDS = (
    "# max_groups_contributed = 10  # count a unit in at most so many groups of a query: thresholds and counts sink",
    "# one_value_per_unit = []  # columns of which a unit has one value: the top of each value costs as one list",
)
_AFTER_BOUNDS = (
    "# min_units = 100  # release no group of fewer units than about this: a noisy rule, not an exact test",
    "# population = 10_000  # about how many units there are, if that is public: hopeless queries need consent",
)


@dataclass(frozen=True, slots=True)
class Found:
    """Facts about data: its file name, its tables, tables that no policy can name, broken views, and its engine if any.

    The URL and the options of the engine are written without passwords and tokens.
    """

    origin: str
    tables: tuple[FoundTable, ...]
    unnamed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    source: DataSource | None = None

    @property
    def secret_notes(self) -> list[str]:
        """What to do about passwords that the URL and the options had."""
        if self.source is None:
            return []
        notes = []
        if self.source.without_passwords() != self.source.url:
            place = _SECRETS.get(self.source.scheme, _ELSEWHERE)
            notes.append(f"The address had a password or a token, which is not written here. Put it into {place}.")
        hidden = sorted({*self.source.options} - {*self.source.options_without_secrets()})
        if hidden:
            names = ", ".join(map(quote, hidden))
            notes.append(f"Options that may be secret are not written here: {names}. {_WITH_OPTIONS}")
        return notes

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Tables that are left out, with the reasons."""
        return [(spell(name), _UNNAMED) for name in self.unnamed] + [(spell(name), _UNREAD) for name in self.unread]


@dataclass(frozen=True, slots=True)
class StarterPolicy:
    """A starter policy: the text of the file, and what was decided in it."""

    text: str
    decisions: tuple[Decision, ...]
    skipped: list[tuple[str, str]]
    has_url: bool = False
    secret_notes: Sequence[str] = ()

    @property
    def reading(self) -> str:
        """The rows that were read, in words."""
        guessed = any(decision.table.guessed for decision in self.decisions)
        return (
            "the rows of CSV files were read, to guess their format, and types, which analysts see."
            if guessed
            else "no row was read."
        )

    @property
    def names_sources(self) -> bool:
        """Whether the policy says itself where the data is."""
        return self.has_url or any(decision.table.source for decision in self.decisions)

    @property
    def first_query(self) -> str | None:
        """A query that the policy answers as it stands; None where no table was decided."""
        return next((text for decision in self.decisions if (text := _first_query(decision))), None)

    @property
    def bounds_columns(self) -> tuple[str, ...]:
        """A table and a column of it whose bounds can be suggested, for `dpsql bounds`; empty without a table."""
        decided = (decision for decision in self.decisions if decision.unit is not None)
        pairs = [(decision.table.name, find_number(decision)) for decision in decided]
        best = next((pair for pair in pairs if pair[1]), pairs[0] if pairs else ())
        return tuple(filter(None, best))

    def lines(self) -> list[str]:
        """Return for every table what was decided or why not, and what is left to do, for the terminal."""
        decided = sum(decision.unit is not None for decision in self.decisions)
        left = len(self.decisions) - decided
        told = [line for decision in self.decisions for line in _explain_decision(decision)]
        told += [
            f"{decision.table.name}.{column.name}: {column.note}."
            for decision in self.decisions
            for column in decision.table.columns
            if column.note
        ]
        told += [f"{name}: skipped. {why}" for name, why in self.skipped]
        told += self.secret_notes
        if not decided:
            end = "No table was decided, so this policy cannot be used yet: decide at least one in the file."
        else:
            end = f"Decided: {decided}. Left to you: {left}. What is not decided does not exist for analysts."
        return [*told, "", end]


def starter(found: Found) -> StarterPolicy:
    """Return the starter policy for what was found."""
    decisions = decide(found.tables)
    blocks = [
        _comment(_HEAD.format(origin=quote(found.origin), rows=_describe_reading(found))),
        [f'ledger = "{LEDGER}"  # {_LEDGER_NOTE}'],
    ]
    if found.source is not None:
        blocks += _list_source(found.source, found.secret_notes)
    blocks += [list(_budget()), list(_limits()), _SQL]
    blocks += [list(_decided(decision)) for decision in decisions if decision.unit is not None]
    blocks += [list(_undecided(decision)) for decision in decisions if decision.unit is None]
    blocks += [_comment(f"{name} is left out. {why}") for name, why in found.skipped]
    if not decisions:
        blocks.append(["# The database has no table that a policy could name."])
    text = "\n\n".join("\n".join(block) for block in blocks) + "\n"
    return StarterPolicy(
        text, decisions, found.skipped, has_url=found.source is not None, secret_notes=found.secret_notes
    )


def _list_source(source: DataSource, notes: Sequence[str]) -> Iterator[list[str]]:
    """Yield the blocks that name the engine, and its options."""
    url = f"url = {quote(source.without_passwords())}  # the engine that has the data"
    yield ["[source]", url, *(line for note in notes for line in _comment(note))]
    options = source.options_without_secrets()
    if options:
        yield ["[source.options]", *(f"{quote(name)} = {quote(value)}" for name, value in options.items())]


def _describe_reading(found: Found) -> str:
    if any(table.guessed for table in found.tables):
        return "Formats and types of CSV files were guessed from their rows; no other row was read."
    return "No row was read."


def _budget() -> Iterator[str]:
    yield "[budget]"
    values = (float(_BUDGET.epsilon), _short(_BUDGET.delta), _BUDGET.items, _BUDGET.queries)
    for (name, note), value in zip(_BUDGET_NOTES.items(), values, strict=True):
        yield f"{name} = {value}  # {note}"


def _limits() -> Iterator[str]:
    yield "# [limits]  # the most that one query may use; these are the defaults"
    most = Delta(_BUDGET.delta.value / 2) if _LIMITS.max_delta is None else _LIMITS.max_delta
    values = {
        **{name: getattr(_LIMITS, name) for name in _LIMIT_NOTES},
        "max_epsilon": float(_LIMITS.max_epsilon),
        "min_epsilon": float(_LIMITS.min_epsilon),
        "max_delta": _short(most),
        **_LIMIT_EXAMPLES,
    }
    for name, note in _LIMIT_NOTES.items():
        value = values[name]
        yield f"# {name} = {str(value).lower() if isinstance(value, bool) else value}  # {note}"


def _short(delta: Delta) -> str:
    # 1e-06 becomes 1e-6.
    return f"{float(delta):g}".replace("e-0", "e-")


def _decided(decision: Decision) -> Iterator[str]:
    if decision.unit is None:
        return
    yield f"[tables.{spell(decision.table.name)}]"
    yield from _source(decision.table)
    yield f"privacy_unit = {quote(decision.unit.column.name)}  # {decision.unit.why}"
    for other in decision.others:
        yield f"# not taken: {spell(other.column.name)}, {other.why}"
    yield from _settings(decision)


def _undecided(decision: Decision) -> Iterator[str]:
    table = decision.table
    yield from _comment(f"{spell(table.name)} is left to you. {decision.open_question} {_advice(decision)}")
    yield f"# [tables.{spell(table.name)}]"
    yield from (f"# {line}" for line in _source(table))
    for candidate in decision.others:
        clause = f"privacy_unit = {quote(candidate.column.name)}"
        # A candidate whose type cannot be a unit is commented twice, so that uncommenting the block does not choose it.
        yield f"# {clause if candidate.column.may_be_unit else '# ' + clause}  # {candidate.why}"
    if not decision.others and decision.through is None:
        yield f"# {_UNKNOWN}"
    if decision.through is not None:
        way = f"{decision.through} -> {table.leads_to[decision.through]}.KEY"
        yield f"# link = {quote(way)}  # in place of KEY, the unique column that it refers to"
    yield f"# {_PUBLIC}"
    yield from (f"# {line}" for line in _settings(decision))


def _advice(decision: Decision) -> str:
    if decision.through is not None:
        target = spell(decision.table.leads_to[decision.through])
        return f"They lead to {target} by {spell(decision.through)}: link them, once that table is decided."
    if any(candidate.column.may_be_unit for candidate in decision.others):
        return "Choose one privacy_unit, or public."
    if decision.others:
        return "Make a view that casts it to BIGINT or text, and name that."
    return "If a row can say anything about a person, it needs a column that names them."


def _columns(decision: Decision) -> Iterator[str]:
    """Yield the list of columns that analysts could use, and beside each what speaks against it."""
    units = {candidate.column.name for candidate in decision.candidates if candidate.column.may_be_unit}
    columns = decision.table.columns
    if not any(column.readable or column.name in units for column in columns):
        return
    typed = decision.table.guessed
    if typed:
        yield f"[tables.{spell(decision.table.name)}.columns]"
        yield "# the types were guessed from the rows, and analysts see them: check each"
    else:
        yield "columns = ["
    for column in columns:
        indent = "" if typed else "    "
        if column.readable or column.name in units:
            entry = f"{_key(column.name)} = {quote(column.type)}" if typed else f"{quote(column.name)},"
            note = column.note and f"  # {column.note}"
            yield f"{indent}{entry}{_remark(column, decision)}{note}"
        else:
            yield f"{indent}# {quote(column.name)} is left out: dpsql does not compute with {column.type}"
    if not typed:
        yield "]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote(name)


def _settings(decision: Decision) -> Iterator[str]:
    """Yield the columns and the bounds; columns with types are a table of TOML, so they come last."""
    if decision.table.guessed:
        yield from (*_bounds(decision), *_columns(decision), *_format(decision.table))
    else:
        yield from (*_columns(decision), *_bounds(decision))


_MARKS = {"\t": r'"\t"', "\r": r'"\r"'}


def _format(table: FoundTable) -> Iterator[str]:
    """Yield how a CSV file is written, for the loader, which guesses nothing."""
    if table.csv is None:
        return
    yield f"[tables.{spell(table.name)}.csv]"
    yield "# the format was guessed from the rows, too: from now on it is fixed, and a file with other rows is refused"
    for key, value in {"delim": table.csv.delim, **table.csv.written()}.items():
        match value:
            case bool() | int():
                yield f"{key} = {str(value).lower()}"
            case tuple():
                yield f"{key} = [{', '.join(map(quote, value))}]"
            case _:
                yield f"{key} = {_MARKS.get(str(value)) or quote(str(value))}"


def _bounds(decision: Decision) -> Iterator[str]:
    """Yield the bounds as comments, with columns of the table that they could be of."""
    columns, number = _list_others(decision), find_number(decision)
    time = next((each.name for each in columns if _TIME.fullmatch(each.type)), "")
    yield from _BEFORE_BOUNDS
    summed = f", {_key(number)} = {{ max = 500 }}" if number else ""
    yield f"# bounds = {{ rows = 20{summed} }}  # of a unit in a group: guesses, which dpsql bounds replaces"
    if time:
        days = "{ first = 2025-01-01, last = 2026-12-31 }"
        yield f"# calendar = {{ {_key(time)} = {days} }}  # days of a time series without bounds in WHERE"
        yield f"# not_null = [{quote(time)}]  # columns that are never NULL: no group of NULL is listed for them"
    yield from _AFTER_BOUNDS


def _list_others(decision: Decision) -> list[FoundColumn]:
    """Return the columns that analysts could use and that name no unit."""
    units = {candidate.column.name for candidate in decision.candidates}
    return [column for column in decision.table.columns if column.readable and column.name not in units]


def find_number(decision: Decision) -> str:
    """Return the column that is likeliest to be added up, "" where there is none."""
    numbers = (
        each.name
        for types in _SUMMED
        for each in _list_others(decision)
        if types.fullmatch(each.type) and not _IDENTIFIER.search(each.name) and not find_identifier(each.name)
    )
    return next(numbers, "")


def _source(table: FoundTable) -> Iterator[str]:
    if table.source:
        yield f"source = {quote(table.source)}"


def _remark(column: FoundColumn, decision: Decision) -> str:
    looks = find_identifier(column.name)
    if decision.unit is not None and column == decision.unit.column:
        return ""
    if decision.unit is not None and any(column == other.column and other.is_somebody for other in decision.others):
        return "  # looks like the id of another person, who is not protected here: consider leaving it out"
    return "" if looks is None else f"  # looks like {looks}: consider leaving it out"


def _first_query(decision: Decision) -> str | None:
    """Return a query for the most frequent values of the first column that looks like no id and no identifier."""
    unit = decision.unit
    if unit is None:
        return None
    named = {candidate.column.name for candidate in decision.candidates}
    keys = [
        column
        for column in decision.table.columns
        if column.readable and column.name not in named and find_identifier(column.name) is None
    ]
    # Columns without a remark and text first, and otherwise in the order of the table, as the sort is stable.
    keys.sort(key=lambda column: (column.note != "", column.type != "VARCHAR"))
    return propose_query(decision.table.name, key=keys[0].name, unit=unit.column.name) if keys else None


def _explain_decision(decision: Decision) -> Iterator[str]:
    name, unit = spell(decision.table.name), decision.unit
    if unit is None:
        yield f"{name}: left to you. {decision.open_question} {_advice(decision)}"
        yield from (f"    {spell(candidate.column.name)}: {candidate.why}" for candidate in decision.others)
        return
    yield f"{name}: unit {spell(unit.column.name)}, {unit.why}"
    doubtful = [spell(column.name) for column in decision.table.columns if _remark(column, decision)]
    if doubtful:
        yield f"    consider leaving out: {', '.join(doubtful)}"


def _comment(text: str) -> list[str]:
    """Return the text as comment lines, which a name cannot escape: names are written on one line."""
    wrapped = [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(paragraph, _WIDTH - 2, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    return [f"# {line}".rstrip() for line in wrapped]
