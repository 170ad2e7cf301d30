"""Protocol of the catalogs, which statements are for one, and the rows of their answers.

The session knows no system catalog, and a catalog refuses every statement that names a table of the policy. A statement
that is sent to the wrong one is therefore refused there.

Rows are encoded once, as messages of PostgreSQL's protocol in blocks of bytes, so that their size is what they hold,
and are sent unchanged. A catalog knows only the names and types of the policy's tables, so nothing here depends on a
row.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NoReturn, Protocol

from sqlglot import Token

from dpsql.errors import UsageError
from dpsql.sql.ir.catalog import Table
from dpsql.sql.lexer import MAX_TEXT_LENGTH, ascii_lower, read_words
from dpsql.sql.syntax.block import Block, kind_of, nest, walk

Values = Sequence[bytes | None]
PIECE = 64 * 1024  # bytes that are sent together
_FEW, _LARGE = 8, 1 << 20  # values of a row, and bytes of a value
_BLOCK = 256 * 1024  # bytes, after which the next block begins
_OF_BLOCK = 400  # bytes that Python needs for a block beside its data
_HEAD = struct.Struct("!ciH")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)
_COLUMN_SIZE = 160  # bytes that Python needs for a column beside its name
_LENGTHS = tuple(_LENGTH.pack(length) for length in range(1024))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class WireColumn:
    """Description of a column: its name, the OID of its type, and the size and modifier of the type."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1


def measure_columns(columns: Sequence[_Named]) -> int:
    """Return the bytes that descriptions of columns hold."""
    return sum(_COLUMN_SIZE + sys.getsizeof(column.name) for column in columns)


