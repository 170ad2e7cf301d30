"""A TOML file read with care, with the line of every key for the errors, and written to where bounds were found.

Values are typed, and unknown keys refused.
Python's reader gives values without lines, so the lines come from a scan of the same text. The scan runs only over
text that the reader has accepted, and only places errors: a wrong line can never change what a policy means.

Bounds are written where the file has them, in a table, with dotted keys or in an inline table. A new one is added to
the section of the bounds, or of the table. All else stays as it is, with its comments, and the new text is read before
it is used: it must mean what the old one did, but for the bounds.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError

KeyPath = tuple[str, ...]

_KEY = r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'"""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY_AND_DOT = re.compile(rf"[ \t]*({_KEY})[ \t]*(\.)?")
_TOKEN = re.compile(
    # A text may end in up to two quotes of its own before the three that close it.
    r'''  (?P<text> """(?:[^\\]|\\.)*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' )
        | (?P<comment> \#[^\n]* )
        | (?P<open> [\[{] ) | (?P<close> [\]}] ) | (?P<newline> \n )''',
    re.VERBOSE | re.DOTALL,
)
_CURLY = re.compile("[\u201c\u201d\u201e\u2018\u2019]")
_COMMA = re.compile(r"^([\w\s.-]+)=\s*(\d+),(\d+)\s*(?:#|$)")
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
        text = path.read_bytes().decode("utf-8-sig")  # editors of Windows begin a file with a byte order mark
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
        hint = _explain_syntax(text.split("\n")[int(line[1]) - 1] if line else "") or f"The reader says: {error}."
        raise PolicyError("policy-syntax", "The policy file is not valid TOML.", hint=hint, place=place) from None
    except RecursionError:
        raise _unusable("policy-syntax", "The policy file is nested too deeply.", path=path) from None
    return Section(Lines(path.name, dict(_iterate_keys(data, _key_lines(text), above=(), line=1))), (), data)


def _explain_syntax(line: str) -> str:
    """Return what to write in place of a line that word processors, or people who write decimal commas, write."""
    if _CURLY.search(line):
        return "Write straight quotes, \" and ', in place of curly ones."
    comma = _COMMA.search(line)
    return f"Write a decimal point in place of the comma: {comma[1].strip()} = {comma[2]}.{comma[3]}" if comma else ""


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
        # The places of errors are written either way: tables.two words, or tables."two words".
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
        # Below [t], the statement a.b = 1 is the line of t.a and t.a.b; t has that of its header.
        for length in range(len(above) + 1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def split_statements(text: str) -> Iterator[tuple[int, int, int]]:
    """Cut valid TOML where a statement ends: at a newline that is in no text, no list and no inline table.

    Yields the line of each statement, and where it starts and ends in the text, with its comment.
    """
    start, line, depth = 0, 1, 0
    # The last line of a file may have no line break.
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


BoundsTable = Mapping[str, Any]  # of a policy file: rows, and of columns max, min and each


def merge_bounds(old: BoundsTable, new: BoundsTable) -> dict[str, Any]:
    """Return bounds with others put in: `rows`, and of columns what is new; columns are the same without ASCII case."""
    merged = deepcopy(dict(old))
    for name, value in new.items():
        known = next((key for key in merged if key.lower() == name.lower()), name)
        has_both = isinstance(value, Mapping) and isinstance(merged.get(known), Mapping)
        merged[known] = {**merged[known], **value} if has_both else deepcopy(value)
    return merged


def list_bound_lines(bounds: BoundsTable) -> tuple[str, ...]:
    """Return the lines of bounds in the section of a table's bounds.

    >>> list_bound_lines({"rows": 25, "dwell": {"max": Fraction(640), "each": {"min": 0, "max": Fraction("0.5")}}})
    ('rows = 25', 'dwell = { max = 640, each = { min = 0, max = 0.5 } }')
    """
    return tuple(f"{spell(name)} = {_write(value)}" for name, value in bounds.items())


def write_bounds(path: str | Path, table: str, *, bounds: BoundsTable) -> None:
    """Write bounds of a table into a policy file, which keeps everything else.

    Raises `PolicyError` for a file that cannot be written, or whose form is not known; the file is then as it was.
    """
    target = Path(path).resolve()
    text = _read(target)
    edited = edit_bounds(text, table, bounds=bounds, place=str(path)).encode()
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(edited)
            # mkstemp() makes a file that its owner alone can read.
            shutil.copymode(target, draft)
            Path(draft).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(draft).unlink()
            raise
    except OSError:
        raise _unwritable(path, table, bounds=bounds) from None


def check_writable(path: str | Path, table: str, *, bounds: BoundsTable) -> None:
    """Raise `PolicyError` where `write_bounds` would for bounds of the same form, before anything is charged."""
    target = Path(path).resolve()
    try:
        edit_bounds(_read(target), table, bounds=bounds, place=str(path))
    except PolicyError as error:
        if error.code == "policy-form":
            error.hint = (
                f"Leave the file as it is with --no-write, and add the lines below [tables.{spell(table)}.bounds]."
            )
        raise
    if not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)):
        raise _unwritable(path, table, bounds={})


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        reason, hint = "The policy file cannot be read.", "Give the path of a readable TOML file."
        raise PolicyError("policy-unreadable", reason, hint=hint, place=str(path)) from None


