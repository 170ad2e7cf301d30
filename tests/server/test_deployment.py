"""The systemd unit and the Containerfile of examples/server: as far as they can be tried without either."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpsql import Policy
from dpsql.cli import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "server"
UNIT, CONTAINERFILE = FOLDER / "dpsql.service", FOLDER / "Containerfile"
LIKE_POSIX = {"FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=True, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]
    return parser["Service"]


def instructions() -> list[tuple[str, str]]:
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in "\n".join(lines).replace("\\\n", "").splitlines()]  # type: ignore[misc]


def test_the_policy_of_the_examples_is_one() -> None:
    policy = Policy.from_toml(FOLDER / "policy.toml")
    assert policy.server.certificate is not None
    assert policy.server.users == FOLDER / "users.toml"
    assert policy.server.listens().keys() == {"postgres", "web"}
    assert policy.engine.isolation == "process"
    assert policy.engine.answer_grid_ms
    with pytest.raises(Exception, match="analyst-disabled"):
        policy.analyst("mallory")


def test_both_start_what_there_is() -> None:
    started = shlex.split(unit()["ExecStart"])
    (entry,) = [json.loads(words) for name, words in instructions() if name == "ENTRYPOINT"]
    (command,) = [json.loads(words) for name, words in instructions() if name == "CMD"]
    for program, *words in (started, entry + command):
        assert program == "/opt/dpsql/bin/dpsql"
        shown = CliRunner().invoke(app, [words[0], "--help"])
        assert shown.exit_code == 0
        assert all(word in shown.output for word in words if word.startswith("--"))


def test_the_unit_stops_the_server_alone_and_lets_it_settle() -> None:
    service = unit()
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")
    assert int(service["TimeoutStopSec"]) >= 60
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["User"] != "root"
    policy = Policy.from_toml(FOLDER / "policy.toml")
    assert str(policy.ledger).startswith(f"/var/lib/{service['StateDirectory']}/")


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:  # then the test above has read it
        return
    text = UNIT.read_text()
    copy = tmp_path / "dpsql.service"
    copy.write_text(re.sub(r"/opt/dpsql/bin/dpsql", "/bin/true", text))  # which is there
    done = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60, check=False)
    told = [line for line in (done.stdout + done.stderr).splitlines() if "dpsql" in line]
    assert told == []


def test_the_image_runs_as_nobody_special_and_keeps_the_ledger_outside() -> None:
    steps = instructions()
    assert {name for name, _ in steps} <= LIKE_POSIX
    assert [words for name, words in steps if name == "USER"] == ["dpsql"]
    assert [words for name, words in steps if name == "VOLUME"] == ["/var/lib/dpsql"]
    copied = [word for name, words in steps if name == "COPY" and "--from" not in words for word in words.split()[:-1]]
    assert all((ROOT / word).exists() for word in copied)
    ports = {str(port) for _, port in Policy.from_toml(FOLDER / "policy.toml").server.listens().values()}
    assert {word for name, words in steps if name == "EXPOSE" for word in words.split()} == ports
