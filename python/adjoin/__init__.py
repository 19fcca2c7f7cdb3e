"""Finds all pairs of similar vectors, and searches vectors, in sets that need not fit in memory.

>>> import numpy, adjoin
>>> vectors = numpy.random.default_rng(1).standard_normal((1000, 16), dtype="float32")
>>> with adjoin.join(vectors, eps=2.5, exact=True) as result:
...     result.stats["recall"]["kept"]
True

``memory`` limits the memory that a run uses in addition to the memory that the process already holds. It is a size, or
a fraction such as ``"80%"`` of the memory of the machine or its cgroup; the default is half of it. A run also promises
the requested recall. :attr:`Result.stats` reports the memory and the recall of a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _engine
from ._engine import __version__
from . import _options
from ._client import AsyncClient, Client
from ._errors import (
    AdjoinError,
    BudgetError,
    CorruptError,
    DeviceError,
    InputError,
    OptionError,
    OptionTypeError,
    PromiseWarning,
    ServerError,
)
from ._estimate import AtThreshold, Estimate, Interval
from ._folders import Collection, Index, Store, open
from ._folders import ColumnType as ColumnType
from ._folders import Durability as Durability
from ._folders import Element as Element
from ._folders import IdKind as IdKind
from ._folders import OnMissing as OnMissing
from ._options import PathLike, refused
from ._parts import merge, plan, plan_build, run_part
from ._report import page_request, write_page
from ._results import Hits, Neighbors, Rows
from ._source import NAMED_ARRAYS, TEXTS, files_of, texts_of
from ._types import KeepRule as KeepRule
from ._types import OnBad as OnBad
from ._types import OnDuplicateId as OnDuplicateId
from ._types import PageKind as PageKind
from ._types import RecallOf as RecallOf
from ._types import ResultKind as ResultKind
from ._types import Metric as Metric
from ._types import SearchMetric as SearchMetric
from ._work import NONE, ArrowStream, Folder, Table, Temporary, check_memory, check_recall, check_rows, package, working
from .text import Embedded, without_csv

__all__ = [
    "AdjoinError",
    "ArrowStream",
    "AsyncClient",
    "AtThreshold",
    "BudgetError",
    "Client",
    "Collection",
    "CorruptError",
    "Deduped",
    "DeviceError",
    "Estimate",
    "Hits",
    "Index",
    "InputError",
    "Interval",
    "Neighbors",
    "OptionError",
    "OptionTypeError",
    "PromiseWarning",
    "Result",
    "ResultAt",
    "Rows",
    "ServerError",
    "Store",
    "__version__",
    "append",
    "build",
    "build_index",
    "copy",
    "dedupe",
    "explain",
    "join",
    "merge",
    "nearest",
    "open",
    "plan",
    "plan_build",
    "report",
    "run_part",
]

ShingleUnit = Literal["words", "characters"]


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
        self._joined.report(wanted, _options.choice("rule", rule, "keep rule"), page)


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

    def __len__(self) -> int:
        """Number of pairs."""
        return self._count

    def __repr__(self) -> str:
        return f"<adjoin.ResultAt: {len(self)} of {len(self._result)} pairs within {self.threshold}>"


class Deduped(Table, Temporary):
    """A data set without its near-duplicates. Temporary files are kept until :meth:`close` or the end of a ``with``
    block."""

    def __init__(self, done: dict[str, Any], output: Union[Path, str], removed: Path, folder: Folder) -> None:
        super().__init__(folder)
        self._removed = removed
        #: Output file or folder. A text if it is a URL.
        self.output = output
        self._has_preview = isinstance(output, Path)
        #: Statistics of the run, as written by ``--stats`` of the command.
        self.stats: dict[str, Any] = done["statistics"]
        told = self.stats["dedupe"]
        #: Number of rows of the source, of rows removed because their texts are equal, and of rows removed because
        #: their vectors are near.
        self.rows, self.equal_rows, self.near_rows = (int(told[name]) for name in ("source_rows", "equal_rows", "near_rows"))
        #: Some removed rows, with the least similar ones first. Each has ``row``, ``kept_row``, ``value`` (the distance
        #: or similarity of the two), and ``texts`` (the texts of both, if there is a column of texts).
        self.examples: list[dict[str, Any]] = done["examples"]

    def __len__(self) -> int:
        """Number of kept rows."""
        return int(self.stats["dedupe"]["kept_rows"])

    def kept(self) -> ArrowStream:
        """Returns the kept rows with all columns, in source order. The files must be Parquet or Arrow. If the source is an
        array, returns the numbers of its kept rows as ``id``; :meth:`to_numpy` returns their vectors. If the source is a
        tuple of ids and an array, returns ``id`` and ``vectors``; :meth:`to_numpy` returns such a tuple."""
        output = self._local_output()
        if output.suffix == ".npy":
            return self._kept_numbers()
        if output.suffix == ".npz":
            return self._kept_columns()
        files = [output]
        if output.is_dir():
            files = sorted((path for path in output.rglob("*") if path.is_file()), key=os.fsencode)
        return ArrowStream(_engine.rows([os.fspath(file) for file in files]))

    def _kept_numbers(self) -> ArrowStream:
        """Returns the numbers of the kept rows of an array."""
        numpy, pyarrow = package("numpy", "kept()"), package("pyarrow", "kept()")
        is_kept = numpy.ones(self.rows, dtype=bool)
        for batch in pyarrow.RecordBatchReader.from_stream(self.removed()):
            is_kept[batch.column(0).to_numpy()] = False
        schema = pyarrow.schema([pyarrow.field("id", pyarrow.uint64(), nullable=False)])
        return ArrowStream(pyarrow.table([numpy.flatnonzero(is_kept).astype("<u8")], schema=schema))

    def _kept_named(self) -> tuple[Any, Any]:
        """Returns the ids and the vectors of the kept rows of such a tuple, in memory."""
        numpy = package("numpy", "kept()")
        with numpy.load(self._local_output()) as arrays:
            if set(arrays.files) != set(NAMED_ARRAYS):
                raise InputError(f"{self.output} has the arrays {', '.join(arrays.files)}; read it with numpy.load")
            ids, vectors = (arrays[name] for name in NAMED_ARRAYS)
        return ids, vectors

    def _kept_columns(self) -> ArrowStream:
        """Returns these ids and vectors as columns."""
        (ids, vectors), pyarrow = self._kept_named(), package("pyarrow", "kept()")
        rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        return ArrowStream(pyarrow.table([pyarrow.array(ids), rows], names=list(NAMED_ARRAYS)))

    def removed(self) -> ArrowStream:
        """Returns the removed rows: ``id``, ``kept_id`` (null if the row was removed by decision), the ``distance`` or
        ``similarity`` of the two rows (null unless the reason is ``similar``), the ``reason``, and the requested
        ``columns`` of both rows."""
        return ArrowStream(_engine.rows([os.fspath(self._removed)]))

    def to_numpy(self) -> Any:
        """Returns the kept vectors of an array, or of a ``.npy`` file, as a NumPy array that reads the file on demand. If
        the source is a tuple of ids and an array, returns such a tuple, in memory.

        bfloat16 is converted to float32. Do not close the result while the array is in use.
        """
        import numpy

        output = self._local_output()
        if output.suffix == ".npy":
            return numpy.load(output, mmap_mode="r")
        if output.suffix == ".npz":
            return self._kept_named()
        # The caller has never seen the name of a temporary output.
        what = "the source" if self._folder.name in map(str, output.parents) else str(output)
        raise InputError(f"{what} is not an array; take its rows by kept()")

    def _local_output(self) -> Path:
        """Returns the output, which must be on this machine."""
        if isinstance(self.output, str):
            raise InputError(f"{self.output} is in an object store; read the rows from there, or leave output out")
        return self.output

    def report(
        self,
        path: PathLike,
        *,
        names: Optional[PathLike] = None,
        id_column: Optional[str] = None,
        name_column: Optional[str] = None,
        force: bool = False,
    ) -> None:
        """Writes an HTML page about the removed rows in one file, as ``adjoin report`` does. The page shows the requested
        ``columns`` of both rows.

        ``names`` is a file, a folder or a glob of tables with the ids and texts of all rows of the source, for a result
        without columns. The ids are the column ``id_column``, by default ``id``, or row numbers if there is no such
        column. The texts are the column ``name_column``, by default the first text column. An existing page is replaced
        only with ``force``.
        """
        page = page_request(path, names, id_column, name_column, None, None, None, force)
        write_page(self.removed(), json.dumps(self.stats), page)

    def _rows(self) -> ArrowStream:
        return self.kept()

    def __repr__(self) -> str:
        return f"<adjoin.Deduped: {len(self)} of {self.rows} rows are kept>"


def build(
    source: Any,
    store: PathLike,
    *,
    metric: SearchMetric = "l2",
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
    columns: Sequence[str] = (),
    sort_by: Optional[str] = None,
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Store:
    """Builds a store in the folder ``store``, for joins at any threshold and for searches.

    With ``metric="ip"`` the store is for searches by inner product only; larger products are nearer.

    Args:
        source: A path, a list of paths, a two-dimensional array (NumPy, PyTorch, JAX), an Arrow array of lists, or a
            table with the Arrow interface (pyarrow, Polars, DuckDB, pandas) that has a column of lists. Lazy frames of
            Polars and data sets of pyarrow and Hugging Face are read batch by batch. Data that is not in a file is
            first written to ``temporary``.
        temporary: Folder for temporary files, by default the folder of the store.
        id_column: Column with the ids of rows, by default ``id`` if it exists. With ``ids=False`` rows are identified
            by their numbers.
        split: Split to read from a folder in Hugging Face's layout, such as ``"train"``.
        columns: Columns to keep with the vectors, for searches with ``where``.
        sort_by: Column by which rows are sorted within each center. It is kept too. With a filter that is a range of
            this column, joins and searches read only parts of buckets.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    build exceeded ``memory``. Messages of the engine are logged to the logger ``adjoin``.
    """
    target = _options.path("store", store)
    wanted = {"metric": _options.choice("metric", metric, "search metric"), "force": _options.flag("force", force)}
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, columns, sort_by)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = None if temporary is None else folder.name
        held = _engine.build(files, target, wanted, options, resources, shown)
    check_memory(json.loads(held))
    return Store(target)


def append(
    store: Any,
    new: Any = None,
    *,
    delete: Union[Sequence[int], Sequence[str]] = (),
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    on_bad: OnBad = "error",
    on_duplicate_id: OnDuplicateId = "error",
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Appends the rows of ``new`` to a store, and deletes the rows with the ids in ``delete``.

    If rows have no ids, ``delete`` lists row numbers. Open readers keep the old generation, except ``store`` itself.
    Rows keep their numbers, and numbers of deleted rows are not reused. An append is refused if the store would then
    have more added rows than the build had. In that case, rebuild the store from all rows.

    ``new`` is anything that :func:`build` accepts. It must have the columns that the store keeps.

    Returns ``new_rows``, ``skipped_rows``, ``removed_rows``, ``missing_ids`` (ids of ``delete`` that no row has),
    ``bytes_read``, ``bytes_written`` and ``memory``.

    Raises :class:`AdjoinError`; the store is then unchanged. Warns with :class:`PromiseWarning` if the append exceeded
    ``memory``.
    """
    opened = store if isinstance(store, Store) else Store(_options.path("store", store))
    gone = _options.id_list("delete", delete)
    if new is None and not gone:
        raise OptionError("there is nothing to append or delete; give new, delete or both")
    kept = opened._folder.columns()
    options = _options.store_options(1, None, vector_column, id_column, ids, split, on_bad, on_duplicate_id, kept)
    resources = _options.resources(memory, threads)
    rows = NONE if new is None else new
    with working(rows, temporary, options, progress, name="new") as (files, folder, shown), folder:
        resources["temporary"] = None if temporary is None else folder.name
        done: dict[str, Any] = json.loads(_engine.append(files, os.fspath(opened), gone, options, resources, shown))
    opened._open()
    check_memory(done["memory"])
    return done


