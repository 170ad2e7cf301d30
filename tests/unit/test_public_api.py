"""The face: flat, sorted, documented, light to import; and `dpsql.connect` is the function whatever was imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import dpsql

HEAVY = ("duckdb", "pyarrow", "sqlglot", "numpy", "mpmath", "pandas", "polars", "rich", "psycopg")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_is_sorted_and_complete() -> None:
    assert dpsql.__all__ == sorted(dpsql.__all__)
    assert dir(dpsql) == dpsql.__all__


def test_the_version_is_the_installed_one_and_is_read_on_first_use() -> None:
    assert dpsql.__version__ == importlib.metadata.version("dpsql")
    assert "__version__" not in dir(dpsql)
    assert python("import dpsql; print('__version__' in vars(dpsql))") == "False"


@pytest.mark.parametrize("name", dpsql.__all__)
def test_every_name_is_there_and_explained(name: str) -> None:
    thing = getattr(dpsql, name)
    assert inspect.getdoc(thing)
    assert not (inspect.getdoc(thing) or "").startswith(f"{name}(")  # the docstring that dataclasses make up


@pytest.mark.parametrize("name", ["Answer", "Session", "Balance", "Plan", "Receipt", "Policy", "Budget", "Limits"])
def test_every_public_method_is_explained(name: str) -> None:
    kind = getattr(dpsql, name)
    for attribute, value in vars(kind).items():
        if not attribute.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
            assert inspect.getdoc(value), f"{name}.{attribute}"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dpsql.nothing  # noqa: B018 - the access is the test


def test_every_error_is_an_error_of_dpsql() -> None:
    kinds = [getattr(dpsql, name) for name in dpsql.__all__ if inspect.isclass(getattr(dpsql, name))]
    errors = {kind for kind in kinds if issubclass(kind, Exception) and not issubclass(kind, Warning)}
    assert all(issubclass(kind, dpsql.Error) for kind in errors)
    assert {kind.__name__ for kind in errors} >= {
        "Refusal",
        "Unsupported",
        "BudgetExceeded",
        "PolicyError",
        "EngineError",
    }


@pytest.mark.parametrize(
    "imports",
    [
        "import dpsql",
        "import dpsql.connect, dpsql",
        "import dpsql, dpsql.session, dpsql.connect",
        "from dpsql.connect import open_session; import dpsql",
        "import dpsql.cli, dpsql.connect; import dpsql",
        "import importlib, dpsql; importlib.import_module('dpsql.connect'); from dpsql import *",
        "import dpsql.connect as other, dpsql; assert other is dpsql.connect",
    ],
)
def test_connect_is_the_function(imports: str) -> None:
    assert python(f"{imports}\nprint(type(dpsql.connect).__name__, dpsql.connect.__name__)") == "function connect"


@pytest.mark.parametrize(
    "use",
    [
        "import dpsql",
        "import dpsql; dpsql.Policy(dpsql.Budget(1, '1e-6'), {'t': dpsql.PrivateTable('u')})",
        "import dpsql; dir(dpsql); dpsql.connect.__doc__",
        "import dpsql.cli",
    ],
)
def test_importing_is_light(use: str) -> None:
    assert python(f"{use}\nimport sys; print([name for name in {HEAVY!r} if name in sys.modules])") == "[]"


@pytest.mark.parametrize("command", ["--help", "query --help", "budget --help"])
def test_help_is_light(command: str) -> None:
    code = (
        f"import sys; sys.argv = ['dpsql', *{command.split()!r}]\n"
        "from dpsql.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert "Usage:" in done.stdout
    assert done.stderr.strip() == "[]"
