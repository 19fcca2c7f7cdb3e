"""Joins by a search for each vector, as DiskJoin's paper runs DiskANN: Figures 1, 8, 9, 13, 15 and 16.

`papers.py` prints them. DiskANN's Python package is needed (`diskann_package.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from at_recall import QUERIES, shown, table
from measure import Failed, Record, run
from papers_bench import CACHE_SHARE, EPS, MEMORY, RECALL, ROWS, Bench
from tables import waiting

#: One row in this many is a query, under the number of neighbors.
SAMPLED = {10: 100, 100: 1_000}
#: Numbers of neighbors that searches ask for: doubled from the least until a search finds enough pairs, and then halfway
#: between the last two numbers in a few steps.
LEAST, MOST, STEPS = 50, 12_800, 3
#: Recalls of Figure 8, fractions of Figure 9, and the indexed rows of Figure 13. The other rows are its queries.
TARGETS, CACHES, LEFT = (0.8, 0.9, 0.95, 0.99), (0.05, 0.1, 0.15, 0.2), 130_000


@dataclass(frozen=True)
class Sought:
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

        return int(bench.ledger.measured(f"pairs of {self.neighbors} neighbors among {self.rows}", measure)["pairs"])


#: Searches with a strategy for some queries, and writes the hits of K neighbors to a file.
Search = Callable[[Bench, str, Sought, int, Path], Record]


def by_walks(bench: Bench, strategy: str, sought: Sought, asked: int, hits: Path) -> Record:
    """Searches our index."""
    index = bench.index("index", sought.base(bench), bench.rows("last", range(ROWS - QUERIES, ROWS)))
    named = (f"k={asked}", f"list={asked}", f"memory={MEMORY}", "threads=1", f"strategy={strategy}", "stats=")
    told = bench.measured("search", index, sought.queries(bench), hits, *named)
    stats = told["stats"]
    return told | {"bytes_read": stats["io"]["bytes_read"], "compared": stats["search"]["distances_per_query"]}


def by_diskann(bench: Bench, _strategy: str, sought: Sought, asked: int, hits: Path) -> Record:
    """Searches an index of DiskANN's Python package."""
    base = sought.base(bench)
    index = {"folder": str(bench.work / f"diskann-{base.stem}")}
    bench.peer("build", index | {"base": str(base), "degree": 32, "candidates": 75, "code_bytes": 32, "threads": 1})
    search = {"queries": str(sought.queries(bench)), "k": asked, "list": asked, "beam": 4, "cached": int(sought.rows * sought.cached)}
    told = bench.peer("search", index | search | {"hits": str(hits)})
    return told | {"bytes_read": told["read_bytes"], "compared": None}


