"""Answers, receipts, balances and spending as values of JSON; all of it is released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.accounting import BudgetVector, PureLoss, Steps
from dpsql.answer import Answer, CountColumns
from dpsql.engines.arrow_types import read_values
from dpsql.intervals import LEVEL
from dpsql.receipt import Receipt, Total
from dpsql.report.balance import describe_outcome

if TYPE_CHECKING:
    from dpsql.ledger import Entry
    from dpsql.report.balance import Balance, Spending

_MEASURES = ("measure", "granted", "spent", "reserved", "remaining")


def encode_answer(answer: Answer) -> dict[str, object]:
    """Return the columns, the rows, the intervals and the receipt of an answer."""
    return {
        "columns": answer.arrow().column_names,
        "rows": [list(map(encode_value, row)) for row in answer.fetchall()],
        "intervals": encode_intervals(answer),
        **_encode_notes(answer),
        "receipt": encode_receipt(answer.receipt),
    }


def encode_notes(answer: Answer) -> dict[str, object]:
    """Return the receipt of an answer and its notes, for the metadata of a table."""
    return {**encode_receipt(answer.receipt), **_encode_notes(answer)}


def encode_intervals(answer: Answer, *, most: int | None = None) -> list[dict[str, object]]:
    """Return the ends of the 95 % intervals of the rows, or of the first so many, of each released column."""
    found = list[dict[str, object]]()
    for at, ends in sorted(answer.column_intervals(LEVEL).items()):
        low, high = (list(map(encode_value, read_values(end[:most]))) for end in ends)
        found.append({"column": at, "low": low, "high": high})
    return found


def encode_interval(answer: Answer, level: float = LEVEL) -> dict[str, object] | None:
    """Return the half widths of the intervals that hold the exact counts, and the positions of their columns.

    None for counts that were made monotone, and for averages, whose intervals differ by row.
    """
    if answer.counts is None or answer.counts.adjusted:
        return None
    counts = [each for each in answer.measures if isinstance(each, CountColumns)]
    first, *others = ({"reach": each.half_width(level), "columns": list(each.columns)} for each in counts)
    return {"level": level, **first, **({"others": others} if others else {})}


def _encode_notes(answer: Answer) -> dict[str, object]:
    return {
        "bounded_by": answer.bounded_by,
        "total": encode_total(answer.total),
        "note": answer.note,
        "explanation": answer.explanation,
        "warnings": list(answer.warnings),
    }


def encode_value(value: object) -> object:
    """Return a value that JSON supports: dates, decimals and non-finite floats become text."""
    is_text = isinstance(value, date | Decimal) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


def encode_receipt(receipt: Receipt) -> dict[str, object]:
    """Return all fields of a receipt."""
    loss = receipt.loss
    if isinstance(loss, PureLoss):
        amounts = {"epsilon": float(loss.epsilon)}
    elif isinstance(loss, Steps):
        amounts = {"items": loss.items, "epsilon": float(loss.each.epsilon)}
    else:
        amounts = {"rho": float(loss.rho)}
    return {
        "mechanism": receipt.mechanism,
        "k": receipt.k,
        "k_bar": receipt.k_bar,
        "epsilon": None if receipt.epsilon is None else float(receipt.epsilon),
        "delta": float(receipt.delta),
        "threshold_offset": float(receipt.threshold_offset),
        "items_charged": receipt.items_charged,
        "loss": {**amounts, "delta": float(loss.delta)},
        "remaining": _encode_amounts(receipt.remaining),
        "stopped_at_bottom": receipt.stopped_at_bottom,
        "sealed": receipt.sealed,
        "isolation": receipt.isolation,
        "confinement": list(receipt.confinement),
        "replayed": receipt.replayed,
        "reread": receipt.reread,
        "reused": receipt.reused,
        "shared": receipt.shared,
        "durable": receipt.durable,
        "chosen": receipt.chosen,
        "certificate": receipt.certificate.value,
        "answered": receipt.answered,
        "wanted": receipt.wanted,
        "used": float(receipt.used),
        "percent_used": float(receipt.percent_used),
        "outdone_by": receipt.outdone_by,
        "more": receipt.more,
        "read_as": receipt.read_as,
        "cut": receipt.cut,
        "list_note": receipt.list_note,
        "legs": receipt.legs,
        "charged_to": receipt.charged_to,
        "known": receipt.known,
        "evident": receipt.evident,
        "known_before": receipt.known_before,
        "bounded_by": receipt.bounded_by,
        "bounds": receipt.bounds,
        "total": encode_total(receipt.total),
        "parts": [encode_receipt(part) for part in receipt.parts],
        "words": str(receipt),
    }


def encode_total(total: Total | None) -> dict[str, object] | None:
    """Return the released number of units with its 95 % interval; None where there is none."""
    if total is None:
        return None
    low, high = total.interval()
    return {"value": total.value, "low": low, "high": high, "level": LEVEL, "words": str(total)}


def encode_balance(balance: Balance) -> dict[str, object]:
    """Return the total, the amounts granted and left in each currency, and the period if the policy has periods.

    Also how many of the usual queries fit, and what is free.
    """
    total = {"epsilon": float(balance.granted.epsilon), "delta": float(balance.granted.delta)}
    rows = [dict(zip(_MEASURES, row, strict=True)) for row in balance.rows()]
    sums = {"total": total, "measures": rows, "items": balance.items, "epsilon": float(balance.epsilon)}
    sums |= {"percent_used": float(balance.percent_used), "percent_left": float(balance.percent_left)}
    sums |= {"tiles": _encode_tiles(balance)}
    sums["free"] = {"stored_answers": balance.answers, "published_tables": balance.published}
    if balance.by is not None:
        named = balance.values.items()
        sums |= {"by": balance.by, "values": {value: encode_balance(each)["measures"] for value, each in named}}
        sums["tiles_of_values"] = {value: _encode_tiles(each) for value, each in named}
    if "rho" not in balance.certificate.currencies:
        sums["certificate"] = balance.certificate.value
    if balance.calendar is not None:
        calendar, over = balance.calendar, balance.calendar.is_over
        sums["period"] = {
            "length": str(calendar.periods),
            "number": None if over else calendar.number + 1,
            "most": calendar.periods.most,
            "until": None if over else calendar.next_begins.isoformat(),
        }
    return sums


def _encode_tiles(balance: Balance) -> list[dict[str, object]]:
    """Return how many of each usual query fit, with what such queries are called."""
    return [
        {
            "tile": each.name,
            "words": each.many,
            "granted": each.granted,
            "spent": each.spent,
            "reserved": each.reserved,
            "remaining": each.remaining,
        }
        for each in balance.tiles
    ]


def encode_spending(spending: Spending, latest: Sequence[Entry]) -> dict[str, object]:
    """Return the balance, every account with its limit, and the `latest` queries."""
    first, second = spending.balance.certificate.currencies
    accounts = []
    for spender in spending.spenders:
        limit, state = spender.limit, spender.state
        accounts.append(
            {
                "account": spender.name,
                "limit": None if limit is None else _encode_amounts(limit),
                "spent": {first: float(state.spent), second: float(state.permanent)},
                "reserved": {first: float(state.reserved)},
            }
        )
    queries = []
    for entry in latest:
        # An entry has the currencies of the certificate under which it was charged.
        first, second = entry.worst_case.certificate.currencies
        queries.append(
            {
                "asked_at": entry.opened_at.isoformat(),
                "account": entry.account,
                "query": entry.query,
                "data_version": entry.data_version,
                f"{first}_reserved": float(entry.worst_case.refundable),
                f"{first}_charged": None if entry.settlement is None else float(entry.settlement.loss),
                f"{second}_charged": float(entry.permanent),
                "state": describe_outcome(entry),
                "percent_used": float(spending.rises[entry.number].percent),
            }
        )
    return {**encode_balance(spending.balance), "accounts": accounts, "queries": queries}


def _encode_amounts(amounts: BudgetVector) -> dict[str, float]:
    first, second = amounts.certificate.currencies
    return {first: float(amounts.refundable), second: float(amounts.permanent)}
