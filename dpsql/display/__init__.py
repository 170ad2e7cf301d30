"""Released answers, plans, budgets and errors as HTML for notebooks: text in, safe markup out, no script."""

from dpsql.display.cells import Ends, format_value
from dpsql.display.csv_text import write_csv
from dpsql.display.element import replace_controls, replace_unprintable
from dpsql.display.error_box import Message, box_html
from dpsql.display.meter import Meter, Part, budget_html
from dpsql.display.notebook_repr import NotebookRepr
from dpsql.display.nouns import key_noun, plural, shorten, unit_noun, with_article
from dpsql.display.released_table import Cost, Released, released_html
from dpsql.display.sheet import MAX_ROWS, Bar, Column, Facts, Sheet, facts_html, sheet_html
from dpsql.display.style import remove_style, style_sheet

__all__ = [
    "MAX_ROWS",
    "Bar",
    "Column",
    "Cost",
    "Ends",
    "Facts",
    "Message",
    "Meter",
    "NotebookRepr",
    "Part",
    "Released",
    "Sheet",
]
__all__ += [
    "box_html",
    "budget_html",
    "facts_html",
    "format_value",
    "key_noun",
    "plural",
    "released_html",
    "remove_style",
    "replace_controls",
    "replace_unprintable",
    "sheet_html",
    "shorten",
    "style_sheet",
    "unit_noun",
    "with_article",
    "write_csv",
]
