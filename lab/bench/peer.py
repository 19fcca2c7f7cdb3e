#!/usr/bin/env python3
"""Runs one peer with one job of `bench.py` in a separate process: `peer.py NAME JOB`, with job and answer as JSON.

A job has the keys `vectors` (a .npy or .u8bin file), `metric` (`l2` or `cosine`), `threshold`, `recall`, `threads`, and
`patience` (the seconds that the queries may take; if they would take longer, only a seeded sample of them is answered,
and its time is extrapolated).

The answer has the keys `seconds` (from the file to the pairs) and `build_seconds` (the part of them before the first
query), `queries` (the number of queries answered) and `of` (the number of all queries), and `recall`. Recall is
measured by brute force on the neighbors of sampled vectors: over all their pairs, and for the average vector.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy

#: Number of sampled vectors. Their neighbors are found by brute force.
JUDGED = 500
#: Number of queries that are sent at once.
BLOCK = 1_000
#: Number of inner products in a block of a scan.
BLOCK_PRODUCTS = 1 << 27

#: A function that returns, for each of some rows, the rows within the threshold.
Search = Callable[[Any], list[Any]]


class Job:
    """A job. Its vectors are as users of these libraries hold them: f32 in memory, of length 1 if the metric is
    cosine."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.begun = time.monotonic()
        self.metric, self.threshold = asked["metric"], asked["threshold"]
        self.recall, self.threads, self.patience = asked["recall"], asked["threads"], asked["patience"]
        self.vectors = read(Path(asked["vectors"]))
        if self.metric == "cosine":
            self.vectors /= numpy.linalg.norm(self.vectors, axis=1, keepdims=True)

    def __len__(self) -> int:
        return len(self.vectors)

    def sampled(self, count: int) -> Any:
        return numpy.sort(numpy.random.default_rng(1).choice(len(self), min(count, len(self)), replace=False))

    def near(self, scores: Any, rows: Any, others: Any) -> Any:
        """Given the inner products of `rows` and `others`, returns which of these pairs are within the threshold."""
        if self.metric == "cosine":
            return scores >= self.threshold
        squares = self.squares()
        return squares[rows][:, None] + squares[others][None, :] - 2 * scores <= self.threshold**2

    def squares(self) -> Any:
        if not hasattr(self, "_squares"):
            self._squares = numpy.einsum("ij,ij->i", self.vectors, self.vectors)
        return self._squares

    def truth(self) -> tuple[Any, list[Any]]:
        """Returns sampled rows, and for each of them the rows within the threshold, found by brute force."""
        rows, all_rows = self.sampled(JUDGED), numpy.arange(len(self))
        near = [numpy.nonzero(self.near(self.vectors[row] @ self.vectors.T, [row], all_rows))[-1] for row in rows]
        return rows, [found[found != row] for row, found in zip(rows, near)]


def read(path: Path) -> Any:
    if path.suffix == ".npy":
        return numpy.load(path).astype("float32")
    rows, dimensions = numpy.fromfile(path, "<u4", 2)
    element = {".u8bin": "u1", ".fbin": "<f4"}[path.suffix]
    return numpy.fromfile(path, element, offset=8).reshape(rows, dimensions).astype("float32")


def reached(truth: tuple[Any, list[Any]], search: Search) -> dict[str, float]:
    """Returns the fraction of the true neighbors found: over all pairs, and for the average vector that has any."""
    rows, near = truth
    found = [len(numpy.intersect1d(theirs, true)) for theirs, true in zip(search(rows), near)]
    shares = [share / len(true) for share, true in zip(found, near) if len(true)]
    return {"pair": sum(found) / max(1, sum(map(len, near))), "per_vector": sum(shares) / max(1, len(shares))}


def kept(told: dict[str, float], job: Job) -> bool:
    return min(told.values()) >= job.recall


def timed_queries(job: Job, search: Search) -> dict[str, Any]:
    """Runs the queries in a seeded order, until all are answered or the patience is over."""
    order = numpy.random.default_rng(2).permutation(len(job))
    begun, asked = time.monotonic(), 0
    while asked < len(order) and time.monotonic() - begun < job.patience:
        search(order[asked : asked + BLOCK])
        asked += len(order[asked : asked + BLOCK])
    spent = time.monotonic() - begun
    return {"query_seconds": spent * len(order) / asked, "queries": asked, "of": len(order)}


def answered(job: Job, search: Search, settings: Iterator[tuple[str, Callable[[], None]]]) -> dict[str, Any]:
    """Tries settings from fast to careful, and takes the first one that reaches the recall, or else the last one.
    Returns the answer of a job with that setting."""
    build = time.monotonic() - job.begun
    truth = job.truth()
    for name, choose in settings:
        choose()
        told = reached(truth, search)
        if kept(told, job):
            break
    queries = timed_queries(job, search)
    seconds = build + queries["query_seconds"]
    return {"seconds": seconds, "build_seconds": build, "setting": name, "recall": told, **queries}


def doubled(name: str, first: int, last: int, choose: Callable[[int], None]) -> Iterator[tuple[str, Callable[[], None]]]:
    value = first
    while True:
        yield f"{name} {value}", lambda value=value: choose(value)
        if value >= last:
            return
        value = min(2 * value, last)


