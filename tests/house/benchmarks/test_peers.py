"""Other systems are asked in processes and environments of their own, and what fails there says why."""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from support.benchmarks_kit import FOLDER, Load

import dpsql

SCRIPTS = sorted(path.stem for path in (FOLDER / "beside").glob("*.py") if path.stem != "answering")
OTHERS = [name for name in SCRIPTS if name not in {"plain", "dpsql"}]
ECHO = """
PACKAGES = ("pytest",)

def load(folder):
    print("loading", folder)
    return folder

def top(data, k, bound, *more):
    print("asked")
    return [data, k, bound, *more]
"""


@pytest.fixture
def asked(load: Load) -> ModuleType:
    return load("asked")


@pytest.fixture
def peers(load: Load) -> ModuleType:
    return load("peers")


@pytest.fixture
def environments(load: Load) -> ModuleType:
    return load("environments")


@pytest.fixture
def answering(asked: ModuleType, tmp_path: Path) -> object:
    def begun(script: str, *more: str, patience: float = 60) -> object:
        (tmp_path / "script.py").write_text(script)
        way = asked.Way(Path(sys.executable), tmp_path / "script.py", 5, more)
        return asked.Answering(way, tmp_path, patience=patience)

    return begun


def is_running(pid: int) -> bool:
    """Whether a process has not ended; whoever took over an orphan may not have heard of its end yet."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


# the scripts


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_marks_around_all_that_a_user_writes(name: str, peers: ModuleType) -> None:
    written = peers.lines(name)
    parsed = ast.parse("\n".join(written))
    defined = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef)}
    assert {"load", "top"} == defined
    whole = ast.parse((FOLDER / "beside" / f"{name}.py").read_text())
    [docstring, packages, *users] = whole.body
    assert ast.get_docstring(whole)
    assert ast.unparse(packages).startswith("PACKAGES = ")
    assert ast.unparse(users) == ast.unparse(parsed.body)
    assert docstring is not packages


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_script_names_is_pinned_and_nothing_else_is_left_open(name: str) -> None:
    pins = (FOLDER / "beside" / f"{name}.txt").read_text().splitlines()
    assert all(pin.count("==") == 1 for pin in pins)
    pinned = {pin.partition("==")[0] for pin in pins}
    script = ast.parse((FOLDER / "beside" / f"{name}.py").read_text())
    [packages] = [ast.literal_eval(each.value) for each in script.body[1:2] if isinstance(each, ast.Assign)]
    assert set(packages) <= pinned
    assert "dpsql" not in pinned


def test_the_scripts_are_those_of_the_suite(peers: ModuleType) -> None:
    assert sorted([*peers.OURS, *peers.OTHERS]) == SCRIPTS


def test_blank_lines_and_comments_are_not_counted(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    (tmp_path / "a.py").write_text(
        '"""Of\n\nus."""\n\nOURS = 1\n# what a user writes\n# why\nimport x\n\n    # why\n'
        "\ny = 2  # two\n\n# to here\nz = 3\n"
    )
    assert peers.lines("a") == ["import x", "y = 2  # two"]
    assert peers.purpose("a") == "Of us."


# the processes


def test_a_process_is_asked_again_and_again_and_what_it_prints_is_no_answer(
    answering: object, asked: ModuleType, tmp_path: Path
) -> None:
    with answering(ECHO, "more") as process:
        time.sleep(0.5)
        versions, seconds = process.loaded()
        assert list(versions) == ["pytest"]
        assert seconds > 0.5
        assert process.ask(3) == [str(tmp_path), "3", "5", "more"]
        assert process.ask(4)[1] == "4"
        assert asked.held(process.pid) > 1
        pid = process.pid
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import nowhere", "^ModuleNotFoundError: No module named 'nowhere'$"),
        (ECHO.replace("return folder", "raise ValueError('one\\ntwo')"), "^ValueError: one$"),
        (ECHO.replace("return [", "raise KeyError\n    return ["), "^KeyError: $"),
        (ECHO.replace("return [", "raise type('PanicException', (BaseException,), {})('no')#"), "^PanicException: no$"),
        (ECHO.replace("return [", "import os; os.write(2, b'killed\\n\\n'); os._exit(9)#"), "^ended: killed$"),
        ("import os; os._exit(0)", "^ended: without a word$"),
    ],
)
def test_what_fails_is_told_in_its_own_words(answering: object, asked: ModuleType, script: str, reason: str) -> None:
    def ask() -> None:
        with answering(script) as process:
            process.loaded()
            process.ask(1)

    with pytest.raises(asked.FailedError, match=reason):
        ask()


def test_nobody_waits_for_ever_and_who_does_not_end_is_ended(
    answering: object, asked: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "GRACE", 0.1)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); \n"
    script = ECHO.replace("return folder", deaf + "    time.sleep(99)")
    with answering(script, patience=2) as process:
        with pytest.raises(asked.FailedError, match=r"^no answer within 2 s$"):
            process.loaded()
        pid = process.pid
    assert not is_running(pid)


def test_memory_and_time_are_those_of_a_process_and_its_children(answering: object, asked: ModuleType) -> None:
    child = (
        "import time; held = bytearray(100_000_000); spent = sum(range(5_000_000)); print(flush=True); time.sleep(600)"
    )
    script = ECHO.replace(
        "return folder",
        "import subprocess, sys\n"
        f"    child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "    child.stdout.readline()",
    )
    with answering(script) as process:
        with asked.most_held(process.pid) as most:
            process.loaded()
        pids = list(asked.tree(process.pid))
        assert len(pids) == 2
        assert most[0] > 90
        assert asked.spent(process.pid) > asked.spent(pids[1]) > 0
    until = time.monotonic() + 60
    while any(map(is_running, pids)):  # nobody waits for an orphan
        assert time.monotonic() < until
        time.sleep(0.01)


def test_nothing_of_ours_is_found_by_another_system(asked: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert "PYTHONPATH" not in asked._surroundings(Path("opendp.py"))
    assert asked._surroundings(Path("dpsql.py"))["PYTHONPATH"] == str(Path(dpsql.__file__).parents[1])


# the environments


def test_no_environment_is_made_without_being_asked_for(environments: ModuleType) -> None:
    with pytest.raises(environments.NotInstalledError, match=r"^not installed: --environments FOLDER says where"):
        environments.python_of("opendp", None)


def test_an_environment_that_is_there_is_used_as_it_is(environments: ModuleType, tmp_path: Path) -> None:
    python = tmp_path / "opendp" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert environments.python_of("opendp", tmp_path) == python


def test_half_an_environment_is_not_left_behind(
    environments: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []
    run = environments._ran

    def first(*words: object) -> None:
        ran.append(str(words[2]))
        if words[2] == "venv":
            (tmp_path / "opendp" / "bin").mkdir(parents=True)
            (tmp_path / "opendp" / "bin" / "python").touch()
            return
        run(sys.executable, "-c", "import sys; sys.exit('WARNING: a word\\nERROR: there is no such version')")

    monkeypatch.setattr(environments, "_ran", first)
    with pytest.raises(environments.NotInstalledError, match=r"^not installed: ERROR: there is no such version$"):
        environments.python_of("opendp", tmp_path)
    assert ran == ["venv", "pip"]
    assert not (tmp_path / "opendp").exists()


# the figures


def test_a_ratio_is_of_one_turn_to_the_plain_query_just_before_and_just_after(load: Load, peers: ModuleType) -> None:
    times = load("program.times").Times
    taken = {
        "before": times((0.0, 0.0), (1.0, 2.0)),
        "asked": times((1.0, 2.0), (10.0, 20.0)),
        "after": times((0.0, 1.0), (3.0, 6.0)),
    }
    assert peers.ratios(taken) == {"wall x plain": [5.0, 5.0], "CPU x plain": [4.0]}
    nothing = {name: times((0.0,), (1.0,)) for name in taken}
    assert peers.ratios(nothing) == {"wall x plain": [1.0]}


def test_what_ties_with_the_last_is_a_hit_and_what_is_named_twice_is_one(peers: ModuleType) -> None:
    data = peers.Data(Path(), "", {"a": 9, "b": 5, "c": 5, "d": 1})
    answers = (["a", "c"], ["b", "c"], ["a", "d"], ["a", "a"], ["a", "z"], [], ["d", "z", "a"])
    assert [data.recall(items, 2) for items in answers] == [1, 1, 0.5, 0.5, 0.5, 0, 0]
