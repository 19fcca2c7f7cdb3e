"""Every pair of similar vectors in a set that need not fit in memory.

>>> import numpy, adjoin
>>> vectors = numpy.random.default_rng(1).standard_normal((1000, 16), dtype="float32")
>>> with adjoin.join(vectors, eps=2.5, exact=True) as result:
...     result.stats["recall"]["kept"]
True

A run stays within ``memory`` above what the process holds already: a size, or a share such as ``"80%"`` of what the machine
or its cgroup has, half of it where it is not given. It reaches the recall that was asked
for; both are told in :attr:`Result.stats`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _engine
from ._engine import __version__
from . import _options
from ._errors import (
    AdjoinError,
    BudgetError,
    CorruptError,
    DeviceError,
    InputError,
    OptionError,
    OptionTypeError,
    PromiseWarning,
)
from ._estimate import AtThreshold, Estimate, Interval
from ._options import PathLike
from ._source import files_of
from ._types import ArrowStream
from ._work import NONE, Folder, Table, Temporary, check_memory, check_recall, check_rows, working

__all__ = [
    "AdjoinError",
    "ArrowStream",
    "AtThreshold",
    "BudgetError",
    "Collection",
    "CorruptError",
    "Deduped",
    "DeviceError",
    "Estimate",
    "Hits",
    "Index",
    "InputError",
    "Interval",
    "Neighbours",
    "OptionError",
    "OptionTypeError",
    "PromiseWarning",
    "Result",
    "Store",
    "__version__",
    "append",
    "build",
    "build_index",
    "dedupe",
    "explain",
    "join",
    "nearest",
]

Metric = Literal["l2", "cosine"]
#: Of searches: inner products (``"ip"``) too, which are not joined.
SearchMetric = Literal["l2", "cosine", "ip"]
OnBad = Literal["error", "skip"]
OnDuplicateId = Literal["error", "keep"]
KeepRule = Literal["greedy", "cluster"]
What = Literal["pairs", "counts", "clusters", "keep", "kept"]

Element = Literal["f32", "f16", "u8", "i8"]
IdKind = Literal["int64", "text"]
AttributeType = Literal["text", "int64", "float64", "bool", "date", "timestamp"]
Durability = Literal["group", "buffered"]

ELEMENTS = ("f32", "f16", "u8", "i8")
ID_KINDS = ("int64", "text")
ATTRIBUTE_TYPES = ("text", "int64", "float64", "bool", "date", "timestamp")
DURABILITIES = ("group", "buffered")
METRICS = ("l2", "cosine")
SEARCH_METRICS = ("l2", "cosine", "ip")
KEEP_RULES = ("greedy", "cluster")
RESULTS = ("pairs", "counts", "clusters", "keep", "kept")


class Store:
    """Vectors on disk so that near ones lie together: built once, joined often."""

    def __init__(self, path: PathLike) -> None:
        """Opens the store in the folder ``path``."""
        self.path = Path(_options.path("path", path))
        self._info: dict[str, Any] = json.loads(_engine.info(os.fspath(self.path)))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __len__(self) -> int:
        return int(self._info["rows"])

    def __repr__(self) -> str:
        info = self._info
        return f"<adjoin.Store {str(self.path)!r}: {info['rows']} x {info['dimensions']} {info['element']}, {info['metric']}>"

    @property
    def info(self) -> dict[str, Any]:
        """What the store says of itself: rows, dimensions, element, metric, ids and how it was built."""
        return dict(self._info)

    def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        where: Optional[str] = None,
        nprobe: Optional[int] = None,
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

        ``queries`` is what :func:`build` takes, with its options for columns; or the store itself, whose rows are then the
        queries, in the order in which they lie there, and do not find themselves. ``recall`` is the share of that to find at
        least, on average over queries; ``exact`` finds all of it, as is done for few queries anyway; where neither is given,
        0.95. That is promised for queries that are distributed as the rows of the store, or as the vectors of the file
        ``calibrate_with``. ``where`` is a condition as in SQL, such as ``"lang = 'en' and year >= 2020"``, on the attributes
        that the store was built with: only rows of which it is true are found, and of the store itself only those are
        queries. ``nprobe`` looks into so many buckets, whatever that finds. ``memory`` bounds what the process holds beside
        what it held before the call.

        Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory
        was held than was given. Ctrl-C stops it and removes what is temporary.
        """
        numbers = {"radius": radius, "min_similarity": min_similarity, "recall": recall}
        wanted: dict[str, Any] = {name: _options.number(name, value) for name, value in numbers.items()}
        wanted["store"] = os.fspath(self.path)
        wanted["calibrate_with"] = _options.optional_path("calibrate_with", calibrate_with)
        wanted["k"] = _options.optional_integer("k", k, _options.U64_MAX)
        wanted["nprobe"] = _options.optional_integer("nprobe", nprobe, _options.U32_MAX)
        wanted["exact"] = _options.flag("exact", exact)
        wanted["condition"] = _options.text("where", where)
        options = _options.store_options(seed, None, vector_column, id_column, ids, split, "error", "keep")
        resources = _options.resources(memory, threads)
        with working(NONE if queries is self else queries, temporary, options, progress) as (files, folder, shown):
            resources["temporary"] = folder.name
            hits = Hits(_engine.search(files, wanted, options, resources, folder.name, shown), folder)
        check_memory(hits.stats["memory"], hits)
        return hits


