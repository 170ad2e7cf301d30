"""Statements of a text, and the commands among them that the connection itself carries out.

Transactions, settings, cursors, prepared statements and COPY are recognised by their words alone. Everything else is a
query, which the session or the catalog reads. Strings, quoted names and comments are skipped as `dpsql.sql.lexer` skips
them. A text that is split wrongly here is refused by the language, which reads each statement whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from dpsql.dialects import quote_name
from dpsql.server.wire.codec import WireError
from dpsql.server.wire.commands import (
    Begin,
    CancelBackend,
    CloseCursor,
    Command,
    CommandReader,
    Commit,
    CopyOut,
    CreateView,
    Deallocate,
    Declare,
    Discard,
    DropView,
    Execute,
    Explain,
    Fetch,
    NoEffect,
    Prepare,
    ReleaseSavepoint,
    Reset,
    Rollback,
    Savepoint,
    Set,
    SetConfig,
    Show,
    TableLock,
    Unlock,
    parse_argument,
    parse_list,
    parse_type,
    value_of,
    word_of,
)
from dpsql.sql.lexer import read_words
from dpsql.sql.syntax.block import kinds_of

_WRITES = frozenset(
    "INSERT UPDATE DELETE MERGE ALTER TRUNCATE COMMENT GRANT REVOKE VACUUM ANALYZE ANALYSE REINDEX CLUSTER "
    "REFRESH IMPORT REASSIGN SECURITY CHECKPOINT".split()
)
_UNSUPPORTED = frozenset("NOTIFY CALL DO LOAD ATTACH DETACH USE PRAGMA INSTALL".split())
_SESSION_SHOWS = frozenset(["ANSWERS", "BUDGET", "FUNCTIONS", "TABLES"])  # which are queries of the session
_MAX_STATEMENTS = 1_000  # of one text
_MAX_WORDS = 20_000  # words read of a command, more than a query may have
_FIRST_WORDS = {"SELECT": 16, "EXPLAIN": 64}  # of those that are mostly a query
_LOCKING = re.compile(r"\bFOR\s+(?:READ\s+ONLY|(?:NO\s+KEY\s+)?UPDATE|(?:KEY\s+)?SHARE)\b", re.IGNORECASE)
_WITH_EFFECTS = ("PG_ADVISORY_UNLOCK_ALL", "PG_CANCEL_BACKEND", "SET_CONFIG")  # functions, on connections
_EFFECTS = re.compile("|".join(_WITH_EFFECTS), re.IGNORECASE)
_QUERIES = frozenset(["SELECT", "WITH", "VALUES", "TABLE", "FROM", "("])
_EXPLAIN_OPTIONS = frozenset(
    "ANALYZE ANALYSE VERBOSE COSTS SETTINGS GENERIC_PLAN BUFFERS SERIALIZE WAL TIMING SUMMARY MEMORY FORMAT".split()
)


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


def parse_statements(text: str) -> list[ParsedStatement]:
    """Split a text at its semicolons and parse its statements, but those without a word.

    Raise `WireError` for too many, and for an unsupported one.
    """
    sources, start, is_filled = list[StatementText](), 0, False
    for word in read_words(text):
        if word.text == ";":
            sources += [StatementText(text[start : word.start], start)] if is_filled else []
            start, is_filled = word.end + 1, False
        else:
            is_filled = True
    sources += [StatementText(text[start:], start)] if is_filled else []
    if len(sources) > _MAX_STATEMENTS:
        hint = f"Send at most {_MAX_STATEMENTS} statements at once."
        raise WireError("54000", "There are too many statements in one text.", hint=hint)
    return list(map(parse_statement, sources))


def parse_statement(source: StatementText) -> ParsedStatement:
    """Parse a statement into its command, or into a query; raise `WireError` for an unsupported statement."""
    first = next(read_words(source.text), None)
    verb = "" if first is None else word_of(first)
    if verb in _WRITES:
        raise _read_only()
    if verb in _UNSUPPORTED:
        raise WireError("0A000", f"{verb} is not supported.", hint="Leave the statement out, or send a SELECT.")
    command = None
    if verb in _COMMANDS and (verb != "SELECT" or _EFFECTS.search(source.text)):
        words = list(islice(read_words(source.text), _FIRST_WORDS.get(verb, _MAX_WORDS)))
        command = _COMMANDS[verb](CommandReader(words))
    if command is None and _LOCKING.search(source.text):
        source = _strip_locking(source)
    return ParsedStatement(source, command)


def parse_query(source: StatementText, *, reason: str, hint: str) -> ParsedStatement:
    """Parse a statement that must be a query; raise `WireError` for any other, and for an unsupported one."""
    parsed = parse_statement(source)
    if parsed.command is not None:
        raise WireError("42601", reason, hint=hint, position=source.before + 1)
    return parsed


def _strip_locking(source: StatementText) -> StatementText:
    """Return a query without FOR READ ONLY at its end; raise `WireError` for FOR UPDATE and the like."""
    words = list(islice(read_words(source.text), _MAX_WORDS + 1))
    start = next((at for at in range(len(words) - 1, -1, -1) if word_of(words[at]) == "FOR"), None)
    if start is None or len(words) > _MAX_WORDS:
        return source
    match [word_of(word) for word in words[start + 1 : start + 4]]:
        case ["READ", "ONLY", *_]:
            return source.slice(0, words[start].start)
        case ["UPDATE" | "SHARE", *_] | ["KEY", "SHARE", *_] | ["NO", "KEY", "UPDATE"]:
            reason = "Rows cannot be locked: every transaction is read-only."
            hint, position = "Leave FOR UPDATE or FOR SHARE out.", source.before + words[start].start + 1
            raise WireError("25006", reason, hint=hint, position=position)
    return source


def _parse_select(reader: CommandReader) -> Command | None:
    """Return the command of a SELECT that only calls a function with an effect on connections; None for every other."""
    if reader.accept("PG_CATALOG") and not reader.accept("."):
        return None
    name = reader.accept(*_WITH_EFFECTS)
    if not name or not reader.accept("("):
        return None
    words = reader.read_rest()
    kinds, written = kinds_of(words), [word.text for word in words]
    if name == "SET_CONFIG":
        if kinds != ["STRING", "COMMA", "STRING", "COMMA", "VAR", "R_PAREN"] or word_of(words[4]) not in _TRUTH:
            return None
        return SetConfig(value_of(words[0]).lower(), value_of(words[2]), word_of(words[4]) == "TRUE")
    if name == "PG_CANCEL_BACKEND":
        if written[1:] != [")"] or not re.fullmatch(r"\$1|[0-9]{1,10}", written[0]):
            return None
        return CancelBackend(None if written[0] == "$1" else int(written[0]))
    return Unlock() if written == [")"] else None


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
            return ReleaseSavepoint(name) if reader.verb == "RELEASE" else Savepoint(name)
        case "COMMIT" | "END" if reader.peek() == "PREPARED":
            raise _refuse_prepared()
    reader.accept("WORK", "TRANSACTION")
    is_rollback = reader.verb in {"ROLLBACK", "ABORT"}
    if is_rollback and reader.accept("TO"):
        reader.accept("SAVEPOINT")
        name = reader.read_name()
        reader.expect_end()
        return Rollback(savepoint=name)
    chain = False
    if reader.accept("AND"):
        chain = not reader.accept("NO")
        reader.expect("CHAIN")
    reader.expect_end()
    return Rollback(chain) if is_rollback else Commit(chain)


def _refuse_prepared() -> WireError:
    return WireError("0A000", "Prepared transactions are not supported.", hint="End the transaction with COMMIT.")


def _parse_lock(reader: CommandReader) -> Command:
    """Parse LOCK TABLE in the mode of reading, which pg_dump sends; nothing ever waits for it."""
    reader.accept("TABLE")
    is_next = True
    while is_next:
        reader.accept("ONLY")
        reader.read_relation()
        is_next = bool(reader.accept(","))
    words = [word_of(word) for word in reader.read_rest() if word_of(word) != "NOWAIT"]
    if words != ["IN", "ACCESS", "SHARE", "MODE"]:
        reason = "Every transaction is read-only, so only the lock ACCESS SHARE can be taken."
        raise WireError("25006", reason, hint="LOCK TABLE ... IN ACCESS SHARE MODE")
    return TableLock()


def _parse_create(reader: CommandReader) -> Command:
    """Parse CREATE TEMPORARY VIEW; nothing else is created."""
    replaces = bool(reader.accept("OR"))
    if replaces:
        reader.expect("REPLACE")
    is_temporary = reader.accept("TEMP", "TEMPORARY")
    if not reader.accept("VIEW"):
        raise _read_only()
    if not is_temporary:
        hint = "CREATE TEMPORARY VIEW v AS SELECT ..., or write the query as a CTE."
        raise WireError("25006", "Only a temporary view can be created.", hint=hint)
    name = reader.read_name()
    reader.expect("AS")
    return CreateView(name, reader.next_word().start, replaces)


def _parse_drop(reader: CommandReader) -> Command:
    """Parse DROP VIEW."""
    if not reader.accept("VIEW"):
        raise _read_only()
    if_exists = bool(reader.accept("IF"))
    if if_exists:
        reader.expect("EXISTS")
    names = [reader.read_name()]
    while reader.accept(","):
        names.append(reader.read_name())
    reader.accept("CASCADE", "RESTRICT")
    reader.expect_end()
    return DropView(tuple(names), if_exists)


def _read_only() -> WireError:
    return WireError("25006", "The data is read-only, and so is every transaction.", hint="Send a SELECT.")


def _parse_set(reader: CommandReader) -> Command:
    scope = reader.accept("SESSION", "LOCAL")
    # SET TRANSACTION ..., and SET SESSION CHARACTERISTICS AS TRANSACTION ...: no mode changes anything.
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
        # SET TIME ZONE 'UTC' and SET ROLE ada have neither = nor TO.
        if not is_time_zone and (name != "role" or reader.peek() in {"=", "TO"}):
            reader.expect("=", "TO")
    words = reader.read_rest()
    if not words:
        raise reader.syntax_error()
    # SET TIME ZONE LOCAL means the default, too.
    if len(words) == 1 and word_of(words[0]) in {"DEFAULT", "LOCAL"}:
        return Set(name, None, local=scope == "LOCAL")
    value = ""
    for word in words:
        # SET x = a, b is "a, b", and SET x = - 1 is "-1".
        blank = "" if not value or word.text == "," or value[-1:] in "-+ " else " "
        value += blank + value_of(word) + (" " if word.text == "," else "")
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


def _parse_show(reader: CommandReader) -> Command | None:
    """Parse SHOW or RESET of a setting."""
    resets = reader.verb == "RESET"
    if not resets and reader.peek() in _SESSION_SHOWS:
        return None
    if resets and reader.accept("ALL"):
        name = ""
    elif reader.accept("SESSION"):
        reader.expect("AUTHORIZATION")
        name = "session_authorization"
    elif not resets and reader.accept("TRANSACTION"):
        reader.expect("ISOLATION")
        reader.expect("LEVEL")
        name = "transaction_isolation"
    else:
        name = _parse_setting_name(reader)
    reader.expect_end()
    return Reset(name) if resets else Show(name)


def _parse_declare(reader: CommandReader) -> Command:
    name, hold, asked = reader.read_name(), False, set[str]()
    while not reader.accept("CURSOR"):
        if reader.peek() == "BINARY":
            hint = "Bind the statement with results in binary format."
            raise WireError("0A000", "Binary cursors are not supported.", hint=hint)
        # the words come in any order: NO SCROLL INSENSITIVE is NO SCROLL
        negation = reader.accept("NO")
        word = reader.accept(*(["SCROLL"] if negation else ["INSENSITIVE", "ASENSITIVE", "SCROLL"]))
        if not word:
            raise reader.syntax_error()
        asked.add(f"NO {word}" if negation else word)
    for one, other in (("SCROLL", "NO SCROLL"), ("INSENSITIVE", "ASENSITIVE")):
        if {one, other} <= asked:
            raise WireError("42P11", f"A cursor cannot be both {one} and {other}.", hint="Leave one of them out.")
    if kind := reader.accept("WITH", "WITHOUT"):
        reader.expect("HOLD")
        hold = kind == "WITH"
    reader.expect("FOR")
    return Declare(name, reader.next_word().start, hold, "NO SCROLL" in asked)


def _parse_fetch(reader: CommandReader) -> Command:
    """Parse FETCH or MOVE."""
    count: int | None = 1
    kind: Literal["FORWARD", "BACKWARD", "ABSOLUTE", "RELATIVE"] = "FORWARD"
    match reader.accept("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD"):
        case "PRIOR":
            count = -1
        case "FIRST":
            kind = "ABSOLUTE"
        case "LAST":
            count, kind = -1, "ABSOLUTE"
        case "ABSOLUTE":
            count, kind = reader.read_number(), "ABSOLUTE"
        case "RELATIVE":
            count, kind = reader.read_number(), "RELATIVE"
        case "ALL":
            count = None
        case _ as direction:
            is_backward = direction == "BACKWARD"
            if direction and reader.accept("ALL"):
                count, kind = None, "BACKWARD" if is_backward else "FORWARD"
            elif reader.has_number or is_backward:
                count = (-1 if is_backward else 1) * (reader.read_number() if reader.has_number else 1)
    reader.accept("FROM", "IN")
    name = reader.read_name()
    reader.expect_end()
    return Fetch(name, count, kind, move=reader.verb == "MOVE")


def _parse_prepare(reader: CommandReader) -> Command:
    if reader.peek() == "TRANSACTION":
        raise _refuse_prepared()
    name = reader.read_name()
    types = tuple(parse_list(reader, parse_type))
    reader.expect("AS")
    return Prepare(name, reader.next_word().start, types)


def _parse_execute(reader: CommandReader) -> Command:
    name = reader.read_name()
    arguments = parse_list(reader, parse_argument)
    reader.expect_end()
    return Execute(name, tuple(argument.text for argument in arguments), tuple(argument.oid for argument in arguments))


def _parse_explain(reader: CommandReader) -> Command | None:
    """Parse EXPLAIN with options; EXPLAIN alone is a query of the session."""
    options = dict[str, str]()
    if reader.peek() == "(":
        # EXPLAIN (SELECT ...) has no options, and a query in parentheses.
        if reader.peek(1) in _QUERIES:
            return None
        reader.accept("(")
        while not options or reader.accept(","):
            name = reader.read_name().upper()
            options[name] = "" if reader.peek() in {",", ")"} else value_of(reader.next_word()).upper()
        reader.expect(")")
    else:
        while name := reader.accept("ANALYZE", "ANALYSE", "VERBOSE"):
            options[name] = "" if name == "VERBOSE" else "ON"
    if not options:
        return None
    # EXPLAIN (COSTS OFF) is answered as text, as PostgreSQL does; EXPLAIN VERBOSE with dpsql's own two columns.
    layout = options.get("FORMAT", "TEXT" if reader.last.text == ")" else "")
    if any(options.get(name, "OFF") not in {"FALSE", "OFF", "0"} for name in ("ANALYZE", "ANALYSE")):
        reason = "EXPLAIN ANALYZE would run the statement, and a private query is charged when it runs."
        raise WireError("0A000", reason, hint="Leave ANALYZE out: EXPLAIN alone is free.")
    if options.keys() - _EXPLAIN_OPTIONS or layout not in {"", "TEXT", "JSON", "XML"}:
        raise WireError("0A000", "This option of EXPLAIN is not supported.", hint="EXPLAIN (FORMAT JSON) SELECT ...")
    # A document holds the query of the engine, as those of PostgreSQL hold everything.
    is_verbose = "VERBOSE" in options or layout in {"JSON", "XML"}
    return Explain(reader.next_word().start, layout, is_verbose)


def _parse_copy(reader: CommandReader) -> Command:  # noqa: C901, PLR0912 - the grammar of one command
    columns, copy_hint = "", "COPY (SELECT ...) TO STDOUT."
    if reader.peek() == "(":
        _, start, stop = reader.read_parentheses()
    else:
        start, stop = reader.read_relation()
        # COPY t TO STDOUT is COPY (SELECT * FROM t) TO STDOUT.
        columns = "*"
        if reader.peek() == "(":
            words, _, _ = reader.read_parentheses()
            columns = "".join(word.text if word_of(word) else quote_name(word.text) for word in words)
    if not reader.accept("TO"):
        raise WireError("25006", "COPY FROM is not supported: the data is read-only.", hint=copy_hint)
    if not reader.accept("STDOUT"):
        raise WireError("42501", "COPY to a file or a program is not supported.", hint=copy_hint)
    reader.accept("WITH")
    options = dict[str, str]()
    if reader.accept("("):
        while not reader.accept(")"):
            name, value = reader.read_name().lower(), ""
            if reader.peek() == "(":
                words, _, _ = reader.read_parentheses()
                # FORCE_QUOTE (a, b): the names, with NUL between them.
                value = "\0".join(value_of(word) for word in words if word.text != ",")
            elif reader.peek() not in {",", ")"}:
                value = value_of(reader.next_word())
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
                options[name.lower()] = value_of(reader.next_word())
    reader.expect_end()
    return CopyOut(start, stop, columns, options)


def _parse_close(reader: CommandReader) -> Command:
    """Parse the commands that end cursors, prepared statements and notifications."""
    match reader.verb:
        case "LISTEN":
            reader.read_name()
            reader.expect_end()
            return NoEffect("LISTEN")
        case "UNLISTEN":
            reader.read_rest()
            return NoEffect("UNLISTEN")
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


_TRUTH = frozenset(["TRUE", "FALSE"])
_COMMANDS: dict[str, Callable[[CommandReader], Command | None]] = {
    **dict.fromkeys("BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE".split(), _parse_transaction),
    **dict.fromkeys("CLOSE DEALLOCATE DISCARD LISTEN UNLISTEN".split(), _parse_close),
    **dict.fromkeys(["FETCH", "MOVE"], _parse_fetch),
    "SELECT": _parse_select,
    "SET": _parse_set,
    **dict.fromkeys(["SHOW", "RESET"], _parse_show),
    "DECLARE": _parse_declare,
    "PREPARE": _parse_prepare,
    "EXECUTE": _parse_execute,
    "EXPLAIN": _parse_explain,
    "COPY": _parse_copy,
    "LOCK": _parse_lock,
    "CREATE": _parse_create,
    "DROP": _parse_drop,
}