def numpy_scan(job: Job) -> dict[str, Any]:
    """Computes the upper half of the matrix of distances, by blocks of rows, in the six lines that a user would
    write."""
    build, rows = time.monotonic() - job.begun, len(job)
    if job.metric == "l2":
        job.squares()
    block = max(1, BLOCK_PRODUCTS // rows)
    starts = numpy.random.default_rng(2).permutation(numpy.arange(0, rows, block))
    begun, scanned, whole, pairs = time.monotonic(), 0, rows * (rows + 1) // 2, 0
    for start in starts:
        mine, others = numpy.arange(start, min(start + block, rows)), numpy.arange(start, rows)
        left, right = numpy.nonzero(job.near(job.vectors[mine] @ job.vectors[start:].T, mine, others))
        pairs += numpy.count_nonzero(left < right)
        scanned += sum(rows - row for row in mine.tolist())
        if time.monotonic() - begun > job.patience:
            break
    scan = (time.monotonic() - begun) * whole / scanned
    return {"seconds": build + scan, "build_seconds": build, "queries": scanned, "of": whole, "recall": EVERYTHING}


EVERYTHING = {"pair": 1.0, "per_vector": 1.0}


def faiss_search(job: Job, index: Any) -> Search:
    limit = job.threshold if job.metric == "cosine" else job.threshold**2
    # The range search of faiss excludes values at the limit, so the limit is moved to the next float.
    limit = float(numpy.nextafter(numpy.float32(limit), numpy.float32(-2 if job.metric == "cosine" else numpy.inf)))

    def search(rows: Any) -> list[Any]:
        limits, _, found = index.range_search(job.vectors[rows], limit)
        return [found[a:b] for a, b in zip(limits[:-1].astype(int), limits[1:].astype(int))]

    return search


def faiss_flat(job: Job) -> dict[str, Any]:
    import faiss

    faiss.omp_set_num_threads(job.threads)
    index = (faiss.IndexFlatIP if job.metric == "cosine" else faiss.IndexFlatL2)(job.vectors.shape[1])
    index.add(job.vectors)
    build = time.monotonic() - job.begun
    queries = timed_queries(job, faiss_search(job, index))
    return {"seconds": build + queries["query_seconds"], "build_seconds": build, "recall": EVERYTHING, **queries}


def faiss_ivf(job: Job) -> dict[str, Any]:
    import faiss

    faiss.omp_set_num_threads(job.threads)
    lists = int(4 * len(job) ** 0.5)
    metric = faiss.METRIC_INNER_PRODUCT if job.metric == "cosine" else faiss.METRIC_L2
    index = faiss.index_factory(job.vectors.shape[1], f"IVF{lists},Flat", metric)
    index.train(job.vectors)
    index.add(job.vectors)

    def choose(probes: int) -> None:
        index.nprobe = probes

    return answered(job, faiss_search(job, index), doubled("nprobe", 1, lists, choose))


#: Number of neighbors requested from a search of a graph. These libraries have no search within a radius, so the
#: results within the threshold are picked.
NEIGHBORS = 200


def usearch(job: Job) -> dict[str, Any]:
    from usearch.index import Index

    index = Index(ndim=job.vectors.shape[1], metric="cos" if job.metric == "cosine" else "l2sq", dtype="f32")
    index.add(numpy.arange(len(job)), job.vectors, threads=job.threads)

    def search(rows: Any) -> list[Any]:
        found = index.search(job.vectors[rows], NEIGHBORS, threads=job.threads)
        limit = 1 - job.threshold if job.metric == "cosine" else job.threshold**2
        return [keys[near] for keys, near in zip(found.keys, found.distances <= limit)]

    def choose(expansion: int) -> None:
        index.expansion_search = expansion

    return answered(job, search, doubled("expansion", 64, 1_024, choose))


def hnswlib(job: Job) -> dict[str, Any]:
    import hnswlib

    index = hnswlib.Index(space="ip" if job.metric == "cosine" else "l2", dim=job.vectors.shape[1])
    index.init_index(max_elements=len(job), ef_construction=200, M=16)
    index.add_items(job.vectors, num_threads=job.threads)

    def search(rows: Any) -> list[Any]:
        keys, distances = index.knn_query(job.vectors[rows], k=NEIGHBORS, num_threads=job.threads)
        limit = 1 - job.threshold if job.metric == "cosine" else job.threshold**2
        return [one[near].astype(int) for one, near in zip(keys, distances <= limit)]

    return answered(job, search, doubled("ef", NEIGHBORS, 1_600, index.set_ef))


def semhash(job: Job) -> dict[str, Any]:
    """Finds the rows that a greedy method would remove, instead of pairs. So its recall is not measured."""
    from semhash import SemHash

    records = [str(row) for row in range(len(job))]
    hashed = SemHash.from_embeddings(job.vectors, records, model=None)
    hashed.self_deduplicate(threshold=job.threshold)
    return {"seconds": time.monotonic() - job.begun, "setting": "rows to remove, not pairs"}


PEERS = {
    "numpy": numpy_scan,
    "faiss-flat": faiss_flat,
    "faiss-ivf": faiss_ivf,
    "usearch": usearch,
    "hnswlib": hnswlib,
    "semhash": semhash,
}
PACKAGES = {"faiss-flat": "faiss-cpu", "faiss-ivf": "faiss-cpu"}


def main() -> int:
    name, job = sys.argv[1], Job(json.loads(sys.argv[2]))
    answer = PEERS[name](job)
    answer["version"] = importlib.metadata.version(PACKAGES.get(name, name))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
