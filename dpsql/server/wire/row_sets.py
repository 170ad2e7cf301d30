"""Rows, while the client fetches them: those of an answer are kept as Arrow and encoded as they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpsql.server.wire.codec import Column, Malformed
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.types import columns_of, encoded

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowRows", "PlainRows", "Rows", "each_format", "fitted"]

Values = tuple[bytes | None, ...]
_AT_ONCE = 1_000  # rows that are encoded together
_BINARY = 1


class Rows(Protocol):
    """Rows that can be read again from anywhere."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What they are made of."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes they hold."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`, each column in its format."""
        ...


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ArrowRows:
    """The rows of an answer."""

    table: pa.Table

    @property
    def columns(self) -> tuple[Column, ...]:
        """What they are made of."""
        return columns_of(self.table.schema)

    @property
    def size(self) -> int:
        """About how many bytes they hold."""
        return int(self.table.nbytes)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`, each column in its format."""
        for at in range(start, stop, _AT_ONCE):
            part = self.table.slice(at, min(_AT_ONCE, stop - at))
            if not formats:
                yield from [()] * part.num_rows
                continue
            columns = [encoded(column, code) for column, code in zip(part.columns, formats, strict=True)]
            yield from zip(*columns, strict=True)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PlainRows:
    """Rows that are written out already, each column in the format of `written`."""

    columns: tuple[Column, ...]
    rows: Sequence[Values]
    written: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes they hold."""
        return sum(len(value or b"") for row in self.rows for value in row)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, start: int, stop: int, *, formats: Sequence[int]) -> Iterator[Values]:
        """Yield the rows from `start` up to `stop`; raises `WireError` for another format than they are written in."""
        if tuple(formats) != each_format(self.written, len(self.columns)):
            hint = "Fetch them in the format that they were first fetched in."
            raise WireError("0A000", "These rows are written in another format already.", hint=hint)
        yield from self.rows[start:stop]


def fitted(rows: Rows, schema: pa.Schema | None) -> Rows:
    """Return rows in the types that were described, before values were bound that could make them narrower.

    Raises `WireError` where a value does not fit, and says nothing of it.
    """
    if schema is None or not isinstance(rows, ArrowRows) or rows.table.schema.types == schema.types:
        return rows
    try:
        return ArrowRows(rows.table.cast(schema))
    except (ArithmeticError, ValueError, NotImplementedError):  # of which Arrow's errors are
        pass
    raise WireError("22003", "A value does not fit the type that was described.", hint="Cast it in the statement.")


def each_format(codes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the format of each of so many values, of the codes of a Bind: none, one for all, or one each."""
    if any(code not in {0, _BINARY} for code in codes):
        raise WireError("22023", "A format is neither text (0) nor binary (1).")
    if len(codes) > 1 and len(codes) != count:
        raise Malformed("There are more or fewer formats than values.")
    return (tuple(codes) or (0,)) * count if len(codes) < 2 else tuple(codes)  # noqa: PLR2004
