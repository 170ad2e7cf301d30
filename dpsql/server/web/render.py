"""Pages as text: templates that escape what they are given, in which no character turns the writing around."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from dpsql.display import replace_unprintable

__all__ = ["answered_html", "as_typed", "page"]

_TEMPLATES = Path(__file__).parent / "templates"


def page(name: str, given: Mapping[str, object], *, status: int = 200) -> HTMLResponse:
    """Return a template's page."""
    return HTMLResponse(_environment.get_template(name).render(given), status_code=status)


def as_typed(text: str) -> Markup:
    """Return an analyst's own text as it is, for the box in which they write."""
    return Markup(escape(text))  # noqa: S704 - it is escaped


def answered_html(html: str) -> Markup:
    """Return what dpsql.display made, which is escaped already, as markup."""
    return Markup(html)  # noqa: S704 - see dpsql.display


def _shown(value: object) -> object:
    """Return a value for a page: markup as it is, and everything else escaped."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else replace_unprintable(str(value))


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _lines(text: str) -> Markup:
    """Return text of several lines with its breaks; nothing else of it is obeyed."""
    return Markup("\n".join(escape(replace_unprintable(line.expandtabs(4))) for line in text.split("\n")))  # noqa: S704 - escaped


def _figures(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


_environment = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_environment.filters.update(as_typed=as_typed, figures=_figures, lines=_lines, moment=_moment)
