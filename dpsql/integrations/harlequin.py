"""Adapter for Harlequin, a SQL IDE for the terminal, found by the entry point `harlequin.adapter`.

    harlequin --adapter dpsql events.duckdb --policy policy.toml

It needs the extra dpsql[harlequin]. The catalog shows what the policy exposes. A limit cuts the existing answer and
costs nothing. A refusal is a dialog with its reason, its place and its hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from harlequin import HarlequinAdapter, HarlequinConnection, HarlequinCursor
from harlequin.autocomplete.completion import HarlequinCompletion
from harlequin.catalog import Catalog, CatalogItem
from harlequin.exception import HarlequinConfigError, HarlequinConnectionError, HarlequinQueryError
from harlequin.options import FlagOption, TextOption

from dpsql.connect import connect
from dpsql.errors import Error
from dpsql.plan.mechanisms.records import list_names
from dpsql.sql.functions.allow_list import AGGREGATES, FUNCTIONS, WINDOWS
from dpsql.sql.syntax.options import OPTIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.session import Session
    from dpsql.sql.ir.catalog import Table

__all__ = ["DpsqlAdapter"]

_OPTIONS = {
    "policy": "The curator's policy, a TOML file.",
    "analyst": "The analyst, by the name in the policy.",
    "ledger": "Another ledger than the policy's.",
    "isolation": "process: open the data in a process of its own.",
}
_SHORT = {
    "BOOLEAN": "t/f",
    "VARCHAR": "s",
    "DATE": "d",
    "TIMESTAMP": "ts",
    "DOUBLE": "#.#",
    "FLOAT": "#.#",
    "DECIMAL": "#.#",
}


class _Cursor(HarlequinCursor):  # type: ignore[misc, unused-ignore] # where Harlequin is not installed
    """An answer that is there."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def columns(self) -> list[tuple[str, str]]:
        """Return the names, and a sign for each type."""
        return [(field.name, _sign(field.type)) for field in self._table.schema]

    def set_limit(self, limit: int) -> _Cursor:
        """Return the first rows of the same answer."""
        return _Cursor(self._table.slice(0, limit))

    def fetchall(self) -> pa.Table | None:
        """Return the rows, or None if there are none."""
        return self._table if self._table.num_rows else None


class _Connection(HarlequinConnection):  # type: ignore[misc, unused-ignore]
    """Connection of Harlequin, over a session."""

    def __init__(self, session: Session) -> None:
        balance = session.budget
        self.init_message = f"{balance.granted} for every privacy unit; {str(balance).splitlines()[0]}"
        self._session = session

    def execute(self, query: str) -> _Cursor | None:
        """Answer one statement; raise `HarlequinQueryError` with the words of what refused it."""
        try:
            return _Cursor(self._session.sql(query).arrow())
        except Error as error:
            failure = HarlequinQueryError(_words(error), title=f"dpsql: {error.code}")
        raise failure

    def get_catalog(self) -> Catalog:
        """Return the tables that the policy exposes, and their columns; nothing is read."""
        return Catalog(items=list(map(_item, self._session.catalog.tables)))

    def get_completions(self) -> list[HarlequinCompletion]:
        """Return the words of the language that other databases do not have."""
        words = [("kw", word) for word in ("TOP", "PRIVATE", "PER", "ADAPTIVE", "PRIVATE_TOP", "SHOW BUDGET")]
        words += [("fn", name) for name in sorted({*FUNCTIONS, *AGGREGATES, *WINDOWS})]
        words += [("opt", name) for name in sorted(OPTIONS)]
        words += [("mec", name) for name in list_names()]
        return [
            HarlequinCompletion(label=word, type_label=kind, value=word, priority=1000, context=None)
            for kind, word in words
        ]

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class DpsqlAdapter(HarlequinAdapter):  # type: ignore[misc, unused-ignore]
    """Adapter over at most one DuckDB file, with the options of `dpsql.connect`."""

    ADAPTER_OPTIONS = [  # noqa: RUF012 - its own name
        *(TextOption(name, description) for name, description in _OPTIONS.items()),
        FlagOption("implicit", "Read standard SQL over private tables as private."),
    ]
    ADAPTER_DETAILS = "Private top-k analytics in SQL: `SELECT ... TOP k PRIVATE`; `SHOW BUDGET` says what is left."
    IMPLEMENTS_READ_ONLY = True

    def __init__(self, conn_str: Sequence[str], read_only: bool = False, **options: Any) -> None:  # noqa: ANN401, ARG002, FBT001, FBT002 - Harlequin's own signature
        """Keep what to open; nothing is ever written."""
        if len(conn_str) > 1:
            raise HarlequinConfigError("Name one DuckDB file, or none.", title="dpsql")
        self._database = conn_str[0] if conn_str else None
        self._settings: dict[str, Any] = {name: str(options[name]) for name in _OPTIONS if options.get(name)}
        if options.get("implicit"):
            self._settings["implicit"] = True
        if "policy" not in self._settings:
            raise HarlequinConfigError("A policy is needed: --policy policy.toml", title="dpsql")

    def connect(self) -> _Connection:
        """Open the session; raise `HarlequinConnectionError` with the words of what did not fit."""
        try:
            return _Connection(connect(self._database, **self._settings))
        except Error as error:
            failure = HarlequinConnectionError(_words(error), title=f"dpsql: {error.code}")
        raise failure

    @property
    def connection_id(self) -> str | None:
        """Return the identity of a set of tables and an analyst."""
        return "\n".join(
            ["dpsql", self._database or "", *(f"{name}={given}" for name, given in self._settings.items())]
        )


def _words(error: Error) -> str:
    where = f"\nAt {error.place}" if error.place else ""
    return f"{error.reason}{where}" + (f"\nHint: {error.hint}" if error.hint else "")


def _item(table: Table) -> CatalogItem:
    name = _quoted(table.name.split("."))
    kind = "a public table" if table.privacy_unit is None else "a private table"
    columns = [
        CatalogItem(
            qualified_identifier=f"{name}.{_quoted([column])}",
            query_name=_quoted([column]),
            label=column,
            type_label=_short(str(type_)),
        )
        for column, type_ in table.columns
    ]
    return CatalogItem(
        qualified_identifier=name,
        query_name=name,
        label=table.name,
        type_label="pub" if table.privacy_unit is None else "prv",
        children=columns,
        type_name=kind,
    )


def _quoted(parts: Iterable[str]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _short(type_: str) -> str:
    """Return a sign of at most three letters for a type of SQL; whole numbers are the rest."""
    return _SHORT.get(type_.split("(", maxsplit=1)[0], "##" if "INT" in type_ else "?")


def _sign(type_: pa.DataType) -> str:
    import pyarrow as pa

    known = {
        "t/f": pa.types.is_boolean,
        "##": pa.types.is_integer,
        "#.#": lambda given: pa.types.is_floating(given) or pa.types.is_decimal(given),
        "d": pa.types.is_date,
        "ts": pa.types.is_timestamp,
    }
    return next((sign for sign, of in known.items() if of(type_)), "s")
