"""Compares batches of queries to a store with faiss, with its lists on disk, and with a graph index, at equal recall.
For `serve.py`."""

from __future__ import annotations

import csv
import json
import statistics
import struct
from array import array
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from at_recall import RECALLS, K, table
from measure import Failed, Record, run
from search_peers import Contender, Judged, line

#: Number of queries, and number of queries in a batch.
QUERIES, BATCH = 2_000, 1_000
#: Megabytes of memory for each contender, page cache included.
MEMORY_MB = 192
#: Numbers of our buckets that a query probes, and numbers of candidates in a graph.
PROBES = (10, 20, 40, 80, 160)
LISTS = (16, 32, 64, 128, 192)
#: Number of queries that are sent one at a time.
LONE = 500
THREADS = 2


class Beside:
    """The base and the queries that all contenders get, and their searches."""

    def __init__(self, adjoin: Path, base: Path, queries: Path, store: Path, measured: Callable[..., Record]) -> None:
        self.adjoin, self.base, self.store, self.work = adjoin, base, store, base.parent
        self.keep = measured
        with base.open("rb") as file:
            self.rows, self.dimensions = struct.unpack("<2I", file.read(8))
        self.element, self.queries = "f32", self.work / "serve-asked.fbin"
        with queries.open("rb") as file:
            file.seek(8)
            vectors = file.read(QUERIES * self.dimensions * 4)
        self.queries.write_bytes(struct.pack("<2I", QUERIES, self.dimensions) + vectors)

    def measured(self, key: object, measure: Callable[[], Record]) -> Record:
        return self.keep(json.dumps(["beside", QUERIES, BATCH, key]), measure)

    def search(self, *words: object) -> tuple[Record, Path]:
        """Searches with the command line. Returns the statistics and the hits."""
        hits, stats = self.work / "serve-hits.csv", self.work / "serve-stats.json"
        common = ["--queries", self.queries, "-k", K, "--threads", THREADS, "--quiet", "--force"]
        told = run([self.adjoin, *map(str, words), *map(str, common), "-o", hits, "--stats", stats])
        return told | json.loads(stats.read_text()), hits

    def lone(self, index: Path, list_of: int) -> Record:
        """Searches an index with one query at a time on each thread. Returns the statistics."""
        lab, stats = self.adjoin.parent / "adjoin-lab", self.work / "serve-stats.json"
        named = ["strategy=walks=1", f"k={K}", f"list={list_of}", f"memory={MEMORY_MB}MB", f"threads={THREADS}"]
        told = run([lab, "search", index, self.queries, self.work / "serve-hits.csv", *named, f"stats={stats}"])
        return told | json.loads(stats.read_text())

    def truth(self) -> array[float]:
        """Returns for each query the distance of its K-th nearest row."""
        return self.far

    @cached_property
    def far(self) -> array[float]:
        file, far = self.work / "serve-truth.f64", array("d", bytes(8 * QUERIES))
        if not file.exists():
            _, hits = self.search("search", self.store, "--exact")
            with hits.open() as lines:
                for hit in csv.DictReader(lines):
                    query = int(hit["query"])
                    far[query] = max(far[query], float(hit["distance"]) * (1 + 1e-6))
            file.write_bytes(far.tobytes())
        return array("d", file.read_bytes())

    def served(self, probes: int) -> Record:
        """Measures the service, with batches for the rate, and with one query at a time for the latency."""
        hits = self.work / "serve-hits.u32"
        asked = [f"nprobe={probes}", f"k={K}", f"memory={MEMORY_MB * 1_000_000}", f"threads={THREADS}", "share=0.1"]

        def ask(batch: int, batches: int) -> tuple[Record, list[Record]]:
            lab, orders = self.adjoin.parent / "adjoin-lab", ["bucket-major", "foreseen"]
            program = [lab, "serve", "batches", self.store, self.queries, *orders]
            told = run([*program, *asked, f"batch={batch}", f"batches={batches}", f"hits={hits}"])
            return told, [json.loads(one) for one in told.pop("output").splitlines()]

        def measure() -> Record:
            lone, each = ask(1, LONE)
            told, batches = ask(BATCH, QUERIES // BATCH)
            seconds = sum(one["seconds"] for one in batches)
            read = sum(one["done"]["bytes_per_query"] * BATCH for one in batches) / QUERIES
            p99 = statistics.quantiles((1e3 * one["seconds"] for one in each), n=100)[-1]
            peak = max(lone["peak_bytes"], told["peak_bytes"])
            figures = {"rate": QUERIES / seconds, "read_bytes": read, "p99_ms": p99, "peak_bytes": peak}
            return told | figures | {"recall": Judged(self).recall(hits)}

        return self.measured(["served", *asked], measure)

    def walked(self, list_of: int) -> Record:
        """Measures a graph index, with all queries at once, and with one query at a time on each thread."""
        index = self.work / "serve.index"
        if not index.exists():
            run([self.adjoin, "index", "build", self.base, "-o", index, "--threads", str(THREADS), "--quiet"])

        def measure() -> Record:
            words = ["search", index, "-L", list_of, "--memory", f"{MEMORY_MB}MB"]
            lone = self.lone(index, list_of)
            told, hits = self.search(*words)
            with hits.open() as lines:
                found = [(int(hit["query"]), float(hit["distance"])) for hit in csv.DictReader(lines)]
            right = sum(distance <= self.far[query] for query, distance in found)
            peak = max(lone["peak_bytes"], told["peak_bytes"])
            figures = {"rate": told["search"]["queries_per_second"], "read_bytes": told["io"]["bytes_read"] / QUERIES}
            figures |= {"p99_ms": lone["search"]["latency_ms"]["p99"], "peak_bytes": peak}
            return figures | {"recall": right / (K * QUERIES)}

        return self.measured(["walked", list_of, MEMORY_MB], measure)

    def faiss(self) -> list[str]:
        return Contender(self, "faiss-ivf", MEMORY_MB * 1_000_000, BATCH).row()


def whole(points: list[Record]) -> list[Record]:
    failed = [point["failed"] for point in points if "failed" in point]
    if len(failed) == len(points):
        raise Failed(failed[0])
    return [point for point in points if "failed" not in point]


def beside(bench: Beside) -> str:
    served, walked = (whole([of(effort) for effort in efforts]) for of, efforts in
                      ((bench.served, PROBES), (bench.walked, LISTS)))
    rows = [line("adjoin, served from a store", served, served), line("adjoin, a graph index", walked, walked)]
    rows.append(bench.faiss())
    head = ["", "MB", *(f"at {recall:.2f}" for recall in RECALLS), "build s", "build MB"]
    words = (
        f"{QUERIES:,} queries in batches of {BATCH:,}, {THREADS} threads, {MEMORY_MB} MB for each, page cache included: a budget",
        f"for adjoin, a memory cgroup for faiss. The cells at each recall@{K} are KiB read from the disk per query / queries",
        "per second / p99 in ms with one query at a time. MB is the peak resident memory, for faiss including Python.",
    )
    return " ".join(words) + "\n\n" + table(head, rows)
