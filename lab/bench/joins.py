#!/usr/bin/env python3
"""Measures other joins, joins of two sets, joins of new rows, and filters, on image descriptors.

usage: joins.py ADJOIN [--only WORD] [--work DIR]

Prints Markdown. Measurements are kept in WORK/joins.jsonl and are not repeated. Needs ADJOIN_DATA with sift-900k.u8bin,
and for filters numpy and pyarrow in PEERS_PYTHON. ClusterJoin and RSHJ run in the program `adjoin-lab`
next to ADJOIN. It holds everything in memory and computes distances with the kernels of adjoin.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from pathlib import Path

from at_recall import shown, table
from measure import Failed, Ledger, Record, arguments, machine, run

FILE, ROWS = "sift-900k.u8bin", 900_000
#: Threshold at which these rows have 100 neighbors on average.
EPS = 163.884
#: Size of the cache of buckets, as a fraction of the data.
CACHE_SHARE = 0.1
#: Numbers of rows in the paper's Figure 7 (at most as many as the set has), and the target recall of DiskJoin when it
#: is compared with exact joins.
COMPARED, BESIDE_EXACT = (100_000, ROWS), 0.995
#: For Figure 13: rows of the first set and of the second one, and the target recalls.
FIRST, SECOND, RECALLS = 600_000, 300_000, (0.8, 0.9, 0.95, 0.99)
#: Number of rows that exist before others are inserted.
OLD = 810_000
#: How many of a thousand rows pass a filter.
OF_A_THOUSAND = (500, 100, 10, 1)


class Bench:
    """Parts of the set, their stores, and their joins."""

    def __init__(self, adjoin: Path, work: Path) -> None:
        self.adjoin, self.work = adjoin.resolve(), work.resolve() / "joins"
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.work / "joins.jsonl")

    def rows(self, first: int, end: int) -> Path:
        """Returns a file with the rows from `first` up to `end`, without `end`."""
        path = self.work / f"rows-{first}-{end}.u8bin"
        if not path.exists():
            source = Path(os.environ.get("ADJOIN_DATA", "")) / FILE
            if "ADJOIN_DATA" not in os.environ or not source.exists():
                raise Failed(f"{FILE} is not in ADJOIN_DATA")
            with source.open("rb") as file, path.open("wb") as out:
                _, dimensions = array("I", file.read(8))
                array("I", [end - first, dimensions]).tofile(out)
                file.seek(8 + first * dimensions)
                out.write(file.read((end - first) * dimensions))
        return path

    def store(self, first: int, end: int) -> Path:
        store = self.work / f"rows-{first}-{end}.store"
        if not store.exists():
            run([self.adjoin, "build", self.rows(first, end), "-o", store, "--quiet"])
        return store

    def attributed(self, *sort_by: str) -> Path:
        """Returns a store of the whole set with columns for filters. `sort_by` may name a column by which it is
        sorted."""
        store, table_of = self.work / f"{'-'.join(['attributed', *sort_by])}.store", self.work / "attributed.parquet"
        if not table_of.exists():
            python = os.environ.get("PEERS_PYTHON", sys.executable)
            run([python, Path(__file__).with_name("attributes.py"), self.rows(0, ROWS), table_of])
        if not store.exists():
            order = [word for column in sort_by for word in ("--sort-by", column)]
            run([self.adjoin, "build", table_of, "-o", store, "--no-ids", "--columns", "near,pick", *order, "--quiet"])
        return store

    def joined(self, *words: object) -> Record:
        """Joins, and counts the pairs of each row."""
        stats, counts = self.work / "stats.json", self.work / "counts.parquet"
        command = ["join", *words, "--eps", EPS, "--result", "counts", "-o", counts, "--stats", stats, "--force", "--quiet"]

        def measure() -> Record:
            told = run([self.adjoin, *map(str, command)])
            told["stats"] = json.loads(stats.read_text())
            told["stats"]["memory"].pop("over_time", None)
            return told

        return whole(self.ledger.measured(json.dumps([str(word) for word in words]), measure))

    def led(self, lead: str, first: Path, second: Path, recall: float) -> Record:
        """Joins two stores in the laboratory, with `lead` as the leading one."""
        stats, counts = self.work / "stats.json", self.work / "counts.parquet"
        words = [f"with={second}", f"recall={recall}", f"lead={lead}", f"cache={cache(ROWS)[1]}", f"eps={EPS}"]

        def measure() -> Record:
            lab = self.adjoin.parent / "adjoin-lab"
            told = run([lab, "join", first, *words, f"counts={counts}", f"stats={stats}"])
            told["stats"] = json.loads(stats.read_text())
            told["stats"]["memory"].pop("over_time", None)
            return told

        return whole(self.ledger.measured(json.dumps([str(first), *words]), measure))

    def other(self, way: str, rows: int) -> Record:
        """Runs ClusterJoin or RSHJ."""
        program = self.adjoin.parent / "adjoin-lab"

        def measure() -> Record:
            told = run([program, "other-joins", way, self.rows(0, ROWS), str(EPS), str(rows), *OPTIONS.get(way, ())])
            return told | json.loads(told.pop("output"))

        return self.ledger.measured(json.dumps([way, rows]), measure)


#: Options with which RSHJ finds 97.4 % of the pairs of 100,000 rows.
OPTIONS = {"rshj": ("tables=20", "hashes=8", "width=3")}


def whole(told: Record) -> Record:
    if "failed" in told:
        raise Failed(told["failed"])
    return told


def cache(rows: int) -> tuple[str, str]:
    return "--cache", str(int(rows * 128 * CACHE_SHARE))


def compared(stats: Record) -> int:
    """Returns the number of distances that a join computes, distances to centers included."""
    return stats["join"]["verified_pairs"] + stats["join"]["center_distances"]


def others(bench: Bench) -> str:
    """Returns Figure 7."""
    body = []
    for rows in COMPARED:
        ours = bench.joined(bench.rows(0, rows), "--recall", BESIDE_EXACT, *cache(rows))
        told = bench.other("cluster-join", rows)
        pairs = told.get("pairs")
        found = ours["stats"]["join"]["pairs"]
        line = [f"{rows:,}", "adjoin, from the file", shown(ours["seconds"]), shown(compared(ours["stats"]) / 1e6, 0)]
        body.append([*line, f"{100 * found / pairs:.2f}" if pairs else "", shown(ours["peak_bytes"] / 1e6, 0)])
        for name, told in (("ClusterJoin, in memory", told), ("RSHJ, in memory", bench.other("rshj", rows))):
            if "failed" in told:
                body.append([f"{rows:,}", f"{name}: {told['failed']}", "", "", "", ""])
                continue
            figures = [shown(told["seconds"]), shown(told["distances"] / 1e6, 0), f"{100 * told['pairs'] / pairs:.2f}"]
            body.append([f"{rows:,}", name, *figures, shown(told["peak_bytes"] / 1e6, 0)])
    head = ["rows", "", "seconds", "million distances", "pairs found, %", "MB"]
    words = f"[Figure 7] Pairs at 100 neighbors per row among 900,000; adjoin has a target recall of {BESIDE_EXACT:.1%} and a cache of 10%.\n\n"
    return words + table(head, body)


def two_sets(bench: Bench) -> str:
    """Returns Figure 13."""
    first, second = bench.store(0, FIRST), bench.store(FIRST, FIRST + SECOND)
    body = []
    for recall in RECALLS:
        for lead, words in (("left", "order by the larger set"), ("right", "order by the smaller set")):
            told = bench.led(lead, first, second, recall)
            stats = told["stats"]
            reached = [f"{stats['recall'][what]['estimate']:.3f}" for what in ("pair", "per_vector")]
            figures = [shown(stats["seconds"]["execute"], 2), shown(stats["io"]["bytes_read"] / 1e6, 0)]
            body.append([f"{recall}", words, shown(told["seconds"], 2), *figures, " / ".join(reached), f"{stats['join']['pairs']:,}"])
    head = ["recall", "order", "seconds", "the run alone", "MB read", "recall of pairs / per vector", "pairs"]
    words = f"[Figure 13] {FIRST:,} rows with {SECOND:,} others, stores of {ROWS * 128 / 1e6:.0f} MB, a cache of 10%.\n\n"
    return words + table(head, body)


def new_rows(bench: Bench) -> str:
    """Compares a join of only the new rows, a tenth of the set, with a join of all rows."""
    body = []
    for way in (["--exact"], ["--recall", 0.9]):
        of_all = bench.joined(bench.store(0, ROWS), *way, *cache(ROWS))
        told = bench.joined(bench.store(0, OLD), "--new", bench.rows(OLD, ROWS), *way, *cache(ROWS))
        for name, of in (("all with all", of_all), ("the new tenth with all, from its file", told)):
            stats = of["stats"]
            figures = [shown(of["seconds"], 2), shown(compared(stats) / 1e6, 0), shown(stats["io"]["bytes_read"] / 1e6, 0)]
            body.append([" ".join(map(str, way)), name, *figures, f"{stats['join']['pairs']:,}"])
    head = ["", "", "seconds", "million distances", "MB read", "pairs"]
    return f"{OLD:,} rows in a store, {ROWS - OLD:,} new ones.\n\n" + table(head, body)


def conditions(bench: Bench) -> str:
    """Measures joins of the rows that pass a filter. They are near each other, or drawn at random."""
    body = []
    plain, by_pick = bench.attributed(), bench.attributed("pick")
    for column, store, words in (("near", plain, ""), ("pick", plain, ""), ("pick", by_pick, ", sorted")):
        for share in (1_000, *OF_A_THOUSAND):
            where = ["--where", f"{column} < {share}"] if share < 1_000 else []
            told = bench.joined(store, "--recall", 0.9, *where)
            stats = told["stats"]
            figures = [shown(told["seconds"], 2), shown(stats["io"]["bytes_read"] / 1e6), shown(compared(stats) / 1e6)]
            body.append([f"{column}{words}, {share / 10} %", *figures, f"{stats['join']['pairs']:,}"])
    head = ["rows that pass the filter", "seconds", "MB read", "million distances", "pairs"]
    words = (
        "Recall 0.9. `near` ranks rows by the distance from one row, so rows below a number are near each other; `pick` is random; "
        "`sorted` is a store built with `--sort-by pick`.\n\n"
    )
    return words + table(head, body)


PARTS = {"Other joins": others, "Two sets": two_sets, "New rows": new_rows, "Filters": conditions}


def main() -> int:
    asked = arguments(__doc__)
    bench = Bench(asked.adjoin.resolve(), asked.work)
    print(f"# Joins of other kinds\n\nGenerated by `lab/bench/joins.py`. {machine()} Brackets name the figure of DiskJoin that a table reproduces.\n")
    for heading, part in PARTS.items():
        if asked.only in heading:
            print(f"## {heading}\n", flush=True)
            try:
                print(part(bench), flush=True)
            except Failed as reason:
                print(f"Not measured: {reason}.\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
