"""Runs one join on many machines: plans it in parts, runs the parts on Ray, Dask, Spark or processes of this machine, and
merges the results.

The store, the result and the folder of parts are on a file system that all machines share, or the store is in a bucket.
Workers get the names of files and return statistics; vectors and pairs never pass through the runner. The result equals
the one of :func:`adjoin.join`.

Install the runner with the package: ``pip install "adjoin[ray]"``, ``"adjoin[dask]"`` or ``"adjoin[spark]"``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Optional, Union

from .. import _options
from .._errors import InputError, OptionError
from .._options import PathLike
from .._parts import KeepRule, ResultKind
from ._job import Job
from ._local import cores
from ._runners import workers_of
from ._task import is_url

__all__ = ["Runner", "join"]

Runner = Literal["local", "ray", "dask", "spark"]
RUNNERS = ("local", "ray", "dask", "spark")


def join(
    store: PathLike,
    path: PathLike,
    *,
    parts: int,
    runner: Runner = "local",
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    result: ResultKind = "pairs",
    keep_rule: KeepRule = "greedy",
    seed: int = 1,
    memory: Union[str, int, None] = None,
    threads: int = 1,
    concurrency: Optional[int] = None,
    retries: int = 3,
    folder: Optional[PathLike] = None,
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Joins a store with itself in ``parts`` parts on the workers of ``runner``, and writes the result to ``path``.

    For the rows to remove as near-duplicates, ask for ``result="removed"``. This process plans, hands out the parts and
    merges. After a crash, call it again with equal arguments: parts that are done are not run again, and the result has
    equal bytes. Ctrl-C stops all parts.

    Args:
        store: A folder that all machines see at this path, or a URL such as ``s3://bucket/vectors.store``.
        path: File of the result: ``.parquet``, ``.csv`` or ``.jsonl``.
        runner: ``"local"`` runs parts in processes of this machine. ``"ray"`` uses the cluster that ``ray.init`` finds,
            ``"dask"`` the current ``dask.distributed.Client``, ``"spark"`` the active session.
        memory: Largest memory budget of a part, by default half of the memory of this machine, divided by the number of
            parts that its processors can run at a time. Each part gets the budget that the plan predicts. Ray reserves
            it, and 168 MB for the process.
        threads: Threads of a part, and the CPUs that Ray reserves for it.
        concurrency: Maximum number of parts that are submitted at a time, by default one per ``threads`` processors of
            this machine, or 1,000 for Ray and Dask. Spark submits all.
        retries: How many times a part is run again after its worker died or its disk failed.
        folder: Folder for the plan and the results of parts, by default ``path`` with ``.parts`` appended. It must be
            on a file system that all machines share. The default is removed after the merge. A folder that you name is
            kept: :func:`adjoin.merge` makes other results from its ``plan`` and ``parts``.
        temporary: Folder for temporary files on each machine.

    The other arguments are options of :func:`adjoin.join`.

    Returns the statistics of :func:`adjoin.merge`, with ``plan`` (the prediction for each part) and ``parts``: the
    ``host``, the number of ``attempts`` and the statistics (``stats``) of each part. ``stats`` is None if the part was
    done before.

    Raises ImportError if the package of the runner is not installed, and a subclass of :class:`adjoin.AdjoinError` that
    names the kind of any other error. Warns with :class:`adjoin.PromiseWarning` if the recall or the memory missed its
    target.
    """
    target = _options.path("path", path)
    threads = _positive("threads", threads)
    most = None if concurrency is None else _positive("concurrency", concurrency)
    attempts = _options.integer("retries", retries, _options.U32_MAX)
    rule = _options.choice("keep_rule", keep_rule, "keep rule")
    at = _options.optional_path("temporary", temporary)
    shown = _options.optional_flag("progress", progress)
    _check_target(target, _options.flag("force", force))
    request = {
        **_options.threshold(eps, min_similarity, recall, exact),
        "parts": _options.integer("parts", parts, _options.U32_MAX),
        "result": _options.choice("result", result, "result"),
        "seed": _options.integer("seed", seed, _options.U64_MAX),
        "memory": _memory_of_a_part(memory, threads),
    }
    where = Path(f"{target}.parts" if folder is None else _options.path("folder", folder)).absolute()
    job = Job(where, _options.path("store", store), request)
    workers = workers_of(_runner(runner), threads, most)  # first, so that a missing package is reported before any work
    job.plan(shown)
    done = job.run(workers, threads, attempts, at, shown)
    stats = job.merge(target, rule, {"memory": memory, "force": force, "temporary": at, "progress": shown})
    job.clean(keep=folder is not None)
    return {**stats, "plan": job.planned, "parts": done}


def _positive(name: str, value: Any) -> int:
    number = _options.integer(name, value, _options.U32_MAX)
    if number == 0:
        raise OptionError(f"{name} is 0; give at least 1")
    return number


def _runner(value: Any) -> str:
    if value not in RUNNERS:
        raise OptionError(f"runner is {_options.shown(value)}; give {' or '.join(RUNNERS)}")
    return str(value)


def _memory_of_a_part(memory: Any, threads: int) -> Union[str, int]:
    if memory is None:
        return f"{50 / max(1, cores() // threads):.6g}%"
    checked = _options.resources(memory, None)["memory"]
    return str(checked)


def _check_target(path: str, force: bool) -> None:
    if is_url(path):
        raise OptionError(f"path is {path}; give a file, and copy it to a bucket afterwards")
    if os.path.exists(path) and not force:
        raise InputError(f"{path} exists already; give force=True to replace it")