class Index:
    """Vectors on disk with their neighbours in a graph: few reads for each query. Made by :func:`build_index`, open until it is
    dropped: what a search holds in memory is read once, and searches of several threads share it."""

    def __init__(self, path: PathLike) -> None:
        """Opens the index in the folder ``path``."""
        self.path = Path(_options.path("path", path))
        self._index = _engine.Index(os.fspath(self.path), {**_options.resources(None, None), "temporary": None})
        self._info: dict[str, Any] = json.loads(self._index.info)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __len__(self) -> int:
        return int(self._info["rows"])

    def __repr__(self) -> str:
        info = self._info
        return f"<adjoin.Index {str(self.path)!r}: {info['rows']} x {info['dimensions']} {info['element']}, {info['metric']}>"

    @property
    def info(self) -> dict[str, Any]:
        """What the index says of itself: rows, dimensions, element, metric, ids and how it was built."""
        return dict(self._info)

    def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        list: Optional[int] = None,
        where: Optional[str] = None,
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

        ``queries`` is what :func:`build` takes, with its options for columns. ``recall`` is the share of that to find at
        least, on average over queries, 0.95 where it is not given; that is promised for queries that are distributed as the
        rows of the index, or as the vectors of the file ``calibrate_with``, which takes a pass over the index, as does a
        threshold. ``exact`` compares each query with every row and finds all of it. ``list`` keeps so many candidates, whatever that
        finds. ``where`` is a condition as in SQL on the attributes with
        which the index was built: only rows of which it is true are found. A recall is then exact for few queries, at the cost of
        a pass over the pages that have such rows. ``memory`` bounds what the process holds beside what it held before the call.

        Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory
        was held than was given, or where no search that makes sense supports the recall. Ctrl-C stops it and removes what is
        temporary.
        """
        wanted = _sought(k, radius, min_similarity, recall, exact, list)
        wanted["calibrate_with"] = _options.optional_path("calibrate_with", calibrate_with)
        wanted["condition"] = _options.text("where", where)
        options = _options.store_options(seed, None, vector_column, id_column, ids, split, "error", "keep")
        resources = _options.resources(memory, threads)
        with working(queries, temporary, options, progress) as (files, folder, shown):
            resources["temporary"] = folder.name
            hits = Hits(self._index.search(files, (wanted, options), resources, folder.name, shown), folder)
        check_memory(hits.stats["memory"], hits)
        check_recall(hits.stats["recall"], hits)
        return hits


def _sought(k: Any, radius: Any, min_similarity: Any, recall: Any, exact: Any, candidates: Any) -> dict[str, Any]:
    """What is wanted of each query of an index, and how far it is looked for."""
    numbers = {"radius": radius, "min_similarity": min_similarity, "recall": recall}
    wanted: dict[str, Any] = {name: _options.number(name, value) for name, value in numbers.items()}
    wanted["k"] = _options.optional_integer("k", k, _options.U64_MAX)
    wanted["exact"] = _options.flag("exact", exact)
    wanted["list"] = _options.optional_integer("list", candidates, _options.U32_MAX)
    return {"calibrate_with": None, "condition": None, **wanted}


class Collection:
    """Vectors that come and go, in a folder; what was written is found by the next search. One process writes, any number
    searches what was there when it opened the folder. Closed at the end of a ``with`` block, or by :meth:`close`."""

    def __init__(
        self,
        path: PathLike,
        *,
        read_only: bool = False,
        merge_at: Union[str, int, None] = "auto",
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> None:
        """Opens the live index in the folder ``path``, to write and to search, or to search only.

        ``memory`` bounds what it holds, which is what is not merged yet, and the merges that come by themselves: one begins where
        rows in memory take ``merge_at``, a size (``"auto"``: an eighth of the memory, 64 MiB at most), or a quarter of the rows on
        disk is gone. Where merges fall behind, writes wait, the longer the more there is; ``stats`` says how long. With ``None``
        rows are merged by :meth:`merge` only. Merges use half of the ``threads``, and give way to all others."""
        self.path = Path(_options.path("path", path))
        at = merge_at if merge_at is None or isinstance(merge_at, str) else str(_options.integer("merge_at", merge_at, _options.U64_MAX))
        resources = {**_options.resources(memory, threads), "temporary": None}
        self._live = _engine.Collection(os.fspath(self.path), _options.flag("read_only", read_only), at, resources)

    @classmethod
    def create(
        cls,
        path: PathLike,
        dimensions: int,
        *,
        element: Element = "f32",
        metric: Metric = "l2",
        ids: IdKind = "int64",
        attributes: Optional[Mapping[str, AttributeType]] = None,
        degree: int = 32,
        build_list: int = 75,
        code_bytes: int = 32,
        page: Union[str, int] = "4KiB",
        seed: int = 1,
        merge_at: Union[str, int, None] = "auto",
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> Collection:
        """Makes a live index without vectors in the folder ``path``, and opens it as ``Collection(path)`` does. ``ids`` says what names a vector: integers or
        texts; ``attributes`` what rows have beside that, to filter searches by: names, each with its type. ``degree``, ``build_list``, ``code_bytes`` and ``page`` are those of :func:`build_index`, for merges."""
        wanted = {
            "dimensions": _options.integer("dimensions", dimensions, _options.U32_MAX),
            "element": _options.choice("element", element, ELEMENTS),
            "metric": _options.choice("metric", metric, METRICS),
            "ids": _options.choice("ids", ids, ID_KINDS),
            "attributes": _options.typed_names("attributes", attributes, ATTRIBUTE_TYPES),
        }
        index = {"metric": None, "force": False, **_index_options(degree, build_list, code_bytes, page)}
        seed = _options.integer("seed", seed, _options.U64_MAX)
        _engine.create_live(_options.path("path", path), wanted, index, seed)
        return cls(path, merge_at=merge_at, memory=memory, threads=threads)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __len__(self) -> int:
        return int(json.loads(self._live.info[1])["rows"])

    def __repr__(self) -> str:
        info = self.info
        return f"<adjoin.Collection {str(self.path)!r}: {info['dimensions']} {info['element']}, {info['metric']}>"

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> dict[str, Any]:
        """What the live index says of itself: dimensions, element, metric, ids, ``attributes`` where rows have some, and how
        merges build."""
        return dict(json.loads(self._live.info[0]))

    @property
    def stats(self) -> dict[str, Any]:
        """What it holds now: ``rows``, how many of these are ``unmerged``, rows that are ``gone`` and still take room, the
        ``sequence`` number of the last write. What that takes: ``unmerged_bytes`` of memory, ``index_bytes`` and ``log_bytes`` on
        disk, of these about ``dead_bytes`` of rows that are gone. What was done since it was opened to write: ``last_merge``
        (``rows``, ``seconds``, ``bytes_written``; None where there was none), ``came_bytes`` of vectors and ids,
        ``written_bytes`` to the disk, and their ratio, ``write_amplification``; how many writes have had to wait for merges
        (``waits``, ``waited_seconds``), and why the last merge that came by itself failed (``merge_failure``, mostly None)."""
        return dict(json.loads(self._live.stats()))

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
        """Deletes the rows of some ids, inserts rows whose ids are not there, and rows in the places of those that have their
        ids (``upsert``): all or nothing, in this order. Returns the number of the write once a loss of power takes it no more;
        with the durability ``"buffered"`` once the system has it.

        ``insert`` and ``upsert`` are what :func:`build` takes, with its options for columns, such as a tuple of ids and an array,
        or columns: ``{"id": [7, 8], "vector": array, "lang": ["en", None]}``. Where rows have attributes, these are among the
        columns. Rows without ids go by their numbers, where ids are integers. An id that is to be deleted and is not there is no
        error.

        Raises :class:`AdjoinError`; after a :class:`DeviceError` nothing more is taken until it is opened again.
        """
        names = [attribute["name"] for attribute in self._attributes()]
        options = _options.store_options(1, None, vector_column, id_column, ids, split, "error", "keep", names)
        buffered = _options.choice("durability", durability, DURABILITIES) == "buffered"
        resources = {**_options.resources(None, None), "temporary": None}
        sources = [NONE if rows is None else rows for rows in (insert, upsert)]
        with working(sources[0], temporary, options, progress) as (inserted, first, shown), first:
            with working(sources[1], temporary, options, False) as (upserted, second, _), second:
                rows = ((inserted, options) if inserted else None, (upserted, options) if upserted else None)
                written = self._live.write(rows, _id_list("delete", delete), buffered, resources, shown)
        return int(json.loads(written)["sequence"])

    def get(self, ids: Union[Sequence[int], Sequence[str]]) -> list[Any]:
        """The vectors of some ids as arrays of numpy; None for an id that no row has. Where rows have attributes, a dictionary
        for each row: the array as ``"vector"``, and the attributes by their names, dates and timestamps as ``numpy.datetime64``."""
        import numpy

        element = numpy.dtype({"f32": "<f4", "f16": "<f2", "u8": "u1", "i8": "i1"}[self.info["element"]])
        attributes = self._attributes()
        if not attributes:
            found = self._live.get(_id_list("ids", ids))
            return [None if vector is None else numpy.frombuffer(vector, element) for vector in found]

        def as_dict(vector: bytes, values: Sequence[Any]) -> dict[str, Any]:
            named = {of["name"]: _timed(value, of["type"]) for of, value in zip(attributes, values)}
            return {"vector": numpy.frombuffer(vector, element), **named}

        return [None if row is None else as_dict(*row) for row in self._live.get_rows(_id_list("ids", ids))]

    def delete_where(self, condition: str, *, durability: Durability = "group", progress: Optional[bool] = None) -> int:
        """Deletes all rows that meet a ``condition`` as in SQL on their attributes, such as ``"year < 2020"``, in one write.
        Returns how many went, when that is as safe as :meth:`write` says."""
        if not isinstance(condition, str):
            raise _options.refused("condition", condition, "a text, such as 'year < 2020'")
        buffered = _options.choice("durability", durability, DURABILITIES) == "buffered"
        resources = {**_options.resources(None, None), "temporary": None}
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return int(json.loads(self._live.delete_where(condition, buffered, resources, shown))["gone"])

    def _attributes(self) -> list[dict[str, str]]:
        return list(self.info.get("attributes", ()))

    def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        list: Optional[int] = None,
        where: Optional[str] = None,
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
        """Finds the ``k`` nearest vectors of each query, or all within a ``radius`` (L2) or a ``min_similarity`` (cosine), among
        those that are there when it begins. Rows that are not merged yet are all compared; among the others it finds what
        :meth:`Index.search` promises, with the same arguments."""
        wanted = _sought(k, radius, min_similarity, recall, exact, list)
        wanted["condition"] = _options.text("where", where)
        wanted["calibrate_with"] = _options.optional_path("calibrate_with", calibrate_with)
        options = _options.store_options(seed, None, vector_column, id_column, ids, split, "error", "keep")
        resources = _options.resources(memory, threads)
        with working(queries, temporary, options, progress) as (files, folder, shown):
            resources["temporary"] = folder.name
            hits = Hits(self._live.search(files, (wanted, options), resources, folder.name, shown), folder)
        check_memory(hits.stats["memory"], hits)
        check_recall(hits.stats["recall"], hits)
        return hits

    def merge(
        self,
        *,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        temporary: Optional[PathLike] = None,
        progress: Optional[bool] = None,
    ) -> dict[str, Any]:
        """Makes what was written part of the graph index on disk, while other threads write and search. Returns the ``rows`` that
        this has then, the ``sequence`` number of the last write among them, how many ``seconds`` it took, and the
        ``bytes_written``."""
        resources = _options.resources(memory, threads)
        with working(NONE, temporary, {}, progress) as (_, folder, shown), folder:
            resources["temporary"] = _options.optional_path("temporary", temporary)
            return dict(json.loads(self._live.merge(resources, shown)))

    def snapshot(
        self,
        path: PathLike,
        *,
        force: bool = False,
        memory: Union[str, int, None] = None,
        progress: Optional[bool] = None,
    ) -> int:
        """Writes the rows that are there now to the file ``path``, which ends in ``.parquet``: columns ``id`` and ``vector``, and one for
        each attribute, in no order that means something. Returns how many. A file that is there is replaced only with ``force``."""
        target, resources = _options.path("path", path), _options.resources(memory, None)
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            return self._live.snapshot(target, _options.flag("force", force), {**resources, "temporary": None}, shown)

    def backup(
        self,
        path: PathLike,
        *,
        force: bool = False,
        memory: Union[str, int, None] = None,
        progress: Optional[bool] = None,
    ) -> dict[str, Any]:
        """Copies the live index as it is on disk now to the folder ``path``, which can be opened as one: with every write that was
        acknowledged before, also by another process, and while others go on. Every byte of the copy is read again before it
        appears. Returns its ``rows``, the ``sequence`` number of its last write, and the ``bytes`` that were copied. A live index that is
        there is replaced only with ``force``."""
        target, resources = _options.path("path", path), _options.resources(memory, None)
        with working(NONE, None, {}, progress) as (_, folder, shown), folder:
            told = self._live.backup(target, _options.flag("force", force), {**resources, "temporary": None}, shown)
        return dict(json.loads(told))

    def flush(self) -> int:
        """Makes all writes durable; returns the number of the last."""
        return self._live.flush()

    def close(self) -> None:
        """Makes all writes durable, and lets another process write."""
        self._live.close()


def _timed(value: Any, kind: str) -> Any:
    """A value of an attribute, of which the engine has dates and timestamps as numbers."""
    import numpy

    unit: Any = {"date": "D", "timestamp": "us"}.get(kind)
    return value if value is None or unit is None else numpy.datetime64(value, unit)


def _id_list(name: str, ids: Any) -> list[Any]:
    """Ids as a list, those of numpy too: integers or texts."""
    wanted = "a list of integers or of texts"
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
        raise _options.refused(name, ids, wanted)
    listed = list(listed)
    if all(isinstance(id, str) for id in listed):
        return listed
    for id in listed:
        if isinstance(id, bool) or not hasattr(id, "__index__"):
            raise _options.refused(f"an id of {name}", id, wanted)
        if not -(2**63) <= int(id) < 2**63:
            raise InputError(f"an id of {name} is {_options.shown(id)}; give integers of 64 bits")
    return [int(id) for id in listed]


class Hits(Table):
    """What queries found. The hits lie in a temporary folder until :meth:`close`, or the end of a ``with`` block."""

    def __init__(self, found: _engine.Found, folder: Folder) -> None:
        super().__init__(folder)
        self._found = found
        #: What the run did, and whether it kept its promises; the same as the command's ``--stats``.
        self.stats: dict[str, Any] = json.loads(found.stats)
        self._arrays: Optional[tuple[Any, Any]] = None

    def hits(self) -> ArrowStream:
        """Every hit: ``query`` and ``id`` (ids, or row numbers), ``rank`` from 1, and ``distance``, ``similarity`` or ``score``."""
        return self._found.hits()

    @property
    def offsets(self) -> Any:
        """Where the hits of each query begin, and where those of the last one end: an array of numpy."""
        import numpy

        counts = numpy.frombuffer(self._found.counts(), "<u8").astype(numpy.int64)
        return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts)])

    @property
    def ids(self) -> Any:
        """Ids of the hits, or row numbers, as an array of numpy: a row for each query, nearest first, where all have as many
        hits; else end to end, parted by :attr:`offsets`."""
        return self._both()[0]

    @property
    def values(self) -> Any:
        """Distances or similarities of the hits, as :attr:`ids`."""
        return self._both()[1]

    def _both(self) -> tuple[Any, Any]:
        import numpy

        if self._arrays is None:
            raw_ids, kind, raw_values = self._found.columns()
            ids = numpy.array(raw_ids, dtype=object) if kind == "text" else numpy.frombuffer(raw_ids, "<" + kind)  # type: ignore[arg-type]
            values, counts = numpy.frombuffer(raw_values, "<f4"), numpy.diff(self.offsets)
            shape = (len(counts), int(counts[0])) if len(counts) and (counts == counts[0]).all() else (-1,)
            self._arrays = ids.reshape(shape), values.reshape(shape)
        return self._arrays

    def _rows(self) -> ArrowStream:
        return self.hits()

    def __len__(self) -> int:
        """Number of queries."""
        return int(self.stats["search"]["queries"])

    def __repr__(self) -> str:
        return f"<adjoin.Hits: {self.stats['search']['hits']} hits of {len(self)} queries>"


class Neighbours(Hits):
    """The nearest neighbours of rows. They lie in a temporary folder until :meth:`close`, or the end of a ``with`` block.

    Arrays go by the numbers of the rows, tables by the order in which the rows lie in the store."""

    def __init__(self, found: _engine.Found, folder: Folder) -> None:
        super().__init__(found, folder)
        self._order: Optional[tuple[Any, Any]] = None

    def hits(self) -> ArrowStream:
        """Every neighbour: ``id`` and ``neighbour`` (ids, or row numbers), ``rank`` from 1, and ``distance``, ``similarity`` or ``score``."""
        return self._found.hits()

    @property
    def rows(self) -> Any:
        """The numbers of the rows, ascending: an array of numpy. Rows that were skipped are missing."""
        return self._ordered()[0]

    @property
    def offsets(self) -> Any:
        """Where the neighbours of each row begin, in the order of :attr:`rows`, and where those of the last one end: an array of numpy."""
        import numpy

        counts = numpy.diff(super().offsets)[self._ordered()[1]]
        return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts)])

    def _ordered(self) -> tuple[Any, Any]:
        """The numbers of the rows, and at which place of the file each is."""
        import numpy

        if self._order is None:
            rows = numpy.frombuffer(self._found.rows(), "<u8").astype(numpy.int64)
            places = numpy.argsort(rows)
            self._order = rows[places], places
        return self._order

    def _both(self) -> tuple[Any, Any]:
        import numpy

        if self._arrays is None:
            ids, values = super()._both()
            places = self._ordered()[1]
            if ids.ndim == 1:
                # Each of a row moves as far as its first one does.
                to, moved = self.offsets, super().offsets[:-1][places] - self.offsets[:-1]
                places = numpy.arange(len(ids)) + numpy.repeat(moved, numpy.diff(to))
            self._arrays = ids[places], values[places]
        return self._arrays

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.stats["rows"])

    def __repr__(self) -> str:
        return f"<adjoin.Neighbours: {self.stats['nearest']['neighbours']} neighbours of {len(self)} rows>"


class Result(Table):
    """What a join found. The pairs lie in a temporary folder until :meth:`close`, or the end of a ``with`` block."""

    def __init__(self, joined: _engine.Joined, folder: Folder) -> None:
        super().__init__(folder)
        self._joined = joined
        #: What the run did, and whether it kept its promises; the same as the command's ``--stats``.
        self.stats: dict[str, Any] = json.loads(joined.stats)

    def pairs(self) -> ArrowStream:
        """Every pair: ``left``, ``right`` (ids, or row numbers) and ``distance`` or ``similarity``."""
        return self._joined.pairs()

    def counts(self) -> ArrowStream:
        """How many neighbours each row has: ``id`` and ``count``, in the order of rows."""
        return self._joined.rows("counts", "")[0]

    def clusters(self) -> ArrowStream:
        """Which rows are connected by chains of pairs: ``id`` and ``cluster``, the id of its first row; single rows are left out."""
        return self._joined.rows("clusters", "")[0]

    def keep(self, rule: KeepRule = "greedy") -> ArrowStream:
        """Which rows to remove: ``id``, ``kept_id`` and their ``distance`` or ``similarity``.

        ``greedy``: a row is removed only where one that is kept lies within the threshold. ``cluster``: the first row of
        each cluster is kept, however far the others are.
        """
        return self._joined.rows("keep", _options.choice("rule", rule, KEEP_RULES))[0]

    def kept(self, rule: KeepRule = "greedy") -> ArrowStream:
        """Which rows to keep: ``id``, in the order of rows."""
        return self._joined.rows("keep", _options.choice("rule", rule, KEEP_RULES))[1]

    def _rows(self) -> ArrowStream:
        return self.pairs()

    def write(self, path: PathLike, what: What = "pairs", *, rule: KeepRule = "greedy", force: bool = False) -> None:
        """Writes a result to a ``.parquet``, ``.csv`` or ``.jsonl`` file, within the memory of the join.

        ``what`` is the name of the method that gives the same as a stream; ``rule`` is that of :meth:`keep` and
        :meth:`kept`. A file that is there is replaced only with ``force``; the new one appears whole or not at all.
        """
        target, wanted = _options.path("path", path), _options.choice("what", what, RESULTS)
        rule_wanted = _options.choice("rule", rule, KEEP_RULES)
        self._joined.write(target, wanted, rule_wanted, _options.flag("force", force))

    def report(
        self,
        path: PathLike,
        *,
        names: Optional[PathLike] = None,
        id_column: Optional[str] = None,
        name_column: Optional[str] = None,
        force: bool = False,
    ) -> None:
        """Writes a page to look at, in one file, as ``adjoin report`` does.

        ``names`` is a file, a folder or a glob of tables of ids (``id_column``, else ``id``, else rows by their number)
        and texts (``name_column``, else the first column of text). A page that is there is replaced only with ``force``.
        """
        target, files = _options.path("path", path), _options.optional_path("names", names)
        columns = {"id_column": _options.text("id_column", id_column), "name_column": _options.text("name_column", name_column)}
        named = None if files is None else {"files": files, **columns}
        self._joined.report(target, named, _options.flag("force", force))

    def close(self) -> None:
        """Removes what is temporary. Streams that were taken before can still be read."""
        self._joined.close()
        super().close()

    def __len__(self) -> int:
        """Number of pairs."""
        return int(self.stats["join"]["pairs"])

    def __repr__(self) -> str:
        recall = self.stats["recall"]["pair"]["estimate"]
        return f"<adjoin.Result: {len(self)} pairs of {self.stats['rows']} rows, recall {recall:.4f}>"


class Deduped(Temporary):
    """A data set without its near-duplicates. What is temporary stays until :meth:`close`, or the end of a ``with`` block."""

    def __init__(self, done: dict[str, Any], output: Path, removed: Path, folder: Folder) -> None:
        super().__init__(folder)
        self._removed = removed
        #: The file or folder that was written.
        self.output = output
        #: What the run did, and whether it kept its promises; the same as the command's ``--stats``.
        self.stats: dict[str, Any] = done["statistics"]
        told = self.stats["dedupe"]
        #: Rows of the source, those that went for their texts and those that went for their vectors.
        self.rows, self.equal_rows, self.near_rows = (int(told[name]) for name in ("source_rows", "equal_rows", "near_rows"))
        #: Some rows that went, the least near first: ``row``, ``kept_row``, ``value``, their distance or similarity, and
        #: ``texts``, what both say where there is a column of texts.
        self.examples: list[dict[str, Any]] = done["examples"]

    def __len__(self) -> int:
        """Rows that stay."""
        return int(self.stats["dedupe"]["kept_rows"])

    def kept(self) -> ArrowStream:
        """The rows that stay, with all columns, in the order of the source; of files that are Parquet or Arrow."""
        files = [self.output]
        if self.output.is_dir():
            files = sorted((path for path in self.output.rglob("*") if path.is_file()), key=os.fsencode)
        return _engine.rows([os.fspath(file) for file in files])

    def removed(self) -> ArrowStream:
        """The rows that went: ``id``, ``kept_id``, their ``distance`` or ``similarity``, null where their texts are equal,
        and the ``reason``."""
        return _engine.rows([os.fspath(self._removed)])

    def __repr__(self) -> str:
        return f"<adjoin.Deduped: {len(self)} of {self.rows} rows stay>"


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
    attributes: Sequence[str] = (),
    sort_by: Optional[str] = None,
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Store:
    """Builds a store in the folder ``store``, for joins at any threshold and for searches; with ``metric="ip"`` for searches by
    inner product alone, where larger is nearer.

    ``source`` is a path, a list of paths, an array of two dimensions (numpy, torch, JAX), an Arrow array of lists, or a
    table with the Arrow interface (pyarrow, Polars, DuckDB, pandas) that has a column of lists; lazy frames of Polars and
    data sets of pyarrow and Hugging Face are read batch by batch. What is not a file yet is written to ``temporary``
    first. What does not fit into memory goes there too, or to the folder of the store where ``temporary``
    is not given. The column ``id_column``, or ``id`` where there is one, names the rows; with ``ids=False`` they go by
    their number. Of a folder in Hugging Face's layout ``split``, such as ``"train"``, takes one split. The columns that
    ``attributes`` names are kept beside the vectors, for searches ``where`` something is true of them. Rows are sorted within
    buckets by the column ``sort_by``, which is kept too: joins and searches that ask for a range of it read parts of buckets.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given. What the engine has to say goes to the log ``adjoin``.
    """
    target = _options.path("store", store)
    wanted = {"metric": _options.choice("metric", metric, SEARCH_METRICS), "force": _options.flag("force", force)}
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, attributes, sort_by)
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
    """Writes the next generation of a store in its place: with the rows of ``new`` behind those that are there, without those whose
    ids ``delete`` lists, or their numbers where rows have no ids. Who has opened the store goes on with what it was.

    ``new`` is what :func:`build` takes, with its options and with the attributes that the store keeps. Rows keep their numbers; those
    that go are numbers that no row has any more. Ids of ``delete`` that no row has are counted. More rows than the store was built of
    cannot come to it; build it again of all rows then. Returns what was done: ``new_rows``, ``skipped_rows``, ``removed_rows``,
    ``missing_ids``, ``bytes_read``, ``bytes_written`` and ``memory``.

    Raises :class:`AdjoinError`; the store is as it was then. Warns with :class:`PromiseWarning` where more memory was held than was
    given.
    """
    target = store.path if isinstance(store, Store) else _options.path("store", store)
    gone = _id_list("delete", delete)
    if new is None and not gone:
        raise OptionError("nothing comes and nothing goes; give new, delete or both")
    kept = _engine.attributes(os.fspath(target))
    options = _options.store_options(1, None, vector_column, id_column, ids, split, on_bad, on_duplicate_id, kept)
    resources = _options.resources(memory, threads)
    rows = NONE if new is None else new
    with working(rows, temporary, options, progress, name="new") as (files, folder, shown), folder:
        resources["temporary"] = None if temporary is None else folder.name
        done: dict[str, Any] = json.loads(_engine.append(files, os.fspath(target), gone, options, resources, shown))
    check_memory(done["memory"])
    return done


def _index_options(degree: Any, build_list: Any, code_bytes: Any, page: Any) -> dict[str, Any]:
    """How an index is built."""
    return {
        "degree": _options.integer("degree", degree, _options.U32_MAX),
        "build_list": _options.integer("build_list", build_list, _options.U32_MAX),
        "code_bytes": _options.integer("code_bytes", code_bytes, _options.U32_MAX),
        "page": page if isinstance(page, str) else str(_options.integer("page", page, _options.U64_MAX)),
    }


def build_index(
    source: Any,
    index: PathLike,
    *,
    metric: Optional[SearchMetric] = None,
    degree: int = 32,
    build_list: int = 75,
    code_bytes: int = 32,
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
    attributes: Sequence[str] = (),
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Index:
    """Builds a graph index in the folder ``index``, which needs nothing of its source any more.

    ``source`` is a :class:`Store`, or what :func:`build` takes, with its options, of which a store is built first in a
    temporary place; without ``metric`` its distances are L2. A vector has at most ``degree`` neighbours, found among
    ``build_list`` candidates. A search holds ``code_bytes`` of each vector in memory, and reads pages of the size ``page``.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given.
    """
    target = _options.path("index", index)
    wanted = {
        "metric": None if metric is None else _options.choice("metric", metric, SEARCH_METRICS),
        "force": _options.flag("force", force),
        **_index_options(degree, build_list, code_bytes, page),
    }
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, attributes)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = folder.name
        held = _engine.build_index(files, target, wanted, options, resources, shown)
    check_memory(json.loads(held))
    return Index(target)


@contextmanager
def _files_of_other(name: str, other: Any, folder: Path, options: dict[str, Any]) -> Iterator[list[str]]:
    """The files of the other set of a join, which is the argument of that name; none where there is no such set."""
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
    exact: bool = False,
    other: Any = None,
    new: Any = None,
    where: Optional[str] = None,
    where_other: Optional[str] = None,
    where_pair: Optional[str] = None,
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

    ``source`` is a :class:`Store`, or what :func:`build` takes, with its options. ``eps`` is a true L2 distance, ``min_similarity`` a
    cosine. Instead of them ``target_rows`` takes the threshold at which :meth:`Result.kept` has about so many rows, of a source
    with the ``metric`` (``"l2"`` where it is not given); ``stats["join"]`` says which it is. ``recall`` is the share of pairs to
    find at least, of all and of the average vector's; ``exact`` finds every pair; where neither is given, 0.95, and every pair
    where that costs at most twice as much. ``where`` is a condition as in SQL on the other columns of the source, or on the
    attributes with which the store was built, such as ``"lang = 'en'"``: rows of which it is not true take no part.
    ``where_pair`` is one on pairs, such as ``"left.source <> right.source"``, where the earlier row is the left one. What is
    promised is promised for the pairs that are left. ``other`` is another set: each row of ``source`` is then joined with the rows
    of that one, which are on the right of the pairs, and ``where_other`` is a condition on these. ``new`` are rows that come to those
    of ``source``: only their pairs are found, with each other and with those, as a join of all would find them; they are numbered
    behind those, and what the result says of rows it says of new ones. ``memory`` bounds what the
    process holds beside what it held before the call. Pairs, and what does not fit into memory, go to a folder in
    ``temporary`` until the result is closed.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given. Ctrl-C stops it and removes what is temporary.
    """
    wanted = _options.threshold(eps, min_similarity, recall, exact)
    rows = _options.optional_integer("target_rows", target_rows, _options.U64_MAX)
    meant = None if metric is None else _options.choice("metric", metric, METRICS)
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
    options, options_of_other = (
        _options.store_options(
            seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id,
            _engine.condition_columns(conditions, number, other is not None),
        )
        for number in (0, 0 if other is None else 1)
    )
    resources = _options.resources(memory, threads)
    left: Optional[int] = None
    with working(source, temporary, options, progress) as (files, folder, shown):
        resources["temporary"] = folder.name
        if rows is not None:
            threshold, left = _engine.threshold_leaving(files, (rows, meant or "l2"), options, resources, shown)
            wanted["min_similarity" if meant == "cosine" else "eps"] = threshold
        name, beside = ("other", other) if new is None else ("new", new)
        with _files_of_other(name, beside, Path(folder.name), options_of_other) as others:
            sets = [files, others, []] if new is None else [files, [], others]
            joined = _engine.join(sets, (wanted, conditions), options, resources, folder.name, shown)
        result = Result(joined, folder)
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
) -> Neighbours:
    """Finds the ``k`` nearest neighbours of each row, itself left out: a k-NN graph.

    ``source`` is a :class:`Store`, or what :func:`build` takes, with its options; ``metric`` is for those, ``"l2"`` where it is
    not given. Of the ``k`` nearest only those ``within`` a threshold are found, a distance or, under cosine, a similarity.
    ``recall`` is the share of that to find at least, on average over rows; ``exact`` finds all of it; where neither is given,
    0.95. ``memory`` bounds what the process holds beside what it held before the call. What was found goes to a folder in
    ``temporary`` until the result is closed.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given. Ctrl-C stops it and removes what is temporary.
    """
    wanted: dict[str, Any] = {
        "k": _options.integer("k", k, _options.U64_MAX),
        "within": _options.number("within", within),
        "metric": None if metric is None else _options.choice("metric", metric, SEARCH_METRICS),
        "recall": _options.number("recall", recall),
        "exact": _options.flag("exact", exact),
    }
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id)
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown):
        resources["temporary"] = folder.name
        found = Neighbours(_engine.nearest(files, wanted, options, resources, folder.name, shown), folder)
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
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Estimate:
    """Tells what a join would find and take, before anything is built: from rows that are compared with all others.

    ``source`` is what :func:`build` takes. Without a threshold ``metric`` says whether distances (``"l2"``, where it is not
    given) or similarities (``"cosine"``) are meant. Thresholds at which a vector has about 0.1, 1, 10 and 100 neighbours on
    average are told of in any case. The others are options of :func:`join`.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given.
    """
    meant = None if metric is None else _options.choice("metric", metric, METRICS)
    wanted = (_options.threshold(eps, min_similarity, recall, exact), meant)
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, "keep")
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = folder.name
        told = json.loads(_engine.explain(files, wanted, options, resources, shown))
    check_memory(told["memory"])
    return Estimate(told)


