"""A process that is asked for the top k items, and asks one system.

    python -P answering.py SCRIPT FOLDER BOUND [WHAT ELSE IT TAKES]

It runs in the environment of the system, imports nothing but it and the standard library, and loads the data of FOLDER
by the `load` of SCRIPT. After that each line that it reads is a k, and each that it writes a JSON object: first the
versions of what SCRIPT names, then the items that its `top` returned, or what failed, at any time. What systems print
themselves goes where errors go.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TextIO, TypeVar

LONGEST = 300
T = TypeVar("T")


def main(script: str, folder: str, bound: str, *more: str) -> None:
    """Load, and answer until there is nothing more to read."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        module, data = said(answers, lambda: loaded(script, folder))
        print(json.dumps({"versions": {name: version(name) for name in module.PACKAGES}}), file=answers, flush=True)
        for line in sys.stdin:
            items = said(answers, lambda k=int(line): module.top(data, k, int(bound), *more))
            print(json.dumps({"items": [str(item) for item in items]}), file=answers, flush=True)


def loaded(script: str, folder: str) -> tuple[ModuleType, object]:
    """Import a script, by a name that is not that of a package, and let it load its data."""
    spec = spec_from_file_location("asked_script", script)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.load(folder)


def said(answers: TextIO, act: Callable[[], T]) -> T:
    """Do it, or say what failed, in the words of the system, and end."""
    try:
        return act()
    except BaseException as error:  # a panic of Rust is no Exception
        first = next(iter(str(error).strip().splitlines()), "")
        print(json.dumps({"failed": f"{type(error).__name__}: {first[:LONGEST]}"}), file=answers, flush=True)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
