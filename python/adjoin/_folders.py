"""Open stores, indexes and collections."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _engine
from . import _options
from ._options import PathLike
from ._results import Hits, Rows
from ._source import SmallArray, small_array
from ._temporary import File, Folder, folder_in
from ._types import SearchMetric
from ._work import NONE, check_memory, check_recall, showing, working

Element = Literal["f32", "f16", "u8", "i8"]
IdKind = Literal["int64", "text"]
ColumnType = Literal["text", "int64", "float64", "bool", "date", "timestamp"]
Durability = Literal["group", "buffered"]
OnMissing = Literal["error", "skip"]


class OpenFolder:
    """An open store, index or collection. Any number of threads may search it at once."""

    #: Kind of the folder; None if any kind is opened.
    _kind: Optional[str] = None

    def __init__(
        self,
        path: PathLike,
        *,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        read_only: bool = False,
        merge_at: Union[str, int, None] = None,
    ) -> None:
        """Opens the folder ``path``.

        ``memory`` limits the memory of the open folder and of all its searches together, half of the machine's by
        default. What no search needs keeps pages of an index or a collection that earlier searches have read.
        """
        self.path = Path(_options.path("path", path))
        at = merge_at if merge_at is None or isinstance(merge_at, str) else str(_options.integer("merge_at", merge_at, _options.U64_MAX))
        #: Folder of large results of small searches, by process, and the numbers of such results.
        self._results: dict[int, Folder] = {}
        self._numbers = itertools.count()
        self._opening = {"kind": self._kind, "read_only": _options.flag("read_only", read_only), "merge_at": at}
        self._open(memory, threads)

    def _open(self, memory: Any = None, threads: Any = None) -> None:
        """Opens the current generation of the folder."""
        resources = {**_options.resources(memory, threads), "temporary": None}
        self._folder = _engine.Folder(os.fspath(self.path), self._opening, resources)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __len__(self) -> int:
        return int(self.info["rows"])

    def __repr__(self) -> str:
        info = self.info
        shape = f"{info['rows']} x {info['dimensions']} {info['element']}, {info['metric']}"
        return f"<adjoin.{type(self).__name__} {str(self.path)!r}: {shape}>"

    @property
    def info(self) -> dict[str, Any]:
        """Metadata: ``kind``, ``rows``, ``dimensions``, ``element``, ``metric``, ``ids``, and the options with which the
        folder was created."""
        return dict(json.loads(self._folder.info))

    def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        nprobe: Optional[int] = None,
        list: Optional[int] = None,
        where: Optional[str] = None,
        columns: Sequence[str] = (),
        calibrate_with: Optional[PathLike] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        seed: int = 1,
        vector_column: Optional[str] = None,
        id_column: Optional[str] = None,
        ids: bool = True,
        split: Optional[str] = None,
        temporary: Optional[PathLike] = None,
        progress: Optional[bool] = None,
    ) -> Hits:
        """Finds the ``k`` nearest vectors of each query, or all within a ``radius`` (L2) or a ``min_similarity`` (cosine).

        A search of a collection sees the rows that exist when it begins. The recall holds for merged and unmerged
        rows. Queries are compared with all unmerged rows, or, if these are many, with the rows of some buckets. ``list``
        applies to merged rows.

        Args:
            queries: Anything that :func:`build` accepts, with its options for columns. If they are the store that is
                searched, its rows are the queries, in store order, and a row does not find itself.
            recall: Mean fraction of a query's hits to find, 0.95 by default. It is promised for queries that are
                distributed like the rows of the folder, or like the vectors of the file ``calibrate_with``. In an index
                or a collection, such a file requires a pass over the rows, and so does a threshold.
            exact: Finds all hits. Stores do this too if there are few queries.
            nprobe: Number of buckets of a store to probe, without a promise.
            list: Number of candidates to keep in an index or a collection, without a promise.
            where: A SQL condition on the columns that the folder keeps, such as ``"lang = 'en' and year >= 2020"``. Only
                rows that pass are found. If a store itself is searched, only these rows are queries.
            columns: Columns to add to the hits; the folder must keep them. In tables, they follow the columns of the
                hits. An added column whose name is taken, such as ``rank``, is called ``columns.rank``.
            memory: Limit for the memory that the search uses in addition to the memory held before the call. By default,
                the search shares the memory of the open folder. With a limit or with ``threads`` of its own, it takes
                longer to start.

        Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if
        the search exceeded ``memory``, or if no reasonable search supports the recall. Ctrl-C stops it and removes
        temporary files.
        """
        numbers = {"radius": radius, "min_similarity": min_similarity, "recall": recall}
        wanted: dict[str, Any] = {name: _options.number(name, value) for name, value in numbers.items()}
        wanted["k"] = _options.optional_integer("k", k, _options.U64_MAX)
        wanted["exact"] = _options.flag("exact", exact)
        wanted["nprobe"] = _options.optional_integer("nprobe", nprobe, _options.U32_MAX)
        wanted["list"] = _options.optional_integer("list", list, _options.U32_MAX)
        wanted["condition"] = _options.text("where", where)
        wanted["columns"] = _options.texts("columns", columns)
        wanted["calibrate_with"] = _options.optional_path("calibrate_with", calibrate_with)
        options = _options.store_options(seed, None, vector_column, id_column, ids, split, "error", "keep")
        resources = {**_options.resources(memory, threads), "temporary": None}
        array = None if queries is self or temporary is not None else small_array(queries, options)
        if array is not None:
            hits = self._search_array(array, (wanted, options), resources, progress)
        else:
            with working(NONE if queries is self else queries, temporary, options, progress) as (files, folder, shown):
                file = os.path.join(folder.name, "hits.parquet")
                hits = Hits(self._folder.search(files, (wanted, options), resources, file, shown), folder)
        # Statistics are parsed only if they are needed, since a search of one query takes about a millisecond.
        if not hits._found.keeps_promises:
            check_memory(hits.stats["memory"], hits)
            check_recall(hits.stats["recall"], hits)
        return hits

    def _search_array(
        self, array: SmallArray, asked: tuple[dict[str, Any], dict[str, Any]], resources: dict[str, Any], progress: Any
    ) -> Hits:
        """Searches for a small array. Only a large result is written to a file."""
        process = os.getpid()  # a forked child has a folder of its own
        folder = self._results.get(process) or self._results.setdefault(process, folder_in(None))
        file = os.path.join(folder.name, f"{next(self._numbers)}.parquet")
        with showing(progress) as shown:
            found = self._folder.search(array, asked, resources, file, shown)
        return Hits(found, File(None if found.in_memory else file))

    def get(
        self,
        ids: Union[Sequence[int], Sequence[str]],
        *,
        on_missing: OnMissing = "error",
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        progress: Optional[bool] = None,
    ) -> Rows:
        """Fetches the rows with the given ids, in the order of ``ids``. If rows have no ids, these are row numbers.

        A collection looks up ids in a sorted file. In a store or an index, the ids are read until all are found.

        Args:
            on_missing: With ``"skip"``, ids that no row has are left out. Otherwise they are an error.
            memory: Limit for the memory that the call uses, the rows included.

        Raises a subclass of :class:`AdjoinError` that names the kind of error.
        """
        skip = _options.choice("on_missing", on_missing, "on_missing") == "skip"
        listed, resources = _options.id_list("ids", ids), {**_options.resources(memory, threads), "temporary": None}
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return Rows(self._folder.get(listed, skip, resources, shown), self.info)

    def verify(self, *, memory: Union[str, int, None] = None, progress: Optional[bool] = None) -> dict[str, list[str]]:
        """Reads every byte of the folder on disk and checks it.

        Returns the names of files in the folder that do not belong to it: ``leftovers`` of interrupted work, and
        ``strangers``. Raises :class:`CorruptError` if the folder is damaged.
        """
        resources = {**_options.resources(memory, None), "temporary": None}
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return dict(json.loads(self._folder.verify(resources, shown)))


class Store(OpenFolder):
    """Vectors on disk, grouped so that near ones are adjacent. Built once, joined and searched often.

    An open store has the rows that it had when it was opened. :func:`append` reopens the store that is passed to it.
    """

    _kind = "store"

    def __init__(self, path: PathLike, *, memory: Union[str, int, None] = None, threads: Optional[int] = None) -> None:
        """Opens the store in the folder ``path``."""
        super().__init__(path, memory=memory, threads=threads)


class Index(OpenFolder):
    """Vectors on disk with a graph of their neighbors, so that a query needs few reads. Built by :func:`build_index`.

    The part that searches hold in memory is read once. The index stays open until the object is dropped.
    """

    _kind = "index"

    def __init__(self, path: PathLike, *, memory: Union[str, int, None] = None, threads: Optional[int] = None) -> None:
        """Opens the index in the folder ``path``. ``memory`` limits the part that is held in memory."""
        super().__init__(path, memory=memory, threads=threads)

    def relayout(
        self,
        output: Optional[PathLike] = None,
        *,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        force: bool = False,
        progress: Optional[bool] = None,
    ) -> Index:
        """Moves the vectors to other pages, such that neighbors share pages.

        Writes a new index to ``output``, and replaces an existing one only with ``force``. Without ``output``, it replaces
        this index, which is then reopened. Returns the new index. Raises a subclass of :class:`AdjoinError`.
        """
        target, replace = _options.optional_path("output", output), _options.flag("force", force)
        resources = {**_options.resources(memory, threads), "temporary": None}
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            held = _engine.relayout(os.fspath(self.path), target, replace, resources, shown)
        check_memory(json.loads(held))
        if target is not None:
            return Index(target)
        self._open()
        return self


class Collection(OpenFolder):
    """A folder of vectors that accepts writes. The next search sees every write.

    Only one process may write. Any number of other processes may search; they see the rows that existed when they
    opened the folder. :meth:`close`, or the end of a ``with`` block, closes the collection.
    """

    _kind = "collection"

    def __init__(
        self,
        path: PathLike,
        *,
        read_only: bool = False,
        merge_at: Union[str, int, None] = "auto",
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> None:
        """Opens the collection in the folder ``path``, to write and search, or with ``read_only`` only to search.

        Args:
            memory: Limit for the unmerged rows and for automatic merges.
            merge_at: Memory of unmerged rows at which a merge starts. ``"auto"`` is an eighth of ``memory``, and at
                most 256 MiB. A merge also starts when a quarter of the rows on disk has been deleted. If merges fall
                behind, writes wait; the more rows are unmerged, the longer. ``stats`` reports the waits. With ``None``,
                only :meth:`merge` merges.
            threads: Number of threads. Merges use half of them, at a low priority.
        """
        super().__init__(path, memory=memory, threads=threads, read_only=read_only, merge_at=merge_at)
        self._collection = self._folder.collection()

    @classmethod
    def create(
        cls,
        path: PathLike,
        dimensions: int,
        *,
        element: Element = "f32",
        metric: SearchMetric = "l2",
        ids: IdKind = "int64",
        columns: Optional[Mapping[str, ColumnType]] = None,
        degree: Optional[int] = None,
        build_list: int = 75,
        code_bytes: Optional[int] = None,
        page: Union[str, int] = "4KiB",
        seed: int = 1,
        merge_at: Union[str, int, None] = "auto",
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> Collection:
        """Creates an empty collection in the folder ``path``, and opens it as ``Collection(path)`` does.

        Args:
            metric: Metric of searches. By inner product (``"ip"``), each merge builds a new index.
            ids: Type of the ids of rows: integers or texts.
            columns: Further columns of the rows, for filters: names with their types.
            degree: Option of the indexes that merges build, as in :func:`build_index`. So are ``build_list``,
                ``code_bytes`` and ``page``.
        """
        wanted = {
            "dimensions": _options.integer("dimensions", dimensions, _options.U32_MAX),
            "element": _options.choice("element", element, "element"),
            "metric": _options.choice("metric", metric, "search metric"),
            "ids": _options.choice("ids", ids, "ids"),
            "columns": _options.typed_names("columns", columns),
        }
        index = {"metric": None, "force": False, **_options.index_options(degree, build_list, code_bytes, page)}
        seed = _options.integer("seed", seed, _options.U64_MAX)
        _engine.create_live(_options.path("path", path), wanted, index, seed)
        return cls(path, merge_at=merge_at, memory=memory, threads=threads)

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stats(self) -> dict[str, Any]:
        """Size and activity of the collection.

        Rows: ``rows``, the number of these that are ``unmerged``, the number of deleted rows that still take space
        (``deleted``), and the ``sequence`` number of the last record in the log: a write, or a close, which takes a
        number too.

        Space: ``unmerged_bytes`` in memory, ``index_bytes`` and ``log_bytes`` on disk, and ``dead_bytes``, which is
        about how many of the bytes on disk belong to deleted rows. ``bucketed_rows`` of the unmerged rows are in
        buckets, and searches compare queries with a part of them.

        Since the collection was opened to write: ``last_merge`` (``rows``, ``seconds``, ``bytes_written``; None without
        a merge), ``ingested_bytes`` of inserted vectors and ids, ``written_bytes`` to the disk, and their ratio,
        ``write_amplification``; the number of writes that waited for merges and their wait (``waits``,
        ``waited_seconds``); ``p50``, ``p99``, ``p999`` and ``max`` of the durations of writes in milliseconds
        (``write_ms``; None without writes); and the error of the last automatic merge (``merge_failure``, usually None).
        """
        return dict(json.loads(self._collection.stats()))

    def write(
        self,
        *,
        insert: Any = None,
        upsert: Any = None,
        delete: Union[Sequence[int], Sequence[str]] = (),
        durability: Durability = "group",
        vector_column: Optional[str] = None,
        id_column: Optional[str] = None,
        ids: bool = True,
        split: Optional[str] = None,
        temporary: Optional[PathLike] = None,
        progress: Optional[bool] = None,
    ) -> int:
        """Deletes, inserts and replaces rows, in this order, in one atomic write. Returns the number of the write.

        Returns once the write survives a loss of power, or with the durability ``"buffered"`` once the operating system
        has it.

        Args:
            insert: Rows with new ids: anything that :func:`build` accepts, with its options for columns. Examples are a
                tuple of ids and an array, and a dict of columns: ``{"id": [7, 8], "vector": array, "lang": ["en",
                None]}``. The rows must have all columns that the collection keeps. If ids are integers and the rows
                have none, the row numbers are their ids.
            upsert: Rows to insert. If a row with the id of such a row exists, it is replaced.
            delete: Ids of the rows to delete. Unknown ids are ignored.

        Raises :class:`AdjoinError`. After a :class:`DeviceError` the collection accepts no write until it is opened
        again.
        """
        names = self._folder.columns()
        options = _options.store_options(1, None, vector_column, id_column, ids, split, "error", "keep", names)
        buffered = _options.choice("durability", durability, "durability") == "buffered"
        resources = {**_options.resources(None, None), "temporary": None}
        sources = [NONE if rows is None else rows for rows in (insert, upsert)]
        with working(sources[0], temporary, options, progress) as (inserted, first, shown), first:
            with working(sources[1], temporary, options, False) as (upserted, second, _), second:
                rows = ((inserted, options) if inserted else None, (upserted, options) if upserted else None)
                written = self._collection.write(rows, _options.id_list("delete", delete), buffered, resources, shown)
        return int(json.loads(written)["sequence"])

    def delete_where(self, condition: str, *, durability: Durability = "group", progress: Optional[bool] = None) -> int:
        """Deletes all rows that pass the SQL ``condition`` on their columns, such as ``"year < 2020"``, in one write.

        Returns the number of deleted rows. ``durability`` is the argument of :meth:`write`.
        """
        if not isinstance(condition, str):
            raise _options.refused("condition", condition, "a text, such as 'year < 2020'")
        buffered = _options.choice("durability", durability, "durability") == "buffered"
        resources = {**_options.resources(None, None), "temporary": None}
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return int(json.loads(self._collection.delete_where(condition, buffered, resources, shown))["deleted"])

    def merge(
        self,
        *,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        temporary: Optional[PathLike] = None,
        progress: Optional[bool] = None,
    ) -> dict[str, Any]:
        """Moves all writes into the graph index on disk, while other threads write and search.

        Returns the ``rows`` of the index after the merge, the ``sequence`` number of the last merged write, the
        ``seconds`` that the merge took, and the ``bytes_written``.
        """
        resources = _options.resources(memory, threads)
        with working(NONE, temporary, {}, progress) as (_, folder, shown), folder:
            resources["temporary"] = _options.optional_path("temporary", temporary)
            return dict(json.loads(self._collection.merge(resources, shown)))

    def snapshot(
        self,
        path: PathLike,
        *,
        force: bool = False,
        memory: Union[str, int, None] = None,
        progress: Optional[bool] = None,
    ) -> int:
        """Writes the current rows to the ``.parquet`` file ``path``, in arbitrary order, and returns their number.

        The file has the columns ``id`` and ``vector``, and the other columns of the rows. An existing file is replaced
        only with ``force``.
        """
        target, resources = _options.path("path", path), _options.resources(memory, None)
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return self._collection.snapshot(target, _options.flag("force", force), {**resources, "temporary": None}, shown)

    def backup(
        self,
        path: PathLike,
        *,
        force: bool = False,
        memory: Union[str, int, None] = None,
        progress: Optional[bool] = None,
    ) -> dict[str, Any]:
        """Copies the collection, as it is on disk now, to the folder ``path``, which can be opened as a collection.

        The copy includes every write that was acknowledged before the call, even by another process. Writes may
        continue meanwhile. Every byte of the copy is verified before it appears. An existing collection is replaced
        only with ``force``.

        Returns the ``rows`` of the copy, the ``sequence`` number of the last record that it includes, and the ``bytes``
        copied.
        """
        target, resources = _options.path("path", path), _options.resources(memory, None)
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            told = self._collection.backup(target, _options.flag("force", force), {**resources, "temporary": None}, shown)
        return dict(json.loads(told))

    def flush(self) -> int:
        """Makes all writes durable and returns the number of the last one."""
        return self._collection.flush()

    def close(self) -> None:
        """Makes all writes durable and lets another process write."""
        self._collection.close()


def open(
    path: PathLike,
    *,
    read_only: bool = False,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
) -> Union[Store, Index, Collection]:
    """Opens the folder ``path``, which may be a store, an index or a collection.

    With ``read_only``, a collection is only searched, so that another process may write to it. ``memory`` limits the
    part of the folder that is held in memory.
    """
    kind = _engine.kind_of(_options.path("path", path))
    if kind == "collection":
        return Collection(path, read_only=read_only, memory=memory, threads=threads)
    _options.flag("read_only", read_only)
    opened = Store if kind == "store" else Index
    return opened(path, memory=memory, threads=threads)