def _unwritable(path: str | Path, table: str, *, bounds: BoundsTable) -> PolicyError:
    hint = "Give a file in a writable folder, or leave the file as it is with --no-write and add the lines by hand."
    if bounds:
        hint = f"Add below [tables.{spell(table)}.bounds]: {'; '.join(list_bound_lines(bounds))}."
    return PolicyError("policy-unwritable", "The policy file cannot be written.", hint=hint, place=str(path))


def edit_bounds(text: str, table: str, *, bounds: BoundsTable, place: str) -> str:
    """Return the text of a policy with bounds of a table merged into those that it has.

    >>> edit_bounds("[tables.reads]  # of a magazine", "reads", bounds={"rows": 25}, place="").splitlines()
    ['[tables.reads]  # of a magazine', 'bounds = { rows = 25 }']
    """
    before = tomllib.loads(text)
    wanted = deepcopy(before)
    own = wanted["tables"][table]
    merged = own["bounds"] = merge_bounds(own.get("bounds", {}), bounds)
    # TOML has lines that end in \r\n, too
    ending = "\r\n" if "\r\n" in text else "\n"
    edited = text.replace("\r\n", "\n")
    names = [name for name in merged if name.lower() in {each.lower() for each in bounds}]
    for name in names:
        edited = _set(edited, ("tables", table, "bounds"), name=name, merged=merged)
    edited = edited.replace("\n", ending)
    with suppress(ValueError):
        if _plain(tomllib.loads(edited)) == _plain(wanted):
            return edited
    reason = "The policy has this table in a form into which dpsql does not write bounds."
    hint = f"Add below [tables.{spell(table)}.bounds]: {'; '.join(list_bound_lines(bounds))}."
    raise PolicyError("policy-form", reason, hint=hint, place=place)


