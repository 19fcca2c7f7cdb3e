#!/usr/bin/env python3
"""Runs DiskANN's Python package (diskannpy, with numpy): `peer_diskann.py build|search|range JOB`, with the job as JSON.

Every job has the key `folder` (of the index). A build has `base`, a .u8bin or .fbin file; `degree`, `candidates`,
`code_bytes` per vector, and `threads`. A search has `queries`, a file like `base`; `k`; `list`; `beam`; `cached`, the
number of cached vertices; and `hits`, a CSV file to write with query, id and distance. A search for all rows within a
`radius` has no `k`, but several `lists`, and writes a file for each, whose name is `hits`, a hyphen and the length. It
works as `range_search` of DiskANN's C++ program: if at least half of a list of candidates is within the radius, the query
is asked again with a list twice as long, up to `longest`, and the beam grows with the list. Its answer has an answer for
each list as `points`.

The answer of a search has the keys `seconds` and `cpu_seconds` of the search without its start, the `read_bytes` of the
process in that time as the system counts them, and `version`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diskannpy
import numpy

Job = dict[str, Any]
#: Searches for queries with a number of neighbors and a length of the list.
Asked = Callable[..., Any]
#: A query, its hits, and their squared distances.
Hits = tuple[int, Any, Any]


def vectors(path: str) -> Any:
    """Returns the vectors of a .u8bin or .fbin file."""
    rows, dimensions = numpy.fromfile(path, "<u4", 2).tolist()
    return numpy.memmap(path, "u1" if path.endswith(".u8bin") else "<f4", "r", 8, (rows, dimensions))


def build(job: Job) -> Job:
    base = numpy.ascontiguousarray(vectors(job["base"]))
    # DiskANN refuses a folder with files of a build that was interrupted.
    shutil.rmtree(job["folder"], ignore_errors=True)
    Path(job["folder"]).mkdir()
    # The memory for searches determines the size of a code: it is divided by the number of vectors.
    gigabytes = job["code_bytes"] * len(base) / 2**30
    shape = {"complexity": job["candidates"], "graph_degree": job["degree"], "num_threads": job["threads"]}
    diskannpy.build_disk_index(
        base, "l2", job["folder"], search_memory_maximum=gigabytes, build_memory_maximum=8, **shape
    )
    return {"bytes": sum(path.stat().st_size for path in Path(job["folder"]).iterdir())}


def read_bytes() -> int:
    """Returns the bytes that this process has read from disks."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def search(job: Job) -> Job:
    """Finds the nearest rows of each query."""

    def found(asked: Asked, queries: Any, length: int) -> Iterator[Hits]:
        answer = asked(queries, job["k"], length)
        return zip(range(len(queries)), answer.identifiers, answer.distances)

    [told] = measured(job, found, {job["list"]: job["hits"]})
    return told


def within(job: Job) -> Job:
    """Finds all rows within a radius of each query."""
    square = job["radius"] ** 2

    def found(asked: Asked, queries: Any, length: int) -> Iterator[Hits]:
        numbers = numpy.arange(len(queries))
        while len(numbers):
            answer = asked(queries[numbers], length, length, beam_width=min(100, max(job["beam"], length // 5)))
            near = answer.distances <= square
            is_last = (near.sum(axis=1) < length // 2) | (2 * length > job["longest"])
            for at in numpy.flatnonzero(is_last):
                yield numbers[at], answer.identifiers[at][near[at]], answer.distances[at][near[at]]
            numbers, length = numbers[~is_last], 2 * length

    return {"points": measured(job, found, {length: f"{job['hits']}-{length}" for length in job["lists"]})}


def measured(job: Job, found: Callable[[Asked, Any, int], Iterator[Hits]], of_lengths: dict[int, str]) -> list[Job]:
    """Runs a search on one thread for each length of the list, and writes its hits to the file of that length."""
    # With a single thread, the index hangs while it is loaded (microsoft/DiskANN, issue 462).
    index = diskannpy.StaticDiskIndex(job["folder"], num_threads=2, num_nodes_to_cache=job["cached"])
    asked = functools.partial(index.batch_search, num_threads=1, beam_width=job["beam"])
    queries = numpy.ascontiguousarray(vectors(job["queries"]))
    points = []
    for length, file in of_lengths.items():
        read, begun, cpu = read_bytes(), time.monotonic(), time.process_time()
        hits = list(found(asked, queries, length))
        seconds, cpu_seconds = time.monotonic() - begun, time.process_time() - cpu
        points.append({"seconds": seconds, "cpu_seconds": cpu_seconds, "read_bytes": read_bytes() - read})
        with Path(file).open("w") as lines:
            lines.write("query,id,distance\n")
            for query, ids, squares in hits:
                lines.writelines(f"{query},{row},{max(square, 0) ** 0.5}\n" for row, square in zip(ids, squares))
    return points


def main() -> None:
    job = json.loads(sys.argv[2])
    # The library prints to standard output. Its lines go to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = {"build": build, "search": search, "range": within}[sys.argv[1]](job)
    print(json.dumps(answer | {"version": importlib.metadata.version("diskannpy")}), file=answers, flush=True)


if __name__ == "__main__":
    main()
