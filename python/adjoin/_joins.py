"""Joins and k-NN graphs, and the results of joins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional, Union

from . import _engine
from . import _options
from ._errors import OptionError
from ._options import PathLike
from ._report import page_request, write_page_of
from ._results import Neighbors
from ._source import check_files, files_of
from ._temporary import Folder
from ._types import KeepRule, Metric, OnBad, OnDuplicateId, PageKind, RecallOf, ResultKind, SearchMetric
from ._work import ArrowStream, Table, Temporary, check_memory, check_recall, check_rows, working


class JoinedPairs(Table):
    """Pairs of a join, and the results about rows that follow from them."""

    _joined: _engine.Joined

    def pairs(self) -> ArrowStream:
        """Returns every pair: ``left_id``, ``right_id`` (ids, or row numbers), ``distance`` or ``similarity``, and the
        requested ``columns`` of both rows."""
        return ArrowStream(self._joined.pairs())

    def counts(self) -> ArrowStream:
        """Returns the number of neighbors of each row: ``id`` and ``count``, in row order."""
        return ArrowStream(self._joined.rows("counts", "greedy"))

    def clusters(self) -> ArrowStream:
        """Returns the rows that are connected by chains of pairs: ``id``, ``cluster``, which is the id of the cluster's
        first row, and the requested ``columns`` of the row. Rows without pairs are left out.

        In a join with ``other``, clusters have rows of both sets, whose ``columns`` must have equal types. The column
        ``side`` is ``left`` for rows of the source and ``right`` for rows of ``other``. In a join with ``new``, clusters
        are connected by pairs with a new row only, and the column ``new`` states whether a row is new."""
        return ArrowStream(self._joined.rows("clusters", "greedy"))

    def removed(self, rule: KeepRule = "greedy") -> ArrowStream:
        """Returns the rows to remove: ``id``, ``kept_id``, the ``distance`` or ``similarity`` of the two rows, and the
        requested ``columns`` of both.

        With ``greedy``, a row is removed only if it is within the threshold of a kept row. With ``cluster``, only the
        first row of each cluster is kept, even if other rows are far from it.
        """
        return ArrowStream(self._joined.rows("removed", _options.choice("rule", rule, "keep rule")))

    def kept(self, rule: KeepRule = "greedy") -> ArrowStream:
        """Returns the rows to keep: ``id``, in row order."""
        return ArrowStream(self._joined.rows("kept", _options.choice("rule", rule, "keep rule")))

    def _rows(self) -> ArrowStream:
        return self.pairs()

    def write(self, path: PathLike, result: ResultKind = "pairs", *, rule: KeepRule = "greedy", force: bool = False) -> None:
        """Writes a result to a ``.parquet``, ``.csv`` or ``.jsonl`` file, within the memory of the join.

        ``result`` is the name of the method that returns this result as a stream. ``rule`` is the argument of
        :meth:`removed` and :meth:`kept`. An existing file is replaced only with ``force``, and atomically.
        """
        target, wanted = _options.path("path", path), _options.choice("result", result, "result")
        rule_wanted = _options.choice("rule", rule, "keep rule")
        self._joined.write(target, wanted, rule_wanted, _options.flag("force", force))

    def report(
        self,
        path: PathLike,
        result: PageKind = "pairs",
        *,
        rule: KeepRule = "greedy",
        names: Optional[PathLike] = None,
        id_column: Optional[str] = None,
        name_column: Optional[str] = None,
        other_names: Optional[PathLike] = None,
        other_id_column: Optional[str] = None,
        other_name_column: Optional[str] = None,
        force: bool = False,
    ) -> None:
        """Writes an HTML page about a result in one file, as ``adjoin report`` does. The page shows the requested
        ``columns`` of the rows.

        ``result`` is ``"pairs"``, ``"clusters"`` or ``"removed"``; ``rule`` is the argument of :meth:`removed`.

        ``names`` is a file, a folder or a glob of tables with ids and texts, for a result without columns. The ids are
        the column ``id_column``, by default ``id``, or row numbers if there is no such column. The texts are the column
        ``name_column``, by default the first text column. After a join with ``other``, the arguments ``other_...`` do
        this for the rows on the right. An existing page is replaced only with ``force``.
        """
        page = page_request(path, names, id_column, name_column, other_names, other_id_column, other_name_column, force)
        wanted = _options.choice("result", result, "result")
        if wanted in ("counts", "kept"):
            raise OptionError(f"result is {wanted!r}, which a page cannot show; give 'pairs', 'clusters' or 'removed'")
        self._report(wanted, _options.choice("rule", rule, "keep rule"), page)

    def _report(self, result: str, rule: str, page: dict[str, Any]) -> None:
        self._joined.report(result, rule, page)


class Result(JoinedPairs, Temporary):
    """Result of a join. The pairs are in a temporary folder until :meth:`close` or the end of a ``with`` block."""

    def __init__(self, joined: _engine.Joined, folder: Folder, has_columns: bool) -> None:
        super().__init__(folder)
        self._joined = joined
        self._has_preview = not has_columns  # their columns are read for all pairs, before the first
        #: Statistics of the run, as written by ``--stats`` of the command.
        self.stats: dict[str, Any] = json.loads(joined.stats)

    def at(self, threshold: float) -> ResultAt:
        """Returns the result at a nearer ``threshold`` (a distance or a similarity, like the threshold of the join) without
        another run. It can be used until this result is closed.

        If the join may have missed pairs, the recall at a nearer threshold is unknown.
        """
        nearer = _options.required_number("threshold", threshold)
        joined, count = self._joined.at(nearer)
        return ResultAt(joined, nearer, count, self)

    def close(self) -> None:
        """Removes temporary files. Streams that were returned before can still be read."""
        self._joined.close()
        super().close()

    def __len__(self) -> int:
        """Number of pairs."""
        return int(self.stats["join"]["pairs"])

    def __repr__(self) -> str:
        recall = self.stats["recall"]["pair"]["estimate"]
        return f"<adjoin.Result: {len(self)} pairs of {self.stats['rows']} rows, recall {recall:.4f}>"


class ResultAt(JoinedPairs):
    """Result of a join at a nearer threshold. Distances and similarities are compared as float32, as they are reported."""

    def __init__(self, joined: _engine.Joined, threshold: float, count: int, result: Result) -> None:
        self._joined, self._count, self._result = joined, count, result
        self._has_preview = result._has_preview
        #: The threshold, a distance or a similarity as the threshold of the join.
        self.threshold = threshold

    def _report(self, result: str, rule: str, page: dict[str, Any]) -> None:
        write_page_of(lambda file: self._joined.write(file, result, rule, False), json.dumps(self._stats()), page)

    def _stats(self) -> dict[str, Any]:
        """Returns the statistics of the join at the nearer threshold. The recall is unknown if pairs may have been missed."""
        stats = self._result.stats
        join = {name: stats["join"][name] for name in ("eps", "min_similarity", "with_rows")}
        name = "eps" if join["min_similarity"] is None else "min_similarity"
        join.update({name: self.threshold, "pairs": self._count})
        found_all = stats["recall"]["pair"]["low"] == 1
        return {**stats, "join": join, "recall": stats["recall"] if found_all else None}

    def __len__(self) -> int:
        """Number of pairs."""
        return self._count

    def __repr__(self) -> str:
        return f"<adjoin.ResultAt: {len(self)} of {len(self._result)} pairs within {self.threshold}>"


def join(
    source: Any,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    target_rows: Optional[int] = None,
    metric: Optional[Metric] = None,
    recall: Optional[float] = None,
    recall_of: RecallOf = "pairs-and-vectors",
    exact: bool = False,
    other: Any = None,
    new: Any = None,
    where: Optional[str] = None,
    where_other: Optional[str] = None,
    where_pair: Optional[str] = None,
    columns: Sequence[str] = (),
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    buckets: Optional[int] = None,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    on_bad: OnBad = "error",
    on_duplicate_id: OnDuplicateId = "error",
    resume: Optional[PathLike] = None,
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Result:
    """Finds the pairs of vectors within a threshold.

    Args:
        source: A :class:`Store`, or anything that :func:`build` accepts, with its options.
        eps: Threshold as a true L2 distance.
        min_similarity: Threshold as a cosine.
        target_rows: Number of rows that :meth:`Result.kept` should have. The threshold is chosen accordingly, as a
            distance or, with ``metric="cosine"``, a similarity. ``stats["join"]`` reports it.
        recall: Fraction of all pairs to find, and also of the pairs of the average vector. The default is 0.95; if
            finding every pair costs at most twice as much, every pair is found.
        recall_of: With ``"pairs"``, ``recall`` is promised for all pairs only, as papers do. That takes less time, and
            vectors with few neighbors may miss more of them.
        exact: Finds every pair.
        where: A SQL condition on the other columns of the source, or on the columns that the store keeps, such as
            ``"lang = 'en'"``. Rows that do not pass are excluded.
        where_pair: A SQL condition on pairs, such as ``"left.source <> right.source"``; the earlier row is the left
            one. The recall is promised for the pairs that pass.
        other: A second set. The rows of ``source`` are joined with the rows of this set, which are on the right of the
            pairs.
        where_other: A SQL condition on the rows of ``other``.
        new: New rows. Only pairs that contain a new row are found: two new rows, or a new row and a row of ``source``.
            The numbers of new rows continue after those of ``source``. Counts and removed rows cover only new rows.
        columns: Columns to add to pairs and to :meth:`Result.removed`, for both rows, and to :meth:`Result.clusters`. The
            column ``text`` becomes ``left_text`` and ``right_text`` in pairs, ``text`` and ``kept_text`` in removed rows,
            and ``text`` in clusters. A store must keep these columns.
        memory: Limit for the memory that the join uses in addition to the memory held before the call.
        resume: Name of the checkpoint of a long join, such as ``"work/overnight"``: the folder
            ``work/.adjoin-overnight.resume``. The same call continues from it after an interruption, and removes it at
            the end. All sets must be in files. With ``force``, the checkpoint of another call is discarded.
        temporary: Folder for pairs, until the result is closed, and for data that does not fit into memory.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    join exceeded ``memory`` or missed its recall, or if no threshold keeps about ``target_rows`` rows. Ctrl-C stops it
    and removes temporary files.
    """
    wanted = _options.threshold(eps, min_similarity, recall, exact, recall_of)
    rows = _options.optional_integer("target_rows", target_rows, _options.U64_MAX)
    meant = None if metric is None else _options.choice("metric", metric, "metric")
    if rows is None and meant is not None:
        raise OptionError("metric is for target_rows: eps is a distance (L2), min_similarity a similarity (cosine); leave it out")
    if rows is not None and (eps, min_similarity) != (None, None):
        raise OptionError("give either eps, min_similarity or target_rows")
    conditions = {
        "rows": _options.text("where", where),
        "other_rows": _options.text("where_other", where_other),
        "pairs": _options.text("where_pair", where_pair),
    }
    if rows is not None and (other is not None or new is not None or any(conditions.values())):
        raise OptionError("target_rows counts all rows of one set; leave out other, new, where and where_pair")
    if other is not None and new is not None:
        raise OptionError("other is another set, new are rows of the same one; give one of them")
    carried = _options.texts("columns", columns)
    options, options_of_other = (
        _options.store_options(
            seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id,
            list(dict.fromkeys([*_engine.condition_columns(conditions, number, other is not None), *carried])),
        )
        for number in (0, 0 if other is None else 1)
    )
    checkpoint = _checkpoint(resume, force, {"source": source, "other": other, "new": new})
    resources = _options.resources(memory, threads)
    left: Optional[int] = None
    with working(source, temporary, options, progress) as (files, folder, shown):
        resources["temporary"] = folder.name
        if rows is not None:
            threshold, left = _engine.threshold_leaving(files, rows, meant or "l2", options, resources, shown)
            wanted["min_similarity" if meant == "cosine" else "eps"] = threshold
        name, beside = ("other", other) if new is None else ("new", new)
        with _files_of_other(name, beside, Path(folder.name), options_of_other) as others:
            sets = [files, others, []] if new is None else [files, [], others]
            request = {"target": wanted, "filters": conditions, "columns": carried, "resume": checkpoint}
            joined = _engine.join(sets, request, options, resources, folder.name, shown)
        result = Result(joined, folder, has_columns=bool(carried))
    check_memory(result.stats["memory"], result)
    check_recall(result.stats["recall"], result)
    check_rows(rows, left, result)
    return result


def _checkpoint(resume: Any, force: Any, sets: dict[str, Any]) -> Optional[tuple[str, bool]]:
    """Returns the name of the checkpoint, if any, and whether one of another call is discarded."""
    name, replace = _options.optional_path("resume", resume), _options.flag("force", force)
    if name is None:
        if replace:
            raise OptionError("force discards a checkpoint; give resume too, or leave force out")
        return None
    for argument, rows in sets.items():
        if rows is not None:
            check_files(rows, argument)
    return name, replace


@contextmanager
def _files_of_other(name: str, other: Any, folder: Path, options: dict[str, Any]) -> Iterator[list[str]]:
    """Yields the files of the second set of a join, which is the argument ``name``. Yields no files if there is no such
    set."""
    if other is None:
        yield []
        return
    at = folder / "other"
    at.mkdir()
    with files_of(other, at, options, name=name) as files:
        yield files


def nearest(
    source: Any,
    k: int,
    *,
    within: Optional[float] = None,
    metric: Optional[SearchMetric] = None,
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
    on_duplicate_id: OnDuplicateId = "error",
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Neighbors:
    """Finds the ``k`` nearest neighbors of each row, without the row itself: a k-NN graph.

    Args:
        source: A :class:`Store`, or anything that :func:`build` accepts, with its options.
        within: Threshold: only neighbors within this distance or, under cosine, with at least this similarity are
            found.
        metric: Metric of a source that is not a store, ``"l2"`` by default.
        recall: Mean fraction of a row's neighbors to find, 0.95 by default.
        exact: Finds all neighbors.
        memory: Limit for the memory that the run uses in addition to the memory held before the call.
        temporary: Folder for the result until it is closed.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    run exceeded ``memory``. Ctrl-C stops it and removes temporary files.
    """
    wanted: dict[str, Any] = {
        "k": _options.integer("k", k, _options.U64_MAX),
        "within": _options.number("within", within),
        "metric": None if metric is None else _options.choice("metric", metric, "search metric"),
        "recall": _options.number("recall", recall),
        "exact": _options.flag("exact", exact),
    }
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown):
        resources["temporary"] = folder.name
        found = Neighbors(_engine.nearest(files, wanted, options, resources, folder.name, shown), folder)
    check_memory(found.stats["memory"], found)
    return found
