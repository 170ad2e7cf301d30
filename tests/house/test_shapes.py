"""The shapes of house.md: sizes of functions, parameters, words."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "dpsql").rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Path) -> Iterator[tuple[str, Function, bool]]:
    """Yield a label, the function, and whether its first parameter is the object or class it belongs to."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    methods = {
        id(item)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, Function)
        and "staticmethod" not in {getattr(mark, "id", "") for mark in item.decorator_list}
    }
    for node in nodes:
        if isinstance(node, Function):
            yield f"{module.relative_to(ROOT)}:{node.lineno} {node.name}", node, id(node) in methods


@cache
def all_functions() -> list[tuple[str, Function, bool]]:
    return [found for module in MODULES for found in functions(module)]


def test_there_is_something_to_measure() -> None:
    assert len(MODULES) > 30
    assert len(all_functions()) > 200


def test_functions_take_at_most_6_parameters() -> None:
    wide = []
    for label, node, method in all_functions():
        count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - method
        if count > 6:
            wide.append(label.split(":")[0] + " " + node.name)
    # EngineSettings(...), Limits(...), Budget(...), Policy(...), ServerSettings(...) and PrivateTable(...) take the
    # keys of the file
    modules = ("model", "model", "settings", "settings", "settings", "tables")
    commands = [f"dpsql/cli/__init__.py {name}" for name in ("query", "shell", "explain", "mcp")]
    commands += [
        f"dpsql/cli/curator.py {name}" for name in ("bounds", "publish", "grant")
    ]  # and one for each option of a command
    suggestions = [
        f"dpsql/curator.py {name}" for name in ("suggest_bounds", "publish")
    ]  # what is suggested, and what a session is opened with
    # what one is opened with
    sessions = ["dpsql/connect.py connect", *suggestions, "dpsql/dbapi/connection.py connect"]
    # what a session has, and the parts of a statement
    analyses = ["dpsql/sql/analysis/analyze.py analyze", "dpsql/sql/analysis/outer_tree.py read_outer_tree"]
    assert wide == [*commands, *sessions, *(f"dpsql/policy/{module}.py __init__" for module in modules), *analyses]


def test_parameters_after_the_second_are_keyword_only() -> None:
    loose = {
        label.split(":")[0] + " " + node.name
        for label, node, method in all_functions()
        if len(node.args.posonlyargs) + len(node.args.args) - method > 2
    }
    # Budget.suggest(items, queries, users), suggest_bounds(policy, table, columns) and publish(policy, name, sql) are
    # promised as they stand
    promised = {"dpsql/policy/model.py suggest", "dpsql/curator.py suggest_bounds", "dpsql/curator.py publish"}
    called = "_nothing get_columns get_pk_constraint get_table_comment has_table is_disconnect"  # by SQLAlchemy, so
    called_so = {f"dpsql/integrations/sqlalchemy.py {name}" for name in called.split()}
    assert loose == promised | called_so | {
        f"dpsql/server/{module} __call__"
        for module in ("http.py", "mcp/__init__.py")  # as ASGI calls them
    }


def test_no_module_defines_a_name_twice() -> None:
    """A second one replaces the first without a word, as where two files with constants of one name were merged."""
    doubled = []
    for module in MODULES:
        names = Counter[str]()
        for node in ast.parse(module.read_text()).body:
            targets = [node] if isinstance(node, Function | ast.ClassDef) else getattr(node, "targets", [])
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                names.update(getattr(part, "id", "") or getattr(part, "name", "") for part in parts)
        doubled += [f"{module.relative_to(ROOT)} {name}" for name, count in names.items() if name and count > 1]
    assert doubled == []