def dedupe(
    source: Any,
    output: Optional[PathLike] = None,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    keep_by: Optional[str] = None,
    exact_text: Optional[str] = None,
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
    """Writes a data set again without its near-duplicates: all columns, shard by shard.

    ``source`` is what :func:`build` takes. ``output`` is a file where the source is one file, else a folder; where it is
    not given, what stays is had from :meth:`Deduped.kept`. Of near rows the first by ``keep_by`` stays, such as
    ``"length(text) desc, date"``, or the first of the source. Rows for which ``exact_text`` is equal, a column or
    ``"normalize(text)"``, count as one and are not compared. The others are options of :func:`join`; with
    ``on_bad="skip"`` rows without a usable vector stay.

    Raises :class:`AdjoinError`; its subclasses tell what is wrong. Warns with :class:`PromiseWarning` where more memory was
    held than was given. Ctrl-C stops it and removes what is temporary; nothing is left of the output then.
    """
    target = _options.optional_path("output", output)
    wanted = _options.threshold(eps, min_similarity, recall, exact)
    options = _options.store_options(seed, None, vector_column, id_column, ids, split, on_bad, "keep")
    staying: dict[str, Any] = {
        "keep_by": _options.text("keep_by", keep_by),
        "exact_text": _options.text("exact_text", exact_text),
        "force": _options.flag("force", force),
    }
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress, whole=True) as (files, folder, shown):
        resources["temporary"] = folder.name
        staying["removed"] = os.path.join(folder.name, "removed.parquet")
        staying["output"] = target or os.path.join(folder.name, _kept_name(files))
        done = json.loads(_engine.dedupe(files, wanted, staying, options, resources, shown))
        deduped = Deduped(done, Path(staying["output"]), Path(staying["removed"]), folder)
    check_memory(deduped.stats["memory"], deduped)
    return deduped


def _kept_name(files: list[str]) -> str:
    """A name for what stays of some files: one file where they are one."""
    is_file = len(files) == 1 and os.path.isfile(files[0])
    return "kept" + os.path.splitext(files[0])[1] if is_file else "kept"
