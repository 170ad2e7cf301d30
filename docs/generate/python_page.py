"""The reference of the Python face, from its docstrings: what `dpsql`, `dpsql.dbapi` and `dpsql.pate` export."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module

from pages import code, head

from dpsql.dbapi.connection import TypeObject
from dpsql.pate import Method

MODULES = ("dpsql", "dpsql.dbapi", "dpsql.pate")
_WIDTH = 90
_GIVEN = frozenset(
    "Session Answer Receipt Balance Cursor Forecast Plan Place Labelling LabellingReceipt Method".split()
)  # what callers never make
_ORDER = ("connect", "Session", "Answer", "Receipt", "Policy", "Budget", "PrivateTable", "PublicTable", "Limits")


def page() -> str:
    """Return the page: modules, what each exports, and of classes the public methods and properties."""
    parts = [head("Python", "the docstrings of the public face")]
    for name in MODULES:
        module = import_module(name)
        exported = sorted(
            module.__all__, key=lambda each: (_ORDER.index(each) if each in _ORDER else len(_ORDER), each)
        )
        parts.append(f"## {name}\n")
        for each in exported:
            parts += _entry(f"{name}.{each}", getattr(module, each))
    return "\n".join(parts)


def _entry(path: str, thing: object) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield f"### {name}\n"
    if inspect.isclass(thing) and not thing.__module__.startswith("dpsql"):
        known = f"{thing.__module__}.{thing.__name__}".removeprefix("builtins.")
        yield f"`{path}` is Python's `{known}`.\n"
    elif inspect.isclass(thing):
        yield from _fields(thing) if name in _GIVEN else _signature(path, thing)
        yield _text(thing)
        for member in _members(thing):
            yield from _member(thing, member)
    elif callable(thing):
        yield from _signature(path, thing)
        yield _text(thing)
    elif isinstance(thing, TypeObject):
        yield f"`{path}` equals the type codes {code(sorted(thing.codes)) or 'of no column'}.\n"
    else:
        yield f"`{path} = {thing}`\n"


def _fields(kind: type) -> Iterator[str]:
    """Yield what an object that dpsql makes holds, by name and type."""
    fields = {name: type_ for name, type_ in inspect.get_annotations(kind).items() if not name.startswith("_")}
    if fields:
        lines = "\n".join(f"{name}: {type_}" for name, type_ in fields.items())
        yield f"```text\n{lines}\n```\n"


def _members(kind: type) -> list[str]:
    """Return the public methods and properties that a class, or one of dpsql's below it, defines."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("dpsql")]
    fields = {name for base in own for name in inspect.get_annotations(base)}
    found = dict.fromkeys(name for base in own for name in vars(base) if not name.startswith("_"))
    made = kind.__name__ in _GIVEN  # by dpsql: how is no matter of the caller's
    named = [name for name in found if name not in fields and getattr(kind, name).__doc__]
    if kind is not Method and {"draw", "release_identity"} <= found.keys():
        named = [name for name in named if not hasattr(Method, name)]  # a method of labelling: said once, of all
    return [name for name in named if not (made and isinstance(inspect.getattr_static(kind, name), classmethod))]


def _member(kind: type, name: str) -> Iterator[str]:
    thing = inspect.getattr_static(kind, name)
    if isinstance(thing, property):
        yield f"#### {kind.__name__}.{name}\n"
        yield _text(thing)
    elif callable(getattr(kind, name)) and not inspect.isclass(thing):
        yield f"#### {kind.__name__}.{name}()\n"
        yield from _signature(f"{kind.__name__}.{name}", getattr(kind, name))
        yield _text(getattr(kind, name))


def _signature(path: str, thing: Callable[..., object]) -> Iterator[str]:
    """Yield how it is called, where a caller may: errors are not called."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return
    found = inspect.signature(thing)
    given = [each for each in found.parameters.values() if each.name != "self"]
    words = [_parameter(each) for each in given]
    keyword = next((at for at, each in enumerate(given) if each.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if keyword is not None:
        words.insert(keyword, "*")
    inside = ", ".join(words)
    if len(path) + len(inside) > _WIDTH:
        inside = "\n    " + ",\n    ".join(words) + ",\n"
    gives = "" if inspect.isclass(thing) else f" -> {_type(found.return_annotation)}"
    yield f"```text\n{path}({inside}){gives}\n```\n"


def _parameter(given: inspect.Parameter) -> str:
    default = "" if given.default is inspect.Parameter.empty else f" = {given.default!r}"
    return f"{given.name}: {_type(given.annotation)}{default}"


def _type(annotation: object) -> str:
    """Return a type as a reader writes it, without the modules of dpsql that it comes from."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\b(?:planning|report|engines|ledgers|statements|clocks)\.(?=[A-Z])", "", name)


def _text(thing: object) -> str:
    """Return a docstring as Markdown: its examples are code, which `test_doctests_run` runs."""
    lines, example = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line.startswith(">>> ") and not example:
            example = True
            lines.append("```pycon")
        elif example and not line.strip():
            example = False
            lines.append("```")
        lines.append(line if example else re.sub(r"(?<!\*)\*(?!\*)", r"\\*", line))
    return "\n".join([*lines, *(["```"] if example else []), ""])
