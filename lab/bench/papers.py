#!/usr/bin/env python3
"""Measures methods of DiskJoin and Starling as their authors have them, next to ours.

usage: papers.py LAB [--only WORD] [--page FILE] [--work DIR]

Prints Markdown. LAB is the program `adjoin-lab`, and `adjoin` is next to it. Measurements are kept in WORK/papers and
WORK/diskjoin, and are not repeated. With `--only`, parts without WORD in their heading are copied from the page FILE. Needs
ADJOIN_DATA with sift-200k.u8bin and sift-900k.u8bin. DiskANN is measured if DISKANN_PYTHON, by default PEERS_PYTHON, has diskannpy; DiskJoin's
program is fetched and built (`peer_diskjoin.py`). `per_vector.py` has searches per vector; `tables.py` and `search.py` have the other figures of these papers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import diskjoin
import per_vector
from at_recall import K, QUERIES, shown, table
from measure import arguments, machine, print_parts, read_page
from papers_bench import CACHE_SHARE, DIMENSIONS, EPS, FILE, MEMORY, RECALL, ROWS, Bench

#: Number of nearest buckets that the authors' program considers for each bucket, K, in its configuration for recall 0.9.
CANDIDATES = 245
#: For Starling: numbers of rows, a set that has enough, and the degree of its tables.
SIZES, LARGE, DEGREE = (10_000, 100_000, 899_000), "sift-900k.u8bin", 48
BETAS = (1, 2, 4, 8, 16)
SHOWN = ("bnf", "bns", "gp3", "grown")


def join_rows(bench: Bench, neighbors: int) -> list[list[str]]:
    """Returns a row per method of a join."""
    truth = bench.pairs(neighbors)
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
    for rows in SIZES:
        name = f"{rows // 1000}k"
        file, others = (FILE, ROWS) if rows < ROWS else (LARGE, rows + QUERIES)
        queries = bench.rows(f"last-{name}", range(others - QUERIES, others), file)
        index = bench.index(f"index-{name}", bench.rows(name, range(rows), file), queries, f"degree={DEGREE}", "graph=vamana")
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
    "Searches per vector": (per_vector.searches, per_vector.figures),
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
