"""Detection of the kind of a folder (a Delta Lake table, an Iceberg table, or Parquet files) and of its current files.

Only names and metadata are read. Everything that could count a deleted row, or a row twice, is refused: a folder that
is part of a table or contains one, symbolic links, and files in other places.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

from dpsql.engines.sources import DataFile, Folder, within
from dpsql.errors import EngineError, UsageError

MOST_FILES = 10_000
METADATA = ".metadata.json"
_LOG = "_delta_log"
_OF_ICEBERG = ("*.metadata.json*", "version-hint.text", "snap-*.avro")  # also what an older writer called so
_HUDI = ".hoodie"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_WORDS = {"delta": "a Delta Lake table", "iceberg": "an Iceberg table", "hudi": "a Hudi table"}


def find_folder(path: Path, *, place: str) -> Folder:
    """Return the table that a folder, or a metadata file of Iceberg, is at this moment.

    Raises `EngineError` for what cannot be read for certain, and `UsageError` where the package is missing that knows
    the kind of the table.
    """
    root = path.resolve()
    if root.name.endswith(METADATA) and root.parent.name == "metadata" and root.is_file():
        return _check_file_count(_iceberg(root.parents[1], root, place=place), place=place)
    if not root.is_dir():
        hint = "Check the path; in a policy file it is relative to the policy file."
        raise EngineError("source-missing", f'There is no folder "{path.name}".', hint=hint, place=place)
    kinds = None
    with suppress(OSError):  # of a folder that may not be entered
        kinds = _kinds(root)
    if kinds is None:
        raise _unlisted(place)
    if len(kinds) > 1 or "hudi" in kinds:
        reason = f"The folder is {' and '.join(_WORDS[kind] for kind in kinds)}."
        hint = "Give a folder of Parquet files, or that of one Delta Lake or Iceberg table."
        raise EngineError("source-ambiguous", reason, hint=hint, place=place)
    if kinds == ["delta"]:
        return _check_file_count(_delta(root, place=place), place=place)
    if kinds == ["iceberg"]:
        return _check_file_count(_iceberg(root, None, place=place), place=place)
    return _check_file_count(_parquet(root, place=place), place=place)


def _kinds(root: Path) -> list[str]:
    """Return the kinds of table whose metadata stand in a folder."""
    found = {
        "delta": (root / _LOG).is_dir(),
        "iceberg": any(any((root / "metadata").glob(name)) for name in _OF_ICEBERG),
        "hudi": (root / _HUDI).is_dir(),
    }
    return [kind for kind, there in found.items() if there]


def _check_file_count(folder: Folder, *, place: str) -> Folder:
    """Return the folder if its files are not too many, each there once."""
    if len(folder.files) > MOST_FILES:
        reason = f"The table has more than {MOST_FILES} files."
        raise EngineError("source-files", reason, hint="Compact it into larger ones.", place=place)
    if len({file.path for file in folder.files}) < len(folder.files):
        reason = "The metadata of the table name a file twice."
        raise EngineError("source-unreadable", reason, hint="Repair the table with what wrote it.", place=place)
    return folder


def _delta(root: Path, *, place: str) -> Folder:
    _require("deltalake", "A Delta Lake table", extra="delta")
    from dpsql.engines.delta import open_delta

    return open_delta(root, place=place)


def _iceberg(root: Path, metadata: Path | None, *, place: str) -> Folder:
    _require("pyiceberg", "An Iceberg table", extra="iceberg")
    from dpsql.engines.iceberg import open_iceberg

    return open_iceberg(root, metadata, place=place)


def _require(package: str, what: str, *, extra: str) -> None:
    if find_spec(package) is None:
        hint = f"Install it: pip install 'dpsql[{extra}]'."
        raise UsageError("not-installed", f"{what} needs the package {package}.", hint=hint)


def _parquet(root: Path, *, place: str) -> Folder:
    """Return the Parquet files below a folder, by their paths; of `key=value` folders the keys are columns."""
    for above in root.parents:
        if kinds := _kinds(above):
            raise _mixed_folder(_WORDS[kinds[0]], place=place, way="lies in")
    files = None
    with suppress(OSError):  # of a folder below that may not be listed: its files would be left out without a word
        files = sorted(_list_parquet(root, place=place))
    if files is None:
        raise _unlisted(place)
    if not files:
        hint = "Files count whose names end in .parquet and begin with neither . nor _."
        raise EngineError("source-empty", "The folder has no Parquet file.", hint=hint, place=place)
    partitions, values = read_partitions([file.relative_to(root).parts[:-1] for file in files], place=place)
    return Folder(root, "parquet", tuple(map(DataFile, files, values)), partitions)


def read_partitions(
    folders: Sequence[tuple[str, ...]], *, place: str
) -> tuple[tuple[str, ...], list[tuple[str | None, ...]]]:
    """Return the keys of key=value folders above files, and the values of each file; all files have the same keys."""
    keyed = [_keys(parts, place=place) for parts in folders]
    partitions = tuple(keyed[0])
    if any(tuple(keys) != partitions for keys in keyed):
        reason = "The files of the folder do not all stand below the same key=value folders."
        raise EngineError("source-schema", reason, hint="Partition all of them in the same way.", place=place)
    return partitions, [tuple(keys.values()) for keys in keyed]


def _unlisted(place: str) -> EngineError:
    hint = "Give the right to read it and every folder below it."
    return EngineError("source-unreadable", "The folder cannot be listed.", hint=hint, place=place)


def _mixed_folder(table: str, *, place: str, way: str) -> EngineError:
    return EngineError(
        "source-ambiguous",
        f"The folder {way} {table}, and not every file of that holds rows of it.",
        hint="Give the folder of the table itself: its metadata say which files count.",
        place=place,
    )


def _list_parquet(root: Path, *, place: str) -> list[Path]:
    """Return the Parquet files below a folder; what Spark leaves out is left out."""
    found: list[Path] = []
    for folder, names, files in os.walk(root, onerror=_raise):
        here = Path(folder)
        if here != root and (kinds := _kinds(here)):
            raise _mixed_folder(_WORDS[kinds[0]], place=place, way="has in it")
        names[:] = [name for name in names if not is_hidden(name)]
        wanted = [name for name in files if name.lower().endswith(".parquet") and not is_hidden(name)]
        # os.walk enters no link to a folder: its files would be left out without a word.
        for name in [*names, *wanted]:
            within(root, here / name, place=place)
        found += [here / name for name in wanted]
    return found


def _raise(error: OSError) -> None:
    raise error


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is left out by its name, as Spark leaves it out."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _keys(parts: tuple[str, ...], *, place: str) -> dict[str, str | None]:
    """Return what the folders above a file say of its rows, by their names, percent-encoded as Hive writes them."""
    found: dict[str, str | None] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            continue
        name, text = unquote(key), unquote(value)
        if not name or {"\0", "\ufffd"} & {*name, *text} or name.lower() in map(str.lower, found):
            reason = "Two key=value folders above a file have one key, or a key or value is no text."
            raise EngineError("source-schema", reason, hint="Give every key its own name.", place=place)
        # country=__HIVE_DEFAULT_PARTITION__ is the folder of rows whose country is NULL.
        found[name] = None if value == _NULL else text
    return found
