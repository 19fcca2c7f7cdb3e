#!/usr/bin/env python3
"""Measures methods of DiskJoin and Starling as their authors have them, next to ours.

usage: papers.py LAB [--only WORD] [--page FILE] [--work DIR]

Prints Markdown. LAB is the program `adjoin-lab`, and `adjoin` is next to it. Measurements are kept in WORK/papers and
WORK/diskjoin, and are not repeated. With `--only`, parts without WORD in their heading are copied from the page FILE. Needs
ADJOIN_DATA with sift-200k.u8bin. DiskANN is measured if PEERS_PYTHON, by default this Python, has diskannpy; DiskJoin's
program is fetched and built (`peer_diskjoin.py`). `tables.py` and `search.py` have the other figures of these papers.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import diskjoin
from at_recall import K, QUERIES, shown, table
from measure import Failed, Ledger, Record, arguments, machine, print_parts, read_page, run

FILE, ROWS, DIMENSIONS = "sift-200k.u8bin", 200_000, 128
#: Thresholds, each under the number of neighbors that a vector of the set has there on average.
EPS = {10: 126.566, 100: 226.555}
RECALL = 0.9
#: Fraction of the store that the cache of buckets holds, and the memory of searches and joins.
CACHE_SHARE, MEMORY = 0.1, "128MB"
#: Number of nearest buckets that the authors' program considers for each bucket, K, in its configuration for recall 0.9.
CANDIDATES = 245
#: Numbers of neighbors that a search per vector asks for, until it finds enough pairs.
ASKED = (50, 100, 200, 400, 800, 1_600, 3_200, 6_400)
#: One row in this many is a query of the search per vector, under the number of neighbors.
SAMPLED = {10: 100, 100: 1_000}
#: For Starling: numbers of rows, and the degree of its tables.
SIZES, DEGREE = (10_000, 100_000), 48
BETAS = (1, 2, 4, 8, 16)
SHOWN = ("bnf", "bns", "gp3", "grown")


class Bench:
    """Runs the laboratory, and keeps its output."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.program, self.work = asked.lab.resolve(), asked.work.resolve() / "papers"
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.work / "papers.jsonl")

    def rows(self, name: str, chosen: Iterable[int]) -> Path:
        """Returns a file with some rows of the set."""
        path = self.work / f"{name}.u8bin"
        if not path.exists():
            source = Path(os.environ.get("ADJOIN_DATA", "")) / FILE
            if "ADJOIN_DATA" not in os.environ or not source.exists():
                raise Failed(f"{FILE} is not in ADJOIN_DATA")
            vectors = memoryview(source.read_bytes())[8:]
            numbers = list(chosen)
            with path.open("wb") as out:
                array("I", [len(numbers), DIMENSIONS]).tofile(out)
                for row in numbers:
                    out.write(vectors[row * DIMENSIONS : (row + 1) * DIMENSIONS])
        return path

    def measured(self, *words: object) -> Record:
        """Runs an experiment of the laboratory. If the words name a file `stats=`, the record has its statistics."""
        stats = self.work / "stats.json"

        def measure() -> Record:
            told = run([self.program, *(str(word).replace("stats=", f"stats={stats}") for word in words)])
            if "stats=" in words:
                told["stats"] = json.loads(stats.read_text())
                told["stats"]["memory"].pop("over_time", None)
            return told

        key = json.dumps([str(word).replace(str(self.work), "") for word in words])
        told = self.ledger.measured(key, measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told

    def peer(self, what: str, job: Record) -> Record:
        """Runs DiskANN's Python package."""
        program = [os.environ.get("PEERS_PYTHON", sys.executable), Path(__file__).with_name("peer_diskann.py"), what, json.dumps(job)]

        def measure() -> Record:
            told = run(program)
            return {"peak_bytes": told["peak_bytes"]} | json.loads(told["output"])

        told = self.ledger.measured(json.dumps(["diskann", what, job]).replace(str(self.work), ""), measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told

    def store(self, *options: str) -> tuple[Path, Record]:
        """Builds a store of the whole set. Returns it with the cost of its build and the bytes of its buckets."""
        store = self.work / "-".join(["store", *(option.split("=")[1] for option in options)])
        built = self.measured("build", self.rows("all", range(ROWS)), store, *options)
        return store, built | {"store_bytes": sum(path.stat().st_size for path in store.glob("vectors-*"))}

    def joined(self, neighbors: int, options: tuple[str, ...], *words: str) -> tuple[Record, Record]:
        """Joins a store. Returns the costs of its build and of the join."""
        store, built = self.store(*options)
        cache = f"cache={int(built['store_bytes'] * CACHE_SHARE)}"
        return built, self.measured("join", store, f"eps={EPS[neighbors]}", cache, "threads=1", *words, "stats=")

    def sampled(self, neighbors: int) -> Path:
        """Returns the queries of searches per vector."""
        every = SAMPLED[neighbors]
        return self.rows(f"sampled-{every}", range(0, ROWS, every))

    def neighbors(self, neighbors: int) -> list[int]:
        """Returns the true number of neighbors of each row."""
        store, _ = self.store()
        counts = self.work / f"neighbors-{neighbors}.csv"
        if not counts.exists():
            self.measured("join", store, f"eps={EPS[neighbors]}", "recall=1", f"counts={counts}", "stats=")
        of = [0] * ROWS
        with counts.open() as lines:
            for row, count in list(csv.reader(lines))[1:]:
                of[int(row)] = int(count)
        return of

    def index(self, name: str, base: Path, queries: Path, *options: str) -> Path:
        """Builds an index with the engine's order of pages. Returns its folder."""
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        self.measured("index", base, queries, folder, "lists=20", "recalls=", *options)
        return next(folder.glob("grown-*"))


#: Searches with a strategy for some queries, and writes the hits of K neighbors to a file.
Search = Callable[[Bench, str, Path, int, Path], Record]


def join_rows(bench: Bench, neighbors: int) -> list[list[str]]:
    """Returns a row per method of a join."""
    truth = sum(bench.neighbors(neighbors)) // 2
    published = ("centers=random", f"buckets={ROWS // 100}")
    pairs = (f"recall={RECALL}", "recall-of=pairs")
    arc = ("rule=arc", "order=gorder-out", "caching=belady", *pairs)
    fixed, graph, two = f"threshold={RECALL}", (*published, "assign=hnsw"), (*published, "assign=hnsw-two")
    ways = {
        "DiskJoin as published, lambda 0.9": (graph, *arc, fixed),
        "DiskJoin as published, lambda calibrated": (graph, *arc),
        "the same, rows by two levels, lambda 0.9": (published, *arc, fixed),
        "with both choices of the authors' program, lambda 0.9": (two, *arc, fixed, f"candidates={CANDIDATES}"),
        "adjoin, recall of pairs": ((), *pairs, f"memory={MEMORY}"),
        "adjoin, recall of pairs and per vector": ((), f"recall={RECALL}", f"memory={MEMORY}"),
    }
    rows = []
    for words, (options, *asked) in ways.items():
        built, told = bench.joined(neighbors, options, *asked)
        stats = told["stats"]
        spent, read = stats["seconds"], stats["predicted"]["bytes_read"]
        planning = (spent["calibrate"] or 0) + spent["plan"]
        seconds = [built["seconds"], planning, spent["execute"], built["seconds"] + planning + spent["execute"]]
        cells = [shown(stats["join"]["verified_pairs"] / ROWS), shown(read / 1e6), shown(read / built["store_bytes"], 2)]
        cells += [shown(one, 2) for one in (told["cpu_seconds"], *seconds)]
        rows.append([f"{neighbors}", words, *cells, f"{stats['join']['pairs'] / truth:.3f}"])
    return rows


def per_vector(bench: Bench, neighbors: int, words: str, search: Search, strategy: str) -> list[str]:
    """Searches an index for each sampled row. Asks for more neighbors until the recall of pairs is reached."""
    every = SAMPLED[neighbors]
    truth = sum(bench.neighbors(neighbors)[::every])
    for asked in ASKED:
        hits = bench.work / f"hits-{neighbors}-{asked}-{strategy}.csv"
        told = search(bench, strategy, bench.sampled(neighbors), asked + 1, hits)
        key = f"pairs of {hits.name}"
        found = bench.ledger.measured(key, lambda: {"found": pairs_within(hits, EPS[neighbors], every)})["found"]  # noqa: B023
        if found >= RECALL * truth:
            break
    read = told["bytes_read"] * every
    bytes_of = bench.store()[1]["store_bytes"]
    cells = [shown(told["compared"]), shown(read / 1e6), shown(read / bytes_of, 2), shown(told["cpu_seconds"] * every, 2)]
    return [f"{neighbors}", f"{words}, k = {asked:,}", *cells, shown(told["peak_bytes"] / 1e6, 0), f"{found / truth:.3f}"]


def by_walks(bench: Bench, strategy: str, queries: Path, asked: int, hits: Path) -> Record:
    """Searches our index."""
    index = bench.index("index", bench.rows("all", range(ROWS)), bench.rows("last", range(ROWS - QUERIES, ROWS)))
    named = (f"k={asked}", f"list={asked}", f"memory={MEMORY}", "threads=1", f"strategy={strategy}", "stats=")
    told = bench.measured("search", index, queries, hits, *named)
    stats = told["stats"]
    return told | {"bytes_read": stats["io"]["bytes_read"], "compared": stats["search"]["distances_per_query"]}


def by_diskann(bench: Bench, _strategy: str, queries: Path, asked: int, hits: Path) -> Record:
    """Searches an index of DiskANN's Python package."""
    index = {"folder": str(bench.work / "diskann")}
    base = bench.rows("all", range(ROWS))
    bench.peer("build", index | {"base": str(base), "degree": 32, "candidates": 75, "code_bytes": 32, "threads": 1})
    search = {"queries": str(queries), "k": asked, "list": asked, "beam": 4, "cached": int(ROWS * CACHE_SHARE)}
    told = bench.peer("search", index | search | {"hits": str(hits)})
    return told | {"bytes_read": told["read_bytes"], "compared": None}


def pairs_within(hits: Path, eps: float, every: int) -> int:
    """Counts the hits within a threshold, except each row itself."""
    with hits.open() as lines:
        near = sum(float(line["distance"]) <= eps and int(line["id"]) != int(line["query"]) * every for line in csv.DictReader(lines))
    return near


def published(bench: Bench) -> str:
    """Returns the row that combines the choices of DiskJoin, next to ours."""
    rows = [row for neighbors in EPS for row in join_rows(bench, neighbors)]
    head = ["neighbors", "method", "distances per vector", "MB read", "times the store is read", "CPU s", "build s", "plan s"]
    head += ["execute s", "total s", "recall of pairs"]
    return (
        f"Self-joins of {ROWS:,} image descriptors of {DIMENSIONS} bytes at a recall of {RECALL}, on one thread, with a cache of "
        f"{CACHE_SHARE:.0%} of the store. As published: random vectors as centers of {ROWS // 100:,} buckets (1 %), the arc rule of "
        "Algorithm 3 on whole buckets, the order of Algorithm 2 (`gorder-out`) and Belady's cache; rows are assigned by an HNSW. Two choices "
        "are from the authors' program: of the two nearest centers, a row gets the farther one if that has fewer rows so far and its "
        f"squared distance is less than 1.2 times as large; and a bucket considers its {CANDIDATES} nearest buckets, otherwise all. CPU "
        "seconds exclude the build. The recall of pairs is the true one:\n\n" + table(head, rows)
    )


def searches(bench: Bench) -> str:
    """Returns the cost of a join by searches per vector."""
    ways = {
        "DiskANN": (by_diskann, "diskann"),
        "our index, walks like DiskANN's": (by_walks, "entry=vertex,beam=4,expanded=0"),
        "our index, our walks": (by_walks, ""),
    }
    rows = [row for neighbors in EPS for row in (searched(bench, neighbors, words, *way) for words, way in ways.items())]
    head = ["neighbors", "method", "distances per vector", "MB read", "times the store is read", "CPU s", "MB of memory", "recall of pairs"]
    return (
        "Searches per vector for the pairs of this join, as DiskANN in the paper. Indexes have degree 32, 75 candidates in the build and "
        f"codes of 32 bytes. DiskANN is diskannpy 0.7.0 with a beam of 4 and {CACHE_SHARE:.0%} of the vertices cached; our index may use "
        f"{MEMORY}. Memory is the peak of the process, for DiskANN with Python. One row in {SAMPLED[10]} is a query, with 100 neighbors "
        f"one in {SAMPLED[100]:,}, and reads and CPU seconds are multiplied by that; DiskANN's exclude its start. The number of neighbors "
        "k grows until the recall of pairs is reached:\n\n" + table(head, rows)
    )


def searched(bench: Bench, neighbors: int, words: str, search: Search, strategy: str) -> list[str]:
    """Returns the row of a search per vector, or the reason why there is none."""
    try:
        return per_vector(bench, neighbors, words, search, strategy)
    except Failed as reason:
        return [f"{neighbors}", f"{words}: not measured: {reason}", *[""] * 6]


def loads(bench: Bench) -> str:
    """Returns the bytes that orders of tasks read, next to the lower bound."""
    parts = ["Reads of orders of tasks with Belady's cache, as multiples of the store, and divided by the lower bound for any order and "
             "cache (section 4.1; proof in `lab/src/joins/loads.rs`). Our rule selects the tasks:\n"]
    for recall in (RECALL, 0.99):
        store, built = bench.store()
        cache = f"cache={int(built['store_bytes'] * CACHE_SHARE)}"
        lines = bench.measured("loads", store, f"eps={EPS[100]}", f"recall={recall}", cache)["output"].splitlines()[1:]
        rows = [line.split() for line in lines]
        rows = [[row[0], "" if len(row) == 3 else f"{int(row[1]):,}", *row[-2:]] for row in rows]
        parts.append(f"100 neighbors, recall {recall}, cache of {CACHE_SHARE:.0%}:\n\n" + table(["order", "buckets read", "times the store is read", "over the bound"], rows))
    return "\n".join(parts)


def of_diskjoin(figure: Callable[[diskjoin.Bench], str], bench: Bench) -> str:
    """Returns a figure of DiskJoin."""
    return figure(diskjoin.Bench(bench.program, bench.work.parent))


def page_orders(bench: Bench) -> str:
    """Returns Tables 5 to 12 at the degree of the paper."""
    parts = [f"Orders of pages on graphs of degree {DEGREE} (Vamana by inserts, alpha 1.2) with 12 records a page, as in the paper's "
             f"Tables 4 to 13. Reads are per query at a recall@{K} (interpolated), for {QUERIES:,} held-out rows. Seconds count the "
             "order alone, in a process of low priority:\n"]
    queries = bench.rows("last", range(ROWS - QUERIES, ROWS))
    for rows in SIZES:
        name = f"{rows // 1000}k"
        index = bench.index(f"index-{name}", bench.rows(name, range(rows)), queries, f"degree={DEGREE}", "graph=vamana")
        told = bench.measured("layouts", index, bench.work / f"laid-{name}", queries)["output"].splitlines()[2:]
        lines = [line.split() for line in told]
        body = [[of[0], of[1], of[3], *of[5:]] for of in lines]
        head = ["order of pages", "OR(G)", "seconds", *(f"reads at {recall}" for recall in (0.9, 0.95, 0.99))]
        parts.append(f"{rows:,} rows, at most 8 rounds:\n\n" + table(head, body))
        by_rounds: dict[str, dict[int, str]] = {}
        for line in bench.measured("layouts", index)["output"].splitlines()[1:]:
            order, number, ratio, _ = line.split()
            by_rounds.setdefault(order, {})[int(number)] = ratio
        body = [[order, *(by_rounds[order][beta] for beta in BETAS)] for order in SHOWN]
        parts.append(f"{rows:,} rows, OR(G) by the number of rounds (beta):\n\n" + table(["order of pages", *map(str, BETAS)], body))
    return "\n".join(parts)


PARTS = {
    "DiskJoin as published": (published,),
    "DiskJoin's figures on other sets": tuple(partial(of_diskjoin, figure) for figure in diskjoin.FIGURES),
    "Searches per vector": (searches,),
    "Orders of tasks and the lower bound": (loads,),
    "Starling at degree 48": (page_orders,),
}
INTRODUCTION = """Generated by `make -C lab tables-papers`, which resumes after an interruption. The methods of
two papers as their authors have them, next to ours. [Papers](papers/README.md) lists their mechanisms."""


def main() -> int:
    asked = arguments(__doc__, "lab", copies=True)
    print(f"# Methods as published\n\n{INTRODUCTION}\n\n{machine()}\n")
    bench = Bench(asked)
    print_parts(2, {heading: [partial(table, bench) for table in tables] for heading, tables in PARTS.items()}, asked.only, read_page(asked.page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
