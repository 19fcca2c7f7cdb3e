"""Joins by a search for each vector, as DiskJoin's paper runs DiskANN: Figures 1, 8, 9, 13, 15 and 16.

`papers.py` prints them. DiskANN's Python package is needed (`diskann_package.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from at_recall import BEAM, BUILD_LIST, CODE_BYTES, DEGREE, QUERIES, shown, table
from measure import Failed, Record, run
from papers_bench import CACHE_SHARE, EPS, MEMORY, RECALL, ROWS, Bench
from tables import waiting

#: One row in this many is a query, under the number of neighbors.
SAMPLED = {10: 100, 100: 1_000}
#: Numbers of neighbors that searches ask for: doubled from the least until a search finds enough pairs, and then halfway
#: between the last two numbers in a few steps.
LEAST, MOST, STEPS = 50, 12_800, 3
#: Recalls of Figure 8, fractions of Figure 9, and the indexed rows of Figure 13. The other rows are its queries.
TARGETS, CACHES, INDEXED = (0.8, 0.9, 0.95, 0.99), (0.05, 0.1, 0.15, 0.2), 130_000


@dataclass(frozen=True)
class SearchTarget:
    """A join whose pairs are found by searches."""

    neighbors: int
    recall: float = RECALL
    #: Fraction of the vertices or of the store that is cached.
    cached: float = CACHE_SHARE
    #: Number of indexed rows. If there are others, these are joined with the indexed ones.
    rows: int = ROWS

    @property
    def every(self) -> int:
        return SAMPLED[self.neighbors]

    def sampled(self) -> range:
        """Returns the numbers of the rows that are queries."""
        return range(self.rows % ROWS, ROWS, self.every)

    def base(self, bench: Bench) -> Path:
        return bench.rows("all" if self.rows == ROWS else f"first-{self.rows}", range(self.rows))

    def queries(self, bench: Bench) -> Path:
        rows = self.sampled()
        return bench.rows(f"sampled-{rows.start}-{rows.step}", rows)

    def pairs(self, hits: Path) -> int:
        """Counts the hits within the threshold, except each row itself."""
        rows = self.sampled()
        is_self_join = self.rows == ROWS
        with hits.open() as lines:
            near = (hit for hit in csv.DictReader(lines) if float(hit["distance"]) <= EPS[self.neighbors])
            return sum(not is_self_join or int(hit["id"]) != rows[int(hit["query"])] for hit in near)

    def truth(self, bench: Bench) -> int:
        """Returns the number of pairs of the queries."""

        def measure() -> Record:
            hits = bench.work / "exact.csv"
            asked = ["--queries", self.queries(bench), "--radius", repr(EPS[self.neighbors]), "--exact", "-o", hits, "--force", "--quiet"]
            return run([bench.adjoin, "search", bench.store(source=self.base(bench))[0], *asked]) | {"pairs": self.pairs(hits)}

        return int(bench.ledger.succeeded(f"pairs of {self.neighbors} neighbors among {self.rows}", measure)["pairs"])


#: Searches with a strategy for some queries, and writes the hits of K neighbors to a file.
Search = Callable[[Bench, str, SearchTarget, int, Path], Record]


def by_walks(bench: Bench, strategy: str, target: SearchTarget, asked: int, hits: Path) -> Record:
    """Searches our index."""
    index = bench.index(f"index-of-{target.base(bench).stem}", target.base(bench), bench.rows("last", range(ROWS - QUERIES, ROWS)))
    named = (f"k={asked}", f"list={asked}", f"memory={MEMORY}", "threads=1", f"strategy={strategy}", "stats=")
    told = bench.measured("search", index, target.queries(bench), hits, *named)
    stats = told["stats"]
    return told | {"bytes_read": stats["io"]["bytes_read"], "compared": stats["search"]["distances_per_query"]}


def by_diskann(bench: Bench, _strategy: str, target: SearchTarget, asked: int, hits: Path) -> Record:
    """Searches an index of DiskANN's Python package."""
    base = target.base(bench)
    index = {"folder": str(bench.work / f"diskann-{base.stem}")}
    bench.peer("build", index | {"base": str(base), "degree": DEGREE, "candidates": BUILD_LIST, "code_bytes": CODE_BYTES, "threads": 1})
    search = {"queries": str(target.queries(bench)), "k": asked, "list": asked, "beam": BEAM, "cached": int(target.rows * target.cached)}
    told = bench.peer("search", index | search | {"hits": str(hits)})
    return told | {"bytes_read": told["read_bytes"], "compared": None}


