"""Style of the HTML; every rule begins with a class of dpsql, so that the page around it does not change.

Colours come from the surrounding text, except for two that contrast with both white and black: the page is legible in
every theme. Without the style, which a sanitizer may remove, a plain table remains, and its numbers say all that the
bars do.
"""

from __future__ import annotations

from string import Template

from dpsql.display.element import Html, element

__all__ = ["ACCENT", "BAR", "frame", "remove_style", "style_sheet"]

BAR = "#4c78a8"
ACCENT = "#c8621b"
# the class twice: notebooks style tables by rules that are more particular than one class
_STYLE = Html(
    Template("""<style>
$all { color: inherit; font-size: 13px; line-height: 1.4; max-width: 100%; overflow-x: auto; margin: 4px 0 }
$all table { border-collapse: collapse; border: 0; margin: 0; width: auto; table-layout: auto; font-size: 13px }
$all caption { caption-side: top; text-align: left; padding: 0 0 4px 0; color: inherit; font-weight: 600;
  white-space: nowrap }
$all tr { background: transparent; border: 0 }
$all th, $all td { padding: 2px 12px 2px 0; border: 0; text-align: left; vertical-align: top; color: inherit;
  white-space: nowrap; overflow: hidden }
$all td.dpsql-text { white-space: normal }
$all td.dpsql-text bdi { display: inline-block; max-width: 46em; overflow-wrap: break-word }
$all thead th { border-bottom: 1px solid $line; font-weight: 600; vertical-align: bottom }
$all tbody th { font-weight: 400; color: $quiet }
$all .dpsql-number { text-align: right; font-variant-numeric: tabular-nums }
$all .dpsql-bar svg { display: block; margin: 2px 0; width: 180px; height: 14px; overflow: visible }
$all .dpsql-meter { display: block; width: 300px; height: 10px; margin: 8px 0 0 0 }
$all .dpsql-swatch { display: inline-block; width: 9px; height: 9px; margin: 0 4px 0 0; vertical-align: baseline }
$all p { margin: 2px 0 0 0; color: $quiet; max-width: 70em }
$all details { margin: 4px 0 0 0; color: $quiet }
$all summary { cursor: pointer }
$all strong { color: inherit; font-weight: 600 }
$all .dpsql-lead { color: inherit }
$all td.dpsql-fact { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 60em }
$all pre { margin: 4px 0; padding: 4px 8px; background: $tint; color: inherit; overflow-x: auto;
  white-space: pre-wrap; font-size: 12px; font-family: var(--jp-code-font-family, monospace) }
$all mark { background: transparent; color: inherit; border-bottom: 2px solid $accent }
$all .dpsql-box { border-left: 4px solid $accent; padding: 2px 0 4px 10px }
$all .dpsql-box p { color: inherit }
</style>""").substitute(
        all=".dpsql-sheet.dpsql-sheet",
        accent=ACCENT,
        line="color-mix(in srgb, currentColor 22%, transparent)",
        tint="color-mix(in srgb, currentColor 7%, transparent)",
        quiet="var(--jp-ui-font-color2, var(--vscode-descriptionForeground, inherit))",
    )
)


def frame(label: str, *content: Html) -> Html:
    """Wrap content in an element with the style, and a label for screen readers."""
    return element("div", {"class": "dpsql-sheet", "role": "group", "aria-label": label}, _STYLE, *content)


def remove_style(html: str) -> str:
    """Remove the style from HTML of dpsql, for a page whose policy allows only style sheets from files."""
    return html.replace(_STYLE, "")


def style_sheet() -> str:
    """Return the style as the text of a style sheet."""
    return _STYLE.removeprefix("<style>").removesuffix("</style>")
