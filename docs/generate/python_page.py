"""The reference of the Python face, from its docstrings: what `dpsql`, `dpsql.dbapi` and `dpsql.pate` export."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module

from pages import code, head, table

import dpsql
from dpsql.dbapi.connection import TypeObject
from dpsql.pate import Method

MODULES = ("dpsql", "dpsql.dbapi", "dpsql.pate")
_WIDTH = 90
_SHORT = 48  # words of a method that is an item of a list
_GIVEN = frozenset(
    "Session Answer Receipt Balance Connection Cursor Forecast Plan Place Labelling LabellingReceipt Method".split()
)  # what callers never make
_ORDER = ("connect", "Session", "Answer", "Receipt", "Policy", "Budget", "PrivateTable", "PublicTable", "Limits")
_ONLY = {  # of classes most of which is for the other modules of dpsql
    "Session": (
        "sql execute replay peek explain explain_all forecast describe prepare tables budget progress history close"
    ),
    "Plan": (
        "mechanism k k_bar epsilon delta worst_items worst_case threshold_offset need needs warnings stored "
        "max_groups_contributed max_rows_fetched engine_sql facts"
    ),
    "Balance": (
        "granted refunded gone epsilon items analyst certificate by values answers published rho delta tiles queries "
        "remaining limit used percent_used percent_reserved left percent_left of details"
    ),
    "Policy": "from_toml only with_budget",
    "EngineSettings": "",
    "ServerSettings": "",
    "DataSource": "",
    "Limits": "",
    "Connection": "session closed autocommit another cursor execute commit rollback close",
    "Method": "name epsilon loss most_labels",
}


def page() -> str:
    """Return the page: modules, what each exports, and of classes the public methods and properties."""
    parts = [head("Python", "the docstrings of the public face")]
    for name in MODULES:
        module = import_module(name)
        things = {each: getattr(module, each) for each in module.__all__}
        small = {each: _describe_small(thing) for each, thing in things.items()}
        parts.append(f"## {name}\n")
        for each in sorted(things, key=lambda each: (_ORDER.index(each) if each in _ORDER else len(_ORDER), each)):
            parts += _entry(f"{name}.{each}", things[each]) if small[each] is None else ()
        rows = [(f"`{each}`", text) for each, text in sorted(small.items()) if text is not None]
        if rows:
            parts += [f"### Errors, types and constants of {name}\n", table(("name", "what it is"), rows)]
    return "\n".join(parts)


def _describe_small(thing: object) -> str | None:
    """Return an error, a constant or a name of Python's in one line; None for what has an entry of its own."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return " ".join(_paragraphs(thing)).replace("\n", " ")
    if inspect.isclass(thing) and not thing.__module__.startswith("dpsql"):
        return f"Python's `{thing.__module__}.{thing.__name__}`".replace("builtins.", "")
    if isinstance(thing, TypeObject):
        return f"Equals the type codes {code(sorted(thing.codes)) or 'of no column'}."
    return None if callable(thing) else f"`{thing}`".replace("|", "\\|")


def _entry(path: str, thing: object) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield f"### {name}\n"
    if inspect.isclass(thing):
        yield from _fields(thing) if name in _GIVEN else _signature(path, thing)
        yield _text(thing)
        members = _members(thing)
        lines = {each: line for each in members if (line := _line(thing, each))}
        if lines:
            yield "\n".join(lines.values()) + "\n"
        for member in members:
            if member not in lines:
                yield from _method(thing, member)
    else:
        yield from _signature(path, thing)
        yield _text(thing)


def _is_shown(kind: type, name: str) -> bool:
    return not name.startswith("_") and (kind.__name__ not in _ONLY or name in _ONLY[kind.__name__].split())


def _fields(kind: type) -> Iterator[str]:
    """Yield what an object that dpsql makes holds, by name and type."""
    fields = {name: type_ for name, type_ in inspect.get_annotations(kind).items() if _is_shown(kind, name)}
    if fields:
        lines = "\n".join(f"{name}: {type_}" for name, type_ in fields.items())
        yield f"```text\n{lines}\n```\n"


