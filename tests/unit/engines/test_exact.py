from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

from dpsql.engines import Exact, open_exact
from dpsql.errors import UsageError

SECRET = "VICTIM_SECRET"


def test_an_exact_result_gives_nothing_away() -> None:
    exact = Exact(pa.table({"article": [SECRET]}))
    for said in (repr(exact), str(exact), f"{exact}", "%s" % exact, repr([exact]), repr(dir(exact))):  # noqa: UP031 - the old way too
        assert SECRET not in said
        assert "article" not in said
    for act in (
        lambda: iter(exact),
        lambda: len(exact),
        lambda: exact[0],
        lambda: list(exact),
        lambda: vars(exact),
        lambda: pa.table(exact),
        lambda: setattr(exact, "note", 1),
    ):
        with pytest.raises((TypeError, AttributeError)):
            act()
    assert open_exact(exact).to_pylist() == [{"article": SECRET}]


@pytest.mark.parametrize(
    "act", [copy.copy, copy.deepcopy, *(lambda exact, p=p: pickle.dumps(exact, p) for p in range(6))]
)
def test_an_exact_result_is_not_copied(act: object) -> None:
    with pytest.raises(UsageError) as caught:
        act(Exact(pa.table({"article": [SECRET]})))  # type: ignore[operator]
    assert caught.value.code == "exact-sealed"
    assert SECRET not in str(caught.value)


def test_an_exact_result_does_not_keep_its_table_alive() -> None:
    exact = Exact(pa.table({"article": [SECRET]}))
    before = pa.total_allocated_bytes()
    open_exact(exact)
    del exact
    gc.collect()
    assert pa.total_allocated_bytes() < before


def test_the_package_starts_without_an_engine() -> None:
    code = "import sys, dpsql.engines; print({'duckdb', '_duckdb', 'pyarrow'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "set()\n"