def found(bench: Bench, sought: Sought, search: Search, strategy: str) -> Record:
    """Searches with the fewest neighbors that reach the recall of pairs, to within a part in eight."""
    wanted = sought.recall * sought.truth(bench)

    def searched(asked: int) -> Record:
        hits = bench.work / f"hits-{sought.neighbors}-{sought.cached}-{sought.rows}-{asked}-{search.__name__}-{strategy}.csv"
        told = search(bench, strategy, sought, asked + 1, hits)
        pairs = bench.ledger.measured(f"pairs of {hits.name}", lambda: {"found": sought.pairs(hits)})["found"]
        return told | {"asked": asked, "found": pairs}

    high = searched(LEAST)
    while high["found"] < wanted and high["asked"] < MOST:
        high = searched(2 * high["asked"])
    low = high["asked"] // 2
    for _ in range(STEPS if high["asked"] > LEAST else 0):
        middle = searched((low + high["asked"]) // 2)
        low, high = (low, middle) if middle["found"] >= wanted else (middle["asked"], high)
    return high


def cells_of(bench: Bench, sought: Sought, search: Search, strategy: str) -> list[str]:
    """Returns what a join by searches costs, from the neighbors that each asks for to the recall of pairs."""
    told = found(bench, sought, search, strategy)
    read = told["bytes_read"] * sought.every
    bytes_of = bench.store(source=sought.base(bench))[1]["store_bytes"]
    wall = told.get("seconds", 0) or 1e-9
    cells = [f"{told['asked']:,}", shown(told["compared"]), shown(read / 1e6), shown(read / bytes_of, 2), shown(told["cpu_seconds"] * sought.every, 2)]
    cells += ["" if search is by_walks else f"{max(0, 1 - told['cpu_seconds'] / wall):.0%}"]
    return [*cells, shown(told["peak_bytes"] / 1e6, 0), f"{told['found'] / sought.truth(bench):.3f}"]


def joined_cells(bench: Bench, sought: Sought) -> list[str]:
    """Returns what adjoin's join costs, in the columns of `cells_of`."""
    store, built = bench.store(source=sought.base(bench))
    others: tuple[str, ...] = ()
    if sought.rows != ROWS:
        others = (f"with={bench.store(source=bench.rows(f'from-{sought.rows}', range(sought.rows, ROWS)))[0]}",)
    cache = f"cache={int(built['store_bytes'] * sought.cached)}"
    asked = (f"eps={EPS[sought.neighbors]}", cache, "threads=1", f"recall={sought.recall}", "recall-of=pairs", f"memory={MEMORY}")
    told = bench.measured("join", store, *asked, *others, "stats=")
    stats = told["stats"]
    read = stats["predicted"]["bytes_read"]
    checked = stats["join"]["verified_pairs"] / (ROWS if sought.rows == ROWS else ROWS - sought.rows)
    cells = ["", shown(checked), shown(read / 1e6), shown(read / built["store_bytes"], 2), shown(told["cpu_seconds"], 2)]
    return [*cells, waiting(told), shown(told["peak_bytes"] / 1e6, 0), f"{stats['recall']['pair']['estimate']:.3f}"]


def row(before: list[str], cells: Callable[[], list[str]]) -> list[str]:
    """Returns a row of a table, or the reason why there is none."""
    try:
        return [*before, *cells()]
    except Failed as reason:
        return [*before[:-1], f"{before[-1]}: not measured: {reason}", *[""] * (len(HEAD) - 3)]


HEAD = ["neighbors", "", "method", "k", "distances per vector", "MB read", "times the store is read", "CPU s", "waiting for the disk"]
HEAD += ["MB of memory", "recall of pairs"]


def searches(bench: Bench) -> str:
    """Returns the cost of a join by searches per vector (Figure 1)."""
    ways: dict[str, tuple[Search, str]] = {
        "DiskANN": (by_diskann, "diskann"),
        "our index, walks like DiskANN's": (by_walks, "entry=vertex,beam=4,expanded=0"),
        "our index, our walks": (by_walks, ""),
    }
    rows = [
        row([f"{neighbors}", "", words], lambda: cells_of(bench, Sought(neighbors), *way))  # noqa: B023
        for neighbors in EPS
        for words, way in ways.items()
    ]
    return (
        "Figure 1: searches per vector for the pairs of this join, as DiskANN in the paper. Indexes have degree 32, 75 candidates in the "
        f"build and codes of 32 bytes. DiskANN is diskannpy 0.7.0 with a beam of 4 and {CACHE_SHARE:.0%} of the vertices cached; our index "
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
        f"Figure 13: {ROWS - LEFT:,} rows joined with {LEFT:,} others, by the recall that is asked for": [
            (f"{recall}", {"recall": recall, "rows": LEFT}) for recall in TARGETS
        ],
    }
    parts = []
    for title, variants in of_figures.items():
        rows = []
        for neighbors in EPS:
            for words, given in variants:
                sought = Sought(neighbors, **given)
                rows.append(row([f"{neighbors}", words, "DiskANN"], lambda: cells_of(bench, sought, by_diskann, "")))  # noqa: B023
                rows.append(row([f"{neighbors}", words, "adjoin"], lambda: joined_cells(bench, sought)))  # noqa: B023
        parts.append(f"{title}:\n\n" + table(HEAD, rows))
    return (
        "DiskANN as above next to adjoin's join on one thread, at a recall of pairs of 0.9 and with 10 % cached if nothing else is said. "
        "DiskANN's recall is the true one of the sampled rows, adjoin's is an estimate.\n\n" + "\n".join(parts)
    )


def without_empty(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table without columns that are empty in all rows."""
    kept = [at for at, name in enumerate(head) if name and any(cells[at] for cells in rows)]
    return table([head[at] for at in kept], [[cells[at] for at in kept] for cells in rows])
