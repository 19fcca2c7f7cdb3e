"""One join or build on many machines: the plan, the run of a part, and the merge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _engine, _options
from ._options import PathLike
from ._progress import bar
from ._source import paths_of
from ._types import KeepRule, OnBad, OnDuplicateId, RecallOf, ResultKind, SearchMetric
from ._work import check_memory, check_recall


def plan(
    store: PathLike,
    path: PathLike,
    *,
    parts: int,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    recall: Optional[float] = None,
    recall_of: RecallOf = "pairs-and-vectors",
    exact: bool = False,
    result: ResultKind = "pairs",
    seed: int = 1,
    force: bool = False,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Plans a join of a store with itself in ``parts`` parts of about equal work, and writes the plan to ``path``.

    Run each part with :func:`run_part` on any machine that can read the store, then unite the results with
    :func:`merge`. By default, parts are planned for pairs, and every result can be merged from them. Parts for another
    ``result`` are smaller, and only that result can be merged from them. Set ``memory`` to the budget of the machines
    that run the parts. The other arguments are options of :func:`join`.

    Returns the statistics. ``["plan"]["parts"]`` has a dict per part, with its ``memory_bytes`` and ``seconds``.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    request = {
        "store": _options.path("store", store),
        "target": _options.threshold(eps, min_similarity, recall, exact, recall_of),
        "parts": _options.integer("parts", parts, 2**32 - 1),
        "result": _options.choice("result", result, "result"),
        "seed": _options.integer("seed", seed, _options.U64_MAX),
        "path": _options.path("path", path),
        "force": _options.flag("force", force),
    }
    resources, shown = _resources(memory, threads, None), bar(_options.optional_flag("progress", progress))
    stats: dict[str, Any] = json.loads(_engine.plan(request, resources, shown))
    check_memory(stats["memory"])
    return stats


def plan_build(
    source: Any,
    path: PathLike,
    *,
    parts: int,
    metric: SearchMetric = "l2",
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
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Plans the build of a store in parts, and writes the plan to ``path``.

    ``source`` is a path or URL, or a list of them, which all machines can read. Run parts 1 to ``parts``, which read
    rows, with :func:`run_part`. Then run parts ``parts + 1`` to ``2 * parts``, which write buckets, and unite them with
    :func:`merge`. The other arguments are options of :func:`build`, and the store equals the one of :func:`build`. Set
    ``memory`` to the budget of the machines that run the parts.

    Returns the statistics. ``["plan"]["parts"]`` has a dict per part, with its ``phase`` and ``memory_bytes``.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    files = paths_of(source)
    request = {
        "metric": _options.choice("metric", metric, "search metric"),
        "parts": _options.integer("parts", parts, 2**32 - 1),
        "path": _options.path("path", path),
        "force": _options.flag("force", force),
    }
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, columns)
    resources, shown = _resources(memory, threads, temporary), bar(_options.optional_flag("progress", progress))
    stats: dict[str, Any] = json.loads(_engine.plan_build(files, request, options, resources, shown))
    check_memory(stats["memory"])
    return stats


def run_part(
    plan: PathLike,
    part: str,
    folder: PathLike,
    *,
    store: Optional[PathLike] = None,
    force: bool = False,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Optional[dict[str, Any]]:
    """Runs one part of the plan of a join or a build, such as ``"3/256"``, and writes its result into ``folder``.

    The result has the same bytes on any machine. A finished part is not run again unless ``force`` is set. If this
    machine has the store of a join at another path than the one in the plan, pass it as ``store``.

    Returns the statistics, or None if the result exists already.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    request = {
        "plan": _options.path("plan", plan),
        "part": _options.text("part", part),
        "folder": _options.path("folder", folder),
        "store": _options.optional_path("store", store),
        "force": _options.flag("force", force),
    }
    resources, shown = _resources(memory, threads, temporary), bar(_options.optional_flag("progress", progress))
    told = _engine.run_part(request, resources, shown)
    if told is None:
        return None
    stats: dict[str, Any] = json.loads(told)
    check_memory(stats["memory"])
    return stats


def merge(
    plan: PathLike,
    folder: PathLike,
    path: PathLike,
    *,
    result: Optional[ResultKind] = None,
    keep_rule: KeepRule = "greedy",
    store: Optional[PathLike] = None,
    columns: Sequence[str] = (),
    force: bool = False,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Merges the results of all parts in ``folder``, and writes the result of the join to ``path``. With the plan of a
    build, ``path`` is the folder of the store.

    ``result`` is by default the result that was planned. The other arguments are options of :func:`run_part`.
    ``columns`` of the store are added to pairs and removed rows, for both rows, and to clusters; the join must have been
    planned for pairs. ``result``, ``keep_rule``, ``store`` and ``columns`` are for joins only.

    Returns the statistics of the join or of the build.

    Raises a subclass of :class:`AdjoinError` that names the kind of error, for example if a part is missing or damaged.
    Warns with :class:`PromiseWarning` if the recall or ``memory`` missed its target.
    """
    request = {
        "plan": _options.path("plan", plan),
        "folder": _options.path("folder", folder),
        "path": _options.path("path", path),
        "result": None if result is None else _options.choice("result", result, "result"),
        "rule": _options.choice("keep_rule", keep_rule, "keep rule"),
        "store": _options.optional_path("store", store),
        "columns": _options.texts("columns", columns),
        "force": _options.flag("force", force),
    }
    resources, shown = _resources(memory, threads, temporary), bar(_options.optional_flag("progress", progress))
    stats: dict[str, Any] = json.loads(_engine.merge(request, resources, shown))
    check_memory(stats["memory"])
    check_recall(stats["recall"])
    return stats


def _resources(memory: Any, threads: Any, temporary: Any) -> dict[str, Any]:
    resources = _options.resources(memory, threads)
    resources["temporary"] = _options.optional_path("temporary", temporary)
    return resources
