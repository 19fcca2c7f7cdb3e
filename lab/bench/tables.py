#!/usr/bin/env python3
"""Repeats DiskJoin's evaluation (sections 6.3 and 6.4) on a set of image descriptors.

usage: tables.py ADJOIN [--work DIR]

Prints Markdown. Measurements are kept in WORK/tables.jsonl and are not repeated. Needs ADJOIN_DATA with
sift-900k.u8bin. In the paper, the memory is a fraction of the data. Here, the cache of buckets gets that fraction
(`--cache`). `joins.py` has Figures 7 and 13 (other joins, two sets). `diskjoin.py` has the figures that are measured on
other sets: 9 (with the memory of the process), 14 and 18, and the seeds of section 6.3.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measure import Failed, Ledger, Record, run

RECALLS = (0.8, 0.9, 0.95, 0.99)
CACHES = (5, 10, 15, 20)


@dataclass(frozen=True)
class VectorSet:
    """A set of image descriptors of 128 bytes."""

    file: str
    rows: int
    #: Thresholds, each under the number of neighbors that a vector has there on average.
    eps: dict[int, float]


LARGE = VectorSet("sift-900k.u8bin", 900_000, {10: 79.793, 50: 136.602, 100: 163.884, 200: 193.111, 500: 234.687})
SMALL = VectorSet("sift-200k.u8bin", 200_000, {10: 126.566, 100: 226.555})


@dataclass(frozen=True)
class Run:
    """A join of a store: its label in the table, and how its options differ from the default."""

    label: str
    neighbors: int = 100
    recall: float = 0.9
    cache_percent: int = 10
    strategy: str = ""
    build: tuple[str, ...] = ()

    def key(self) -> str:
        return json.dumps([self.neighbors, self.recall, self.cache_percent, self.strategy, self.build])


def seconds(phase: str) -> Callable[[Record], str]:
    return lambda told: f"{told['stats']['seconds'][phase]:.2f}"


def recalls(told: Record) -> str:
    reached = told["stats"]["recall"]
    return f"{reached['pair']['estimate']:.3f} / {reached['per_vector']['estimate']:.3f}"


def passes(told: Record) -> str:
    """Returns the number of bytes that the run itself reads, as a multiple of the size of the store."""
    return f"{told['stats']['predicted']['bytes_read'] / told['store_bytes']:.2f}"


def a_vector(count: str) -> Callable[[Record], str]:
    return lambda told: f"{told['stats']['join'][count] / told['stats']['rows']:.1f}"


def waiting(told: Record) -> str:
    spent, threads = told["stats"]["seconds"], told["stats"]["threads"]
    return f"{spent['compute_waited_for_disk'] / threads / max(spent['execute'], 1e-9):.0%}"


#: Columns of a table. Each has a title, and a function that returns its value for a run.
COLUMNS: dict[str, Callable[[Record], str]] = {
    "seconds": lambda told: f"{told['seconds']:.2f}",
    "CPU seconds": lambda told: f"{told['cpu_seconds']:.2f}",
    "build": lambda told: f"{told['build_seconds']:.2f}",
    "calibrate": seconds("calibrate"),
    "plan": seconds("plan"),
    "execute": seconds("execute"),
    "waiting for the disk": waiting,
    "pairs checked per vector": a_vector("verified_pairs"),
    "edges": lambda told: f"{told['stats']['join']['edges']:,}",
    "recall of pairs / per vector": recalls,
    "times the store was read": passes,
    "hit rate": lambda told: f"{told['stats']['io']['cache_hit_rate']:.3f}",
    "read amplification": lambda told: f"{told['stats']['io']['read_amplification']:.4f}",
    "GB read": lambda told: f"{told['stats']['io']['bytes_read'] / 1e9:.2f}",
    "peak memory": lambda told: f"{told['peak_bytes'] / 1e6:.0f} MB",
}


@dataclass(frozen=True)
class Figure:
    """A figure of the paper as a table: its title, its columns and its runs."""

    title: str
    columns: tuple[str, ...]
    runs: tuple[Run, ...]


BOTH = (10, 100)
PHASES = ("calibrate", "plan", "execute")
WAYS = ("id lru", "id lfu", "id fifo", "id belady", "gorder-out belady", "gorder belady", "rcm belady", "tree belady", "block-nested belady")
SHARES = (0.1, 0.2, 0.4, 1, 5)
FIGURES = (
    Figure(
        "Figure 8: target recall",
        ("seconds", *PHASES, "pairs checked per vector", "recall of pairs / per vector", "times the store was read"),
        tuple(Run(f"{n} neighbors, {recall}", n, recall) for n in BOTH for recall in RECALLS),
    ),
    Figure(
        "Figure 9: memory, as a cache of a percentage of the store",
        ("seconds", "execute", "times the store was read", "hit rate", "peak memory"),
        tuple(Run(f"{n} neighbors, {cache} %", n, cache_percent=cache) for n in BOTH for cache in CACHES),
    ),
    Figure(
        "Figure 10: distance threshold",
        ("seconds", *PHASES, "pairs checked per vector", "recall of pairs / per vector"),
        tuple(Run(f"{n} neighbors", n) for n in LARGE.eps),
    ),
    Figure(
        "Figure 11: number of buckets, as a percentage of the vectors",
        ("build", "seconds", "pairs checked per vector", "edges", "times the store was read", "read amplification"),
        tuple(Run(f"{share} %", build=(f"buckets={int(LARGE.rows * share / 100)}",)) for share in SHARES),
    ),
    Figure(
        "Figures 1, 12 and 15: time by phase, and the fraction that waits for the disk",
        ("build", *PHASES, "waiting for the disk"),
        tuple(Run(f"{n} neighbors", n) for n in BOTH),
    ),
    Figure(
        "Figure 16: traffic",
        ("GB read", "read amplification", "times the store was read"),
        tuple(Run(f"{n} neighbors", n) for n in BOTH),
    ),
    Figure(
        "Figure 17: order of the tasks and cache",
        ("execute", "hit rate", "times the store was read"),
        tuple(
            Run(f"recall {recall}, {order} + {cache}", recall=recall, strategy=f"rule=union order={order} caching={cache}")
            for recall in (0.9, 0.99)
            for order, cache in map(str.split, WAYS)
        ),
    ),
)


def named(options: list[str]) -> list[str]:
    """Converts options of a command to the form that the laboratory reads."""
    return [f"{option.removeprefix('--')}={value}" for option, value in zip(options[::2], options[1::2])]


class Bench:
    """Builds each store once, and runs each join once."""

    def __init__(self, adjoin: Path, work: Path, vectors: VectorSet) -> None:
        self.adjoin, self.lab, self.work, self.vectors = adjoin, adjoin.parent / "adjoin-lab", work, vectors
        self.source = Path(os.environ.get("ADJOIN_DATA", "")) / vectors.file
        if "ADJOIN_DATA" not in os.environ or not self.source.exists():
            raise Failed(f"{vectors.file} is not in ADJOIN_DATA")
        self.ledger = Ledger(work / "tables.jsonl")

    def built(self, options: tuple[str, ...]) -> Record:
        def build() -> Record:
            store = self.work / "store"
            told = run([self.lab, "build", self.source, store, *options])
            self.options = options
            return told | {"store_bytes": sum(path.stat().st_size for path in store.glob("vectors-*"))}

        key = json.dumps(["build", options])
        if key in self.ledger.records and getattr(self, "options", None) != options:
            build()
        return self.ledger.measured(key, build)

    def joined(self, asked: Run) -> Record:
        def join() -> Record:
            built, stats = self.built(asked.build), self.work / "stats.json"
            near = ["--eps", str(self.vectors.eps[asked.neighbors]), "--recall", str(asked.recall)]
            cache = ["--cache", str(int(built["store_bytes"] * asked.cache_percent / 100)), "--memory", "4GiB"]
            counts = self.work / "counts.parquet"
            output = ["--result", "counts", "-o", counts, "--stats", stats, "--force", "--quiet"]
            command = [self.adjoin, "join", self.work / "store", *near, *cache, *output]
            if asked.strategy:
                command = [self.lab, "join", self.work / "store", *asked.strategy.split(), *named(near + cache)]
                command += [f"counts={counts}", f"stats={stats}"]
            told = run(command)
            told["stats"] = json.loads(stats.read_text())
            told["stats"]["memory"].pop("over_time", None)
            return told | {"build_seconds": built["seconds"], "store_bytes": built["store_bytes"]}

        print(asked.label, file=sys.stderr)
        return self.ledger.measured(asked.key(), join)

    def table(self, figure: Figure) -> str:
        """Returns a figure with its title."""
        return f"### {figure.title}\n\n{self.rows(figure)}"

    def rows(self, figure: Figure) -> str:
        lines = [f"| | {' | '.join(figure.columns)} |", "|---" * (len(figure.columns) + 1) + "|"]
        for asked in figure.runs:
            told = self.joined(asked)
            cells = ["refused: " + told["failed"]] if "failed" in told else [COLUMNS[name](told) for name in figure.columns]
            lines.append(f"| {asked.label} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    asked = parser.parse_args()
    bench = Bench(asked.adjoin.resolve(), asked.work, LARGE)
    print("## The figures of DiskJoin\n")
    print("Joins of a store of 900,000 image descriptors, 128 bytes each; recall 0.9 and 100 neighbors unless stated.\n")
    for figure in FIGURES:
        print(bench.table(figure), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
