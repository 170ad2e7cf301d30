"""Statements that are the connection's own: transactions, settings, cursors, COPY; read from their words alone.

What is none of them is a question, for the session or for the catalog, and is not read here.
"""

from __future__ import annotations

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
    Unlisten,
    Unlock,
)
from dpsql.server.wire.lexer import Word, words
from dpsql.server.wire.sqlstates import WireError

__all__ = ["Reader", "command_of"]

_WRITES = frozenset(
    "INSERT UPDATE DELETE MERGE CREATE ALTER DROP TRUNCATE COMMENT GRANT REVOKE VACUUM ANALYZE ANALYSE REINDEX CLUSTER "
    "REFRESH IMPORT REASSIGN SECURITY LOCK CHECKPOINT".split()
)
_ABSENT = frozenset("LISTEN NOTIFY PREPARE EXECUTE CALL DO LOAD ATTACH DETACH USE PRAGMA INSTALL".split())
_OURS = frozenset(["BUDGET", "TABLES"])  # what SHOW shows that is the session's
_UNLOCK = "PG_ADVISORY_UNLOCK_ALL"
_FEW, _WORDS_READ = 5, 20_000  # more than a question has that the language reads


def command_of(text: str) -> Command | None:
    """Return what a statement asks of the connection, or None; raises `WireError` for what there is not here."""
    first = next(words(text), None)
    name = first.upper if first is not None else ""
    if name in _WRITES:
        hint = "Ask with SELECT ... TOP k PRIVATE; nothing can be written here."
        raise WireError("25006", "The data is read-only, and so is every transaction.", hint=hint)
    if name in _ABSENT:
        raise WireError("0A000", f"There is no {name} here.", hint="Prepare and notify through the driver, if at all.")
    reader = _READERS.get(name)
    if reader is None:
        return None
    return reader(Reader(list(islice(words(text), _FEW if name == "SELECT" else _WORDS_READ))))


class Reader:
    """The words of a command, read from its second on."""

    def __init__(self, found: list[Word]) -> None:
        self._words = found
        self._at = 1
        self.verb = found[0].upper

    def peek(self) -> str:
        """Return the next word in capitals, or a sign."""
        if self._at >= len(self._words):
            return ""
        word = self._words[self._at]
        return word.upper or (word.written if word.kind == "sign" else "")

    def eat(self, *names: str) -> str:
        """Pass over the next word if it is one of these, and return it."""
        found = self.peek()
        if found and found in names:
            self._at += 1
            return found
        return ""

    def need(self, *names: str) -> None:
        """Pass over the next word, which must be one of these."""
        if not self.eat(*names):
            raise _unread(self.verb)

    def word(self) -> Word:
        """Return the next word, which must be there."""
        if self._at >= len(self._words):
            raise _unread(self.verb)
        self._at += 1
        return self._words[self._at - 1]

    def name(self) -> str:
        """Return the next word, which must be a name or a string."""
        word = self.word()
        if word.kind not in {"word", "quoted", "string"}:
            raise _unread(self.verb)
        return word.value

    def number(self) -> int:
        """Return a whole number with its sign."""
        sign = -1 if self.eat("-") else 1
        self.eat("+")
        word = self.word()
        if word.kind != "number" or not word.written.isdigit() or len(word.written) > 18:  # noqa: PLR2004 - 64 bits
            raise _unread(self.verb)
        return sign * int(word.written)

    @property
    def is_number(self) -> bool:
        """Whether a number comes next."""
        return self._at < len(self._words) and (self._words[self._at].kind == "number" or self.peek() in {"-", "+"})

    def until(self, sign: str) -> list[Word]:
        """Return the words before a sign, and pass it."""
        start = self._at
        while self.peek() != sign:
            self.word()
        self._at += 1
        return self._words[start : self._at - 1]

    def enclosed(self) -> tuple[int, int]:
        """Return where what stands in parentheses begins and ends in the text."""
        start, depth = self.word().start + 1, 1
        while True:
            word = self.word()
            depth += {"(": 1, ")": -1}.get(word.written, 0) if word.kind == "sign" else 0
            if not depth:
                return start, word.start

    def relation(self) -> str:
        """Return a name with its schema, as written."""
        written = self.word().written
        while self.eat("."):
            written += f".{self.word().written}"
        return written

    def rest(self) -> list[Word]:
        """Return all words that are left."""
        found, self._at = self._words[self._at :], len(self._words)
        return found

    def end(self) -> None:
        """Raise where a word is left."""
        if self._at != len(self._words):
            raise _unread(self.verb)


