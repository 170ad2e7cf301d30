"""A TOML file read with care: typed values, unknown keys refused, and the line of every key for the errors.

Python's reader gives values without lines, so the lines come from a scan of the same text. The scan runs only over
text that the reader has accepted, and only places errors: a wrong line can never change what a policy means.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError

KeyPath = tuple[str, ...]

_KEY = r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'"""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY_AND_DOT = re.compile(rf"[ \t]*({_KEY})[ \t]*(\.)?")
_TOKEN = re.compile(
    r'''  (?P<text> """(?:[^\\]|\\.)*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' )
        | (?P<comment> \#[^\n]* )
        | (?P<open> [\[{] ) | (?P<close> [\]}] ) | (?P<newline> \n )''',
    re.VERBOSE | re.DOTALL,
)
_RENAMED = {"prepared": "materialized"}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number with a point",
    str: "text",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Lines:
    """The name of a file and the line of every key path in it."""

    name: str
    lines: Mapping[str, int]

    def where(self, key_path: str) -> str:
        """Return `key_path`, with the file and the line if the file has the key."""
        line = self.lines.get(key_path)
        return key_path if line is None else f"{key_path} ({self.name}, line {line})"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a TOML file: values by key and type; every problem is placed by key path and line."""

    lines: Lines
    path: KeyPath
    values: Mapping[str, object]

    def where(self, *keys: str) -> str:
        """Return the words for the place of a key below this section, or of the section itself."""
        return self.lines.where(_join((*self.path, *keys)))

    def only(self, *known: str) -> None:
        """Refuse every key that is not `known`, and say the new name of a key that was renamed."""
        for key in self.values:
            if key not in known:
                new = _RENAMED.get(key)
                if new in known:
                    raise PolicyError(
                        "policy-unknown-key",
                        f'The key "{key}" is called "{new}" since version 0.11.0.',
                        hint=f"Write {new} = ... in place of {key} = ...",
                        place=self.where(key),
                    )
                close = difflib.get_close_matches(key, known, n=1)
                hint = f'Did you mean "{close[0]}"?' if close else f"Known here: {', '.join(known)}."
                raise PolicyError(
                    "policy-unknown-key", f'The key "{key}" means nothing here.', hint=hint, place=self.where(key)
                )

    def read(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """Return the values that the section has; `kinds` says of every known key what reads it, such as "text"."""
        self.only(*kinds)
        return {key: getattr(self, kind)(key) for key, kind in kinds.items() if key in self.values}

    def require(self, *keys: str) -> None:
        """Refuse a section that lacks one of `keys`."""
        for key in keys:
            if key not in self.values:
                raise PolicyError(
                    "policy-missing-key",
                    f'The key "{key}" is missing.',
                    hint=f"The README shows a policy with {key} in it.",
                    place=self._below(key),
                )

    def text(self, key: str) -> str | None:
        """Return the text under `key`, or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "text", found=value)
        return value

    def texts_or_table(self, key: str) -> tuple[str, ...] | dict[str, str] | None:
        """Return the list of texts, or the table of texts by name, under `key`; or None."""
        values = self.values.get(key)
        if values is None:
            return None
        if isinstance(values, dict):
            inner = self.section(key)
            return {name: text for name in values if (text := inner.text(name)) is not None}
        return self.texts(key)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return the list of texts under `key`, or None."""
        values = self.values.get(key)
        if values is not None and not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
            raise self._wrong(key, "a list of texts", found=values)
        return None if values is None else tuple(values)

    def lists_of_texts(self, key: str) -> tuple[tuple[str, ...], ...] | None:
        """Return the list of lists of texts under `key`, or None."""
        values = self.values.get(key)
        lists = values if isinstance(values, list) else [values]
        if values is None:
            return None
        if not all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in lists):
            raise self._wrong(key, "a list of lists of texts", found=values)
        return tuple(map(tuple, lists))

    def flag(self, key: str) -> bool | None:
        """Return the truth value under `key`, or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "true or false", found=value)
        return value

    def number(self, key: str) -> int | float:
        """Return the number under `key`, which must be there."""
        self.require(key)
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number without quotes", found=value)
        return value

    def whole(self, key: str) -> int:
        """Return the whole number under `key`, which must be there."""
        self.require(key)
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number without quotes", found=value)
        return value

    def section(self, key: str) -> Section:
        """Return the table under `key`; an empty one where the file has none."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self._wrong(key, f"a table such as [{_join((*self.path, key))}]", found=values)
        return Section(self.lines, (*self.path, key), values)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Give errors raised inside, whose place is a key path below this section, their file and line."""
        try:
            yield
        except PolicyError as error:
            path = ".".join(part for part in (_join(self.path), str(error.place or "")) if part)
            raise PolicyError(error.code, error.reason, hint=error.hint, place=self.lines.where(path)) from None

    def _below(self, key: str) -> str:
        line = self.lines.lines.get(_join(self.path))
        return f"{_join((*self.path, key))} ({self.lines.name}{'' if line is None else f', below line {line}'})"

    def _wrong(self, key: str, wanted: str, *, found: object) -> PolicyError:
        words = _WORDS.get(type(found), "a date or a time")
        return PolicyError("policy-type", f"The value is {words}.", hint=f"Give {wanted}.", place=self.where(key))


