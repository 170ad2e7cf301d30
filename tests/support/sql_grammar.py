"""A grammar of expressions over the nasty table, printed with as few parentheses as it takes to be ambiguous."""

from __future__ import annotations

from random import Random

__all__ = ["expression", "predicate"]

_NUMBERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "d", "dec", "dec18"]
_INTEGERS = ["i8", "i32", "i64", "u8", "u32", "i16"]
_LITERALS = ["0", "1", "-1", "2", "7", "-3", "1.5", "0.25", "10e0", "2147483647", "9007199254740993", "'12'", "NULL"]
_TEXTS = [
    "t",
    "tn",
    "e",
    "'a'",
    "''",
    "'ab%c_d'",
    "'12'",
    "lower(t)",
    "upper(tn)",
    "left(t, 2)",
    "i32::VARCHAR",
    "NULL",
]
_TIMES = [
    "ts",
    "day",
    "'2026-01-31'",
    "DATE '1970-01-01'",
    "TIMESTAMP '2024-02-29 12:00:00'",
    "day + 1",
    "ts::DATE",
    "ts - INTERVAL 1 DAY",
]
_COMPARE = ["=", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
_CASTS = ["BIGINT", "INTEGER", "SMALLINT", "DOUBLE", "VARCHAR", "DECIMAL(6,2)", "BOOLEAN", "UINTEGER"]
_NUMBER_CALLS = [
    "abs({})",
    "floor({})",
    "round({})",
    "sqrt({})",
    "sign({})",
    "trunc({})",
    "pow({}, 2)",
    "ln({})",
    "round({}, 1)",
]
_PATTERNS = ["'a%'", "'%b\\%c%'", "'_'", "''", "'A%'"]


def _maybe(random: Random, text: str) -> str:
    return f"({text})" if random.random() < 0.2 else text


def number(random: Random, depth: int) -> str:
    """Return the text of a numeric expression."""
    choice = random.randrange(12) if depth > 0 else random.randrange(4)
    if choice < 3:
        return random.choice(_NUMBERS)
    if choice == 3:
        return random.choice(_LITERALS)
    if choice < 8:
        operators = ["+", "-", "*", "/", "//", "%"]
        return _maybe(random, f"{number(random, depth - 1)} {random.choice(operators)} {number(random, depth - 1)}")
    if choice == 8:
        return f"- {number(random, depth - 1)}"
    if choice == 9:
        return f"{number(random, 0)}::{random.choice(_CASTS[:4])}"
    if choice == 10:
        return random.choice(_NUMBER_CALLS).format(number(random, depth - 1))
    return _either(random, number, depth)


def _either(random: Random, of: object, depth: int) -> str:
    """Return CASE, COALESCE, NULLIF or GREATEST over operands from `of`."""
    first, second = (of(random, depth - 1) for _ in range(2))  # type: ignore[operator]
    match random.randrange(5):
        case 0:
            return f"CASE WHEN {predicate(random, depth - 1)} THEN {first} ELSE {second} END"
        case 1:
            return f"CASE {first} WHEN {second} THEN {first} END"
        case 2:
            return f"coalesce({first}, {second})"
        case 3:
            return f"nullif({first}, {second})"
        case _:
            return f"greatest({first}, {second})"


def text(random: Random, depth: int) -> str:
    """Return the text of an expression of type VARCHAR."""
    choice = random.randrange(7) if depth > 0 else 0
    if choice < 3:
        return random.choice(_TEXTS)
    if choice == 3:
        last = f"({number(random, depth - 1)})" if random.random() < 0.3 else text(random, depth - 1)
        return _maybe(random, f"{text(random, depth - 1)} || {last}")
    if choice == 4:
        return f"concat({text(random, depth - 1)}, {text(random, depth - 1)})"
    if choice == 5:
        return f"CAST({number(random, depth - 1)} AS VARCHAR)"
    return _either(random, text, depth)


def predicate(random: Random, depth: int) -> str:  # noqa: C901 - one case per form of the grammar
    """Return the text of an expression of type BOOLEAN."""
    choice = random.randrange(14) if depth > 0 else random.randrange(3)
    if choice == 0:
        return random.choice(["b", "TRUE", "FALSE", "NULL", "b IS NULL"])
    if choice < 3:
        return f"{number(random, depth - 1)} {random.choice(_COMPARE)} {number(random, depth - 1)}"
    if choice < 6:
        both = predicate(random, depth - 1), predicate(random, depth - 1)
        return _maybe(random, f"{both[0]} {random.choice(['AND', 'OR', 'AND', '='])} {both[1]}")
    if choice == 6:
        return f"NOT {predicate(random, depth - 1)}"
    if choice == 7:
        return f"{predicate(random, depth - 1)} IS {random.choice(['TRUE', 'NOT TRUE', 'FALSE', 'NULL', 'NOT NULL'])}"
    if choice == 8:
        items = ", ".join(number(random, 0) for _ in range(random.randint(1, 3)))
        return f"{number(random, depth - 1)} {random.choice(['IN', 'NOT IN'])} ({items})"
    if choice == 9:
        low, high = number(random, depth - 1), number(random, depth - 1)
        return f"{number(random, depth - 1)} {random.choice(['', 'NOT '])}BETWEEN {low} AND {high}"
    if choice == 10:
        kind = random.choice(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
        escape = random.choice(["", " ESCAPE '\\'", " ESCAPE '!'"])
        subject = "t" if escape else text(random, depth - 1)  # with ESCAPE text is compared by its bytes
        return f"{subject} {kind} {random.choice(_PATTERNS)}{escape}"
    if choice == 11:
        return f"{random.choice(_TIMES)} {random.choice(_COMPARE)} {random.choice(_TIMES)}"
    if choice == 12:
        return f"{text(random, depth - 1)} {random.choice(_COMPARE)} {text(random, depth - 1)}"
    return f"({predicate(random, depth - 1)})"


def expression(random: Random, depth: int = 3) -> str:
    """Return the text of an expression of any type."""
    return random.choice([number, text, predicate, predicate])(random, depth)
