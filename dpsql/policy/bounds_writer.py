"""Writer of bounds into the text of a policy file: the rest of the file stays as it is, with its comments.

A value is replaced where the file has it, in a table, with dotted keys or in an inline table. A new one is added to the
section of the bounds, or of the table. The new text is read before it is used: it must mean what the old one did, but
for the bounds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError
from dpsql.policy.toml import KeyPath, find_value, read_keys, spell, split_statements

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
        return path.read_bytes().decode("utf-8")
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
