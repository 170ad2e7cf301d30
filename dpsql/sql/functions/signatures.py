"""Checks of one call, which the rules of the allow-list use: its arguments, and the growth of text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dpsql.errors import Place, Refusal
from dpsql.sql.ir.tree import Call, Expression, Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Family, Type
from dpsql.sql.ir.unbound_parameters import fill_unbound

__all__ = [
    "COLUMN_CAP",
    "MAX_PATTERN_LENGTH",
    "MAX_VALUE_LENGTH",
    "NUMBERS",
    "TIMES",
    "PatternCheck",
    "Rule",
    "Site",
    "cap_length",
    "find_max_length",
    "type_longer_text",
]

COLUMN_CAP = 1_024  # characters of a stored text that enter a function which can make it longer
MAX_VALUE_LENGTH = 16 * 1_024  # characters, of at most four bytes each
MAX_PATTERN_LENGTH = 256
MAX_POSITION = 10_000
TIMES = frozenset({Family.DATE, Family.TIMESTAMP})
NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.DOUBLE})
_FIRST_CHOICES = (TEXT, DOUBLE, TIMESTAMP, BIGINT, BOOLEAN, DATE)  # for a parameter of unknown type
PatternCheck = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Site:
    """Call: its name as written, its arguments and its place."""

    name: str
    arguments: tuple[Expression, ...]
    place: Place
    accepts_pattern: PatternCheck
    now: Callable[[], datetime]

    def refuse(self, reason: str, hint: str) -> Refusal:
        """Return the refusal of this call."""
        return Refusal("function-arguments", f"{self.name}: {reason}", hint=hint, place=self.place)

    def count(self, least: int, most: int) -> None:
        """Refuse fewer or more arguments."""
        if not least <= len(self.arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            hint = "Write that many, with commas between them." if most else "Leave the parentheses empty."
            raise self.refuse(f"it takes {wanted} arguments.", hint)

    def of(self, index: int, families: frozenset[Family]) -> Expression:
        """Return an argument, which must be of one of the families."""
        wanted = next(type_ for type_ in _FIRST_CHOICES if type_.family in families)
        argument = fill_unbound(self.arguments[index], wanted)
        if argument.type.family not in families:
            names = " or ".join(sorted(family.value for family in families))
            raise self.refuse(f"argument {index + 1} must be {names}, not {argument.type}.", "Cast it with CAST.")
        return argument

    def text(self, index: int) -> Expression:
        """Return an argument, which must be text."""
        return self.of(index, frozenset({Family.TEXT}))

    def literal_text(self, index: int, *, such_as: str = "a") -> Literal:
        """Return an argument, which must be a quoted text; `such_as` is one that suits."""
        argument = fill_unbound(self.arguments[index], TEXT, such_as=Literal(such_as, TEXT, len(such_as)))
        if isinstance(argument, Literal) and isinstance(argument.value, str) and argument.type == TEXT:
            return argument
        raise self.refuse(f"argument {index + 1} must be a quoted text.", f"Write a text, such as '{such_as}'.")

    def literal_position(self, index: int, type_: Type = BIGINT) -> Literal:
        """Return an argument, which must be a whole number that no position in a text exceeds."""
        argument = fill_unbound(self.arguments[index], BIGINT, such_as=Literal(1, BIGINT))
        if isinstance(argument, Literal) and type(argument.value) is int and abs(argument.value) <= MAX_POSITION:
            return Literal(argument.value, type_)
        raise self.refuse(
            f"argument {index + 1} must be a whole number up to {MAX_POSITION}.", "Write a number, such as 10."
        )

    def pattern(self, index: int, *, flags: str = "") -> Literal:
        """Return an argument with `flags` before it, which must be a pattern that the engine compiles."""
        value = flags + str(self.literal_text(index).value)
        if len(value.encode()) > MAX_PATTERN_LENGTH or not self.accepts_pattern(value):
            reason = f"argument {index + 1} is not a pattern of RE2 of at most {MAX_PATTERN_LENGTH} bytes."
            raise self.refuse(reason, "Write a simpler one, such as '^a'.")
        return Literal(value, TEXT, len(value))


Rule = Callable[[Site], Expression]


def cap_length(argument: Expression) -> Expression:
    """Return a text argument cut to COLUMN_CAP where it is as long as what is stored."""
    if argument.longest is not None:
        return argument
    return Call("left", (argument, Literal(COLUMN_CAP, BIGINT)), TEXT, COLUMN_CAP)


def type_longer_text(function: str, arguments: tuple[Expression, ...], *, longest: int, place: Place) -> Call:
    """Return a text call whose result may have `longest` characters; refuse what could fill the memory."""
    if longest > MAX_VALUE_LENGTH:
        hint = "Nest fewer calls of replace and concat."
        raise Refusal("too-large", f"This text could exceed {MAX_VALUE_LENGTH} characters.", hint=hint, place=place)
    return Call(function, arguments, TEXT, longest)


def find_max_length(argument: Expression) -> int:
    """Return how many characters a bounded text can have."""
    return COLUMN_CAP if argument.longest is None else argument.longest
