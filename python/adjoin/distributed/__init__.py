"""Runs one join or build on many machines: plans it in parts, runs the parts on Ray, Dask, Spark or processes of this
machine, and merges the results.

Files and folders are on a file system that all machines share. The source of a build and the store of a join may also be
in a bucket. Workers get the names of files and return statistics; vectors and pairs never pass through the runner. The
result equals the one of :func:`adjoin.build` or :func:`adjoin.join`.

Install the runner with the package: ``pip install "adjoin[ray]"``, ``"adjoin[dask]"`` or ``"adjoin[spark]"``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Optional, Union

from .. import _options, _parts
from .._errors import InputError, OptionError
from .._options import PathLike
from .._source import paths_of
from .._types import KeepRule, OnBad, OnDuplicateId, RecallOf, ResultKind, SearchMetric
from ._job import Job
from ._local import cores
from ._runners import workers_of
from ._task import is_url

__all__ = ["Runner", "build", "join"]

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
    recall_of: RecallOf = "pairs-and-vectors",
    exact: bool = False,
    result: ResultKind = "pairs",
    columns: Sequence[str] = (),
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
    force = _options.flag("force", force)
    running = _Running.of(runner, threads, concurrency, retries, temporary, progress)
    rule = _options.choice("keep_rule", keep_rule, "keep rule")
    wanted, carried = _options.choice("result", result, "result"), _options.texts("columns", columns)
    if carried and wanted not in ("pairs", "removed", "clusters"):
        raise OptionError("columns is for pairs, removed rows and clusters; leave it out")
    if is_url(target):
        raise OptionError(f"path is {target}; give a file, and copy it to a bucket afterwards")
    _check_free(target, force)
    request = {
        **_options.threshold(eps, min_similarity, recall, exact, recall_of),
        "parts": _options.integer("parts", parts, _options.U32_MAX),
        "result": "pairs" if carried else wanted,
        "seed": _options.integer("seed", seed, _options.U64_MAX),
        "memory": _memory_of_a_part(memory, running.threads),
    }
    at = _options.path("store", store)
    at = at if is_url(at) else os.path.abspath(at)

    def write_plan(file: Path) -> dict[str, Any]:
        return _parts.plan(at, file, force=True, progress=running.progress, **request)

    def merge(job: Job) -> dict[str, Any]:
        options: dict[str, Any] = {"store": at, "result": wanted, "columns": carried, "keep_rule": rule, "force": force}
        return _parts.merge(job.plan_file, job.parts_folder, target, **options, **running.merging(memory))

    return running.run(Job("join", _folder_of_parts(folder, target), request, write_plan, at), merge, keep=folder is not None)


def build(
    source: Any,
    store: PathLike,
    *,
    parts: int,
    runner: Runner = "local",
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
    memory: Union[str, int, None] = None,
    threads: int = 1,
    concurrency: Optional[int] = None,
    retries: int = 3,
    folder: Optional[PathLike] = None,
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> dict[str, Any]:
    """Builds a store in ``parts`` parts that read rows, and then as many that write buckets.

    This process plans, which reads the source once, hands out the parts, and merges them to the folder ``store``. After a
    crash, call it again with equal arguments: parts that are done are not run again. Ctrl-C stops all parts.

    Args:
        source: A path or URL, or a list of them, which all machines can read. Parts fail if a file has changed since the
            plan.
        folder: Folder for the plan and the results of parts, by default ``store`` with ``.parts`` appended. It must be
            on a file system that all machines share, and needs space for the rows twice. The default is removed after
            the merge.

    The arguments about runners and resources are those of :func:`join`. The other arguments are options of
    :func:`adjoin.build`.

    Returns the statistics of :func:`adjoin.merge`, with ``plan`` and ``parts`` as :func:`join` does.

    Raises and warns as :func:`join` does.
    """
    target = _options.path("store", store)
    force = _options.flag("force", force)
    running = _Running.of(runner, threads, concurrency, retries, temporary, progress)
    files = paths_of(source)
    if is_url(target):
        raise OptionError(f"store is {target}; give a folder, and copy it to a bucket afterwards with adjoin.copy")
    _check_free(target, force)
    options = _options.store_options(seed, buckets, vector_column, id_column, ids, split, on_bad, on_duplicate_id, columns)
    del options["sort_by"]  # not supported in parts
    request = {
        **options,
        "metric": _options.choice("metric", metric, "search metric"),
        "parts": _options.integer("parts", parts, _options.U32_MAX),
        "memory": _memory_of_a_part(memory, running.threads),
    }

    def write_plan(file: Path) -> dict[str, Any]:
        # The plan predicts the memory of parts for its own number of threads.
        threads = max(running.threads, cores())
        at, shown = running.temporary, running.progress
        return _parts.plan_build(files, file, force=True, threads=threads, temporary=at, progress=shown, **request)

    def merge(job: Job) -> dict[str, Any]:
        return _parts.merge(job.plan_file, job.parts_folder, target, force=force, **running.merging(memory))

    job = Job("build", _folder_of_parts(folder, target), {"source": files, **request}, write_plan)
    return running.run(job, merge, keep=folder is not None)


class _Running(NamedTuple):
    """Checked arguments about the runner and its tasks."""

    runner: str
    threads: int
    concurrency: Optional[int]
    retries: int
    temporary: Optional[str]
    progress: Optional[bool]

    @classmethod
    def of(cls, runner: Any, threads: Any, concurrency: Any, retries: Any, temporary: Any, progress: Any) -> _Running:
        if runner not in RUNNERS:
            raise OptionError(f"runner is {_options.shown(runner)}; give {' or '.join(RUNNERS)}")
        return cls(
            runner,
            _positive("threads", threads),
            None if concurrency is None else _positive("concurrency", concurrency),
            _options.integer("retries", retries, _options.U32_MAX),
            _options.optional_path("temporary", temporary),
            _options.optional_flag("progress", progress),
        )

    def merging(self, memory: Union[str, int, None]) -> dict[str, Any]:
        """Returns the resources of the merge, which runs in this process."""
        return {"memory": memory, "temporary": self.temporary, "progress": self.progress}

    def run(self, job: Job, merge: Callable[[Job], dict[str, Any]], keep: bool) -> dict[str, Any]:
        """Plans, runs the parts, and merges. Returns the statistics of all."""
        # First, so that a missing package is reported before any work.
        workers = workers_of(self.runner, self.threads, self.concurrency)
        job.plan()
        done = job.run(workers, self.threads, self.retries, self.temporary, self.progress)
        stats = merge(job)
        job.clean(keep)
        return {**stats, "plan": job.planned, "parts": done}


def _positive(name: str, value: Any) -> int:
    number = _options.integer(name, value, _options.U32_MAX)
    if number == 0:
        raise OptionError(f"{name} is 0; give at least 1")
    return number


def _memory_of_a_part(memory: Any, threads: int) -> Union[str, int]:
    if memory is None:
        return f"{50 / max(1, cores() // threads):.6g}%"
    checked = _options.resources(memory, None)["memory"]
    return str(checked)


def _folder_of_parts(folder: Optional[PathLike], target: str) -> Path:
    return Path(f"{target}.parts" if folder is None else _options.path("folder", folder)).absolute()


def _check_free(path: str, force: bool) -> None:
    if os.path.exists(path) and not force:
        raise InputError(f"{path} exists already; give force=True to replace it")