def _plain(value: object) -> object:
    """Return a value of TOML whose numbers compare exactly: 0.1 in the file is one tenth."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    is_number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    return Fraction(str(value)) if is_number and str(value) not in {"inf", "-inf", "nan"} else value


@dataclass(frozen=True, slots=True)
class _Found:
    """A statement of the file: its section, its whole key path, and the characters from `start` to `end`."""

    section: KeyPath
    path: KeyPath
    start: int
    end: int
    is_header: bool


def _list_statements(text: str) -> Iterator[_Found]:
    section: KeyPath = ()
    for _, start, end in split_statements(text):
        statement = text[start:end].strip()
        if statement.startswith("["):
            section = read_keys(statement.lstrip("["))
            yield _Found(section, section, start, end, is_header=True)
        elif keys := read_keys(statement):
            yield _Found(section, (*section, *keys), start, end, is_header=False)


def _set(text: str, path: KeyPath, *, name: str, merged: BoundsTable) -> str:
    """Return the text with one of the bounds at `path`: `rows`, or those of a column."""
    statements, value = list(_list_statements(text)), merged[name]
    for found in statements:  # bounds = { ... }, or dwell = { ... } below its section
        if not found.is_header and found.path in {path, (*path, name)}:
            return _replace(text, found, value=merged if found.path == path else value)
    if isinstance(value, Mapping) and any(each.path[: len(path) + 1] == (*path, name) for each in statements):
        for key, end in value.items():  # dwell.max = 600, or the section of the column
            text = _set_end(text, (*path, name), key=key, value=end)
        return text
    section = _find_last(statements, path)
    if section is not None:
        return _add(text, section, line=f"{spell(name)} = {_write(value)}")
    inside = [each for each in statements if each.path[: len(path)] == path]
    dotted = [each for each in inside if not each.is_header and len(each.section) < len(path)]
    section = _find_last(statements, path[:-1])
    if inside and (dotted or section is not None):  # bounds.rows = 20, or a section of a column alone
        after = dotted[-1] if dotted else section
        assert after is not None  # noqa: S101 - one of both
        keys = (*path[len(after.section) :], name)
        return _add(text, after, line=f"{'.'.join(map(spell, keys))} = {_write(value)}")
    if section is not None:
        return _add(text, section, line=f"{spell(path[-1])} = {_write({name: value})}")
    own = [each for each in statements if not each.is_header and each.path[: len(path) - 1] == path[:-1]]
    if own and len(own[-1].path) > len(path) - 1:  # visits.privacy_unit = "id" below [tables]
        keys = path[len(own[-1].section) :]
        return _add(text, own[-1], line=f"{'.'.join(map(spell, keys))} = {_write({name: value})}")
    return text


def _set_end(text: str, path: KeyPath, *, key: str, value: object) -> str:
    """Return the text with one end of the bounds of a column at `path`, or with both ends of each."""
    statements, inner = list(_list_statements(text)), (*path, key)
    own = [each for each in statements if each.path[: len(inner)] == inner]
    if isinstance(value, Mapping) and any(each.is_header or each.path != inner for each in own):
        # dwell.each.max = 9, or the section of each
        for end in value:
            text = _set_end(text, inner, key=end, value=value[end])
        return text
    for found in statements:
        if not found.is_header and found.path == inner:
            return _replace(text, found, value=value)
    section = _find_last(statements, path)
    if section is not None:
        return _add(text, section, line=f"{spell(key)} = {_write(value)}")
    dotted = [each for each in statements if not each.is_header and each.path[: len(path)] == path]
    keys = (*path[len(dotted[-1].section) :], key) if dotted else ()
    return _add(text, dotted[-1], line=f"{'.'.join(map(spell, keys))} = {_write(value)}") if dotted else text


def _find_last(statements: list[_Found], section: KeyPath) -> _Found | None:
    """Return the last statement of a section, its header if it has no other; None if there is no such section."""
    if not any(each.is_header and each.path == section for each in statements):
        return None
    return [each for each in statements if each.section == section][-1]


def _replace(text: str, found: _Found, *, value: object) -> str:
    start, end = find_value(text, found.start, end=found.end)
    return f"{text[:start]}{_write(value)}{text[end:]}"


def _add(text: str, after: _Found, *, line: str) -> str:
    """Return the text with a line after a statement, indented as that is unless it is a header."""
    own = text[after.start : after.end].lstrip("\n")
    indent = "" if after.is_header else own[: len(own) - len(own.lstrip(" \t"))]
    return f"{text[: after.end]}\n{indent}{line}{text[after.end :]}"


def _write(value: object) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{spell(key)} = {_write(each)}' for key, each in value.items())} }}"
    if isinstance(value, Fraction):
        return f"{value.numerator}" if value.denominator == 1 else f"{float(value):.15g}"
    return f"{value}"
