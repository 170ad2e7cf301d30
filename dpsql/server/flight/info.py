"""Information about the server and the types of columns, by the numbers of Flight SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType

import pyarrow as pa

from dpsql.server.flight.commands import ServerInfo, TypeInfo

__all__ = ["SERVER_INFO", "TYPE_INFO", "server_info", "type_info"]

_TEXTS = pa.list_(pa.field("string_data", pa.string()))
_MAP = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", _TEXTS),
        pa.field("int32_to_int32_list_map", _MAP),
    ]
)
SERVER_INFO = pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _VALUE, nullable=False)])
_STRING, _BOOL, _BIGINT, _INT32, _LIST = range(5)  # which of the union a value is
_INSENSITIVE, _NULLS_LAST, _SOME_OUTER_JOINS = 1, 3, 1
_SUBQUERIES, _UNIONS = 0b111, 0b11

InfoValue = str | bool | int | list[str]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type as ODBC numbers it: a size in digits, characters or bits, by the radix, and how a literal is quoted."""

    name: str
    code: int
    size: int | None
    radix: int | None = None
    quote: str | None = None
    subcode: int | None = None

    @property
    def is_number(self) -> bool:
        """Say whether it has digits."""
        return self.radix is not None


_KINDS = (
    _Kind("TINYINT", -6, 3, 10),
    _Kind("BIGINT", -5, 19, 10),
    _Kind("DECIMAL", 3, 18, 10),
    _Kind("INTEGER", 4, 10, 10),
    _Kind("SMALLINT", 5, 5, 10),
    _Kind("DOUBLE", 8, 53, 2),
    _Kind("VARCHAR", 12, 16_384, quote="'"),
    _Kind("BOOLEAN", 16, 1),
    _Kind("DATE", 91, 10, quote="'", subcode=1),
    _Kind("TIMESTAMP", 93, 26, quote="'", subcode=3),
)
_DATETIME, _DIGITS = 9, 10
TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)


def _known_values() -> Mapping[int, tuple[int, InfoValue]]:
    """Return what is known, by number: which of the union it is, and the value."""
    return MappingProxyType(
        {
            0: (_STRING, "dpsql"),
            1: (_STRING, version("dpsql")),
            2: (_STRING, pa.__version__),
            3: (_BOOL, True),  # nothing is written
            4: (_BOOL, True),  # SQL
            5: (_BOOL, False),  # Substrait
            8: (_INT32, 1),  # transactions, which only read, and no savepoints
            9: (_BOOL, True),  # CancelQuery
            10: (_BOOL, False),
            11: (_BOOL, False),
            500: (_BOOL, False),
            501: (_BOOL, False),
            502: (_BOOL, False),
            503: (_INT32, _INSENSITIVE),
            504: (_STRING, '"'),
            505: (_INT32, _INSENSITIVE),
            506: (_BOOL, False),  # rows of private tables cannot be selected
            507: (_INT32, _NULLS_LAST),
            508: (_LIST, ["TOP", "PRIVATE", "PER"]),
            509: (_LIST, []),
            510: (_LIST, []),
            511: (_LIST, []),
            512: (_LIST, []),
            513: (_STRING, ""),
            515: (_BOOL, True),
            516: (_BOOL, True),
            518: (_BOOL, True),
            519: (_BOOL, False),
            520: (_BOOL, False),
            523: (_BOOL, True),
            528: (_INT32, _SOME_OUTER_JOINS),
            529: (_STRING, "schema"),
            530: (_STRING, ""),
            531: (_STRING, ""),  # there are no catalogs
            536: (_BOOL, False),
            537: (_BOOL, False),
            538: (_INT32, _SUBQUERIES),
            539: (_BOOL, False),
            540: (_INT32, _UNIONS),
            557: (_BIGINT, 128 * 1024),
            563: (_BOOL, False),
        }
    )


def server_info(asked: ServerInfo) -> pa.Table:
    """Return the requested information about the server, or all of it; unknown items are left out."""
    known = _known_values()
    codes = [code for code in dict.fromkeys(asked.wanted) if code in known] if asked.wanted else sorted(known)
    values: dict[int, list[InfoValue]] = {kind: [] for kind in range(_VALUE.num_fields)}
    kinds, offsets = [], []
    for code in codes:
        kind, value = known[code]
        kinds.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(value)
    children = [pa.array(values[kind], _VALUE.field(kind).type) for kind in range(_VALUE.num_fields)]
    names = [_VALUE.field(kind).name for kind in range(_VALUE.num_fields)]
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, field_names=names
    )
    return pa.Table.from_arrays([pa.array(codes, pa.uint32()), union], schema=SERVER_INFO)


def type_info(asked: TypeInfo) -> pa.Table:
    """Return the types that columns can have, or those of one code."""
    rows = [_row(kind) for kind in _KINDS if asked.code is None or asked.code == kind.code]
    return pa.Table.from_pylist(rows, schema=TYPE_INFO)


def _row(kind: _Kind) -> dict[str, object]:
    scales = {"DECIMAL": (0, 18), "TIMESTAMP": (0, 6)}.get(kind.name, (0, 0) if kind.radix == _DIGITS else (None, None))
    return {
        "type_name": kind.name,
        "data_type": kind.code,
        "column_size": kind.size,
        "literal_prefix": kind.quote,
        "literal_suffix": kind.quote,
        "create_params": ["precision", "scale"] if kind.name == "DECIMAL" else None,
        "nullable": 1,
        "case_sensitive": kind.name == "VARCHAR",
        "searchable": 3 if kind.name == "VARCHAR" else 2,
        "unsigned_attribute": False if kind.is_number else None,
        "fixed_prec_scale": False,
        "auto_increment": False if kind.is_number else None,
        "local_type_name": kind.name,
        "minimum_scale": scales[0],
        "maximum_scale": scales[1],
        "sql_data_type": kind.code if kind.subcode is None else _DATETIME,
        "datetime_subcode": kind.subcode,
        "num_prec_radix": kind.radix,
        "interval_precision": None,
    }
