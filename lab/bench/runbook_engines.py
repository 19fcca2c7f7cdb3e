#!/usr/bin/env python3
"""Runs a runbook with one engine in a separate process: `runbook_engines.py NAME run|check JOB`, with the job as JSON.

The keys of a job:

- `base` and `queries`: files of vectors
- `runbook`: a file; `name`: the set of the runbook that runs; `truth`: a folder with the truth of its searches
- `folder`: the folder of the engine
- `k`; `threads`; `memory_bytes`; `cgroup`: a folder that bounds memory, or null
- `settled`: the number of inserted and deleted rows after which the engine may settle them (merge, optimize)
- `efforts`: a list of arguments for searches; each search runs with one after another; `build`: options of the engine
- `log`: a file that gets a line of JSON after each step. Each line has `step`, `operation`, `settled` (the seconds spent
  settling rows before the step), and `peak_bytes`, `written_bytes` and `cpu_seconds` of the process so far. The line of
  a search also has `queries`, and `points` with `seconds` and `recall` for each effort; other lines have `rows` and
  `seconds`.

A run returns `version`, `start_bytes` (resident memory before the engine started), and `kept_bytes` (bytes of its
files at the end). A check runs after a run was killed. It opens the folder, and compares its rows with the rows that
should be present after the last step in the log. It returns the number of missing rows (`lost`) and of deleted rows
that are present (`risen`). Rows that the interrupted step changes may be present or not.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import runbook
from runbook import Step, vectors

NO_ROW = -1
#: Number of ids that are looked up at once.
ASKED = 20_000

Job = dict[str, Any]


class Adjoin:
    package = "adjoin"

    def __init__(self, job: Job, dimensions: int, element: str, *, opened: bool = False) -> None:
        import adjoin

        self.job, memory = job, job["memory_bytes"]
        if opened:
            self.live = adjoin.Collection(job["folder"], memory=memory)
        else:
            options = {"element": "f32" if element == "f4" else element.replace("i1", "i8").replace("u1", "u8")}
            self.live = adjoin.Collection.create(job["folder"], dimensions, memory=memory, **options, **job["build"])
        # A merge and a search each have a budget of their own, in addition to the budget for rows in memory.
        self.resources = {"threads": job["threads"], "memory": memory, "progress": False}

    def insert(self, tags: Any, rows: Any) -> None:
        self.live.write(insert=(tags, rows), progress=False)

    def delete(self, start: int, end: int) -> None:
        self.live.write(delete=range(start, end), progress=False)

    def replace(self, tags: Any, rows: Any) -> None:
        self.live.write(upsert=(tags, rows), progress=False)

    def settle(self) -> None:
        self.live.merge(**self.resources)

    def search(self, queries: Any, k: int, effort: Any) -> Any:
        found = numpy.full((len(queries), k), NO_ROW, dtype="i8")
        with self.live.search(queries, k, list=effort, **self.resources) as hits:
            found[numpy.arange(k) < numpy.diff(hits.offsets)[:, None]] = hits.ids.reshape(-1)
        return found

    def there(self, rows: int) -> Any:
        blocks = (range(start, min(start + ASKED, rows)) for start in range(0, rows, ASKED))
        found = [self.live.get(block, on_missing="skip").ids for block in blocks]
        return numpy.isin(numpy.arange(rows), numpy.concatenate(found))

    def close(self) -> None:
        self.live.close()


class LanceDb:
    """A table that has no index until rows are settled for the first time. From then on, `optimize` inserts new rows
    into the index."""

    package = "lancedb"

    def __init__(self, job: Job, dimensions: int, element: str, *, opened: bool = False) -> None:
        import lancedb
        import pyarrow

        self.job, self.is_indexed = job, opened
        memory = job["memory_bytes"]
        session = lancedb.Session(index_cache_size_bytes=memory // 2, metadata_cache_size_bytes=memory // 8)
        self.base = lancedb.connect(job["folder"], session=session)
        column = pyarrow.list_(pyarrow.float32(), dimensions)
        self.schema = pyarrow.schema({"id": pyarrow.uint32(), "vector": column})
        self.table = self.base.open_table("rows") if opened else self.base.create_table("rows", schema=self.schema)
        self.threads = ThreadPoolExecutor(job["threads"])

    def batch(self, tags: Any, rows: Any) -> Any:
        import pyarrow

        column = pyarrow.FixedSizeListArray.from_arrays(rows.astype("f4").ravel(), rows.shape[1])
        return pyarrow.table([pyarrow.array(tags.astype("u4")), column], schema=self.schema)

    def insert(self, tags: Any, rows: Any) -> None:
        self.table.add(self.batch(tags, rows))

    def delete(self, start: int, end: int) -> None:
        self.table.delete(f"id >= {start} AND id < {end}")

    def replace(self, tags: Any, rows: Any) -> None:
        self.table.merge_insert("id").when_matched_update_all().execute(self.batch(tags, rows))

    def settle(self) -> None:
        from datetime import timedelta

        import lancedb.index

        if not self.is_indexed:
            kind = dict(self.job["build"])
            config = getattr(lancedb.index, kind.pop("index"))(distance_type="l2", **kind)
            self.table.create_index("vector", config=config)
            self.is_indexed = True
        # No other process reads the table, so old versions of files are removed at once. LanceDB warns that other
        # readers would fail.
        with warnings.catch_warnings(action="ignore"):
            self.table.optimize(cleanup_older_than=timedelta(0))

    def search(self, queries: Any, k: int, effort: Any) -> Any:
        def one(query: Any) -> Any:
            search = self.table.search(query).select(["id", "_distance"]).limit(k).nprobes(effort["nprobes"])
            found = search.ef(effort["ef"]).refine_factor(effort["refine"]).to_arrow()["id"].to_numpy()
            return numpy.pad(found.astype("i8"), (0, k - len(found)), constant_values=NO_ROW)

        return numpy.array(list(self.threads.map(one, queries.astype("f4"))))

    def there(self, rows: int) -> Any:
        there = numpy.zeros(rows, dtype=bool)
        there[self.table.search().select(["id"]).limit(rows).to_arrow()["id"].to_numpy()] = True
        return there

    def close(self) -> None:
        self.threads.shutdown()


ENGINES = {"adjoin": Adjoin, "lancedb": LanceDb}


def right(found: Any, truth: Path) -> float:
    """Returns the fraction of the k nearest that was found. Every row at the distance of the k-th counts as one."""
    queries, known = numpy.fromfile(truth, "<i4", 2).tolist()
    ids = numpy.fromfile(truth, "<u4", queries * known, offset=8).reshape(queries, known)
    far = numpy.fromfile(truth, "<f4", queries * known, offset=8 + 4 * ids.size).reshape(queries, known)
    k = min(found.shape[1], known)
    near = [set(of[of_far <= of_far[k - 1]].tolist()) for of, of_far in zip(ids, far)]
    return sum(min(k, len(set(of) & best)) for of, best in zip(found.tolist(), near)) / (queries * k)


def used() -> dict[str, float]:
    def told(file: str, name: str) -> int:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/self/{file}").read_text().splitlines())
        return int(lines[name].split()[0])

    bytes_used = {"peak_bytes": told("status", "VmHWM") * 1024, "written_bytes": told("io", "write_bytes")}
    return bytes_used | {"cpu_seconds": time.process_time()}


class Run:
    """An engine that follows a runbook."""

    def __init__(self, name: str, job: Job) -> None:
        self.job, self.base, self.queries = job, vectors(Path(job["base"])), numpy.array(vectors(Path(job["queries"])))
        importlib.import_module(ENGINES[name].package)
        self.start_bytes = used()["peak_bytes"]
        if job["cgroup"]:
            (Path(job["cgroup"]) / "cgroup.procs").write_text(str(os.getpid()))
        self.engine = ENGINES[name](job, self.base.shape[1], self.base.dtype.str[1:])
        self.unsettled = 0

    def rows(self, start: int, end: int) -> Any:
        """Reads rows from the file. If the file were mapped, its rows would count as memory of this process."""
        dimensions, element = self.base.shape[1], self.base.dtype
        offset = 8 + start * dimensions * element.itemsize
        block = numpy.fromfile(self.job["base"], element, (end - start) * dimensions, offset=offset)
        return block.reshape(-1, dimensions)

    def search(self, number: int) -> dict[str, Any]:
        points = []
        for effort in self.job["efforts"]:
            begun = time.monotonic()
            found = self.engine.search(self.queries, self.job["k"], effort)
            seconds = time.monotonic() - begun
            recall = right(found, Path(self.job["truth"]) / f"step{number}.gt{runbook.KNOWN}")
            points.append({"seconds": seconds, "recall": recall})
        return {"queries": len(self.queries), "points": points}

    def change(self, step: Step) -> dict[str, Any]:
        bounds = [step[key] for key in runbook.RANGES[step["operation"]]]
        rows = None if step["operation"] == "delete" else self.rows(*bounds[-2:])
        tags = numpy.arange(*bounds[:2])
        begun = time.monotonic()
        match step["operation"]:
            case "insert":
                self.engine.insert(tags, rows)
            case "delete":
                self.engine.delete(*bounds)
            case "replace":
                self.engine.replace(tags, rows)
        seconds = time.monotonic() - begun
        self.unsettled += len(tags)
        return {"rows": len(tags), "seconds": seconds}

    def settle(self) -> float:
        begun = time.monotonic()
        self.engine.settle()
        self.unsettled = 0
        return time.monotonic() - begun

    def follow(self) -> None:
        """Runs the steps of the runbook. Settles rows before a search if too many are not settled."""
        with Path(self.job["log"]).open("w", buffering=1) as log:
            for number, step in enumerate(runbook.read(Path(self.job["runbook"]), self.job["name"]), 1):
                is_search, settled = step["operation"] == "search", 0.0
                if is_search and self.unsettled >= self.job["settled"]:
                    settled = self.settle()
                done = self.search(number) if is_search else self.change(step)
                told = {"step": number, "operation": step["operation"], "settled": settled} | done | used()
                log.write(json.dumps(told) + "\n")
        self.engine.close()


def run(name: str, job: Job) -> dict[str, Any]:
    run = Run(name, job)
    run.follow()
    kept = sum(path.stat().st_size for path in Path(job["folder"]).rglob("*") if path.is_file())
    version = importlib.metadata.version(ENGINES[name].package)
    return {"version": version, "start_bytes": run.start_bytes, "kept_bytes": kept}


def check(name: str, job: Job) -> dict[str, Any]:
    base, steps = vectors(Path(job["base"])), runbook.read(Path(job["runbook"]), job["name"])
    ended = len(Path(job["log"]).read_text().splitlines())
    begun = time.monotonic()
    there = ENGINES[name](job, base.shape[1], base.dtype.str[1:], opened=True).there(len(base))
    seconds = time.monotonic() - begun
    before = after = numpy.zeros(len(base), dtype=bool)
    for _, _, row_of in runbook.alive([*steps, runbook.SEARCH][: ended + 1], len(base)):
        before, after = after, row_of >= 0
    same = before == after
    counts = {"lost": before & ~there & same, "risen": ~before & there & same, "rows": there}
    return {"ended": ended, "seconds": seconds} | {name: int(rows.sum()) for name, rows in counts.items()}


def main() -> int:
    name, what, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    os.environ["LANCE_CPU_THREADS"] = str(job["threads"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["threads"]])
    print(json.dumps(run(name, job) if what == "run" else check(name, job)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
