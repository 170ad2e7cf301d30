"""Doors and seams: what may be called from where, beyond what the import contracts say."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "dpsql").rglob("*.py"))
RANDOM = re.compile(r"\brandom\.|numpy\.random|np\.random|default_rng|import random|from random|scipy|\bseed\b\(")


@cache
def names_in(module: Path) -> frozenset[str]:
    nodes = list(ast.walk(ast.parse(module.read_text())))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset(names | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names})


def who_uses(name: str) -> set[str]:
    return {str(module.relative_to(ROOT / "dpsql")) for module in MODULES if name in names_in(module)}


def test_only_a_release_opens_exact_results() -> None:
    releases = {"plan/release.py", "pate.py", "suggested_bounds.py"}
    worker = "engines/duckdb/worker.py"  # sends what it read to the front, where it is sealed again
    suite = "testing/queries.py"  # compares engines over tables of its own
    assert who_uses("open_exact") == {"engines/__init__.py", worker, suite, *releases}  # base.py defines it


def test_only_the_composition_root_names_real_parts() -> None:
    assert who_uses("OperatingSystemNoise") <= {
        "mechanisms/sampling/noise.py",
        "mechanisms/__init__.py",
        "connect.py",
        "curator.py",
    }
    assert who_uses("SQLiteLedger") <= {"ledger/sqlite_ledger.py", "ledger/__init__.py", "connect.py"}
    assert who_uses("PostgresLedger") <= {"ledger/postgres_ledger.py", "connect.py"}
    assert {name for name in who_uses("DuckDBEngine") if not name.startswith("engines/")} == {
        "open_engine.py",
        "testing/kit.py",
    }


def test_no_randomness_but_the_operating_systems() -> None:
    for module in MODULES:
        if module == ROOT / "dpsql" / "testing" / "suite.py":  # which queries the conformance suite tries
            continue
        code = "\n".join(ast.unparse(node) for node in ast.parse(module.read_text()).body)
        without_docs = re.sub(r'"""(.|\n)*?"""', "", code)
        assert not RANDOM.search(without_docs), module
    assert who_uses("secrets") == {
        "mechanisms/sampling/noise.py",
        "server/users.py",
    }  # salts and tokens, no noise
    assert who_uses("urandom") == {"confinement/system_calls.py"}  # addresses, no noise


def test_nothing_is_logged_or_printed() -> None:
    assert who_uses("logging") == set()
    silencers = {"engines/warehouses.py", "engines/spark_session.py", "server/mcp/__init__.py"}  # of clients' logs
    assert who_uses("getLogger") == silencers
    assert {name for name in who_uses("print") if not name.startswith("cli/")} == set()


def test_builtin_hash_decides_nothing() -> None:
    for module in MODULES:
        nodes = list(ast.walk(ast.parse(module.read_text())))
        itself = {inner for node in nodes if getattr(node, "name", "") == "__hash__" for inner in ast.walk(node)}
        calls = [node.func for node in nodes if isinstance(node, ast.Call) and node not in itself]
        assert not any(isinstance(call, ast.Name) and call.id == "hash" for call in calls), module