def copy(
    source: PathLike,
    target: PathLike,
    *,
    force: bool = False,
    memory: Union[str, int, None] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Copies the store, index or collection in the folder ``source`` to ``target``.

    Both are paths, or URLs such as ``s3://bucket/vectors.store``. Every byte is verified, and the copy appears whole or
    not at all. An existing folder of the same kind is replaced only with ``force``. A collection must not be open for
    writing. To copy an open collection, use :meth:`Collection.backup`.

    Returns the ``kind`` of the folder, and the number of ``files`` and ``bytes`` copied. Raises :class:`AdjoinError`.
    """
    names = _options.path("source", source), _options.path("target", target)
    resources = _options.resources(memory, None)
    with working(NONE, None, {}, progress) as (_, folder, shown), folder:
        done = _engine.copy_folder(*names, _options.flag("force", force), {**resources, "temporary": None}, shown)
    return dict(json.loads(done))


def build_index(
    source: Any,
    index: PathLike,
    *,
    metric: Optional[SearchMetric] = None,
    degree: Optional[int] = None,
    build_list: int = 75,
    code_bytes: Optional[int] = None,
    page: Union[str, int] = "4KiB",
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
    columns: Sequence[str] = (),
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Index:
    """Builds a graph index in the folder ``index``. The index does not need its source any more.

    Args:
        source: A :class:`Store`, or anything that :func:`build` accepts. In the second case, a temporary store is built
            first, with the options of :func:`build`.
        metric: Metric of the temporary store, L2 by default.
        degree: Maximum number of neighbors of a vector, chosen among ``build_list`` candidates. By default 32, or 48 or
            64 if a page holds as many vectors with them.
        code_bytes: Bytes per vector that a search holds in memory: by default one for four dimensions, at least 32.
        page: Size of a page, the unit of reads.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    build exceeded ``memory``.
    """
    target = _options.path("index", index)
    wanted = {
        "metric": None if metric is None else _options.choice("metric", metric, "search metric"),
        "force": _options.flag("force", force),
        **_options.index_options(degree, build_list, code_bytes, page),
    }
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, columns)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = folder.name
        held = _engine.build_index(files, target, wanted, options, resources, shown)
    check_memory(json.loads(held))
    return Index(target)


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
        temporary: Folder for pairs, until the result is closed, and for data that does not fit into memory.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    join exceeded ``memory``. Ctrl-C stops it and removes temporary files.
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
            request = {"target": wanted, "filters": conditions, "columns": carried}
            joined = _engine.join(sets, request, options, resources, folder.name, shown)
        result = Result(joined, folder, has_columns=bool(carried))
    check_memory(result.stats["memory"], result)
    check_recall(result.stats["recall"], result)
    check_rows(rows, left, result)
    return result


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


def dedupe(
    source: Any,
    output: Optional[PathLike] = None,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    text: Optional[str] = None,
    min_jaccard: Optional[float] = None,
    shingles: ShingleUnit = "words",
    shingle_size: Optional[int] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    keep_by: Optional[str] = None,
    exact_text: Optional[str] = None,
    decisions: Optional[PathLike] = None,
    columns: Sequence[str] = (),
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    on_bad: OnBad = "error",
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Deduped:
    """Writes a data set without its near-duplicates. The output has all columns, in the shards of the source.

    Rows are near-duplicates if their vectors are within ``eps`` or ``min_similarity``, or if their texts share many
    shingles, which are runs of words. ``adjoin.dedupe(texts)`` removes near-duplicates from a list of texts.

    Args:
        source: Anything that :func:`build` accepts. Without ``eps``, ``min_similarity`` and ``text``, a list or an Arrow
            array of texts, or a Series of pandas or Polars. The rows of the result then have the column ``text``.
        text: Column of texts to compare instead of vectors. The source may then be a ``.csv`` file too, which pyarrow
            reads; its ``output`` is an ``.arrow`` file.
        min_jaccard: Least Jaccard similarity of two texts, the number of shingles of both divided by the number of
            shingles of either. The default is 0.8. Texts are compared in lower case, and each run of white space counts
            as one space. Empty texts and nulls are always kept.
        shingles: Unit of shingles, ``"words"`` or ``"characters"``.
        shingle_size: Number of units of a shingle, by default 3 words or 9 characters. A shorter text is one shingle.
        output: A file if the source is one file, otherwise a folder. Both may be URLs such as ``s3://bucket/clean``. A
            folder in an object store is complete when it has ``_SUCCESS``. Without ``output``, :meth:`Deduped.kept` returns the kept
            rows.
        keep_by: Order of the rows, such as ``"length(text) desc, date"``. Of several near rows, the first in this order
            is kept. The default is the order of the source.
        exact_text: A column, or an expression such as ``"normalize(text)"``. Of rows with equal values, one is kept;
            their vectors are not compared.
        decisions: A file of JSON lines such as ``{"id": "a", "decision": "keep"}``, as the page of ``adjoin report``
            saves them. A row with ``"keep"`` is never removed. A row with ``"remove"`` is always removed.
        columns: Columns to add to :meth:`Deduped.removed`, for both rows. For example, ``["text"]`` adds ``text`` and
            ``kept_text``.
        on_bad: With ``"skip"``, rows without a usable vector are kept.

    The other arguments are options of :func:`join`.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    run exceeded ``memory``. Ctrl-C stops it and removes temporary files and partial output.
    """
    target = _options.optional_path("output", output)
    wanted = _options.threshold(eps, min_similarity, recall, exact)
    options = _options.store_options(seed, None, vector_column, id_column, ids, split, on_bad, "keep")
    carried = [source.text] if isinstance(source, Embedded) else []
    if eps is None and min_similarity is None and text is None:
        otherwise = "text=COLUMN to compare texts, or eps or min_similarity to compare vectors"
        source, text, carried = {TEXTS: texts_of(source, otherwise)}, TEXTS, [TEXTS]
    elif text is not None:
        source = without_csv(source)
    staying: dict[str, Any] = {
        "texts": _options.compared_texts(text, min_jaccard, shingles, shingle_size, wanted, options),
        "keep_by": _options.text("keep_by", keep_by),
        "exact_text": _options.text("exact_text", exact_text),
        "decisions": _options.optional_path("decisions", decisions),
        "columns": _options.texts("columns", columns) or carried,
        "force": _options.flag("force", force),
    }
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress, whole=True) as (files, folder, shown):
        resources["temporary"] = folder.name
        _options.refuse_inputs(target, [*files, *filter(None, [staying["decisions"]])])
        staying["removed"] = os.path.join(folder.name, "removed.parquet")
        staying["output"] = target or os.path.join(folder.name, _kept_name(files))
        done = json.loads(_engine.dedupe(files, wanted, staying, options, resources, shown))
        written = staying["output"]
        deduped = Deduped(done, written if "://" in written else Path(written), Path(staying["removed"]), folder)
    check_memory(deduped.stats["memory"], deduped)
    return deduped


def report(
    result: Any,
    path: PathLike,
    *,
    stats: Optional[PathLike] = None,
    names: Optional[PathLike] = None,
    id_column: Optional[str] = None,
    name_column: Optional[str] = None,
    other_names: Optional[PathLike] = None,
    other_id_column: Optional[str] = None,
    other_name_column: Optional[str] = None,
    memory: Union[str, int, None] = None,
    force: bool = False,
) -> None:
    """Writes an HTML page about a result in one file, as ``adjoin report`` does.

    Args:
        result: A file of pairs, removed rows, clusters, neighbors or hits, as adjoin writes it (Parquet, CSV or JSON
            lines), or a table with the same columns (pyarrow, Polars, pandas, or a stream such as
            :meth:`Result.clusters`). :class:`Result`, :class:`Deduped`, :class:`Hits` and :class:`Neighbors` have a
            method ``report`` too, which adds their statistics.
        path: The page. An existing page is replaced only with ``force``.
        stats: File of the statistics of the run, from ``--stats`` of the command.
        names: A file, a folder or a glob of tables with ids and texts of the rows, for a result without columns. With
            hits, those of the queries.
        id_column: Column of the ids in ``names``, by default ``id``, or row numbers if there is no such column.
        name_column: Column of the texts in ``names``, by default the first text column.
        other_names: Table for the rows on the right of a join of two sets, or for the hits. ``other_id_column`` and
            ``other_name_column`` are its columns.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    page = page_request(path, names, id_column, name_column, other_names, other_id_column, other_name_column, force)
    statistics = None if stats is None else Path(_options.path("stats", stats))
    if isinstance(result, (str, bytes, os.PathLike)):
        resources = {**_options.resources(memory, None), "temporary": None}
        _engine.report(_options.path("result", result), statistics, page, resources)
    elif hasattr(result, "__arrow_c_stream__"):
        write_page(result, statistics, page, memory)
    else:
        raise refused("result", result, "a file or a table, or call the method report of the result")


def _kept_name(files: list[str]) -> str:
    """Returns the name of the output for the kept rows. If the source is a single file, the name has its extension."""
    ending = os.path.splitext(files[0])[1]
    is_file = len(files) == 1 and (os.path.isfile(files[0]) or "://" in files[0] and ending != "")
    return f"kept{ending}" if is_file else "kept"