def _unread(verb: str) -> WireError:
    return WireError("42601", f"This {verb} cannot be read.", hint="Write it as PostgreSQL's manual does.")


def _begin(reader: Reader) -> Command:
    if reader.verb == "START":
        reader.need("TRANSACTION")
    reader.rest()  # whatever it may be, it is read-only and sees one version of the data
    return Begin("START TRANSACTION" if reader.verb == "START" else "BEGIN")


def _chained(reader: Reader) -> bool:
    reader.eat("WORK", "TRANSACTION")
    if not reader.eat("AND"):
        reader.end()
        return False
    negated = reader.eat("NO")
    reader.need("CHAIN")
    reader.end()
    return not negated


def _commit(reader: Reader) -> Command:
    if reader.peek() == "PREPARED":
        raise WireError("0A000", "There are no prepared transactions here.", hint="COMMIT ends one.")
    return Commit(_chained(reader))


def _rollback(reader: Reader) -> Command:
    reader.eat("WORK", "TRANSACTION")
    if not reader.eat("TO"):
        return Rollback(_chained(reader))
    reader.eat("SAVEPOINT")
    found = Rollback(savepoint=reader.name())
    reader.end()
    return found


def _savepoint(reader: Reader) -> Command:
    if reader.verb == "RELEASE":
        reader.eat("SAVEPOINT")
    name = reader.name()
    reader.end()
    return Release(name) if reader.verb == "RELEASE" else Savepoint(name)


def _set(reader: Reader) -> Command:
    local = reader.eat("SESSION", "LOCAL")
    if reader.peek() == "CHARACTERISTICS" or reader.eat("TRANSACTION"):
        reader.rest()
        return Set("transaction", "")
    if reader.eat("AUTHORIZATION"):
        hint = "Log in as another user, or use SET ROLE as a service account."
        raise WireError("42501", "SET SESSION AUTHORIZATION is not allowed.", hint=hint)
    if reader.eat("CONSTRAINTS"):
        raise WireError("0A000", "There are no constraints here.", hint="Leave it out.")
    if reader.eat("TIME"):
        reader.need("ZONE")
        name = "timezone"
    elif reader.eat("NAMES"):
        name = "client_encoding"
    else:
        name = _setting(reader)
        if name != "role" or reader.peek() in {"=", "TO"}:
            reader.need("=", "TO")
    return Set(name, _value(reader.rest(), reader.verb), local=local == "LOCAL")


def _setting(reader: Reader) -> str:
    name = reader.name()
    while reader.eat("."):
        name += f".{reader.name()}"
    return name.lower()


def _value(found: list[Word], verb: str) -> str | None:
    """Return the value of a SET: names and strings with commas between them."""
    if not found:
        raise _unread(verb)
    if len(found) == 1 and found[0].upper in {"DEFAULT", "LOCAL"}:
        return None
    text = ""
    for word in found:
        between = "" if not text or word.written == "," or text[-1:] in "-+ " else " "
        text += between + word.value + (" " if word.written == "," else "")
    return text.strip()


def _reset(reader: Reader) -> Command:
    if reader.eat("ALL"):
        name = ""
    elif reader.eat("SESSION"):
        reader.need("AUTHORIZATION")
        name = "session_authorization"
    elif reader.eat("TIME"):
        reader.need("ZONE")
        name = "timezone"
    else:
        name = _setting(reader)
    reader.end()
    return Reset(name)


def _show(reader: Reader) -> Command | None:
    if reader.peek() in _OURS:
        return None
    if reader.eat("TIME"):
        reader.need("ZONE")
        name = "timezone"
    elif reader.eat("SESSION"):
        reader.need("AUTHORIZATION")
        name = "session_authorization"
    elif reader.eat("TRANSACTION"):
        reader.need("ISOLATION")
        reader.need("LEVEL")
        name = "transaction_isolation"
    else:
        name = _setting(reader)
    reader.end()
    return Show(name)


def _declare(reader: Reader) -> Command:
    name, hold = reader.name(), False
    while not reader.eat("CURSOR"):
        if reader.peek() == "BINARY":
            hint = "Bind the statement in binary format instead."
            raise WireError("0A000", "There are no binary cursors here.", hint=hint)
        reader.need("INSENSITIVE", "ASENSITIVE", "NO", "SCROLL")
    if kind := reader.eat("WITH", "WITHOUT"):
        reader.need("HOLD")
        hold = kind == "WITH"
    reader.need("FOR")
    return Declare(name, reader.word().start, hold)