class RowBlocks:
    """Encoded rows, which can be read repeatedly, from any position; `size` is the number of bytes that they hold."""

    __slots__ = ("_blocks", "_starts", "size")

    def __init__(self, blocks: Sequence[tuple[bytes, array[int]]]) -> None:
        """Take blocks, each of its messages and the position in it behind each message."""
        self._blocks = tuple(blocks)
        self._starts = [0]
        for _, ends in self._blocks:
            self._starts.append(self._starts[-1] + len(ends))
        self.size = sum(_OF_BLOCK + len(data) + ends.itemsize * len(ends) for data, ends in self._blocks)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the values of each row."""
        return self.read(0, len(self))

    def read(self, start: int, stop: int) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the values of the rows from `start` up to `stop`."""
        for data, ends in self._find(start, stop):
            for first, last in pairwise(ends):
                values, at = list[bytes | None](), first + _HEAD.size
                while at < last:
                    (size,) = _LENGTH.unpack_from(data, at)
                    at += _LENGTH.size
                    values.append(None if size < 0 else data[at : at + size])
                    at += max(size, 0)
                yield tuple(values)

    def messages(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the messages of the rows from `start` up to `stop`, in pieces of at most `PIECE` bytes."""
        for data, ends in self._find(start, stop):
            for at in range(ends[0], ends[-1], PIECE):
                yield data[at : min(at + PIECE, ends[-1])]

    def _find(self, start: int, stop: int) -> Iterator[tuple[bytes, array[int]]]:
        """Yield the blocks of rows, each with the positions between its rows, from the first start to the last end."""
        at = bisect_right(self._starts, start) - 1
        while start < stop:
            data, ends = self._blocks[at]
            # `ends` has the position behind each row of the block; the first row begins at 0.
            first, last = start - self._starts[at], min(stop - self._starts[at], len(ends))
            yield data, array("I", [ends[first - 1] if first else 0]) + ends[first:last]
            at += 1
            start = self._starts[at]


class RowWriter:
    """Encoder of rows."""

    def __init__(self) -> None:
        self._blocks: list[tuple[bytes, array[int]]] = []
        self._data, self._ends = bytearray(), array("I")
        self._full_size = 0

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        return self._full_size + _OF_BLOCK + len(self._data) + self._ends.itemsize * len(self._ends)

    def add(self, row: Values) -> None:
        """Encode a row."""
        data = self._data
        start = len(data)
        data += _HEAD.pack(b"D", 0, len(row))
        if len(row) <= _FEW and any(len(value or b"") > _LARGE for value in row):  # it is not copied once more
            for part in split_row(row):
                data += part
        else:
            data += b"".join(split_row(row))
        # The length counts itself, and not the type before it.
        _LENGTH.pack_into(data, start + 1, len(data) - start - 1)
        self._ends.append(len(data))
        if len(data) >= _BLOCK:
            self._end_block()

    def extend(self, messages: memoryview, ends: Sequence[int]) -> None:
        """Add messages of rows, and the position in them behind each."""
        if len(messages) >= _BLOCK:  # they are not copied once more
            if self._ends:
                self._end_block()
            self._full_size = self.size + len(messages) + self._ends.itemsize * len(ends)
            self._blocks.append((bytes(messages), array("I", ends)))
            return
        start = len(self._data)
        self._data += messages
        self._ends.extend(start + end for end in ends)
        if len(self._data) >= _BLOCK:
            self._end_block()

    def _end_block(self) -> None:
        self._full_size = self.size
        self._blocks.append((bytes(self._data), self._ends))
        self._data, self._ends = bytearray(), array("I")

    def finish(self) -> RowBlocks:
        """Return all rows."""
        if self._ends:
            self._end_block()
        return RowBlocks(self._blocks)


def encode_rows(rows: Iterable[Values]) -> RowBlocks:
    """Encode rows."""
    writer = RowWriter()
    for row in rows:
        writer.add(row)
    return writer.finish()


def encode_row(row: Values) -> bytes:
    """Return the message of a row."""
    parts = list(split_row(row))
    return b"".join([_HEAD.pack(b"D", sum(map(len, parts)) + _HEAD.size - 1, len(row)), *parts])


def split_pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Yield messages in pieces of at most `PIECE` bytes, which together are the same."""
    for message in messages:
        for at in range(0, len(message), PIECE):
            yield message[at : at + PIECE]


def split_row(row: Values) -> Iterator[bytes]:
    """Yield the length of each value, and the value."""
    short = len(_LENGTHS)
    for value in row:
        if value is None:
            yield _NULL
        else:
            size = len(value)
            yield _LENGTHS[size] if size < short else _LENGTH.pack(size)
            yield value


Hold = Callable[[int], None]  # counts bytes that an answer holds, before they are held, and may wait; < 0 gives back


class CatalogError(Exception):
    """Error of a statement over system catalogs, with its SQLSTATE.

    `position` is the character of the statement that caused it, from 1, or None.
    """

    def __init__(self, sqlstate: str, message: str, *, hint: str = "", position: int | None = None) -> None:
        self.sqlstate, self.message, self.hint, self.position = sqlstate, message, hint, position
        super().__init__(sqlstate, message, hint, position)


def unavailable_error() -> UsageError:
    """Return the error for a PostgreSQL that dpsql cannot run."""
    hint = 'Write catalog = "none" in [server].'
    return UsageError("catalog-unavailable", "The PostgreSQL for catalogs cannot be run.", hint=hint)


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value of $1, $2, ... as the client sent it, or None for NULL; a `type_oid` of 0 leaves the type open."""

    value: bytes | None
    type_oid: int = 0
    is_binary: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """The types of a statement's parameters, as OIDs, and its columns."""

    parameters: tuple[int, ...]
    columns: tuple[WireColumn, ...]


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """The rows of an answer, each value as bytes in the requested format; `stored` tables were among the others."""

    columns: tuple[WireColumn, ...]
    rows: RowBlocks
    tag: str
    stored: tuple[Table, ...] = ()

    @property
    def size(self) -> int:
        """The bytes that the answer holds."""
        return self.rows.size + measure_columns(self.columns)


@dataclass(frozen=True, slots=True)
class Additions:
    """What only one statement sees: what the statements `definitions` create, and the `stored` tables of its user."""

    definitions: Sequence[str] = ()
    stored: tuple[Table, ...] = ()


NOTHING_ADDED = Additions()


class SystemCatalog(Protocol):
    """Catalog that answers statements over system catalogs; its methods block, and threads may share it."""

    @property
    def version(self) -> str:
        """The version of PostgreSQL that answers, such as "18.4"; the server reports the same."""
        ...

    @property
    def summary(self) -> str:
        """What the catalog is, in a few words, for the message at start."""
        ...

    def find_description(self, sql: str, types: Sequence[int] = ()) -> Description | None:
        """Return the description of a statement if it is known, or None; it does not block."""
        ...

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows | None:
        """Return the stored answer to a statement, right for its `stored` tables, or None; it does not block."""
        ...

    def describe(
        self,
        sql: str,
        types: Sequence[int] = (),
        *,
        user: str,
        added: Additions = NOTHING_ADDED,
    ) -> Description:
        """Return the parameters and columns of one statement; `types` are the OIDs that the client declared.

        `user` is the value of current_user. Raises `CatalogError`.
        """
        ...

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        added: Additions = NOTHING_ADDED,
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement; `formats` are those of a Bind message: none (text), one for all, or one a column.

        0 is text and 1 is binary. `hold` is called with the bytes of the rows while they are read; what it raises ends
        the statement. Raises `CatalogError`.
        """
        ...

    def close(self) -> None:
        """Release its resources; safe to repeat."""
        ...


_MAX_WORDS = 16_000
_SCHEMAS = frozenset(["pg_catalog", "information_schema"])
_STRINGS = frozenset(["STRING", "HEREDOC_STRING"])
_STARTS = frozenset(["select", "with", "values", "table"])
_BEFORE_TABLES = frozenset(["from", "join", "table"])
_NO_TABLE_YET = frozenset(["only", "lateral"])
_AFTER_TABLES = frozenset(
    "where group having order limit offset fetch union intersect except window select for".split()
)
_FROM_INSIDE = frozenset(["extract", "substring", "trim", "overlay", "position"])
_WORDS = frozenset("current_user session_user current_role current_catalog current_schema system_user user".split())
_TYPES = frozenset("regclass regtype regproc regprocedure regnamespace regrole regoper regoperator".split())
_FUNCTIONS = frozenset(
    """
    version current_schema current_schemas current_database current_setting set_config obj_description col_description
    shobj_description format_type quote_ident row_security_active getdatabaseencoding txid_current
    inet_client_addr inet_client_port inet_server_addr inet_server_port
    """.split()
)
_FAMILIES = re.compile(r"pg_\w+|to_reg\w+|has_\w+_privilege|txid_\w+")
# in the text of every statement for a catalog, and of few others
MAY_BE_CATALOG = re.compile(
    rf"pg_|information_schema|to_reg|has_|txid_|(?<![a-z_])(?:{'|'.join(_WORDS | _TYPES | _FUNCTIONS)})(?![a-z_0-9])",
    re.IGNORECASE | re.ASCII,
)


def is_catalog(sql: str, tables: Collection[str] = ()) -> bool:
    """Return whether a statement is for a `Catalog`, not for the session; `tables` are the names of the policy.

    It is if it reads a relation of pg_catalog or information_schema, or if it reads no relation and calls a function
    about the connection or types, such as version(). A statement with TOP k PRIVATE is for the session.
    """
    tokens = split_words(sql)
    if tokens is None:
        return False
    names, words = [*map(fold_name, tokens), "", ""], [*map(fold_word, tokens), "", ""]
    if any(words[at] == "top" and "private" in words[at + 1 : at + 3] for at in range(len(tokens))):
        return False
    if next((word for word in words if word != "("), "") not in _STARTS:
        return False
    relations, is_system = list[tuple[str, ...]](), False
    heads = set(_find_ctes(words))
    ctes = {names[at] for at in heads}
    private = {ascii_lower(name) for name in tables}
    for parts in _find_relations(tokens):
        if len(parts) > 1:
            is_system |= parts[-2] in _SCHEMAS
        elif parts[0] in ctes:
            continue
        else:  # a system catalog, unless the policy has the name
            is_system |= parts[0].startswith("pg_") and ascii_lower(parts[0]) not in private
        relations.append(parts)
    if relations:
        return is_system
    for at, name in enumerate(names[:-2]):  # does it call, name or cast to something that only a catalog has?
        before, after = words[at - 1] if at else "", words[at + 1]
        is_called = after == "(" and at not in heads and (name in _FUNCTIONS or _FAMILIES.fullmatch(name) is not None)
        is_word = after != "(" and words[at] in _WORDS and before not in {".", "as"}
        is_type = before in {"::", "as"} and name in _TYPES
        if is_called or is_word or is_type or (after == "." and name in _SCHEMAS):
            return True
    return False


def _find_ctes(words: Sequence[str]) -> Iterator[int]:
    """Yield the places of the names in WITH v AS (...), v (a, b) AS (...) and v AS [NOT] MATERIALIZED (...)."""
    starts = ("as", "("), ("as", "materialized", "("), ("as", "not", "materialized", "(")
    for at, word in enumerate(words):
        if any(tuple(words[at + 1 : at + 1 + len(start)]) == start for start in starts):
            # behind a list of columns, the word before AS is its closing parenthesis
            yield next((place for place in range(at, 0, -1) if words[place] == "("), 1) - 1 if word == ")" else at


def find_relations(sql: str) -> list[tuple[str, ...]]:
    """Return the names, in parts, of the relations that a statement reads; none of one that `split_words` refuses."""
    tokens = split_words(sql)
    return [] if tokens is None else list(_find_relations(tokens))


def split_words(sql: str) -> list[Token] | None:
    """Return the tokens of a statement except spaces and comments; None if one has no end, and for too many."""
    if len(sql) > MAX_TEXT_LENGTH:
        return None
    try:
        tokens = list(islice(read_words(sql, postgres=True), _MAX_WORDS + 2))
    except ValueError:
        return None
    is_empty = any(token.token_type.name == "IDENTIFIER" and not token.text for token in tokens)
    return None if is_empty or len(tokens) > _MAX_WORDS + 1 else tokens


def fold_name(token: Token) -> str:
    """Return a name, a word or a sign as PostgreSQL folds it; "" for a string."""
    kind = token.token_type.name
    return token.text if kind == "IDENTIFIER" else "" if kind in _STRINGS else ascii_lower(token.text)


def fold_word(token: Token) -> str:
    """Return a word that is not quoted, or a sign; "" for anything else."""
    return "" if token.token_type.name == "IDENTIFIER" else fold_name(token)


def _find_relations(tokens: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Yield the names, in parts, of the relations after FROM, JOIN, TABLE and their commas."""
    listed, called, is_next = set[int](), dict[int, str](), False  # `listed` are the nodes within whose FROM we are
    for nodes, at in walk(nest(tokens).nodes):
        node, before = nodes[at], nodes[at - 1] if at else None
        if isinstance(node, Block):  # a relation may also be due in parentheses
            called[id(node.nodes)] = "" if before is None or isinstance(before, Block) else fold_name(before)
            is_next = is_next and node.kind == "L_PAREN"
            continue
        word = fold_word(node)
        if is_next and _is_relation(node):
            parts = [fold_name(node)]
            while kind_of(nodes, at + 1) == "DOT" and at + 2 < len(nodes):
                at += 2  # noqa: PLW2901 - the last part
                part = nodes[at]
                parts.append("" if isinstance(part, Block) else fold_name(part))
            if kind_of(nodes, at + 1) != "L_PAREN":
                yield tuple(parts)
            is_next = False
        # FROM of EXTRACT(... FROM ...) and the like, and of IS DISTINCT FROM, has no relation
        is_operator = word == "from" and (
            called.get(id(nodes)) in _FROM_INSIDE
            or (before is not None and not isinstance(before, Block) and fold_word(before) == "distinct")
        )
        if word == ",":
            is_next = id(nodes) in listed
        elif word in _BEFORE_TABLES and not is_operator:
            is_next = True
            listed.add(id(nodes))
        elif word in _AFTER_TABLES or word == ")":
            listed.discard(id(nodes))
            is_next = is_next and word == ")"
        elif word not in _NO_TABLE_YET:
            is_next = is_next and word in {"with", "values"}


def _is_relation(token: Token) -> bool:
    """Say whether a token can name a relation: it is quoted, or no keyword."""
    if token.token_type.name == "IDENTIFIER":
        return True
    word = fold_word(token)
    return is_name_start(word) and word not in _STARTS | _NO_TABLE_YET | _AFTER_TABLES


def is_name_start(word: str) -> bool:
    """Return whether a token begins as names and keywords do, and no number or sign."""
    return word[:1].isalpha() or word[:1] == "_"


@dataclass(slots=True)
class CurrentCatalog:
    """The catalog of the policy in force, which a reload may replace."""

    current: SystemCatalog


class NoCatalog:
    """Catalog that has no tables; `reason` says why there is no PostgreSQL, for the message at start."""

    version = "18.0"

    def __init__(self, reason: str = 'The policy says catalog = "none".') -> None:
        self.summary = f"none, so tools that list tables get an error. {reason}"

    def find_description(self, sql: str, types: Sequence[int] = ()) -> None:
        """Return None: nothing is stored."""

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> None:
        """Return None: nothing is stored."""

    def execute(self, *_: object, **__: object) -> NoReturn:
        """Raise `CatalogError`: the statement reads a system catalog."""
        reason = "This server has no catalog, so it does not answer what reads pg_catalog or information_schema."
        hint = "SHOW TABLES lists the tables, and DESCRIBE a table its columns."
        raise CatalogError("0A000", reason, hint=hint)

    describe = execute

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
