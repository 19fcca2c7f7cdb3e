"""Builds of stores and indexes, appends, and copies of folders."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _engine
from . import _options
from ._errors import OptionError
from ._folders import Index, Store
from ._options import PathLike
from ._source import check_files
from ._types import OnBad, OnDuplicateId, SearchMetric
from ._work import NONE, check_memory, working


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
    resume: bool = False,
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
        resume: Saves checkpoints next to the store. The same call continues after an interruption. The source must be
            in files.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    build exceeded ``memory``. Messages of the engine are logged to the logger ``adjoin``.
    """
    target = _options.path("store", store)
    wanted = {
        "metric": _options.choice("metric", metric, "search metric"),
        "force": _options.flag("force", force),
        "resume": _options.flag("resume", resume),
    }
    if wanted["resume"]:
        check_files(source, "source")
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
