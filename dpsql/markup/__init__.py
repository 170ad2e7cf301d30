"""Released answers, plans, budgets and errors as HTML for notebooks: text in, safe markup out, no script."""

from dpsql.markup.box import Message, box_html
from dpsql.markup.element import printable
from dpsql.markup.meter import Meter, Part, budget_html
from dpsql.markup.released import Cost, Released, released_html
from dpsql.markup.sheet import MOST_ROWS, Bar, Column, Facts, Sheet, facts_html, sheet_html
from dpsql.markup.style import style_sheet, unstyled
from dpsql.markup.told import Told

__all__ = ["MOST_ROWS", "Bar", "Column", "Cost", "Facts", "Message", "Meter", "Part", "Released", "Sheet", "Told"]
__all__ += [
    "box_html",
    "budget_html",
    "facts_html",
    "printable",
    "released_html",
    "sheet_html",
    "style_sheet",
    "unstyled",
]
