"""The data of the accuracy benchmarks: units and labels, read or generated.

Not run itself. Data are read from `--data DIR` (by default `../shared/data` beside the repository) and left out, with a
word, where they are not there; only MSWeb comes with the package. Figures on the subsets of BrightKite and Foursquare
are not those of papers on the full files. Generated data, and nothing else, have seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

MSWEB = Path(str(files("dpsql.cli") / "data" / "msweb.parquet"))
Integers = npt.NDArray[np.int64]
LOGS = (
    "brightkite_subset",
    "foursquare_nyc_ge10",
    "foursquare_global4",
    "steam200k_purchases",
    "citeulike_a",
    "chestxray14_findings",
)
HISTOGRAMS = ("HEPTH.n4096", "NETFLIX.n17770", "PATENT.n4096", "SEARCHLOGS.n4096")


@dataclass(frozen=True, slots=True)
class Log:
    """Distinct pairs of unit and label, ascending; labels are numbered in their own order."""

    name: str
    units: Integers
    labels: Integers
    size: int  # labels in all

    @classmethod
    def of(cls, name: str, units: Integers, labels: Integers) -> Log:
        """Return a log of events: units and labels numbered, repeated pairs dropped."""
        _, unit = np.unique(units, return_inverse=True)
        known, label = np.unique(labels, return_inverse=True)
        pairs = np.unique(unit * len(known) + label)
        return cls(name, pairs // len(known), pairs % len(known), len(known))

    @property
    def population(self) -> int:
        """Return how many units there are."""
        return int(self.units[-1]) + 1

    @property
    def counts(self) -> Integers:
        """Return how many units each label has."""
        return np.bincount(self.labels, minlength=self.size)

    def kept(self, most: int) -> tuple[Integers, Integers]:
        """Return unit and label of `most` pairs of each unit, drawn again, or of all pairs if it has fewer."""
        sizes = np.bincount(self.units)
        above = sizes[self.units] > most
        units, labels = self.units[above], self.labels[above]
        order = np.lexsort((np.random.default_rng().random(len(units)), units))
        units, labels = units[order], labels[order]
        starts = np.searchsorted(units, units)
        within = np.arange(len(units)) - starts < most
        kept = (
            np.concatenate([self.units[~above], units[within]]),
            np.concatenate([self.labels[~above], labels[within]]),
        )
        return kept[0].astype(np.int64), kept[1].astype(np.int64)


def events(users: int, *, rows: int, items: int) -> tuple[Integers, Integers]:
    """Return users and items of events: activity is lognormal(0, 1), items are by Zipf's law with exponent 1."""
    activity = np.random.default_rng(20240611).lognormal(0.0, 1.0, users)
    units = np.searchsorted(np.cumsum(activity / activity.sum()), np.random.default_rng(20240612).random(rows))
    shares = 1.0 / np.arange(1, items + 1)
    labels = np.searchsorted(np.cumsum(shares / shares.sum()), np.random.default_rng(20240613).random(rows))
    return units.astype(np.int64), labels.astype(np.int64)


def generated(name: str, users: int, *, rows: int, items: int) -> Log:
    """Return such events as a log."""
    units, labels = events(users, rows=rows, items=items)
    return Log.of(name, units, labels)


def hard() -> Log:
    """Return the hard case: 10,000 users, 200,000 rows, 28,600 items that occur."""
    return generated("hard", 10_000, rows=200_000, items=50_000)


def ten_times() -> Log:
    """Return ten times the users and rows of the hard case."""
    return generated("hard x 10", 100_000, rows=2_000_000, items=50_000)


def read(path: Path, label: str = "item_id") -> Log:
    """Return a log from the columns user_id and `label` of a Parquet file; a row without a user or a label is none."""
    table = pq.read_table(path, columns=["user_id", label]).drop_null()
    labels = pc.rank(table[label], tiebreaker="dense").to_numpy().astype(np.int64)
    return Log.of(path.stem, table["user_id"].to_numpy().astype(np.int64), labels)


def present(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that are there, and say which are not."""
    for path in paths:
        if path.exists():
            yield path
        else:
            print(f"left out: {path.name} is not in the --data folder", file=sys.stderr)


def logs(folder: Path, *, quick: bool) -> Iterator[Log]:
    """Yield all logs, one after the other; when quick a small generated one only."""
    if quick:
        yield generated("tiny", 500, rows=5_000, items=300)
        return
    yield read(MSWEB, "area")
    yield from (read(path) for path in present(folder / f"{name}.parquet" for name in LOGS))
    yield hard()
    yield ten_times()