def _fetch(reader: Reader) -> Command:
    count, absolute = _direction(reader)
    reader.eat("FROM", "IN")
    name = reader.name()
    reader.end()
    return Fetch(name, count, absolute=absolute, move=reader.verb == "MOVE")


def _direction(reader: Reader) -> tuple[int | None, bool]:
    match reader.eat("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD"):
        case "FIRST":
            return 1, True
        case "LAST":
            return -1, True
        case "ABSOLUTE":
            return reader.number(), True
        case "RELATIVE":
            raise WireError("0A000", "FETCH RELATIVE is not read.", hint="Use FETCH n, or FETCH ABSOLUTE n.")
        case "PRIOR" | "BACKWARD":
            raise WireError("0A000", "Cursors run forwards here.", hint="Use FETCH ABSOLUTE n to go back.")
        case "ALL":
            return None, False
        case "FORWARD" if reader.eat("ALL"):
            return None, False
    count = reader.number() if reader.is_number else 1
    if count < 0:
        raise WireError("0A000", "Cursors run forwards here.", hint="Use FETCH ABSOLUTE n to go back.")
    return count, False


def _copy(reader: Reader) -> Command:
    start, stop, relation = 0, 0, ""
    if reader.peek() == "(":
        start, stop = reader.enclosed()
    else:
        relation = reader.relation()
    if not reader.eat("TO"):
        raise WireError("25006", "COPY writes here in one direction only.", hint="COPY (SELECT ...) TO STDOUT.")
    if not reader.eat("STDOUT"):
        raise WireError("42501", "COPY reaches no file and no program.", hint="COPY (SELECT ...) TO STDOUT.")
    reader.eat("WITH")
    options = _listed(reader) if reader.eat("(") else _bare(reader)
    reader.end()
    return CopyOut(start, stop, relation, options)


def _listed(reader: Reader) -> dict[str, str]:
    """Return options in parentheses, of which the first is passed."""
    found = dict[str, str]()
    while not reader.eat(")"):
        name, value = reader.name().lower(), ""
        if reader.eat("("):
            value = "\0".join(word.value for word in reader.until(")") if word.written != ",")
        elif reader.peek() not in {",", ")"}:
            value = reader.word().value
        found[name] = value
        reader.eat(",")
    return found


def _bare(reader: Reader) -> dict[str, str]:
    """Return options as they were written before there were parentheses."""
    found = dict[str, str]()
    while name := reader.eat("BINARY", "CSV", "HEADER", "DELIMITER", "NULL", "QUOTE", "ESCAPE"):
        if name in {"BINARY", "CSV"}:
            found["format"] = name.lower()
        elif name == "HEADER":
            found["header"] = "true"
        else:
            reader.eat("AS")
            found[name.lower()] = reader.word().value
    return found


def _close(reader: Reader) -> Command:
    name = "" if reader.eat("ALL") else reader.name()
    reader.end()
    return CloseCursor(name)


def _deallocate(reader: Reader) -> Command:
    reader.eat("PREPARE")
    name = "" if reader.eat("ALL") else reader.name()
    reader.end()
    return Deallocate(name)


def _discard(reader: Reader) -> Command:
    what = reader.eat("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY")
    if not what:
        raise _unread(reader.verb)
    reader.end()
    return Discard(what)


def _select(reader: Reader) -> Command | None:
    named = reader.eat(_UNLOCK) and reader.eat("(") and reader.eat(")")
    return Unlock() if named and not reader.peek() else None


def _unlisten(reader: Reader) -> Command:
    reader.rest()
    return Unlisten()


_READERS = {
    "BEGIN": _begin, "START": _begin, "COMMIT": _commit, "END": _commit, "ROLLBACK": _rollback, "ABORT": _rollback,
    "SAVEPOINT": _savepoint, "RELEASE": _savepoint, "SET": _set, "RESET": _reset, "SHOW": _show,
    "DECLARE": _declare, "FETCH": _fetch, "MOVE": _fetch, "CLOSE": _close, "DEALLOCATE": _deallocate,
    "DISCARD": _discard, "UNLISTEN": _unlisten, "COPY": _copy, "SELECT": _select,
}  # fmt: skip