def read_toml(path: Path) -> Section:
    """Return the root section of the file at `path`."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise _unusable("policy-missing", "There is no policy file at this path.", path=path) from None
    except OSError:
        raise _unusable("policy-unreadable", "The policy file cannot be read.", path=path) from None
    except UnicodeDecodeError:
        raise _unusable("policy-unreadable", "The policy file is not UTF-8 text.", path=path) from None
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also for an integer of too many digits
        line = re.search(r"at line (\d+)", str(error))
        place = f"{path.name}, line {line[1]}" if line else f"{path.name}, at its end"
        raise PolicyError(
            "policy-syntax", "The policy file is not valid TOML.", hint=f"The reader says: {error}.", place=place
        ) from None
    except RecursionError:
        raise _unusable("policy-syntax", "The policy file is nested too deeply.", path=path) from None
    return Section(Lines(path.name, dict(_iterate_keys(data, _key_lines(text), above=(), line=1))), (), data)


def _unusable(code: str, reason: str, *, path: Path) -> PolicyError:
    return PolicyError(code, reason, hint="Give the path of a readable TOML file.", place=str(path))


def spell(name: str) -> str:
    """Return the name as a TOML key: bare if it can be, else quoted.

    >>> spell("reads"), spell("two words")
    ('reads', '"two words"')
    """
    return name if _BARE.fullmatch(name) else quote(name)


def quote(name: str) -> str:
    r"""Return the name as a TOML string of one line; what does not print is escaped, so it can end or colour nothing.

    >>> print(quote('a"b\\c\n'), quote("\x7f"))
    "a\"b\\c\u000a" "\u007f"
    """
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"


def _join(path: KeyPath) -> str:
    """Return a key path as TOML has it."""
    return ".".join(map(spell, path))


def _iterate_keys(
    data: Mapping[str, object], lines: Mapping[KeyPath, int], *, above: KeyPath, line: int
) -> Iterator[tuple[str, int]]:
    """Yield every key path of `data`, as TOML and plainly, with its line or that of the key which encloses it."""
    for key, value in data.items():
        path = (*above, key)
        here = lines.get(path, line)
        yield ".".join(path), here
        yield _join(path), here
        if isinstance(value, dict):
            yield from _iterate_keys(value, lines, above=path, line=here)


def _key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of every header and `key =` of valid TOML, and for what they imply, where it is implied first."""
    lines: dict[KeyPath, int] = {}
    header: KeyPath = ()
    for line, start, end in split_statements(text):
        above, statement = header, text[start:end].strip()
        if statement.startswith("["):
            above, header = (), read_keys(statement.lstrip("["))
            path = header
        else:
            path = (*header, *read_keys(statement))
        for length in range(len(above) + 1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def split_statements(text: str) -> Iterator[tuple[int, int, int]]:
    """Cut valid TOML where a statement ends: at a newline that is in no text, no list and no inline table.

    Yields the line of each statement, and where it starts and ends in the text, with its comment.
    """
    start, line, depth = 0, 1, 0
    for token in _TOKEN.finditer(text + "\n"):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth -= 1
        elif token.lastgroup == "newline" and depth == 0:
            yield line, start, token.start()
            line += text.count("\n", start, token.end())
            start = token.end()


def find_value(text: str, start: int, *, end: int) -> tuple[int, int]:
    """Return where the value of a statement `key = value` starts and ends, without a comment behind it."""
    position = start + len(text[start:end]) - len(text[start:end].lstrip())
    while part := _KEY_AND_DOT.match(text, position):
        position = part.end()
        if part[2] is None:
            break
    first = text.index("=", position) + 1
    last, depth = end, 0
    for token in _TOKEN.finditer(text, first, end):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if token.lastgroup == "comment" and depth == 0:
            last = token.start()
            break
    inside = text[first:last]
    return first + len(inside) - len(inside.lstrip()), first + len(inside.rstrip())


def read_keys(statement: str) -> KeyPath:
    """Return the dotted key that `statement` begins with; a comment and an empty line have none."""
    keys: list[str] = []
    position = 0
    while part := _KEY_AND_DOT.match(statement, position):
        key = part[1]
        keys.append(key if _BARE.fullmatch(key) else tomllib.loads(f"key = {key}")["key"])
        if part[2] is None:
            break
        position = part.end()
    return tuple(keys)
