"""The reference of all keys of a policy: the names are those that the reader of policies knows, from its own errors."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from pages import described, head, table

from dpsql import Policy, PolicyError

_NOBODY = "no_such_key"
_VALID = '[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.t]\nprivacy_unit = "u"\n'
_SECTIONS = {
    "budget": ("Budget", "`[budget]`, the total, and what it is meant to buy. `epsilon` and `delta` must be there."),
    "tables.t": ("Tables", "`[tables.<name>]`, one for each table; what is not named does not exist for analysts."),
    "limits": ("Limits", "`[limits]`, the ceilings of one query."),
    "analysts.a": (
        "Analysts",
        "`[analysts.<name>]`, a limit within the total; `default` is for whoever is not listed.",
    ),
    "engine": ("Engine", "`[engine]`, where the data is open, and what a statement may take of the machine."),
    "source": (
        "Source",
        "`[source]`, the [engine](../engines.md) that has the tables, where it is no file given to `connect`.",
    ),
    "server": ("Server", "`[server]`, where `dpsql serve` listens, and who may come in."),
}
_TOP = {
    "ledger": "where the record of what was spent is: a file beside the policy, or the address of a schema in "
    "[PostgreSQL](../ledger.md#postgresql-for-several-hosts); without it, memory, with a warning",
    "budget": "[below](#budget); must be there",
    "tables": "[below](#tables); must be there",
    "limits": "[below](#limits)",
    "analysts": "[below](#analysts)",
    "engine": "[below](#engine)",
    "server": "[below](#server)",
    "source": "[below](#source)",
    "materialized": "the folder in which `dpsql materialize` keeps what the tables list, as private as the data "
    "([prepare.md](../prepare.md)); relative to the policy file",
}


def known(section: str) -> list[str]:
    """Return the keys that may stand in a section of a policy file, as the error for another key lists them."""
    text = f"{_NOBODY} = 1\n{_VALID}"
    if section:
        valid = _VALID if f"[{section}]" in _VALID else f"{_VALID}[{section}]\n"
        text = valid.replace(f"[{section}]\n", f"[{section}]\n{_NOBODY} = 1\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.toml"
        path.write_text(text, encoding="utf-8")
        try:
            Policy.from_toml(path)
        except PolicyError as error:
            found = re.fullmatch(r"Known here: (.+)\.", error.hint or "")
            if error.code == "policy-unknown-key" and found:
                return found[1].split(", ")
    raise SystemExit(f"The reader of policies does not list the keys of [{section}].")


def page() -> str:
    """Return the page: every key, with what sql.md says of it."""
    top = {**_TOP, "data_version": described(["data_version"])["data_version"][0]}
    parts = [
        head("The policy", "the reader of policies and sql.md"),
        "A policy is a TOML file, or a `dpsql.Policy` in Python, whose arguments have the same names. A key that is",
        "not here is refused, and so is a value of another type.",
        "[Write a policy](../write-a-policy.md) begins with one.\n",
        table(["key at the top", "meaning"], [[f"`{key}`", top[key]] for key in known("")]),
    ]
    for section, (title, words) in _SECTIONS.items():
        keys, rows = known(section), described(known(section))
        header = ["key", "meaning", "default"][: 1 + len(rows[keys[0]])]
        parts += [f"## {title}\n", f"{words}\n", table(header, [[f"`{key}`", *rows[key]] for key in keys])]
    return "\n".join(parts)
