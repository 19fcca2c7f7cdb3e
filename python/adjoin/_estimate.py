"""What a join would find and take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """An estimate between its bounds of 95 % confidence."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class AtThreshold:
    """What a join with a threshold would find and take."""

    #: A distance or a similarity, as the metric has it.
    threshold: float
    #: Whether it was asked for.
    asked: bool
    #: Neighbours of a vector on average.
    neighbours: float
    pairs: Interval
    #: Bytes of the pairs as a Parquet file.
    pairs_bytes: Interval
    #: Rows that go where of near ones the first stays.
    removed_rows: Interval
    #: Of a join that builds its store first; its bounds are those within which real runs were.
    seconds: Interval


class Estimate:
    """What joins of a source would find and take, told from a sample."""

    def __init__(self, told: dict[str, Any]) -> None:
        #: All of it, as the command's ``--json`` prints it.
        self.stats: dict[str, Any] = told
        #: From the nearest threshold to the farthest; that which was asked for is among them.
        self.thresholds: list[AtThreshold] = [_at(of) for of in told["explain"]["thresholds"]]

    @property
    def asked(self) -> AtThreshold | None:
        """What is told of the threshold that was asked for."""
        return next((at for at in self.thresholds if at.asked), None)

    def __len__(self) -> int:
        return int(self.stats["rows"])

    def __repr__(self) -> str:
        rows, metric = self.stats["rows"], self.stats["metric"]
        of = ", ".join(f"{at.threshold:g}: {at.pairs.estimate:.3g} pairs" for at in self.thresholds)
        return f"<adjoin.Estimate of {rows} rows, {metric}: {of}>"


def _at(told: dict[str, Any]) -> AtThreshold:
    fields: dict[str, Any] = {name: Interval(**of) if isinstance(of, dict) else of for name, of in told.items()}
    return AtThreshold(**fields)