def found(bench: Bench, target: SearchTarget, search: Search, strategy: str) -> Record:
    """Searches with the fewest neighbors that reach the recall of pairs, to within a part in eight."""
    wanted = target.recall * target.truth(bench)

    def searched(asked: int) -> Record:
        hits = bench.work / f"hits-{target.neighbors}-{target.cached}-{target.rows}-{asked}-{search.__name__}-{strategy}.csv"
        told = search(bench, strategy, target, asked + 1, hits)
        pairs = bench.ledger.measured(f"pairs of {hits.name}", lambda: {"found": target.pairs(hits)})["found"]
        return told | {"asked": asked, "found": pairs}

    high = searched(LEAST)
    while high["found"] < wanted and high["asked"] < MOST:
        high = searched(2 * high["asked"])
    low = high["asked"] // 2
    is_between = high["asked"] > LEAST and high["found"] >= wanted
    for _ in range(STEPS if is_between else 0):
        middle = searched((low + high["asked"]) // 2)
        low, high = (low, middle) if middle["found"] >= wanted else (middle["asked"], high)
    return high


def cells_of(bench: Bench, target: SearchTarget, search: Search, strategy: str) -> list[str]:
    """Returns the cost of a join by searches, from the neighbors that each asks for to the recall of pairs."""
    told = found(bench, target, search, strategy)
    read = told["bytes_read"] * target.every
    bytes_of = bench.store(source=target.base(bench))[1]["store_bytes"]
    cells = [f"{told['asked']:,}", shown(told["compared"]), shown(read / 1e6), shown(read / bytes_of, 2), shown(told["cpu_seconds"] * target.every, 2)]
    cells += ["" if search is by_walks else f"{max(0, 1 - told['cpu_seconds'] / told['seconds']):.0%}"]
    return [*cells, shown(told["peak_bytes"] / 1e6, 0), f"{told['found'] / target.truth(bench):.3f}"]


def joined_cells(bench: Bench, target: SearchTarget) -> list[str]:
    """Returns the cost of adjoin's join, in the columns of `cells_of`."""
    store, built = bench.store(source=target.base(bench))
    others: tuple[str, ...] = ()
    if target.rows != ROWS:
        others = (f"with={bench.store(source=bench.rows(f'from-{target.rows}', range(target.rows, ROWS)))[0]}",)
    cache = f"cache={int(built['store_bytes'] * target.cached)}"
    asked = (f"eps={EPS[target.neighbors]}", cache, "threads=1", f"recall={target.recall}", "recall-of=pairs", f"memory={MEMORY}")
    told = bench.measured("join", store, *asked, *others, "stats=")
    stats = told["stats"]
    read = stats["predicted"]["bytes_read"]
    checked = stats["join"]["verified_pairs"] / (ROWS - target.rows % ROWS)
    cells = ["", shown(checked), shown(read / 1e6), shown(read / built["store_bytes"], 2), shown(told["cpu_seconds"], 2)]
    return [*cells, waiting(told), shown(told["peak_bytes"] / 1e6, 0), f"{stats['recall']['pair']['estimate']:.3f}"]


def row(before: list[str], cells: Callable[[], list[str]]) -> list[str]:
    """Returns a row of a table, or the reason why there is none."""
    try:
        return [*before, *cells()]
    except Failed as reason:
        return [*before[:-1], f"{before[-1]}: not measured: {reason}", *[""] * (len(HEAD) - 3)]


HEAD = ["neighbors", "varied", "method", "k", "distances per vector", "MB read", "times the store is read", "CPU s", "waiting for the disk"]
HEAD += ["MB of memory", "recall of pairs"]


def searches(bench: Bench) -> str:
    """Returns the cost of a join by searches per vector (Figure 1)."""
    ways: dict[str, tuple[Search, str]] = {
        "DiskANN": (by_diskann, ""),
        "our index, walks like DiskANN's": (by_walks, "entry=vertex,beam=4,expanded=0"),
        "our index, our walks": (by_walks, ""),
    }
    rows = [
        row([f"{neighbors}", "", words], lambda: cells_of(bench, SearchTarget(neighbors), *way))  # noqa: B023
        for neighbors in EPS
        for words, way in ways.items()
    ]
    return (
        f"Figure 1: searches per vector for the pairs of this join, as DiskANN in the paper. Indexes have degree {DEGREE}, {BUILD_LIST} "
        f"candidates in the build and codes of {CODE_BYTES} bytes. DiskANN is diskannpy 0.7.0 with a beam of {BEAM} and "
        f"{CACHE_SHARE:.0%} of the vertices cached; our index "
        f"may use {MEMORY}. Memory is the peak of the process, for DiskANN with Python. One row in {SAMPLED[10]} is a query, with 100 "
        f"neighbors one in {SAMPLED[100]:,}, and reads and CPU seconds are multiplied by that; DiskANN's exclude its start. The number of "
        "neighbors k is the least that reaches the recall of pairs, to within a part in eight. Searches run on one thread, and wait for the "
        "disk while it does not compute:\n\n" + without_empty(HEAD, rows)
    )


def figures(bench: Bench) -> str:
    """Returns Figures 8, 9, 13, 15 and 16 with DiskANN and with adjoin."""
    of_figures = {
        "Figures 8, 15 and 16: the recall of pairs that is asked for": [(f"{recall}", {"recall": recall}) for recall in TARGETS],
        "Figure 9: the fraction of the vertices or of the store that is cached": [(f"{share:.0%}", {"cached": share}) for share in CACHES],
        f"Figure 13: {ROWS - INDEXED:,} rows joined with {INDEXED:,} others, by the recall that is asked for": [
            (f"{recall}", {"recall": recall, "rows": INDEXED}) for recall in TARGETS
        ],
    }
    parts = []
    for title, variants in of_figures.items():
        rows = []
        for neighbors in EPS:
            for words, given in variants:
                target = SearchTarget(neighbors, **given)
                rows.append(row([f"{neighbors}", words, "DiskANN"], lambda: cells_of(bench, target, by_diskann, "")))  # noqa: B023
                rows.append(row([f"{neighbors}", words, "adjoin"], lambda: joined_cells(bench, target)))  # noqa: B023
        parts.append(f"{title}:\n\n" + table(HEAD, rows))
    return (
        "DiskANN as above next to adjoin's join on one thread, at a recall of pairs of 0.9 and with 10 % cached unless stated otherwise. "
        "DiskANN's recall is the true one of the sampled rows, adjoin's is an estimate, and adjoin's waiting is a fraction of the time in "
        "which it executes its plan. In Figure 13, the store is that of the indexed rows.\n\n" + "\n".join(parts)
    )


def without_empty(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table without columns that are empty in all rows."""
    kept = [at for at, name in enumerate(head) if name and any(cells[at] for cells in rows)]
    return table([head[at] for at in kept], [[cells[at] for at in kept] for cells in rows])
