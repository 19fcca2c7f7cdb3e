"""Compares searches of a graph index within a radius, and with a filter, with exact scans.

Each function takes a bench of a set and returns Markdown. `search.py` calls them. Filters need numpy and pyarrow in
PEERS_PYTHON, by default this Python, and comparisons with DiskANN its package (`diskann_package.py`).
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import diskann_package
from at_recall import BEAM, BUILD_LIST, CODE_BYTES, DEGREE, LISTS, PAGE_BYTES, QUERIES, THREADS, K, shown, table
from measure import Record, run
from search_sweeps import PLENTY

if TYPE_CHECKING:
    from search import Bench

#: A radius is chosen so that a query has one of these numbers of neighbors on average, up to a relative tolerance.
NEIGHBORS = (1, 10, 100)
NEAR_ENOUGH = 0.02
#: Largest number of steps in the search for a radius. If many vectors are equal, it may be that no radius is close
#: enough.
STEPS = 40
#: A search within a radius is compared with a search for this number of nearest rows.
BESIDE = 100
#: First list lengths of DiskANN's searches within a radius, and the longest list.
FIRST_LISTS, LONGEST = (10, 20, 40, 80, 160, 320), 10_000
#: Average precisions at which pages are compared.
PRECISIONS = (0.9, 0.95, 0.99)
#: List lengths of searches with a filter.
LISTS_OF_FILTERS = (32, 128)
#: Columns of `attributes.py`, and how many of a thousand values pass a filter.
COLUMNS = {"pick": "random", "near": "a cluster"}
PARTS = (500, 100, 10, 1)


def within(bench: Bench, radius: float) -> Record:
    """Finds all rows within a radius by an exact scan. Its hits are the last ones of the bench."""
    return bench.asked(["search", bench.store(), "--radius", repr(radius), "--exact"])


def radius_of(bench: Bench, neighbors: int) -> Record:
    """Returns a radius within which queries have about `neighbors` neighbors on average, the exact average, and the
    number of queries without a neighbor."""

    def measure() -> Record:
        low, high = 0.0, sorted(bench.truth(neighbors))[QUERIES // 2]
        wanted = neighbors * QUERIES
        while within(bench, high)["hits"] < wanted:
            low, high = high, high * 1.2
        for _ in range(STEPS):
            radius = (low + high) / 2
            told = within(bench, radius)
            if abs(told["hits"] - wanted) <= NEAR_ENOUGH * wanted:
                break
            low, high = (low, radius) if told["hits"] > wanted else (radius, high)
        having = len({query for query, _, _ in bench.found()})
        return told | {"radius": radius, "average": told["hits"] / QUERIES, "without": QUERIES - having}

    return bench.measured(["radius", neighbors], measure)


def average_precision(truth: set[tuple[int, int]], found: Iterable[tuple[int, int, float]]) -> float:
    """Returns the measure that big-ann-benchmarks has for range searches: the area under the curve of precision over
    recall. It takes the hits of all queries together, and trapezoids between thresholds of the distance. Here, each
    distance that occurs is a threshold."""
    hits = sorted((distance, (query, row) in truth) for query, row, distance in found)
    area, right, recall_before, precision_before = 0.0, 0, 0.0, 1.0
    for number, (distance, is_true) in enumerate(hits, 1):
        right += is_true
        if number < len(hits) and hits[number][0] == distance:
            continue
        recall, precision = right / len(truth), right / number
        area += (recall - recall_before) * (precision + precision_before) / 2
        recall_before, precision_before = recall, precision
    return area


def twice(bench: Bench) -> Path:
    """Writes a file with each query twice. These are enough queries for a search to calibrate its walks, instead of
    comparing all pages."""
    path = bench.queries.with_stem("queries-twice")
    if not path.exists():
        queries = bench.queries.read_bytes()
        path.write_bytes(struct.pack("<2I", 2 * QUERIES, bench.dimensions) + 2 * queries[8:])
    return path


def truth_within(bench: Bench, radius: float) -> set[tuple[int, int]]:
    """Returns the queries and rows within a radius of each other."""
    within(bench, radius)
    return {(query, row) for query, row, _ in bench.found()}


def precision_of(bench: Bench, truth: set[tuple[int, int]], search: Callable[[], Record]) -> Record:
    """Runs a search whose hits are the last ones of the bench. Adds its average precision, as its recall."""
    told = search()
    return told | {"recall": average_precision(truth, (hit for hit in bench.found() if hit[0] < QUERIES))}


def pages(told: Record) -> str:
    """Returns the number of pages read per query, and marks a search that compared all pages."""
    return shown(told["pages"]) + (" (scan)" if told["utilization"] is None else "")


def ranges(bench: Bench) -> str:
    """Measures the recall and the reads of walks within a radius."""
    search: list[str | Path] = ["search", bench.index(), "--memory", PLENTY]

    def beside() -> Record:
        told = bench.asked([*search, "-k", str(BESIDE)], twice(bench))
        return told | {"recall": bench.recall(bench.truth(BESIDE), BESIDE)}

    nearest = bench.measured(["nearest", BESIDE, PLENTY], beside)
    rows = []
    for neighbors in NEIGHBORS:
        of = radius_of(bench, neighbors)

        def walked() -> Record:
            return bench.asked([*search, "--radius", repr(of["radius"])], twice(bench))  # noqa: B023

        told = bench.measured(["precision within", neighbors, PLENTY], lambda: precision_of(bench, truth_within(bench, of["radius"]), walked))  # noqa: B023
        if "failed" in told or "failed" in nearest:
            rows.append([shown(of["average"]), told.get("failed") or nearest["failed"]])
            continue
        cells = [shown(of["average"]), shown(of["radius"], 3), str(of["without"])]
        cells += [shown(told["recall"], 4), pages(told)]
        cells += [shown(nearest["recall"], 4), pages(nearest), shown(told["pages"] / nearest["pages"], 2)]
        rows.append(cells)
    beside_words = f"top-{BESIDE}"
    head = ["neighbors", "radius", "queries without neighbors", "average precision", "pages read per query"]
    head += [f"recall of {beside_words}", "pages read", f"pages / pages of {beside_words}"]
    return (
        f"Searches for all rows within a radius, compared with the nearest {BESIDE}, both with a promised recall of 0.95 and "
        "ample memory. Average precision is defined as in big-ann-benchmarks, against an exact scan. Each query is asked twice, "
        "because searches of few queries compare them with all pages (a scan), which is exact. The radii give queries 1, 10 "
        "and 100 neighbors on average.\n\n"
        + table(head, rows)
    )


def ranges_of_diskann(bench: Bench) -> str:
    """Compares the reads of searches within a radius with DiskANN's."""
    theirs = DiskannPackage(bench)
    rows = []
    for neighbors in NEIGHBORS:
        radius = radius_of(bench, neighbors)["radius"]
        truth = cache(partial(truth_within, bench, radius))

        def walked(list_of: int) -> Record:
            search: list[str | Path] = ["search", bench.index(), "--memory", PLENTY, "-L", str(list_of), "--radius", repr(radius)]  # noqa: B023
            return bench.measured(["radius", neighbors, list_of], lambda: precision_of(bench, truth(), lambda: bench.asked(search)))  # noqa: B023

        asked = bench.succeeded(["radius of diskann", neighbors], lambda: theirs.within(radius, truth()))  # noqa: B023
        both = [walked(list_of) for list_of in LISTS], asked["points"]
        cells = [shown(float(neighbors))]
        for precision in PRECISIONS:
            ours, others = (fewest_pages(points, precision) for points in both)
            cells.append(f"{shown(ours)} / {shown(others)}" + (f" ({ours / others:.2f})" if ours and others else ""))
        rows.append([*cells, " / ".join(f"{max(point.get('recall', 0) for point in points):.4f}" for points in both)])
    head = ["neighbors", *(f"pages read per query for {precision}" for precision in PRECISIONS), "highest average precision"]
    return (
        "The same radii by walks with a given list, so that nothing is compared with all pages, next to DiskANN's (diskannpy "
        f"{theirs.version}, equal degree, list of the build and codes, no cached vertices): adjoin / DiskANN (ratio), the fewest pages "
        f"with at least an average precision. DiskANN starts with a list of {FIRST_LISTS[0]} to {FIRST_LISTS[-1]} candidates, and asks again with a list twice as long "
        "and a beam of a fifth of it while at least half of the list is within the radius, as its C++ program does. adjoin's lists have "
        f"{LISTS[0]} to {LISTS[-1]} candidates; its walks also visit every vertex whose code is within the radius.\n\n"
        + table(head, rows)
    )


