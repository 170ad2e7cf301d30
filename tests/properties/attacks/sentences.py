"""A grammar of whole private queries over the schema of the corpus, stable and unstable ones alike.

Every sentence says which constructs stand in it and what its privacy unit is called at the outermost level, so that a
reference can count it. Expressions are those of `sql_grammar.py`, with the columns in scope for the columns there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from support import sql_grammar

__all__ = ["Sentence", "sentence"]

_COLUMNS = {  # kinds of the columns that are not the unit
    "reads": {"article": "text", "country": "text", "ts": "time", "dwell": "real"},
    "likes": {"article": "text", "ts": "time"},
    "users": {"age": "whole", "city": "text"},
    "countries": {"country": "text", "continent": "text"},
    "articles": {"article": "text", "topic": "text"},
}
_UNITS = frozenset({"reads", "likes", "users"})
_KINDS = {
    **dict.fromkeys(["i8", "i16", "i32", "i64", "u8", "u16", "u32"], "whole"),
    **dict.fromkeys(["d", "dec", "dec18"], "real"),
    **dict.fromkeys(["t", "tn", "e"], "text"),
    **dict.fromkeys(["ts", "day"], "time"),
    "b": "truth",
}
_NASTY = re.compile(r"'(?:[^']|'')*'|\b(?:" + "|".join(_KINDS) + r")\b")
_SPARE = {"whole": "7", "real": "1.5", "text": "'DE'", "time": "TIMESTAMP '2026-01-31 10:00:00'", "truth": "TRUE"}
_VALUES = {
    "whole": ["0", "20", "-1", "2147483647"],
    "real": ["0", "31.5", "1e300", "-3.25"],
    "text": ["'DE'", "'a1'", "''", "'news'", "'Berlin'"],
    "time": ["TIMESTAMP '2026-02-01 00:00:00'", "DATE '2026-01-15'"],
}
_SPELL = {
    "whole": ["{0} % 3", "{0} // 10 * 10", "abs({0})", "coalesce({0}, 0)", "({0} & 7)", "xor({0}, -5)", "(~{0})"],
    "real": ["floor({0})", "round({0}, 1)", "{0} * 2", "CASE WHEN {0} > 30 THEN {0} END"],
    "text": ["upper({0})", "left({0}, 2)", "coalesce({0}, '?')", "concat({0}, '-')", "nullif({0}, 'a1')"],
    "time": ["date_trunc('day', {0})", "{0}::DATE", "{0} + INTERVAL 1 DAY"],
}
_TELLS_APART = ("row_number", "ntile", "lag", "lead", "first_value")
_OPTIONS = ["epsilon = 0.1", "k_bar = 100, max_groups_contributed = 2", "fresh = true"]


@dataclass(frozen=True)
class Sentence:
    """A private query: its text, its unit's name at the outermost level, and the names of what stands in it.

    It is `plain` when the reference can count it: nothing cuts the released rows, no order of rows decides.
    """

    text: str
    unit: str
    constructs: frozenset[str]
    plain: bool


@dataclass(frozen=True)
class _Source:
    """A relation in FROM: its text, its columns as they are called with their kinds, its unit if it has one.

    `units` are all its columns that are a unit, also those that an outer join may have left NULL.
    """

    text: str
    columns: tuple[tuple[str, str], ...]
    unit: str | None
    units: tuple[str, ...] = ()

    @property
    def tied(self) -> tuple[str, ...]:
        """Return the columns by which rows may meet others of their unit."""
        return self.units or ((self.unit,) if self.unit else ())


@dataclass
class _Speaker:
    """Makes one sentence; remembers what it used, and numbers what it names."""

    random: Random
    used: set[str] = field(default_factory=set)
    count: int = 0
    plain: bool = True
    ctes: list[str] = field(default_factory=list)

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def chance(self, odds: float) -> bool:
        return self.random.random() < odds

    def use(self, construct: str) -> None:
        self.used.add(construct)

    def pick(self, **odds: float) -> str:
        """Return one of the names, with these odds, and remember it."""
        name = self.random.choices(list(odds), list(odds.values()))[0].replace("_", " ")
        self.use(name)
        return name

    # ---- expressions ----

    def value(self, source: _Source, kind: str) -> str:
        """Return an expression of a kind."""
        held = [name for name, of in source.columns if of == kind]
        if not held:
            return _SPARE[kind]
        column = self.random.choice(held)
        chance = self.random.random()
        if chance < 0.65:
            return column
        if chance < 0.88 or kind == "time":
            return self.random.choice(_SPELL[kind]).format(column)
        self.use("expression")
        made = sql_grammar.text if kind == "text" else sql_grammar.number
        return f"({self.adapted(made(self.random, 2), source)})"

    def adapted(self, text: str, source: _Source) -> str:
        """Put columns in scope in the place of those of the nasty table."""

        def other(found: re.Match[str]) -> str:
            if found.group()[0] == "'":
                return found.group()
            kind = _KINDS[found.group()]
            held = [name for name, of in source.columns if of == kind]
            return self.random.choice(held) if held else _SPARE[kind]

        return _NASTY.sub(other, text)

    def condition(self, source: _Source, depth: int) -> str:
        """Return a condition on the rows of a source."""
        chance = self.random.random()
        if chance < 0.3 and depth > 0:
            return self.membership(source)
        if chance < 0.5:
            self.use("predicate")
            return self.adapted(sql_grammar.predicate(self.random, 2), source)
        column, kind = self.random.choice(source.columns)
        simple = f"{column} {self.random.choice(['=', '<>', '<', '>=', '>'])} {self.random.choice(_VALUES[kind])}"
        forms = [simple, simple, f"{column} IS NOT NULL", f"NOT ({simple})", f"({simple}) OR {column} IS NULL"]
        if source.unit and self.chance(0.1):
            return f"{source.unit} <> 3"
        return self.random.choice(forms)

    def membership(self, source: _Source) -> str:
        """Return EXISTS, IN or a comparison with a subquery, private and tied to the unit, loose, or public."""
        kind = self.pick(exists_tied=3, exists_loose=1, in_tied=3, in_loose=1, in_public=3, exists_public=1, scalar=1)
        column, of = self.random.choice(source.columns)
        no = self.random.choice(["", "", "NOT "])
        if kind in {"in public", "exists public", "scalar"} or source.unit is None:
            other = self.random.choice([("countries", "country"), ("articles", "topic"), ("articles", "article")])
            alias = self.name()
            inner = f"FROM {other[0]} AS {alias}"
            if kind == "scalar":
                return f"{self.value(source, 'text')} = (SELECT max({alias}.{other[1]}) {inner})"
            if kind == "exists public":
                return f"{no}EXISTS (SELECT 1 {inner} WHERE {alias}.{other[1]} = {self.value(source, 'text')})"
            return f"{self.value(source, 'text')} {no}IN (SELECT {alias}.{other[1]} {inner})"
        inner_source = self.relation(self.random.choice([0, 0, 1]), private=True)
        extra = f" AND {self.condition(inner_source, 0)}" if self.chance(0.5) else ""
        same = [name for name, other_kind in inner_source.columns if other_kind == of]
        unit, inner_unit = self.random.choice(source.tied), self.random.choice(inner_source.tied)
        if kind == "exists tied":
            return f"{no}EXISTS (SELECT 1 FROM {inner_source.text} WHERE {inner_unit} = {unit}{extra})"
        if kind == "in tied" and same and self.chance(0.3):
            where = f"WHERE {inner_unit} = {unit}{extra}"
            return f"{column} {no}IN (SELECT {self.random.choice(same)} FROM {inner_source.text} {where})"
        if kind == "in tied":
            self.plain = self.plain and (not no or unit == source.unit)  # the look-up of NULL is ours, not SQL's
            where = f" WHERE {extra[5:]}" if extra else ""
            return f"{unit} {no}IN (SELECT {inner_unit} FROM {inner_source.text}{where})"
        loose = f"{self.random.choice(same)} = {column}" if same else "TRUE"
        if kind == "exists loose" or not same:
            return f"{no}EXISTS (SELECT 1 FROM {inner_source.text} WHERE {loose}{extra})"
        return f"{column} {no}IN (SELECT {self.random.choice(same)} FROM {inner_source.text})"

    # ---- relations ----

    def relation(self, depth: int, *, private: bool) -> _Source:
        """Return something to stand in FROM."""
        if depth > 0 and self.chance(0.35):
            return self.join(depth - 1, private=private)
        if depth > 0 and self.chance(0.55):
            return self.derived(depth - 1, private=private)
        table = self.random.choice(sorted(_UNITS if private else _COLUMNS.keys() - _UNITS))
        alias = self.name()
        columns = tuple((f"{alias}.{name}", kind) for name, kind in _COLUMNS[table].items())
        sample = ""
        if self.chance(0.01):
            self.use("sample")
            sample = " TABLESAMPLE 100%"
        return _Source(f"{table} AS {alias}{sample}", columns, f"{alias}.user_id" if private else None)

    def derived(self, depth: int, *, private: bool) -> _Source:
        """Return a subquery in FROM, a CTE or a union."""
        alias, kinds = self.name(), [self.random.choice(["text", "whole", "real", "text"]) for _ in range(2)]
        unit = private and self.pick(unit_kept=29, unit_lost=1) == "unit kept"
        two = unit and self.chance(0.3)
        body = self.body(depth, kinds, private=private, unit=unit, two=two)
        if private and not two and self.chance(0.25):
            word = self.random.choice(["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT"])
            self.use(word.lower())
            body = f"{body} {word} {self.body(depth, kinds, private=not self.chance(0.05), unit=unit)}"
        text = f"({body}) AS {alias}"
        if self.chance(0.3):
            self.use("cte")
            self.ctes.append(f"{alias} AS ({body})")
            text = alias
        columns = tuple((f"{alias}.c{at}", kind) for at, kind in enumerate(kinds))
        units = (f"{alias}.user_id", f"{alias}.other") if two else ()
        return _Source(text, columns, f"{alias}.user_id" if private else None, units)

    def body(self, depth: int, kinds: Sequence[str], *, private: bool, unit: bool, two: bool = False) -> str:
        """Return the SELECT of a subquery with columns of these kinds, c0 and on, and the unit if asked, or two."""
        source = self.relation(depth, private=private)
        values = [self.value(source, kind) for kind in kinds]
        items = [f"{value} AS c{at}" for at, value in enumerate(values)]
        if unit:
            items.insert(0, f"{source.unit or '1'} AS user_id")
        if two:
            self.use("two units")
            items.insert(0, f"{self.random.choice(source.tied or ('1',))} AS other")
        where = f" WHERE {self.condition(source, depth)}" if self.chance(0.5) else ""
        form = self.pick(rows=8, distinct=1.5, grouped=2.5, window=2, limit_inside=0.3, qualify=0.4, listed=0.7)
        head, tail = "SELECT ", f" FROM {source.text}{where}"
        if form == "distinct":
            head += "DISTINCT "
        elif form == "listed":
            items[-1] = f"unnest([{values[-1]}, {self.value(source, kinds[-1])}]) AS c{len(kinds) - 1}"
        elif form == "grouped":
            items, tail = self.grouped(items, kinds, tail, values=values, unit=source.unit if unit else None)
        elif form == "window":
            items.append(f"{self.window(source)} AS rn")
        elif form == "qualify":
            tail += f" QUALIFY {self.window(source)} = 1"
        elif form == "limit inside":
            self.plain = False  # which rows are left is for the engine to choose
            tail += f" LIMIT {self.random.randint(0, 3)}"
        return (
            head + ", ".join(items) + tail
            if len(items) == len(kinds) + unit + two
            else self.numbered(head, items, tail)
        )

    def numbered(self, head: str, items: list[str], tail: str) -> str:
        """Return a subquery around another that has a window's column more, which a condition uses up."""
        names = [item.rsplit(" AS ", 1)[1] for item in items[:-1]]
        inner = f"{head}{', '.join(items)}{tail}"
        return f"SELECT {', '.join(names)} FROM ({inner}) AS {self.name()} WHERE rn <= {self.random.randint(1, 2)}"

    def grouped(
        self, items: list[str], kinds: Sequence[str], tail: str, *, values: list[str], unit: str | None
    ) -> tuple[list[str], str]:
        """Turn the last column into an aggregate where its kind allows, and group by the others."""
        self.use("grouped by unit" if unit else "grouped without unit")
        whole = {"whole": "CAST(COUNT(*) AS INTEGER)", "real": "MAX({})", "text": "MIN({})"}
        aggregate = whole[kinds[-1]].format(values[-1])
        if self.chance(0.2) and kinds[-1] != "whole":
            self.use("filtered aggregate")
            aggregate += f" FILTER (WHERE {values[0]} IS NOT NULL)"
        items = [*items[:-1], f"{aggregate} AS c{len(kinds) - 1}"]
        keys = ", ".join(str(at) for at in range(1, len(items)))
        having = " HAVING COUNT(*) > 1" if self.chance(0.2) else ""
        return items, f"{tail} GROUP BY {keys}{having}"

    def window(self, source: _Source) -> str:
        """Return a window function, over each unit's rows or over all."""
        tied = source.unit is not None and self.pick(window_by_unit=5, window_global=1) == "window by unit"
        order = [name for name, _ in source.columns]
        column = self.random.choice(order)
        function = self.random.choice(
            ["row_number()", "row_number()", "rank()", "dense_rank()", "ntile(2)", "COUNT(*)", f"COUNT({column})"]
            + [f"{name}({column})" for name in ("lag", "lead", "first_value", "MIN", "MAX")]
        )
        if self.chance(0.3):
            order = order[:1]
            self.plain = self.plain and not function.startswith(_TELLS_APART)
        partition = f"PARTITION BY {self.random.choice(source.tied)} " if tied else ""
        called = f"{function} OVER ({partition}ORDER BY {', '.join(order)})"
        if function.endswith(f"({column})") and not function.startswith("COUNT"):
            self.use("window of a column")
            return f"CAST({called} IS NULL AS INTEGER)"
        return called

    def join(self, depth: int, *, private: bool) -> _Source:
        """Return a join of two relations, of which the left is private if asked."""
        left = self.relation(depth, private=private)
        if self.chance(0.15):
            return self.unnested(left)
        right = self.relation(depth, private=private and self.chance(0.55))
        if right.text.count(" JOIN ") or "," in right.text.split("(")[0]:
            right = self.relation(0, private=right.unit is not None)
        kinds = {"inner": 6, "left": 3, "right": 1, "full": 1, "semi": 1.5, "anti": 1, "cross": 0.5}
        kind = self.pick(**kinds)
        if kind == "cross":
            units = left.tied + right.tied
            return _Source(
                f"{left.text} CROSS JOIN {right.text}", left.columns + right.columns, left.unit or right.unit, units
            )
        words = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
        word = words.get(kind, f"{kind.upper()} JOIN")
        on, unit = self.on(left, right), left.unit or right.unit
        if left.unit and right.unit and kind in {"right", "full"}:
            unit = right.unit if kind == "right" else f"coalesce({left.unit}, {right.unit})"
        if kind in {"semi", "anti"}:
            return _Source(f"{left.text} {word} {right.text} {on}", left.columns, unit, left.units)
        columns, units = left.columns + right.columns, left.tied + right.tied
        return _Source(f"{left.text} {word} {right.text} {on}", columns, unit, units)

    def unnested(self, left: _Source) -> _Source:
        """Return the rows of a relation, one for each item of a list."""
        self.use("unnest")
        alias, kind = self.name(), self.random.choice(["text", "text", "whole", "real"])
        items = [self.value(left, kind) for _ in range(self.random.choice([1, 2, 2, 3]))]
        word = self.random.choice([" CROSS JOIN ", " CROSS JOIN LATERAL ", " JOIN "])
        on = f" ON {alias}.item IS NOT NULL" if word == " JOIN " else ""
        text = f"{left.text}{word}unnest([{', '.join(items)}]) AS {alias}(item){on}"
        return _Source(text, (*left.columns, (f"{alias}.item", kind)), left.unit, left.units)

    def on(self, left: _Source, right: _Source) -> str:
        """Return the condition of a join, tied by the unit where both sides have one, most of the time."""
        pairs = [(a, b) for a, kind in left.columns for b, other in right.columns if kind == other]
        equal = "{} = {}".format(*self.random.choice(pairs)) if pairs else "TRUE"
        if not (left.unit and right.unit):
            return f"ON {equal}"
        form = self.pick(tied=6, using=1, tied_more=3, loose=1, tied_or=0.3)
        tie = f"{self.random.choice(left.tied)} = {self.random.choice(right.tied)}"
        if form == "using" and " JOIN " not in left.text:
            return "USING (user_id)"
        forms = {"tied more": f"{tie} AND {equal}", "loose": equal, "tied or": f"{tie} OR {equal}"}
        return f"ON {forms.get(form, tie)}"

    # ---- statements ----

    def statement(self) -> Sentence:
        """Return a whole private query."""
        source = self.relation(self.random.choice([0, 1, 2, 2]), private=True)
        kinds = self.random.choices(["text", "text", "whole", "real", "time"], k=self.random.choice([1, 1, 2]))
        held = [kind for kind in kinds if any(of == kind for _, of in source.columns)] or [source.columns[0][1]]
        keys = [self.value(source, kind) for kind in held]
        where = f" WHERE {self.condition(source, 1)}" if self.chance(0.5) else ""
        counted = self.chance(0.3)
        named_first = "named first" if self.chance(0.05) else ""
        self.used |= {named_first} - {""}
        items = [f"k{at}: {key}" if named_first else f"{key} AS k{at}" for at, key in enumerate(keys)]
        count = f"COUNT(DISTINCT {source.unit})"
        if counted and self.chance(0.3):
            self.use("filter")
            count += f" FILTER (WHERE {self.condition(source, 1)})"
        items += [f"{count} AS n"] * counted
        group = self.random.choice([", ".join(str(at + 1) for at, _ in enumerate(keys)), "ALL"])
        origin, select = f"FROM {source.text}{where}", ", ".join(items)
        options = self.random.choice(
            ["", "", "", "epsilon = 0.1", "k_bar = 100, max_groups_contributed = 2", "fresh = true"]
        )
        body, heading = self.clause(select, f"{origin} GROUP BY {group}", options), ""
        if self.ctes:
            heading = f"WITH {', '.join(self.ctes)} "
        body += self.released(counted=counted)
        text = f"{heading}{body}"
        if self.chance(0.05):
            self.use("wrapped")
            self.plain = False
            text = f"SELECT * FROM ({text}) AS answer LIMIT 5"
        return Sentence(text, source.unit or "", frozenset(self.used), self.plain)

    def clause(self, select: str, rest: str, options: str) -> str:
        """Return the query with its clause in one of its forms."""
        k = self.random.choice(["1", "10", "ADAPTIVE"])
        if options:
            self.use("options")
        form = self.pick(top_last=6, top_first=1)
        if form == "top first":
            return f"SELECT TOP {k} PRIVATE {select} {rest}" + (f" WITH ({options})" if options else "")
        having = ""
        if " AS n" in select and self.chance(0.3):
            self.use("having")
            self.plain, having = False, " HAVING n > 1"
        return f"SELECT {select} {rest}{having} TOP {k} PRIVATE" + (f" WITH ({options})" if options else "")

    def released(self, *, counted: bool) -> str:
        """Return ORDER BY and LIMIT over the released table."""
        if not self.chance(0.15):
            return ""
        self.use("order")
        return f" ORDER BY {'n DESC' if counted else 'k0'}{self.random.choice(['', ' LIMIT 3'])}"


def sentence(random: Random) -> Sentence:
    """Return a private query of the grammar."""
    return _Speaker(random).statement()
