"""Layouts of EXPLAIN with options: plans as lines, JSON or XML that the viewers of PostgreSQL's tools read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from dpsql.server.row_blocks import encode_rows
from dpsql.server.wire.codec import Column
from dpsql.server.wire.rows import EncodedRows, expand_formats

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["describe_plan", "encode_plan"]

Fact = tuple[str, str]
Node = dict[str, object]
_OIDS: Mapping[str, int] = {"TEXT": 25, "JSON": 114, "XML": 142}
_NAMESPACE = "http://www.postgresql.org/2009/explain"
_PART, _ENGINE = "private query", "engine SQL"
_OF_ALL = frozenset(["together", "around it"])  # facts of all private queries of a statement


def describe_plan(layout: str) -> tuple[Column, ...]:
    """Return the one column of EXPLAIN in a layout."""
    return (Column("QUERY PLAN", _OIDS[layout], -1, -1),)


def encode_plan(table: pa.Table, layout: str, *, formats: Sequence[int]) -> EncodedRows:
    """Return the facts of EXPLAIN, by property and value, in a layout: lines of text, or one document."""
    facts: list[Fact] = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    match layout:
        case "JSON":
            lines = [json.dumps([{"Plan": _build_tree(facts)}], indent=2, ensure_ascii=False)]
        case "XML":
            plan = "".join(_write_xml("Plan", _build_tree(facts), indent=4))
            lines = [f'<explain xmlns="{_NAMESPACE}">\n  <Query>\n{plan}  </Query>\n</explain>']
        case _:
            lines = [f"{name}: {value}" for name, value in facts]
    rows = encode_rows((line.encode(),) for line in lines)
    return EncodedRows(describe_plan(layout), rows, expand_formats(formats, 1))


def _build_tree(facts: Sequence[Fact]) -> Node:
    """Return the node of a statement; each of several private queries is a node below it."""
    starts = [at for at, (name, _) in enumerate(facts) if name == _PART]
    if not starts:
        return _build_node(facts)
    of_all = [fact for fact in facts if fact[0] in _OF_ALL]
    ends = [*starts[1:], len(facts)]
    parts = [
        _build_node([fact for fact in facts[start:end] if fact[0] not in _OF_ALL])
        for start, end in zip(starts, ends, strict=True)
    ]
    return {**_build_node(of_all), "Plans": parts}


def _build_node(facts: Sequence[Fact]) -> Node:
    """Return the facts of one private query as a node, and the query of the engine as one below it."""
    found = dict[str, list[str]]()
    for name, value in facts:
        found.setdefault(name, []).append(value)
    engine = found.pop(_ENGINE, [])
    node: Node = {"Node Type": " ".join(found.pop("mechanism", ["Result"])).replace("_", " ").title()}
    node |= {f"{name[0].upper()}{name[1:]}": each[0] if len(each) == 1 else each for name, each in found.items()}
    if engine:
        node["Plans"] = [{"Node Type": "Engine Query", "Parent Relationship": "Outer", "SQL": each} for each in engine]
    return node


def _write_xml(name: str, value: object, *, indent: int) -> Iterator[str]:
    """Yield the lines of an element; names have hyphens in place of spaces, as in PostgreSQL."""
    tag, margin = "".join(each if each.isalnum() else "-" for each in name), " " * indent
    if not isinstance(value, dict | list):
        yield f"{margin}<{tag}>{escape(str(value))}</{tag}>\n"
        return
    yield f"{margin}<{tag}>\n"
    item = "Plan" if name == "Plans" else "Item"
    items = value.items() if isinstance(value, dict) else [(item, each) for each in value]
    for inner, each in items:
        yield from _write_xml(inner, each, indent=indent + 2)
    yield f"{margin}</{tag}>\n"
