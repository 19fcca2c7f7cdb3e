#!/usr/bin/env python3
"""Runs one peer of `nearest.py` in a separate process: `nearest_peers.py WHAT JOB`, with the job as JSON.

A job has the keys `file` (of vectors), `metric`, `k`, `threads`, and `truth`, a file about the true neighbors of some
drawn rows.

`write-truth` writes the file `truth`. `judge` reports the recall of `found`, a Parquet file of neighbors. A peer builds
several indexes of the set, small and fast ones first. It searches for the neighbors of the drawn rows with increasing
effort until it reaches `recall`. Then it searches for the neighbors of every row, with that effort and with the effort
before it. The answer has `points`, each with `recall`, and with the `seconds` and `cpu_seconds` that building the index
and searching it took together. If neighbors are at equal distance, each of them counts as true.
"""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy

Job = dict[str, Any]
#: Number of rows that are drawn, and whose neighbors are judged.
JUDGED = 1_000
#: Number of rows that are compared at once.
BLOCK = 50_000
#: Distances that differ by less than this fraction count as equal, because peers sum in f32.
SLACK = 1e-5
#: Sample rows per list, as in `peer_search.py`, and lists that a query probes.
TRAINED = 64
PROBES = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
WIDTHS = (11, 13, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


def vectors_of(job: Job) -> Any:
    """Returns all vectors as f32. If the metric is cosine, they are scaled to length 1."""
    path = job["file"]
    if path.endswith(".npy"):
        vectors = numpy.load(path).astype("float32")
    else:
        dimensions = int(numpy.fromfile(path, "<u4", 2)[1])
        element = "u1" if path.endswith(".u8bin") else "<f4"
        vectors = numpy.fromfile(path, element, offset=8).reshape(-1, dimensions).astype("float32")
    if job["metric"] == "cosine":
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def drawn(rows: int) -> Any:
    return numpy.sort(numpy.random.default_rng(1).choice(rows, min(JUDGED, rows), replace=False))


def squares(queries: Any, others: Any) -> Any:
    return ((queries[:, None, :].astype("float64") - others) ** 2).sum(axis=2)


def write_truth(job: Job) -> Job:
    """Writes for each drawn row the squared distance of the k-th neighbor."""
    vectors, k = vectors_of(job), job["k"]
    rows = drawn(len(vectors))
    queries = vectors[rows]
    best = numpy.full((len(rows), k + 1), numpy.inf)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        rough = (block**2).sum(axis=1) - 2 * queries @ block.T
        near = numpy.argpartition(rough, min(k + 4, len(block) - 1), axis=1)[:, : k + 5]
        exact = numpy.stack([squares(queries[i : i + 1], block[near[i]])[0] for i in range(len(rows))])
        best = numpy.sort(numpy.concatenate([best, exact], axis=1), axis=1)[:, : k + 1]
    numpy.save(job["truth"], best[:, k])  # the row itself is the first
    return {}


def recall_of(job: Job, vectors: Any, found: Callable[[int], Any]) -> float:
    """Returns the fraction of the drawn rows' true neighbors that were found. `found` returns the neighbors found for a
    row; the row itself may be among them."""
    right = 0
    for row, most in zip(drawn(len(vectors)), numpy.load(job["truth"])):
        others = numpy.unique(found(int(row)))
        others = others[others != row]
        near = numpy.sort(squares(vectors[row : row + 1], vectors[others])[0])[: job["k"]]
        right += int((near <= most * (1 + SLACK) + 1e-12).sum())
    return right / (job["k"] * min(JUDGED, len(vectors)))


def judge(job: Job) -> Job:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(job["found"], columns=["query", "id"])
    ids, others = (table[name].to_numpy().astype("int64") for name in ("query", "id"))
    order = numpy.argsort(ids, kind="stable")
    ids, others = ids[order], others[order]
    of_row = lambda row: others[slice(*numpy.searchsorted(ids, [row, row + 1]))]  # noqa: E731
    return {"recall": recall_of(job, vectors_of(job), of_row)}


#: A function that finds the neighbors of some vectors, with an effort.
Find = Callable[[int, Any], Any]


def faiss(job: Job, vectors: Any, lists: int) -> Find:
    import faiss

    faiss.omp_set_num_threads(job["threads"])
    lists = int(lists * len(vectors) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(vectors.shape[1]), vectors.shape[1], lists)
    sample = numpy.random.default_rng(1).choice(len(vectors), min(len(vectors), TRAINED * lists), replace=False)
    index.train(vectors[sample])
    index.add(vectors)

    def find(probes: int, some: Any) -> Any:
        index.nprobe = probes
        return index.search(some, job["k"] + 1)[1]

    return find


def hnswlib(job: Job, vectors: Any, degree: int) -> Find:
    import hnswlib

    index = hnswlib.Index(space="l2", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), M=degree, ef_construction=6 * degree)
    index.add_items(vectors, num_threads=job["threads"])

    def find(width: int, some: Any) -> Any:
        index.set_ef(width)
        return index.knn_query(some, k=job["k"] + 1, num_threads=job["threads"])[0].astype("int64")

    return find


#: For each peer its package, the parameters of its indexes (for faiss, lists relative to the square root of the number
#: of rows; for hnswlib, M), and its efforts.
PEERS = {
    "faiss-ivf": ("faiss-cpu", faiss, (1, 2, 4), PROBES),
    "hnswlib": ("hnswlib", hnswlib, (6, 10, 16), WIDTHS),
}


def clock() -> Any:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return numpy.array([time.monotonic(), used.ru_utime + used.ru_stime])


def measure(name: str, job: Job) -> Job:
    package, index_of, made_with, efforts = PEERS[name]
    vectors, points = vectors_of(job), []
    rows = drawn(len(vectors))
    places = {int(row): place for place, row in enumerate(rows)}
    for made in made_with:
        begun = clock()
        find = index_of(job, vectors, made)
        built = clock() - begun
        for number, effort in enumerate(efforts):
            found = find(effort, vectors[rows])
            if recall_of(job, vectors, lambda row: found[places[row]]) >= job["recall"]:  # noqa: B023
                break
        for effort in efforts[max(number - 1, 0) : number + 1]:
            asked = clock()
            found = find(effort, vectors)
            seconds, cpu_seconds = (built + clock() - asked).tolist()
            recall = recall_of(job, vectors, lambda row: found[row])  # noqa: B023
            figures = {"seconds": seconds, "cpu_seconds": cpu_seconds, "build_cpu_seconds": float(built[1])}
            points.append({"made": made, "effort": effort, "recall": recall, **figures})
    return {"version": importlib.metadata.version(package), "points": points}


def main() -> int:
    what, job = sys.argv[1], json.loads(sys.argv[2])
    others = {"write-truth": write_truth, "judge": judge}
    print(json.dumps(others[what](job) if what in others else measure(what, job)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
