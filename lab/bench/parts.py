#!/usr/bin/env python3
"""Measures joins in parts, next to the same join on one machine, and clusters of many pairs.

usage: parts.py ADJOIN [--only WORD,...] [--work DIR]

Prints Markdown. Measurements are kept in WORK/parts/parts.jsonl and are not repeated. Needs ADJOIN_DATA with
sift-900k.u8bin and debdesc.f16.npy. `parts_s3.py` has the joins in a bucket, which need moto[server] in
PEERS_PYTHON, and `edges.py` the clusters, which need duckdb, polars, scipy and pyarrow there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import edges
import parts_s3
from at_recall import THREADS, shown, table
from bench import Sets
from measure import Failed, Ledger, Record, arguments, machine, print_parts, run
from tables import LARGE

PARTS = (1, 2, 4, 8)
RESULTS = ("pairs", "clusters", "removed")
#: Bounds that a division in parts should keep: bytes read and balance relative to one machine and to the mean, and the
#: ratio of measured and predicted seconds, either way.
READS_MAX, BALANCE_MAX, SECONDS_MAX = 1.3, 1.2, 1.5


@dataclass(frozen=True)
class Job:
    """A join that runs on one machine and in parts."""

    name: str
    words: str
    near: tuple[str, ...]
    #: Budget of the join on one machine and of the plan.
    memory: str
    build: tuple[str, ...] = ()

    def vectors(self, sets: Sets) -> Path:
        if self.name.startswith("gen"):
            return sets.generated(10_000_000, 128, "u8")
        return sets.real_set(self.name)


JOBS = (
    Job("debdesc.f16.npy", "30,000 texts, cosine", ("--min-similarity", "0.9"), "128MB", ("--metric", "cosine")),
    Job("sift-900k.u8bin", "900,000 image descriptors", ("--eps", str(LARGE.eps[10]), "--recall", "0.9"), "256MB"),
    Job("gen-10m", "10 million generated vectors", ("--eps", "48.26", "--recall", "0.9"), "1GB"),
)


class Bench:
    """Runs joins, and keeps their figures."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.adjoin, self.work = asked.adjoin.resolve(), asked.work.resolve() / "parts"
        self.ledger = Ledger(self.work / "parts.jsonl")
        self.sets = Sets(self.adjoin, self.work)

    def store(self, job: Job) -> Path:
        store = self.work / f"{job.name}.store"
        if not store.exists():
            run([self.adjoin, "build", job.vectors(self.sets), "-o", store, *job.build, "--quiet"])
        return store

    def ran(self, *words: object) -> Record:
        """Runs a command of the program. The record has its statistics."""
        stats = self.work / "stats.json"
        told = run([self.adjoin, *map(str, words), "--threads", str(THREADS), "--stats", stats, "--force", "--quiet"])
        told["stats"] = json.loads(stats.read_text())
        told["stats"]["memory"].pop("over_time", None)
        return told

    def ran_plain(self, *words: object) -> Record:
        """Runs a command of the program that need not write statistics."""
        return run([self.adjoin, *map(str, words), "--force", "--quiet"])

    def digest_of(self, *words: object, is_sorted: bool = True) -> tuple[Record, str]:
        """Runs a command that writes a table. Returns its record, and a digest of the rows in the order of a merge."""
        path = self.work / "result.csv"
        told = self.ran(*words, "-o", path)
        if not is_sorted:
            sort_by_rows(path, self.work)
        digest = digest_of_file(path)
        path.unlink()
        return told, digest

    def on_one_machine(self, job: Job) -> Record:
        """Returns the figures of the join for pairs, and the digest of each result."""

        def measure() -> Record:
            told, digests = {}, {}
            for result in RESULTS:
                join = ("join", self.store(job), *job.near, "--memory", job.memory, "--result", result)
                ran, digests[result] = self.digest_of(*join, is_sorted=result != "pairs")
                told = told or ran
            return told | {"digests": digests}

        return self.whole(f"one {job.name}", measure)

    def in_parts(self, job: Job, parts: int) -> Record:
        """Plans the join, runs each part twice, in any order, and merges. Each part gets the memory that the plan
        states. Returns the figures of all steps, and the digest of each result."""

        def measure() -> Record:
            plan, folder = self.work / "join.plan", self.work / "join.parts"
            shutil.rmtree(folder, ignore_errors=True)
            planned = self.ran("plan", self.store(job), *job.near, "--memory", job.memory, "--parts", parts, "-o", plan)
            facts, runs, written = planned["stats"]["plan"]["parts"], [], {}
            order = [*range(1, parts + 1)] * 2
            random.Random(parts).shuffle(order)
            for number in order:
                memory = facts[number - 1]["memory_bytes"]
                told = self.ran("run-part", plan, "--part", f"{number}/{parts}", "--memory", memory, "-o", folder)
                runs.append(told | {"part": number, "predicted": facts[number - 1]["seconds"], "memory": memory})
                written.setdefault(number, set()).add(digest_of_file(folder / f"part-{number:05}-of-{parts:05}"))
            merge = ("merge", plan, folder, "--memory", job.memory, "--result")
            merged = {result: self.digest_of(*merge, result) for result in RESULTS}
            return {
                "seconds": planned["seconds"],
                "plan": planned["stats"],
                "runs": runs,
                "repeated": all(len(digests) == 1 for digests in written.values()),
                "merge_seconds": merged["pairs"][0]["seconds"],
                "digests": {result: digest for result, (_, digest) in merged.items()},
            }

        return self.whole(f"{parts} parts of {job.name}", measure)

    def whole(self, key: str, measure: Callable[[], Record]) -> Record:
        """Returns the record of a key; measures it if it is missing. Fails if the measurement failed."""
        told = self.ledger.measured(key, measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told


def sort_by_rows(path: Path, temporary: Path) -> None:
    """Sorts a table of pairs, as CSV, by the row numbers of both rows."""
    unsorted = path.rename(path.with_suffix(".unsorted"))
    sort = ["sort", "-n", "-t,", "-k1,1", "-k2,2", "-S", "1G", "-T", str(temporary)]
    with path.open("wb", buffering=0) as out, unsorted.open("rb", buffering=0) as rows:
        out.write(rows.readline())
        subprocess.run(sort, stdin=rows, stdout=out, env=os.environ | {"LC_ALL": "C"}, check=True)
    unsorted.unlink()


def digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def firsts(told: Record) -> list[Record]:
    """Returns the first run of each part."""
    return list({one["part"]: one for one in reversed(told["runs"])}.values())


def reads(told: Record, one: Record) -> tuple[float, float]:
    """Returns the bytes that all parts read relative to the join after its plan, and the bytes of plan and parts relative
    to the whole join."""
    of_parts = sum(run["stats"]["io"]["bytes_read"] for run in firsts(told))
    planned, whole_join = told["plan"]["io"]["bytes_read"], one["stats"]["io"]["bytes_read"]
    return of_parts / told["plan"]["plan"]["read_bytes_of_one_machine"], (planned + of_parts) / whole_join


def balance(told: Record) -> float:
    """Returns the seconds of the slowest part relative to the mean."""
    seconds = [run["seconds"] for run in firsts(told)]
    return max(seconds) * len(seconds) / sum(seconds)


def marked(value: float, limit: float, digits: int = 2) -> str:
    """Formats a figure, in bold if it is over its bound."""
    return f"{value:.{digits}f}" if value <= limit else f"**{value:.{digits}f}**"


def row(told: Record, one: Record) -> list[str]:
    equal = [result for result in RESULTS if told["digests"][result] == one["digests"][result]]
    off = [max(run["seconds"] / run["predicted"], run["predicted"] / run["seconds"]) for run in told["runs"]]
    of_parts, of_all = reads(told, one)
    spent = [run["seconds"] for run in told["runs"]]
    predicted = [run["predicted"] for run in told["runs"]]
    return [
        f"{len(told['plan']['plan']['parts'])}",
        "yes" if len(equal) == len(RESULTS) else f"**only {', '.join(equal) or 'nothing'}**",
        "yes" if told["repeated"] else "**no**",
        marked(of_parts, READS_MAX),
        marked(of_all, READS_MAX),
        marked(told["plan"]["plan"]["balance"], BALANCE_MAX),
        marked(balance(told), BALANCE_MAX),
        f"{min(predicted):.2f} to {max(predicted):.2f}",
        f"{min(spent):.2f} to {max(spent):.2f}",
        marked(max(off), SECONDS_MAX),
        shown(max(run["memory"] for run in told["runs"]) / 1e6, 0),
        marked(max(run["peak_bytes"] / run["memory"] for run in told["runs"]), 1),
        shown(told["seconds"], 1),
        shown(told["merge_seconds"], 1),
    ]


HEAD = ["parts", "equal results", "equal when run twice", "reads of parts", "reads of plan and parts"]
HEAD += ["balance of comparisons", "balance of seconds", "predicted s per part", "measured s per part", "off by"]
HEAD += ["memory of a part, MB", "peak / memory", "plan s", "merge s"]


def joins(bench: Bench, job: Job) -> str:
    one = bench.on_one_machine(job)
    rows = [row(bench.in_parts(job, parts), one) for parts in PARTS]
    stats = one["stats"]
    cost = f"{one['seconds']:.1f} s, {stats['io']['bytes_read'] / 1e6:,.0f} MB read, peak {one['peak_bytes'] / 1e6:.0f} MB"
    return (
        f"{job.words[0].upper()}{job.words[1:]}, `{' '.join(job.near)} --memory {job.memory}`: {stats['join']['pairs']:,} pairs. On one "
        f"machine: {cost}.\n\n" + table(HEAD, rows)
    )


PARTS_OF_PAGE = {
    "Parts and one machine": {job.name: partial(joins, job=job) for job in JOBS},
    "In a bucket": {"s3": parts_s3.over_s3},
    "Clusters of many pairs": {"edges": edges.clusters},
}
INTRODUCTION = f"""Generated by `make -C lab tables-parts`, which resumes after an interruption. Each join runs on one
machine, and as 1 to {PARTS[-1]} parts on {THREADS} threads. Every part runs twice, in a random order, as a process with
the memory that the plan states for it.

- Equal results: merged pairs, clusters and removed rows have the bytes of one machine's, whose pairs are sorted by row.
- Reads: of parts, relative to the join after its plan; of plan and parts, relative to the whole join with its calibration.
- Balance: largest part relative to the mean, in pairs of rows of the plan, and in seconds.
- Off by: the largest ratio of predicted and measured seconds of any run, either way. The machine did other work as well.
- Peak: largest resident memory of any run, as the system counts it.

Bold figures exceed their bound: reads {READS_MAX}, balance {BALANCE_MAX}, off by {SECONDS_MAX}, peak 1."""


def main() -> int:
    asked = arguments(__doc__)
    bench = Bench(asked)
    print(f"# Joins in parts\n\n{INTRODUCTION}\n\n{machine()}\n")
    words = asked.only.split(",")
    for heading, tables in PARTS_OF_PAGE.items():
        chosen = [partial(table, bench) for name, table in tables.items() if any(word in name for word in words)]
        print_parts(2, {heading: chosen} if chosen else {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
