"""What is kept between calls: for its owner, for a time, and not too much of it."""

from __future__ import annotations

from dpsql.server.flight.ticket_store import TicketStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_its_owners_for_a_time() -> None:
    clock = Clock()
    kept: TicketStore[str] = TicketStore(most=3, seconds=10, clock=clock)
    name = kept.put("alice", "value")
    assert kept.get("alice", name) == "value"
    assert kept.get("bob", name) is None
    assert kept.get("alice", name + b"x") is None
    assert kept.find(name) == ("alice", "value")
    clock.now = 10.5
    assert kept.get("alice", name) is None
    kept.put("bob", "other")
    assert len(kept) == 1  # what is too old takes no room


def test_who_keeps_too_much_loses_their_own_oldest() -> None:
    kept: TicketStore[int] = TicketStore(most=2, seconds=10)
    other = kept.put("bob", 0)
    names = [kept.put("alice", value) for value in range(4)]
    assert [kept.get("alice", name) for name in names] == [None, None, 2, 3]
    assert kept.get("bob", other) == 0


def test_only_its_owner_drops_a_value() -> None:
    kept: TicketStore[int] = TicketStore(most=2, seconds=10)
    name = kept.put("alice", 1)
    assert not kept.drop("bob", name)
    assert kept.drop("alice", name)
    assert not kept.drop("alice", name)
    assert kept.put("alice", 2) != name
    assert len(kept) == 1


def test_names_are_long_and_differ() -> None:
    kept: TicketStore[int] = TicketStore(most=1000, seconds=10)
    names = {kept.put("alice", value) for value in range(1000)}
    assert len(names) == 1000
    assert min(map(len, names)) >= 32