def _members(kind: type) -> list[str]:
    """Return the public methods and properties that a class, or one of dpsql's below it, defines."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("dpsql")]
    fields = {name for base in own for name in inspect.get_annotations(base)}
    found = dict.fromkeys(name for base in own for name in vars(base) if _is_shown(kind, name))
    made = kind.__name__ in _GIVEN  # by dpsql: how is no matter of the caller's
    named = [name for name in found if name not in fields and getattr(kind, name).__doc__]
    if kind is not Method and {"draw", "release_identity"} <= found.keys():
        named = [name for name in named if not hasattr(Method, name)]  # a method of labelling: said once, of all
    return [name for name in named if not (made and isinstance(inspect.getattr_static(kind, name), classmethod))]


def _line(kind: type, name: str) -> str:
    """Return a property, a second name of a method or a short method as an item of a list; "" for other members."""
    thing, text = getattr(kind, name), " ".join(_paragraphs(getattr(kind, name))).replace("\n", " ")
    if isinstance(thing, property):
        return f"* `{name}: {_type(inspect.signature(thing.fget).return_annotation)}`: {text}"
    if thing.__name__ != name:
        return f"* `{name}`: The same as `{thing.__name__}`."
    call = _call(name, thing, typed=False)
    return f"* `{call}`: {text}" if len(text.split()) <= _SHORT and "\n" not in call else ""


def _method(kind: type, name: str) -> Iterator[str]:
    yield f"#### {kind.__name__}.{name}()\n"
    yield from _signature(f"{kind.__name__}.{name}", getattr(kind, name))
    yield _text(getattr(kind, name))


def _signature(path: str, thing: Callable[..., object]) -> Iterator[str]:
    call = _call(path, thing)
    if path != "dpsql.connect" and inspect.signature(thing).parameters == inspect.signature(dpsql.connect).parameters:
        call = f"{path}(...) -> {_type(inspect.signature(thing).return_annotation)}"  # said once
    yield f"```text\n{call}\n```\n"


def _call(path: str, thing: Callable[..., object], *, typed: bool = True) -> str:
    """Return how something is called; not `typed`, without the types of its parameters."""
    found = inspect.signature(thing)
    given = [each for each in found.parameters.values() if each.name != "self"]
    words = [_parameter(each, typed=typed) for each in given]
    keyword = next((at for at, each in enumerate(given) if each.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if keyword is not None:
        words.insert(keyword, "*")
    inside = ", ".join(words)
    if len(path) + len(inside) > _WIDTH:
        inside = "\n    " + ",\n    ".join(words) + ",\n"
    gives = "" if inspect.isclass(thing) else f" -> {_type(found.return_annotation)}"
    return f"{path}({inside}){gives}"


def _parameter(given: inspect.Parameter, *, typed: bool) -> str:
    default = "" if given.default is inspect.Parameter.empty else f" = {given.default!r}"
    return f"{given.name}: {_type(given.annotation)}{default}" if typed else f"{given.name}{default.replace(' ', '')}"


def _type(annotation: object) -> str:
    """Return a type as a reader writes it, without the modules of dpsql that it comes from."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\b(?:planning|report|engines|ledgers|statements|clocks)\.(?=[A-Z])", "", name)


def _paragraphs(thing: object) -> list[str]:
    """Return the paragraphs of a docstring before its examples, as Markdown."""
    text, _, _ = (inspect.getdoc(thing) or "").partition("\n>>> ")
    return [_link(part) for part in text.strip().split("\n\n")]


def _link(text: str) -> str:
    """Return text of a docstring as Markdown, with links to the pages of the documentation that it names."""
    text = re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text)
    text = re.sub(r"docs/reference/([\w/-]+)\.md(#[\w-]+)?", r"[\1](\1.md\2)", text)
    return re.sub(r"docs/how-to/([\w/-]+)\.md(#[\w-]+)?", r"[\1](../how-to/\1.md\2)", text)


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
        lines.append(line if example else _link(line))
    return "\n".join([*lines, *(["```"] if example else []), ""])
