"""How often somebody may try: who fails waits ever longer, nobody waits for another, and memory is bounded."""

from __future__ import annotations

from dpsql.server import limits as module
from dpsql.server.limits import Throttle


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guesses(throttle: Throttle, clock: Clock, *, name: str, address: str, seconds: float) -> int:
    """Try wrong passwords as often as is allowed, and return how many were looked at."""
    tried, end = 0, clock.now + seconds
    while clock.now < end:
        if throttle.admit(name, address):
            throttle.record_failure(name, address)
            tried += 1
        else:
            clock.now += 1.0
    return tried


def test_each_failure_beyond_the_free_ones_doubles_the_wait() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    waits = []
    for _ in range(17):
        throttle.record_failure("alice", "10.0.0.1")
        began = clock.now
        while not throttle.admit("alice", "10.0.0.1"):
            clock.now += 1.0
        waits.append(clock.now - began)
    assert waits == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_one_address_that_tries_many_names_is_slowed_down() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    tried = 0
    for number in range(1000):
        name = f"user {number}"
        if throttle.admit(name, "10.0.0.1"):
            throttle.record_failure(name, "10.0.0.1")
            tried += 1
    assert tried == 31


def test_the_addresses_of_one_network_of_ipv6_are_one() -> None:
    throttle = Throttle(clock=Clock())
    for number in range(40):
        throttle.record_failure(f"user {number}", f"2001:db8:1:2::{number:x}")
    assert not throttle.admit("somebody", "2001:db8:1:2:ffff::1")
    assert throttle.admit("somebody", "2001:db8:1:3::1")
    for number in range(40):
        throttle.record_failure(f"user {number}", "::ffff:10.0.0.1")
    assert not throttle.admit("somebody", "10.0.0.1")
    assert throttle.admit("somebody", "10.0.0.2")
    assert throttle.admit("somebody", "no address")


def test_one_name_tried_from_many_addresses_is_slowed_down_but_not_for_its_owner() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    throttle.record_login("alice", "10.9.9.9")
    tried = 0
    for number in range(1000):
        address = f"10.0.{number // 256}.{number % 256}"
        if throttle.admit("alice", address):
            throttle.record_failure("alice", address)
            tried += 1
    assert tried == 51
    assert throttle.admit("alice", "10.9.9.9")
    assert throttle.admit("bob", "10.0.0.0")


def test_a_day_of_guessing_is_a_few_hundred_guesses() -> None:
    clock = Clock()
    assert guesses(Throttle(clock=clock), clock, name="alice", address="10.0.0.1", seconds=86_400) < 400


def test_a_login_forgets_what_that_name_got_wrong_there_and_time_all() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock)
    for _ in range(6):
        throttle.record_failure("alice", "10.0.0.1")
    assert not throttle.admit("alice", "10.0.0.1")
    throttle.record_login("alice", "10.0.0.1")
    assert throttle.admit("alice", "10.0.0.1")
    for _ in range(6):
        throttle.record_failure("alice", "10.0.0.1")
    clock.now += 901
    throttle.record_failure("alice", "10.0.0.1")
    assert throttle.admit("alice", "10.0.0.1")


def test_memory_is_bounded_whatever_names_are_made_up() -> None:
    throttle = Throttle(clock=Clock())
    for number in range(3 * module._MAX_ENTRIES):
        throttle.record_failure(f"user {number}", "10.0.0.1")
        throttle.record_login(f"user {number}", f"address {number}")
        throttle.may_ask(f"user {number}")
    for remembered in (throttle._failures, throttle._known, throttle._statements):
        assert len(remembered) == module._MAX_ENTRIES
    assert not throttle.admit("somebody else", "10.0.0.1")


def test_statements_come_back_with_time_and_are_each_analysts_own() -> None:
    clock = Clock()
    throttle = Throttle(60, clock=clock)
    assert [throttle.may_ask("alice") for _ in range(61)] == [True] * 60 + [False]
    assert throttle.may_ask("bob")
    clock.now += 1.0
    assert [throttle.may_ask("alice") for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [throttle.may_ask("alice") for _ in range(61)] == [True] * 60 + [False]
    throttle.set_limit(2)
    assert [throttle.may_ask("alice") for _ in range(3)] == [True, True, False]
