"""Draw docs/images/trip.svg: the way of one private query through the rooms of dpsql.

python docs/generate/trip.py            draws it in docs/images
python docs/generate/trip.py x.svg      draws it elsewhere
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

_PLACE = Path(__file__).resolve().parents[1] / "images" / "trip.svg"
# room, what it does, what it hands on, what that is
STEPS = (
    ("sql.syntax, sql.analysis", "read the statement", "PrivateQuery", "or a Refusal with its place"),
    (
        "plan_finder, plan",
        "choose a mechanism",
        "Plan, with its ReleaseSpec",
        "or a stored answer, which is free",
    ),
    ("ledger", "reserve the worst case", "Reservation", "durable before any row is read"),
    ("engines", "run the counting query", "Exact", "cannot be printed, iterated or pickled"),
    ("plan.release", "draw the noise", "Release", "from a MechanismOutput, with its real loss"),
    ("ledger", "settle the real loss", "Settled", "a crash before this keeps the reservation spent"),
    ("build_answer", "describe the release", "Answer", "table, intervals and receipt"),
)
_LEFT, _TOP, _ROW, _BOX, _WIDE = 20, 50, 74, 46, 230
_RIGHT = _LEFT + _WIDE + 190


def draw() -> str:
    """Return the picture as SVG."""
    height = _TOP + _ROW * len(STEPS) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" font-family="sans-serif" font-size="14">',
        "<title>The way of one private query</title>",
        f'<rect width="820" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="28" font-weight="bold">Room and step</text>',
        f'<text x="{_RIGHT}" y="28" font-weight="bold">What it hands on</text>',
    ]
    for number, (room, step, result, note) in enumerate(STEPS):
        y = _TOP + number * _ROW
        middle = y + _BOX / 2
        if number:
            parts.append(_arrow(_LEFT + _WIDE / 2, y - _ROW + _BOX, y))
        colour = "#fde9d9" if room == "ledger" else "#e3edf7"
        parts += [
            f'<rect x="{_LEFT}" y="{y}" width="{_WIDE}" height="{_BOX}" rx="6" fill="{colour}" stroke="#555555"/>',
            f'<text x="{_LEFT + 12}" y="{y + 20}" font-weight="bold">{escape(room)}</text>',
            f'<text x="{_LEFT + 12}" y="{y + 38}">{escape(step)}</text>',
            f'<path d="M{_LEFT + _WIDE} {middle}H{_RIGHT - 14}" stroke="#999999" stroke-dasharray="3 3"/>',
            f'<text x="{_RIGHT}" y="{y + 20}" font-weight="bold">{escape(result)}</text>',
            f'<text x="{_RIGHT}" y="{y + 38}" fill="#444444">{escape(note)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _arrow(x: float, start: float, end: float) -> str:
    return (
        f'<path d="M{x} {start}V{end - 7}" stroke="#555555"/>'
        f'<path d="M{x - 5} {end - 8}L{x + 5} {end - 8}L{x} {end - 1}Z" fill="#555555"/>'
    )


if __name__ == "__main__":
    (Path(sys.argv[1]) if sys.argv[1:] else _PLACE).write_text(draw(), encoding="utf-8")
