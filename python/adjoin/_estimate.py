"""Estimates of the results and the cost of a join."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from . import _engine
from . import _options
from ._options import PathLike
from ._types import Metric, OnBad
from ._work import check_memory, html_table, working


class Interval(NamedTuple):
    """An estimate between its bounds of 95 % confidence."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class AtThreshold:
    """Estimated results and cost of a join with one threshold."""

    #: A distance or a similarity, depending on the metric.
    threshold: float
    #: Whether the caller requested this threshold.
    asked: bool
    #: Mean number of neighbors of a vector.
    neighbors: float
    pairs: Interval
    #: Bytes of the pairs as a Parquet file.
    pairs_bytes: Interval
    #: Number of rows that are removed if the first of several near rows is kept.
    removed_rows: Interval
    #: Time of a join that builds its store first. The bounds are the range observed in real runs.
    seconds: Interval
    #: The two sampled pairs nearest to the threshold, if columns were requested. Each has ``left_row`` and
    #: ``right_row``, ``value`` (the distance or similarity of the two), and ``left`` and ``right`` (the columns of both).
    examples: list[dict[str, Any]]


class Estimate:
    """Estimated results and cost of joins of a source, from a sample."""

    def __init__(self, told: dict[str, Any]) -> None:
        #: The whole estimate, as printed by ``--json`` of the command.
        self.stats: dict[str, Any] = told
        #: From the nearest threshold to the farthest, including the requested one.
        self.thresholds: list[AtThreshold] = [_at(of) for of in told["explain"]["thresholds"]]

    @property
    def asked(self) -> AtThreshold | None:
        """The estimate at the requested threshold; None if no threshold was requested."""
        return next((at for at in self.thresholds if at.asked), None)

    def __len__(self) -> int:
        return int(self.stats["rows"])

    def __repr__(self) -> str:
        rows, metric = self.stats["rows"], self.stats["metric"]
        of = ", ".join(f"{at.threshold:g}: {at.pairs.estimate:.3g} pairs" for at in self.thresholds)
        return f"<adjoin.Estimate of {rows} rows, {metric}: {of}>"

    def _repr_html_(self) -> str:
        """Returns the estimates as a table, for notebooks."""
        value = "similarity" if self.stats["metric"] == "cosine" else "distance"
        rows = (
            (f"{at.threshold:g}", f"{at.neighbors:.3g}", _bounds(at.pairs), _bounds(at.removed_rows), _bounds(at.seconds, ".1f"))
            for at in self.thresholds
        )
        title = f"<adjoin.Estimate of {len(self)} rows>"
        return html_table(title, [value, "neighbors of a row", "pairs", "removed rows", "seconds of a join"], rows)


def _bounds(figure: Interval, form: str = ",.0f") -> str:
    """Returns a figure with its bounds, for people."""
    return f"{figure.estimate:{form}} ({figure.low:{form}} to {figure.high:{form}})"


def _at(told: dict[str, Any]) -> AtThreshold:
    fields: dict[str, Any] = {name: Interval(**of) if isinstance(of, dict) else of for name, of in told.items()}
    return AtThreshold(**fields)


def explain(
    source: Any,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    metric: Optional[Metric] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    buckets: Optional[int] = None,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    on_bad: OnBad = "error",
    columns: Sequence[str] = (),
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Estimate:
    """Estimates the results and the cost of a join by comparing a sample of rows with all rows. Builds nothing.

    ``source`` is anything that :func:`build` accepts. Without a threshold, ``metric`` selects distances (``"l2"``, the
    default) or similarities (``"cosine"``). The estimate always includes the thresholds at which a vector has about
    0.1, 1, 10 and 100 neighbors on average. With ``columns``, such as ``["text"]``, the estimate has two pairs near each
    threshold, with these columns of both rows. The other arguments are options of :func:`join`.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    run exceeded ``memory``.
    """
    meant = None if metric is None else _options.choice("metric", metric, "metric")
    target = _options.threshold(eps, min_similarity, recall, exact)
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, "keep", columns)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = folder.name
        told = json.loads(_engine.explain(files, target, meant, options, resources, shown))
    check_memory(told["memory"])
    return Estimate(told)