def fewest_pages(points: list[Record], precision: float) -> float | None:
    """Returns the fewest pages of the searches that reach an average precision; None if none does."""
    return min((point["pages"] for point in points if point.get("recall", 0) >= precision), default=None)


class DiskannPackage:
    """An index of DiskANN's Python package (`diskann_package.py`)."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.work / "diskannpy"
        shape = {"base": str(bench.base), "degree": DEGREE, "candidates": BUILD_LIST, "code_bytes": CODE_BYTES, "threads": THREADS}
        self.version = bench.succeeded("build diskannpy", lambda: self.called("build", shape))["version"]

    def called(self, what: str, job: Record) -> Record:
        return diskann_package.called(what, job | {"folder": str(self.folder)})

    def within(self, radius: float, truth: set[tuple[int, int]]) -> Record:
        """Finds all rows within a radius, with each first list. Returns a point for each: its pages and its average
        precision, as its recall."""
        job = {"queries": str(self.bench.queries), "hits": str(self.bench.hits), "radius": radius, "lists": FIRST_LISTS, "longest": LONGEST}
        told = self.called("range", job | {"beam": BEAM, "cached": 0})
        for length, point in zip(FIRST_LISTS, told["points"]):
            hits = self.bench.hits.with_name(f"{self.bench.hits.name}-{length}")
            precision = average_precision(truth, self.bench.found(hits))
            point |= {"pages": point["read_bytes"] / QUERIES / PAGE_BYTES, "recall": precision}
        return told


class Filtered:
    """The vectors of a set together with filter columns, in a store and in an index."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.index, self.store = bench.work / "index-attributes", bench.work / "store-attributes"
        bench.made("attributes", self.index, self.build)

    def build(self) -> Record:
        source, python = self.bench.work / "attributes.parquet", os.environ.get("PEERS_PYTHON", sys.executable)
        run([python, Path(__file__).with_name("attributes.py"), self.bench.base, source])
        columns = ["--vector-column", "vector", "--columns", ",".join(COLUMNS)]
        run([self.bench.adjoin, "build", source, "-o", self.store, *columns, "--quiet", "--force"])
        source.unlink()
        return self.bench.build_index(self.store, self.index)

    def exact(self, condition: str) -> Record:
        """Scans the rows that pass a filter. `far` has the distance of the K-th nearest of these rows for each
        query."""

        def scan() -> Record:
            told = self.bench.asked(["search", self.store, "-k", str(K), "--where", condition, "--exact"])
            far = [0.0] * QUERIES
            for query, _, distance in self.bench.found():
                far[query] = max(far[query], distance * (1 + 1e-6))
            return told | {"far": far}

        return self.bench.measured(["filtered scan", condition], scan)

    def search(self, condition: str, list_of: int | None) -> Record:
        """Searches with one list length, or with the promised recall if `list_of` is None."""
        effort = [] if list_of is None else ["-L", str(list_of)]

        def ask() -> Record:
            search: list[str | Path] = ["search", self.index, "-k", str(K), "--memory", PLENTY]
            queries = twice(self.bench) if list_of is None else self.bench.queries
            told = self.bench.asked([*search, "--where", condition, *effort], queries)
            exact = self.exact(condition)
            return told | {"recall": self.bench.recall(array("d", exact["far"]), exact["hits"] // QUERIES)}

        return self.bench.measured(["filtered", condition, list_of, PLENTY], ask)

    def row(self, column: str, parts: int) -> list[str]:
        condition = f"{column} < {parts}"
        exact = self.exact(condition)
        cells = [COLUMNS[column], f"{100 * exact['passing'] / self.bench.rows:.2f} %", shown(exact["rate"], 0)]
        for list_of in (None, *LISTS_OF_FILTERS):
            told = self.search(condition, list_of)
            cells += [told["failed"], ""] if "failed" in told else [shown(told["recall"], 3), pages(told)]
            cells += [] if list_of is None else [shown(told.get("rate"), 0)]
        return cells


def filters(bench: Bench) -> str:
    """Measures recall, reads and rate with filters."""
    filtered = Filtered(bench)
    rows = [filtered.row(column, parts) for column in COLUMNS for parts in PARTS]
    head = ["rows that pass", "fraction", "exact scan, per second", "recall@10 with 0.95 promised", "pages read"]
    for list_of in LISTS_OF_FILTERS:
        head += [f"recall@10 with {list_of} candidates", "pages read", "per second"]
    return (
        "Searches with filters and ample memory, compared with an exact scan of the rows that pass. With a promised recall "
        "each query is asked twice, as above. A recall is promised for queries that are distributed like the rows; the last rows of "
        "sorted files (debdesc, wordnet) are not.\n\n"
        + table(head, rows)
    )


ALL = (ranges, ranges_of_diskann, filters)
