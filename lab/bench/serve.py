#!/usr/bin/env python3
"""Measures the cost of serving a store: repeats the experiments of CALL, and compares CALL with our order and cache.

usage: serve.py ADJOIN [--set NAME] [--only WORD [--page FILE]] [--work DIR]

Prints Markdown. Measurements are kept in WORK/serve-NAME and are not repeated. With `--only`, parts without WORD in
their heading are copied from the page FILE, or skipped if no page is named. Vectors are from ADJOIN_DATA, or generated.
The first rows of a set are the store, and the others are the queries. The program is `adjoin-lab` next to ADJOIN
(`lab/src/serve/`). The requirements of faiss, of other servers and of calls from Python (PEERS_PYTHON, PEERS_CGROUP)
are in `serve_beside.py`, `serve_peers.py` and `serve_calls.py`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
from array import array
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from at_recall import shown, table
from measure import Failed, Ledger, Record, kept, machine, print_parts, read_page, run
from overload import overload
from serve_beside import Beside, beside
from serve_calls import calls
from serve_peers import served_peers
from serve_simulated import WORDS, simulated

#: Number of buckets in the paper, and number of buckets that a query probes there.
PAPER_BUCKETS, PAPER_PROBES = 100, 30
#: Number of buckets that a query probes if the store has the default number of buckets.
OUR_PROBES = 60
#: Size of the cache in the experiments with arrivals, as a fraction of the data.
REPLAYED_SHARE = 0.1
#: Size of the cache in the paper, in buckets.
PAPER_ENTRIES = 50
#: Contenders, each an order and a cache: ours, and two for CALL, because its description can be read in two ways.
OURS = ("bucket-major", "foreseen")
OF_CALL = (("call", "lru"), ("call-distance", "lru"))
COMPARATORS = (*OF_CALL, ("arrival", "fifo"), ("arrival", "wlru-prefetch"), ("arrival", "clru-prefetch"))
#: Rate of arrivals, as a fraction of the throughput of the best comparator.
LOAD = 0.8
MEMORY = 1 << 30
THREADS = 2


@dataclass(frozen=True)
class VectorFile:
    """A file of rows of equal length, after a header."""

    path: Path
    start: int
    rows: int
    dimensions: int
    row_bytes: int

    @classmethod
    def of(cls, path: Path) -> VectorFile:
        """Opens a `.u8bin`, or a `.npy` of f16."""
        with path.open("rb") as file:
            if path.suffix == ".u8bin":
                rows, dimensions = array("I", file.read(8))
                return cls(path, 8, rows, dimensions, dimensions)
            start = 10 + int.from_bytes(file.read(10)[8:], "little")
            rows, dimensions = ast.literal_eval(file.read(start - 10).decode())["shape"]
            return cls(path, start, rows, dimensions, 2 * dimensions)

    def write_part(self, first: int, count: int, into: Path) -> None:
        """Writes some of the rows to a file. Converts bytes to floats if the ending of `into` requires that."""
        with self.path.open("rb") as file, into.open("wb") as out:
            if into.suffix == ".npy":
                shape = f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({count}, {self.dimensions})}}\n".encode()
                out.write(b"\x93NUMPY\x01\x00" + len(shape).to_bytes(2, "little") + shape)
            else:
                array("I", [count, self.dimensions]).tofile(out)
            file.seek(self.start + first * self.row_bytes)
            for row in range(0, count, 10_000):
                some = file.read(min(10_000, count - row) * self.row_bytes)
                array("f" if into.suffix == ".fbin" else "B", iter(some)).tofile(out)


@dataclass(frozen=True)
class VectorSet:
    """A set, and the sections of the document that use it. A setting is a number of buckets, and a number of buckets
    that a query probes."""

    file: str
    queries: int
    ending: str
    parts: tuple[str, ...]
    settings: tuple[tuple[int | None, int], ...] = ((PAPER_BUCKETS, PAPER_PROBES), (None, OUR_PROBES))
    shares: tuple[float, ...] = (0.05, 0.1, 0.2)
    #: Options that generate the set, if it is not a file of ADJOIN_DATA.
    generated: str = ""


SETS = {
    "sift-900k": VectorSet("sift-900k.u8bin", 10_000, ".fbin", ("Plans", "Batches", "Single queries", "Arrivals", "Comparison with others", "Calls from Python", "Overload")),
    "debdesc": VectorSet("debdesc.f16.npy", 15_000, ".npy", ("Plans", "Batches", "Single queries", "Arrivals")),
    # The time of a simulation grows with the queries that are answered per second: debdesc would take hours.
    "sift-200k": VectorSet("sift-200k.u8bin", 10_000, ".fbin", ("Simulated arrivals", "Other servers", "Calls from Python")),
    # With 100 buckets, each query would read a third of 1.3 GB. So only the default number of buckets is measured.
    "generated-10m": VectorSet(
        "generated-10m.u8bin", 10_000, ".u8bin", ("Batches", "Single queries"), ((None, OUR_PROBES),), (0.1,),
        "--rows 10010000 --dimensions 128 --element u8",
    ),
}  # fmt: skip


class Bench:
    """Builds stores of a set, and runs the program with them."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.adjoin, self.work, self.set = asked.adjoin.resolve(), asked.work.resolve() / f"serve-{asked.set}", SETS[asked.set]
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.work / "serve.jsonl")

    def source(self) -> VectorFile:
        """Returns all vectors."""
        if self.set.generated:
            path = self.work / self.set.file
            if not path.exists():
                run([self.adjoin, "gen", *self.set.generated.split(), "-o", path, "--quiet"])
            return VectorFile.of(path)
        path = Path(os.environ.get("ADJOIN_DATA", "")) / self.set.file
        if "ADJOIN_DATA" not in os.environ or not path.exists():
            raise Failed(f"{self.set.file} is not in ADJOIN_DATA")
        return VectorFile.of(path)

    def vectors(self, name: str) -> Path:
        """Returns a file with the vectors of the store, or with the queries."""
        path = self.work / f"{name}{self.set.ending}"
        if not path.exists():
            source, queries = self.source(), self.set.queries
            draft = path.with_stem(f"{name}-draft")
            first, count = (source.rows - queries, queries) if name == "queries" else (0, source.rows - queries)
            source.write_part(first, count, draft)
            draft.rename(path)
        return path

    def store(self, buckets: int | None) -> Path:
        """Returns a store with `buckets` buckets. With `None`, it has the default number."""
        path = self.work / f"{buckets or 'default'}.store"
        if not path.exists():
            number = ["--buckets", str(buckets)] if buckets else []
            run([self.adjoin, "build", self.vectors("base"), "-o", path, "--quiet", *number])
        return path

    def told(self, what: str, buckets: int | None, *names: str, **named: object) -> Record:
        """Runs the program. Returns the cost of the run, and the records that it printed."""
        words = [*names, *(f"{name}={value}" for name, value in named.items())]

        def measure() -> Record:
            program = self.adjoin.parent / "adjoin-lab"
            told = run([program, "serve", what, self.store(buckets), self.vectors("queries"), *words])
            return told | {"output": [json.loads(line) for line in told["output"].splitlines()]}

        told = self.ledger.measured(json.dumps([what, buckets, *words]), measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told

    def printed(self, what: str, buckets: int | None, *names: str, **named: object) -> list[Record]:
        """Runs the program. Returns only the records that it printed."""
        return self.told(what, buckets, *names, **named)["output"]


def megabytes(count: float) -> str:
    return shown(count / 1e6, 2)


def measured_on(bench: Bench) -> str:
    """Returns a line with the machine, since parts may be measured on different ones."""
    return f"{machine()}\n"


def grouping(bench: Bench) -> str:
    """Returns Table II."""
    of = [record for record in bench.printed("plans", PAPER_BUCKETS) if record["what"] == "grouping"]
    body = [[shown(r["queries"], 0), shown(r["groups"], 0), shown(r["bitmap_ms"]), shown(r["hash_ms"])] for r in of]
    return "[Table II] Grouping time, ms.\n\n" + table(["queries", "groups", "bitmaps", "hash tables"], body)


def overlap(bench: Bench) -> str:
    """Returns Figure 3."""
    [r] = [record for record in bench.printed("plans", PAPER_BUCKETS) if record["what"] == "overlap"]
    shares = [f"{100 * r[key]:.0f} %" for key in ("neighbors", "all", "largest")]
    return (
        f"[Figure 3] Fraction of the buckets of two of {r['queries']} queries that both probe: {shares[0]} for neighbors, {shares[1]} "
        f"for any two, {shares[2]} for the two with most in common [more than 60 %].\n"
    )


def borders(bench: Bench) -> str:
    """Returns Figure 5."""
    of = [record for record in bench.printed("plans", PAPER_BUCKETS) if record["what"] == "borders"]
    names = ("grouped", "call", "grouped, by distance", "call-distance")
    body = [[name, shown(100 * r["first"]), shown(100 * r["others"])] for name, r in zip(names, of, strict=True)]
    head = ["order", "hit rate of the first query of a group, %", "of its other queries"]
    words = "[Figure 5] The cache at group boundaries: LRU, 50 entries, theta 0.3; only `call` prefetches.\n\n"
    return words + table(head, body)


def loading(bench: Bench) -> str:
    """Returns Figures 6 and 14."""
    of = [record for record in bench.printed("plans", PAPER_BUCKETS) if record["what"] == "loading"]
    body = [[r["order"], megabytes(r["last"]), shown(r["last"] / r["mean"], 2), shown(r["ms"], 2)] for r in of]
    head = ["order and loaders", "MB of the last of 8 loaders", "times the mean", "ms to load all"]
    return "[Figures 6, 14] Loading the 30 buckets of a query, past the page cache; means of 100 queries.\n\n" + table(head, body)


def hit_rates(bench: Bench) -> str:
    """Returns Figures 9 and 13, and Table III."""
    plans = bench.printed("plans", PAPER_BUCKETS)
    of_orders = [record for record in plans if record["what"] == "orders"]
    parts = ["[Figures 9, 13] Batches of 300 queries by their plans, 100 buckets, 30 probes: hit rate in % (in parentheses, if the use of a "
             "prefetched bucket is a miss), and MB read per query. Rows are orders, columns are caches; theta is 0.3.\n"]
    for size in dict.fromkeys(cache_size(record) for record in of_orders):
        of_size = [record for record in of_orders if cache_size(record) == size]
        caches = list(dict.fromkeys(record["cache"] for record in of_size))
        cells = {(record["order"], record["cache"]): hit_rate(record) for record in of_size}
        body = [[order, *(cells[order, cache] for cache in caches)] for order in dict.fromkeys(record["order"] for record in of_size)]
        parts.append(f"A cache of {size}:\n\n" + table(["order", *caches], body))
    of_thetas = [record for record in plans if record["what"] == "thetas"]
    body = [[cache_size(record), record["order"], str(record["theta"]), hit_rate(record)] for record in of_thetas]
    parts.append("[Table III] The same for theta, with LRU:\n\n" + table(["cache of", "order", "theta", "hit rate and MB"], body))
    return "\n".join(parts)


def cache_size(record: Record) -> str:
    """Returns the size of the cache of a plan."""
    [(unit, size)] = record["capacity"].items()
    return f"{size:.0%} of all bytes" if unit == "share" else f"{size} {unit}"


def hit_rate(record: Record) -> str:
    """Returns the hit rates of a plan, and the bytes that it reads."""
    rate, without = (shown(100 * record[key]) for key in ("hit_rate", "hit_rate_without_prefetched"))
    return rate + (f" ({without})" if without != rate else "") + f", {megabytes(record['bytes_per_query'])} MB"


def batch(bench: Bench, buckets: int | None, probes: int, share: float, contender: tuple[str, str]) -> Record:
    """Runs two batches of 1,000 queries. Returns the record of the second one."""
    named = {"nprobe": probes, "share": share, "batches": 2, "memory": MEMORY, "threads": THREADS}
    return bench.printed("batches", buckets, *contender, **named)[-1]


def batches(bench: Bench) -> str:
    """Measures batches of 1,000 queries, which run one after another."""
    body = []
    for buckets, probes in bench.set.settings:
        for share in bench.set.shares:
            # Each comparator reads for minutes, so all of them run with only one size of the cache.
            against = COMPARATORS if share == REPLAYED_SHARE else OF_CALL
            for contender in (OURS, *against):
                last = batch(bench, buckets, probes, share, contender)
                done = last["done"]
                figures = [megabytes(done["bytes_per_query"]), shown(100 * done["hit_rate"]), shown(last["queries_per_second"], 0)]
                body.append([str(buckets or "default"), f"{share:.0%}", *contender, *figures])
    head = ["buckets", "cache", "order", "cache", "MB per query", "hit rate, %", "queries per second"]
    return "The last of 2 batches of 1,000 queries.\n\n" + table(head, body)


def threads(bench: Bench) -> str:
    """Returns Figure 15 and Table IV: gain and cost of more threads, and the fraction of time spent on planning."""
    body = []
    for order, cache in (OURS, OF_CALL[0]):
        for count in (1, 2):
            named = {"nprobe": OUR_PROBES, "share": REPLAYED_SHARE, "batches": 3, "memory": MEMORY, "threads": count}
            told = bench.told("batches", None, order, cache, **named)
            last = told["output"][-1]
            planning = last["done"]["plan_ms_per_query"] * last["queries_per_second"] / 10
            figures = [shown(last["queries_per_second"], 0), megabytes(told["peak_bytes"]), shown(planning)]
            body.append([order, str(count), *figures])
    head = ["order", "threads", "queries per second", "MB resident", "planning, % of the time"]
    return "[Figure 15, Table IV] The last of 3 batches of 1,000 queries, default buckets, a cache of 10%.\n\n" + table(head, body)


def lone(bench: Bench) -> str:
    """Measures how long a query waits if it arrives alone."""
    body = []
    for buckets, probes in bench.set.settings:
        for share in (0, REPLAYED_SHARE):
            [r] = bench.printed("lone", buckets, nprobe=probes, share=share, memory=MEMORY, threads=THREADS)
            times = [r[which][key] for key in ("p50", "p99") for which in ("served_ms", "direct_ms")]
            body.append([str(buckets or "default"), f"{share:.0%}", *map(shown, times), shown(times[0] / times[1], 2)])
    head = ["buckets", "cache", "served, p50, ms", "direct, p50", "served, p99", "direct, p99", "served / direct, p50"]
    words = "One query at a time, alternately by the cached search and by a separate search in the same process, which caches nothing.\n\n"
    return words + table(head, body)


def replays(bench: Bench) -> str:
    """Returns Figures 4 and 10 to 13: queries arrive in bursts. Each is timed from its planned arrival."""
    body = []
    for buckets, probes in bench.set.settings:
        alone = [batch(bench, buckets, probes, REPLAYED_SHARE, contender) for contender in COMPARATORS]
        # The rate is rounded to two digits, so that the key of a record stays equal in later runs.
        rate = float(f"{LOAD * max(one['queries_per_second'] for one in alone):.1e}")
        for contender in (OURS, *COMPARATORS):
            named = {"nprobe": probes, "share": REPLAYED_SHARE, "rate": rate, "memory": MEMORY, "threads": THREADS}
            [r] = bench.printed("replay", buckets, *contender, **named)
            times = [shown(r["latency_ms"][key]) for key in ("p50", "p95", "p99", "max")]
            done = r["done"]
            figures = [megabytes(done["bytes_per_query"]), shown(100 * done["hit_rate"])]
            body.append([str(buckets or "default"), shown(rate, 0), *contender, *times, *figures])
    head = ["buckets", "queries per second", "order", "cache", "p50, ms", "p95", "p99", "max", "MB per query", "hit rate, %"]
    words = (
        "30 seconds of arrivals with bursts of three times the rate, after 5 seconds of warm-up, at 80 % of the rate of the best "
        f"comparator's batches; a cache of {REPLAYED_SHARE:.0%} of the data.\n\n"
    )
    return words + table(head, body)


def simulated_arrivals(bench: Bench) -> str:
    """Returns Figures 4 and 10 to 12, and Table III, in simulated time."""
    share = {"share": REPLAYED_SHARE}
    caches = [(PAPER_BUCKETS, PAPER_PROBES, {"entries": PAPER_ENTRIES})]
    caches += [(buckets, probes, share) for buckets, probes in bench.set.settings]
    parts = [WORDS]
    for buckets, probes, cache in caches:
        records = bench.printed("simulated", buckets, nprobe=probes, **cache)
        size = f"a cache of {PAPER_ENTRIES} buckets" if "entries" in cache else f"a cache of {REPLAYED_SHARE:.0%}"
        title = f"{bench.work.name}-{buckets or 'default'}-{next(iter(cache))}"
        parts.append(simulated(title, f"{buckets or 'default'} buckets, {probes} probes, {size}", records))
    return "\n".join(parts)


def others(bench: Bench) -> Beside:
    """Returns the vectors that other contenders get, too."""
    base, queries = bench.vectors("base"), bench.vectors("queries")
    return Beside(bench.adjoin, base, queries, bench.store(None), bench.ledger.measured)


def peers(bench: Bench) -> str:
    """Compares the service with faiss, with its lists on disk, and with a graph index."""
    return beside(others(bench))


def called(bench: Bench) -> str:
    """Measures calls of one query each from Python."""
    return calls(others(bench))


def overloaded(bench: Bench) -> str:
    """Overloads a server."""
    return overload(bench.adjoin, bench.store(None), bench.vectors("queries"), bench.ledger.measured)


PARTS = {
    "Plans": [measured_on, grouping, overlap, borders, loading, hit_rates],
    "Batches": [batches, threads],
    "Single queries": [lone],
    "Arrivals": [replays],
    "Simulated arrivals": [simulated_arrivals],
    "Comparison with others": [peers],
    "Calls from Python": [called],
    "Overload": [overloaded],
    "Other servers": [served_peers],
}
INTRODUCTION = "Generated by `lab/bench/serve.py`. Brackets name the figure or table of CALL that a table reproduces."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--set", choices=SETS, help="all of them where not given")
    parser.add_argument("--only", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    asked = parser.parse_args()
    # If all parts are measured, nothing is copied, and the page names this machine.
    page = read_page(asked.page) if asked.only else ""
    print(page.split("\n## ", 1)[0] or f"# Serving\n\n{INTRODUCTION}\n\n{machine()}\n")
    for asked.set in [asked.set] if asked.set else list(SETS):
        print(f"## {asked.set}\n", flush=True)
        bench = Bench(asked)
        parts = {heading: [partial(table, bench) for table in PARTS[heading]] for heading in SETS[asked.set].parts}
        print_parts(3, parts, asked.only, kept(page, 2, asked.set))
    return 0


if __name__ == "__main__":
    sys.exit(main())
