"""Statements of a text, and the commands among them that the connection itself carries out.

Transactions, settings, cursors and COPY are recognised by their words alone. Everything else is a query, which the
session or the catalog reads. Strings, quoted names and comments are skipped as `dpsql.sql.lexer` skips them. A text
that is split wrongly here is refused by the language, which reads each statement whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from dpsql.server.wire.commands import (
    Begin,
    CloseCursor,
    Command,
    Commit,
    CopyOut,
    Deallocate,
    Declare,
    Discard,
    Fetch,
    Release,
    Reset,
    Rollback,
    Savepoint,
    Set,
    Show,
    TableLock,
    Unlisten,
    Unlock,
)
from dpsql.server.wire.sqlstates import WireError

__all__ = [
    "CommandReader",
    "ParsedStatement",
    "StatementText",
    "Word",
    "parse_command",
    "parse_statement",
    "split_statements",
]

_TOKEN = re.compile(
    r"""
      (?P<blank>     \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string>    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) )
    | (?P<dollar>    \$(?P<tag>[A-Za-z_]*)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<quoted>    "(?:[^"]|"")*(?:"|\Z) )
    | (?P<parameter> \$[0-9]+ )
    | (?P<number>    [0-9]+(?:\.[0-9]*)? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<sign>      . )
    """,
    re.VERBOSE | re.DOTALL,
)
_WRITES = frozenset(
    "INSERT UPDATE DELETE MERGE CREATE ALTER DROP TRUNCATE COMMENT GRANT REVOKE VACUUM ANALYZE ANALYSE REINDEX CLUSTER "
    "REFRESH IMPORT REASSIGN SECURITY CHECKPOINT".split()
)
_UNSUPPORTED = frozenset("LISTEN NOTIFY PREPARE EXECUTE CALL DO LOAD ATTACH DETACH USE PRAGMA INSTALL".split())
_SESSION_SHOWS = frozenset(["BUDGET", "FUNCTIONS", "TABLES"])  # which are queries of the session
_UNLOCK = "PG_ADVISORY_UNLOCK_ALL"
_SELECT_WORDS, _MAX_WORDS = 5, 20_000  # words read of a SELECT; of a command, more than a query may have


@dataclass(frozen=True, slots=True)
class Word:
    """One token: its kind, its text as written, and its first character's position."""

    kind: str
    written: str
    start: int

    @property
    def upper(self) -> str:
        """The word in capitals if it is a bare word, else an empty string."""
        return self.written.upper() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """The name or value meant: bare words in lower case, quoted names and strings without their quotes."""
        match self.kind:
            case "word":
                return self.written.lower()
            case "quoted":
                return self.written[1:-1].replace('""', '"')
            case "string":
                return self.written[self.written.index("'") + 1 : -1].replace("''", "'")
        return self.written


@dataclass(frozen=True, slots=True)
class StatementText:
    """One statement of a text, and the number of characters before it."""

    text: str
    before: int

    def slice(self, start: int, stop: int | None = None) -> StatementText:
        """Return the query inside this statement, from one character to another."""
        return StatementText(self.text[start:stop], self.before + start)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement and its command, which is None for a query."""

    source: StatementText
    command: Command | None

    @property
    def is_empty(self) -> bool:
        """Whether the statement has no text."""
        return not self.source.text


def read_words(text: str) -> Iterator[Word]:
    """Yield the tokens of a text except blanks and comments."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "sign"
        if kind != "blank":
            yield Word("dollar" if kind == "tag" else kind, found.group(), found.start())


def split_statements(text: str) -> list[StatementText]:
    """Split a text at its semicolons; statements without a word are left out."""
    statements, start, is_filled = list[StatementText](), 0, False
    for word in read_words(text):
        if word.written == ";":
            if is_filled:
                statements.append(StatementText(text[start : word.start], start))
            start, is_filled = word.start + 1, False
        else:
            is_filled = True
    if is_filled:
        statements.append(StatementText(text[start:], start))
    return statements


def parse_statement(source: StatementText) -> ParsedStatement:
    """Parse a statement into its command, or into a query; raise `WireError` for an unsupported statement."""
    return ParsedStatement(source, parse_command(source.text))


def parse_command(text: str) -> Command | None:
    """Return the connection's own command in a statement, or None for a query; raise `WireError` if unsupported."""
    first = next(read_words(text), None)
    verb = first.upper if first is not None else ""
    if verb in _WRITES:
        raise WireError("25006", "The data is read-only, and so is every transaction.", hint="Send a SELECT.")
    if verb in _UNSUPPORTED:
        hint = "Send the query itself; drivers prepare statements through the protocol."
        raise WireError("0A000", f"{verb} is not supported.", hint=hint)
    if verb not in _COMMANDS:
        return None
    reader = CommandReader(list(islice(read_words(text), _SELECT_WORDS if verb == "SELECT" else _MAX_WORDS)))
    return _COMMANDS[verb](reader)


class CommandReader:
    """Cursor over the words of a command, after its verb."""

    def __init__(self, words: list[Word]) -> None:
        self._words = words
        self._at = 1
        self.verb = words[0].upper

    def peek(self) -> str:
        """Return the next word in capitals, or the next sign, without passing it."""
        if self._at >= len(self._words):
            return ""
        word = self._words[self._at]
        return word.upper or (word.written if word.kind == "sign" else "")

    def accept(self, *names: str) -> str:
        """Pass the next word if it is one of these, and return it; else return an empty string."""
        word = self.peek()
        if not word or word not in names:
            return ""
        self._at += 1
        return word

    def expect(self, *names: str) -> None:
        """Pass the next word; raise `WireError` unless it is one of these."""
        if not self.accept(*names):
            raise self.syntax_error()

    def next_word(self) -> Word:
        """Return the next word; raise `WireError` at the end."""
        if self._at >= len(self._words):
            raise self.syntax_error()
        self._at += 1
        return self._words[self._at - 1]

    def read_name(self) -> str:
        """Return the value of the next word; raise `WireError` unless it is a name or a string."""
        word = self.next_word()
        if word.kind not in {"word", "quoted", "string"}:
            raise self.syntax_error()
        return word.value

    def read_number(self) -> int:
        """Return the next whole number, with its sign."""
        sign = -1 if self.accept("-") else 1
        self.accept("+")
        word = self.next_word()
        if word.kind != "number" or not word.written.isdigit() or len(word.written) > 18:  # noqa: PLR2004 - 64 bits
            raise self.syntax_error()
        return sign * int(word.written)

    @property
    def has_number(self) -> bool:
        """Whether a number comes next."""
        return self._at < len(self._words) and (self._words[self._at].kind == "number" or self.peek() in {"-", "+"})

    def read_until(self, sign: str) -> list[Word]:
        """Return the words before a sign, and pass the sign."""
        start = self._at
        while self.peek() != sign:
            self.next_word()
        self._at += 1
        return self._words[start : self._at - 1]

    def read_parenthesised(self) -> tuple[int, int]:
        """Pass text in parentheses, and return the positions of its first character and of its end."""
        start, depth = self.next_word().start + 1, 1
        while True:
            word = self.next_word()
            depth += {"(": 1, ")": -1}.get(word.written, 0) if word.kind == "sign" else 0
            if not depth:
                return start, word.start

    def read_relation(self) -> str:
        """Return a table name with its schema, as written."""
        written = self.next_word().written
        while self.accept("."):
            written += f".{self.next_word().written}"
        return written

    def read_rest(self) -> list[Word]:
        """Return all remaining words."""
        words, self._at = self._words[self._at :], len(self._words)
        return words

    def expect_end(self) -> None:
        """Raise `WireError` unless all words are read."""
        if self._at != len(self._words):
            raise self.syntax_error()

    def syntax_error(self) -> WireError:
        """Return the error for a command that cannot be parsed."""
        hint = f"Write it as in PostgreSQL's manual, page {self.verb}."
        return WireError("42601", f"The syntax of this {self.verb} is not supported.", hint=hint)


def _parse_select(reader: CommandReader) -> Command | None:
    """Return `Unlock` for SELECT pg_advisory_unlock_all(), and None for every other SELECT."""
    if reader.accept(_UNLOCK) and reader.accept("(") and reader.accept(")") and not reader.peek():
        return Unlock()
    return None


def _parse_transaction(reader: CommandReader) -> Command:
    """Parse the commands that begin and end transactions and savepoints."""
    match reader.verb:
        case "BEGIN" | "START":
            if reader.verb == "START":
                reader.expect("TRANSACTION")
            reader.read_rest()  # in any mode it is read-only and reads one version of the data
            return Begin("START TRANSACTION" if reader.verb == "START" else "BEGIN")
        case "SAVEPOINT" | "RELEASE":
            if reader.verb == "RELEASE":
                reader.accept("SAVEPOINT")
            name = reader.read_name()
            reader.expect_end()
            return Release(name) if reader.verb == "RELEASE" else Savepoint(name)
        case "ROLLBACK" | "ABORT":
            reader.accept("WORK", "TRANSACTION")
            if not reader.accept("TO"):
                return Rollback(_parse_chain(reader))
            reader.accept("SAVEPOINT")
            name = reader.read_name()
            reader.expect_end()
            return Rollback(savepoint=name)
    if reader.peek() == "PREPARED":
        raise WireError("0A000", "Prepared transactions are not supported.", hint="End the transaction with COMMIT.")
    return Commit(_parse_chain(reader))


def _parse_chain(reader: CommandReader) -> bool:
    """Return whether the rest of a COMMIT or ROLLBACK is AND CHAIN."""
    reader.accept("WORK", "TRANSACTION")
    if not reader.accept("AND"):
        reader.expect_end()
        return False
    is_negated = reader.accept("NO")
    reader.expect("CHAIN")
    reader.expect_end()
    return not is_negated


def _parse_lock(reader: CommandReader) -> Command:
    """Parse LOCK TABLE in the mode of reading, which pg_dump sends; nothing ever waits for it."""
    reader.accept("TABLE")
    is_next = True
    while is_next:
        reader.accept("ONLY")
        reader.read_relation()
        is_next = bool(reader.accept(","))
    words = [word.upper for word in reader.read_rest() if word.upper != "NOWAIT"]
    if words != ["IN", "ACCESS", "SHARE", "MODE"]:
        reason = "Every transaction is read-only, so only the lock ACCESS SHARE can be taken."
        raise WireError("25006", reason, hint="LOCK TABLE ... IN ACCESS SHARE MODE")
    return TableLock()


def _parse_set(reader: CommandReader) -> Command:
    scope = reader.accept("SESSION", "LOCAL")
    if reader.peek() == "CHARACTERISTICS" or reader.accept("TRANSACTION"):
        reader.read_rest()
        return Set("transaction", "")
    if reader.accept("AUTHORIZATION"):
        hint = "Log in as another user, or use SET ROLE as a service account."
        raise WireError("42501", "SET SESSION AUTHORIZATION is not allowed.", hint=hint)
    if reader.accept("CONSTRAINTS"):
        raise WireError("0A000", "SET CONSTRAINTS is not supported.", hint="Leave the statement out.")
    if reader.accept("NAMES"):
        name = "client_encoding"
    else:
        is_time_zone = reader.peek() == "TIME"
        name = _parse_setting_name(reader)
        if not is_time_zone and (name != "role" or reader.peek() in {"=", "TO"}):
            reader.expect("=", "TO")
    words = reader.read_rest()
    if not words:
        raise reader.syntax_error()
    if len(words) == 1 and words[0].upper in {"DEFAULT", "LOCAL"}:
        return Set(name, None, local=scope == "LOCAL")
    value = ""
    for word in words:
        blank = "" if not value or word.written == "," or value[-1:] in "-+ " else " "
        value += blank + word.value + (" " if word.written == "," else "")
    return Set(name, value.strip(), local=scope == "LOCAL")


def _parse_setting_name(reader: CommandReader) -> str:
    """Return the name of a setting, also of those that SQL writes in several words."""
    if reader.accept("TIME"):
        reader.expect("ZONE")
        return "timezone"
    name = reader.read_name()
    while reader.accept("."):
        name += f".{reader.read_name()}"
    return name.lower()


def _parse_reset(reader: CommandReader) -> Command:
    if reader.accept("ALL"):
        name = ""
    elif reader.accept("SESSION"):
        reader.expect("AUTHORIZATION")
        name = "session_authorization"
    else:
        name = _parse_setting_name(reader)
    reader.expect_end()
    return Reset(name)


def _parse_show(reader: CommandReader) -> Command | None:
    if reader.peek() in _SESSION_SHOWS:
        return None
    if reader.accept("SESSION"):
        reader.expect("AUTHORIZATION")
        name = "session_authorization"
    elif reader.accept("TRANSACTION"):
        reader.expect("ISOLATION")
        reader.expect("LEVEL")
        name = "transaction_isolation"
    else:
        name = _parse_setting_name(reader)
    reader.expect_end()
    return Show(name)


def _parse_declare(reader: CommandReader) -> Command:
    name, hold = reader.read_name(), False
    while not reader.accept("CURSOR"):
        if reader.peek() == "BINARY":
            hint = "Bind the statement with results in binary format."
            raise WireError("0A000", "Binary cursors are not supported.", hint=hint)
        reader.expect("INSENSITIVE", "ASENSITIVE", "NO", "SCROLL")
    if kind := reader.accept("WITH", "WITHOUT"):
        reader.expect("HOLD")
        hold = kind == "WITH"
    reader.expect("FOR")
    return Declare(name, reader.next_word().start, hold)


def _parse_fetch(reader: CommandReader) -> Command:
    """Parse FETCH or MOVE; cursors only run forwards, and ABSOLUTE goes back."""
    count: int | None = 1
    is_absolute = False
    match reader.accept("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD"):
        case "FIRST":
            is_absolute = True
        case "LAST":
            count, is_absolute = -1, True
        case "ABSOLUTE":
            count, is_absolute = reader.read_number(), True
        case "RELATIVE":
            raise WireError("0A000", "FETCH RELATIVE is not supported.", hint="Use FETCH n, or FETCH ABSOLUTE n.")
        case "PRIOR" | "BACKWARD":
            raise _backward_fetch()
        case "ALL":
            count = None
        case _ as direction:
            if direction == "FORWARD" and reader.accept("ALL"):
                count = None
            elif reader.has_number:
                count = reader.read_number()
                if count < 0:
                    raise _backward_fetch()
    reader.accept("FROM", "IN")
    name = reader.read_name()
    reader.expect_end()
    return Fetch(name, count, absolute=is_absolute, move=reader.verb == "MOVE")


def _backward_fetch() -> WireError:
    return WireError("0A000", "Cursors only run forwards.", hint="Use FETCH ABSOLUTE n to go back.")


def _parse_copy(reader: CommandReader) -> Command:  # noqa: C901, PLR0912 - the grammar of one command
    start, stop, relation = 0, 0, ""
    if reader.peek() == "(":
        start, stop = reader.read_parenthesised()
    else:
        relation = reader.read_relation()
    if not reader.accept("TO"):
        raise WireError("25006", "COPY FROM is not supported: the data is read-only.", hint=_COPY_HINT)
    if not reader.accept("STDOUT"):
        raise WireError("42501", "COPY to a file or a program is not supported.", hint=_COPY_HINT)
    reader.accept("WITH")
    options = dict[str, str]()
    if reader.accept("("):
        while not reader.accept(")"):
            name, value = reader.read_name().lower(), ""
            if reader.accept("("):
                value = "\0".join(word.value for word in reader.read_until(")") if word.written != ",")
            elif reader.peek() not in {",", ")"}:
                value = reader.next_word().value
            options[name] = value
            reader.accept(",")
    else:  # the options of PostgreSQL before version 9, without parentheses
        while name := reader.accept("BINARY", "CSV", "HEADER", "DELIMITER", "NULL", "QUOTE", "ESCAPE"):
            if name in {"BINARY", "CSV"}:
                options["format"] = name.lower()
            elif name == "HEADER":
                options["header"] = "true"
            else:
                reader.accept("AS")
                options[name.lower()] = reader.next_word().value
    reader.expect_end()
    return CopyOut(start, stop, relation, options)


def _parse_close(reader: CommandReader) -> Command:
    """Parse the commands that end cursors, prepared statements and notifications."""
    match reader.verb:
        case "UNLISTEN":
            reader.read_rest()
            return Unlisten()
        case "DISCARD":
            kind = reader.accept("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY")
            if not kind:
                raise reader.syntax_error()
            reader.expect_end()
            return Discard(kind)
        case "DEALLOCATE":
            reader.accept("PREPARE")
    name = "" if reader.accept("ALL") else reader.read_name()
    reader.expect_end()
    return Deallocate(name) if reader.verb == "DEALLOCATE" else CloseCursor(name)


_COPY_HINT = "COPY (SELECT ...) TO STDOUT."
_COMMANDS: dict[str, Callable[[CommandReader], Command | None]] = {
    **dict.fromkeys("BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE".split(), _parse_transaction),
    **dict.fromkeys("CLOSE DEALLOCATE DISCARD UNLISTEN".split(), _parse_close),
    **dict.fromkeys(["FETCH", "MOVE"], _parse_fetch),
    "SELECT": _parse_select,
    "SET": _parse_set,
    "RESET": _parse_reset,
    "SHOW": _parse_show,
    "DECLARE": _parse_declare,
    "COPY": _parse_copy,
    "LOCK": _parse_lock,
}
