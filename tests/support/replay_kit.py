"""Events of a ledger made by hand."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.ledger.record import GENESIS, Event, make_event

AT = "2026-01-01T00:00:00+00:00"


TERMS = {"budget_rho": "1/1", "budget_delta": "1/10", "total_epsilon": "1/1", "total_delta": "1/5"}


CREATED = ("created", {"data_set": "x", **TERMS})


Act = tuple[str, Mapping[str, object]]


def settled(entry: object, loss: str = "1/7") -> Act:
    return "settled", {"entry": entry, "loss": loss, "digest": "", "answer": ""}


def rows(*acts: Act) -> list[tuple[object, ...]]:
    events: list[Event] = []
    for kind, body in acts:
        last = (events[-1].seq, events[-1].chain) if events else (0, GENESIS)
        events.append(make_event(last, kind, body=body, at=AT))
    return [(event.seq, event.at, event.kind, event.body, event.chain) for event in events]
