#!/usr/bin/env python3
"""Measures the effect of updates on a graph of hnswlib, in a separate process: `live_peers.py FILE [NAME=VALUE ...]`.

Runs in PEERS_PYTHON. The names are `cycles`, `share`, `rows` and `threads`. Cycles and printed records are like those
of `lab/src/updates.rs`.

hnswlib has one way to delete and insert without end: a vector is marked as deleted, and a later insert takes its place
in the graph (`replace_deleted`). The neighbors of the old vector then choose their own neighbors again, among the
vectors around it. Each insert gets a new label: the row plus a multiple of the number of rows. If a label were used
again while its old place still waits for an insert, hnswlib would forget it.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from typing import Any

import hnswlib
import numpy

QUERIES, K, FEW, RECALL = 1_000, 10, 5, 0.95
#: Settings equivalent to the degree and the list of adjoin's graphs. At the lowest level, a vertex has up to 2 `M`
#: neighbors.
M, CONSTRUCTION = 16, 75


def nearest(base: Any, queries: Any) -> Any:
    """Returns the squared distances of the K nearest of each query, in ascending order. For bytes, f32 is exact."""
    norms, found = (base**2).sum(axis=1), []
    for block in numpy.split(queries, 20):
        squares = (block**2).sum(axis=1)[:, None] - 2 * block @ base.T + norms
        found.append(numpy.sort(numpy.partition(squares, K, axis=1)[:, :K], axis=1))
    return numpy.concatenate(found)


class Graph:
    """A graph over vectors, with the latest label of each vector."""

    def __init__(self, base: Any, threads: int) -> None:
        self.base, self.threads, self.inserts = base, threads, 0
        self.labels = numpy.arange(len(base))
        self.index = hnswlib.Index(space="l2", dim=base.shape[1])
        self.index.init_index(len(base), M=M, ef_construction=CONSTRUCTION, random_seed=0, allow_replace_deleted=True)
        self.index.add_items(base, self.labels, num_threads=threads)

    def delete(self, rows: Any) -> None:
        for label in self.labels[rows]:
            self.index.mark_deleted(label)

    def insert(self, rows: Any) -> None:
        self.inserts += 1
        self.labels[rows] = rows + self.inserts * len(self.base)
        self.index.add_items(self.base[rows], self.labels[rows], num_threads=self.threads, replace_deleted=True)

    def recalls(self, queries: Any, truth: Any, width: int) -> tuple[float, float]:
        """Returns the recall of the `FEW` nearest, and of the `K` nearest."""
        self.index.set_ef(width)
        labels, _ = self.index.knn_query(queries, k=K, num_threads=self.threads)
        rows = labels.astype(numpy.int64) % len(self.base)
        squares = ((self.base[rows] - queries[:, None, :]) ** 2).sum(axis=2)
        share = lambda k: float((squares[:, :k] <= truth[:, k - 1 : k]).mean())  # noqa: E731
        return share(FEW), share(K)


def main() -> int:
    asked = {"cycles": "50", "share": "0.05", "rows": "0", "threads": "2"} | dict(one.split("=") for one in sys.argv[2:])
    _, dimensions = numpy.fromfile(sys.argv[1], "<u4", 2).tolist()
    vectors = numpy.fromfile(sys.argv[1], "u1", offset=8).reshape(-1, dimensions).astype("float32")
    base, queries = vectors[:-QUERIES][: int(asked["rows"]) or None], vectors[-QUERIES:]
    truth = nearest(base, queries)

    begun = time.monotonic()
    graph = Graph(base, int(asked["threads"]))
    record = {"build_seconds": time.monotonic() - begun, "version": importlib.metadata.version("hnswlib")}
    width = next(width for width in range(K, len(base)) if graph.recalls(queries, truth, width)[0] >= RECALL)
    drawn = numpy.random.default_rng(0)
    for cycle in range(int(asked["cycles"]) + 1):
        if cycle:
            rows = drawn.choice(len(base), round(float(asked["share"]) * len(base)), replace=False)
            begun = time.monotonic()
            graph.delete(rows)
            deleted = time.monotonic()
            graph.insert(rows)
            record = {"delete_seconds": deleted - begun, "insert_seconds": time.monotonic() - deleted}
        few, ten = graph.recalls(queries, truth, width)
        print(json.dumps({"cycle": cycle, "list": width, "recall_at_5": few, "recall_at_10": ten} | record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
