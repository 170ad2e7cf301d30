"""Programs that other processes run upon a durable ledger: they race, fork, and are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.child_kit import Child

import dpsql

# The opening of a durable ledger, wherever it stands, as the head of a program.
HEAD = """
import os, sys
from fractions import Fraction
from dpsql.accounting import BudgetVector, ApproximateDP
from dpsql.errors import BudgetExceeded, Error
from dpsql.ledger import Request, SQLiteLedger
from dpsql.quantities import Delta, Epsilon

BUDGET = BudgetVector(int(sys.argv[2]), "1e-6")
TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
ITEM = BudgetVector(1, "1e-12")
ASK = Request("q", ITEM, key="key")

def say(word):
    os.write(1, f"{word}\\n".encode())

def opened():
    if sys.argv[1].startswith("postgresql:"):
        from dpsql.ledger.postgres_ledger import PostgresLedger as Durable
    else:
        from dpsql.ledger import SQLiteLedger as Durable
    return Durable(sys.argv[1], BUDGET, total=TOTAL)
"""


def start(program: str, place: Path | str, rho: int = 50, *, descriptors: tuple[int, ...] = ()) -> Child:
    environment = {**os.environ, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
    return Child(
        [sys.executable, "-c", HEAD + program, str(place), str(rho)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=descriptors,
    )


RACE = """
gate, opener = os.pipe()
children = []
for _ in range(16):
    child = os.fork()
    if child == 0:
        os.close(opener)
        os.read(gate, 1)
        ledger = opened()
        for number in range(5):
            try:
                reservation = ledger.reserve(ASK)
            except BudgetExceeded:
                say('refused')
            else:
                say('granted')
                if number % 2:
                    reservation.settle(ITEM.refundable, 'd')
        ledger.close()
        os._exit(0)
    children.append(child)
os.close(gate)
os.close(opener)
for child in children:
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

NURSERY = """
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        say(f'born {os.getpid()}')
        ledger = opened()
        while True:
            reservation = ledger.reserve(ASK)
            say(f'held {reservation.number}')
            reservation.settle(ITEM.refundable, 'd', answer=b'answer %d' % reservation.number)
            say(f'settled {reservation.number}')
    os.waitpid(child, 0)
    say('gone')
"""

FORKED = """
import os
ledger = opened()
child = os.fork()
if child == 0:
    try:
        ledger.reserve(ASK)
    except Error as error:
        say(error.code)
    ledger.close()
    os._exit(0)
os.waitpid(child, 0)
ledger.reserve(ASK)
say(len(ledger.entries()))
ledger.close()
"""
