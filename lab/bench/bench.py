#!/usr/bin/env python3
"""Compares adjoin with other tools for the same job, and with the limits of the machine.

usage: bench.py ADJOIN [--rounds N] [--only WORD] [--work DIR]

Contenders take turns within a round. Measurements are kept in WORK/bench.jsonl and are not repeated, so an interrupted
run resumes; remove the file to start again. Peers run if PEERS_PYTHON, by default this Python, has their packages
(faiss-cpu, usearch, hnswlib, semhash). DiskJoin's program is fetched and built (`peer_diskjoin.py`). Without ADJOIN_DATA,
only generated vectors are joined.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peer_diskjoin
from limits import Rates, ideal_seconds, measure_rates, roofline_seconds
from measure import Failed, Ledger, Record, machine, median, run, spread

THREADS = 2
#: Seconds after which a peer gets no more queries; its time for all queries is then extrapolated.
PATIENCE = 60.0


@dataclass(frozen=True)
class Job:
    """A join that all contenders run: its vectors, threshold, target recall and memory."""

    name: str
    words: str
    vectors: Callable[[Sets], Path]
    metric: str
    threshold: float
    memory: str
    contenders: tuple[str, ...]
    #: Target recall; with None, adjoin uses its default.
    recall: float | None = None

    def options(self) -> list[str]:
        near = ["--eps" if self.metric == "l2" else "--min-similarity", str(self.threshold)]
        found = {None: [], 1.0: ["--exact"]}.get(self.recall, ["--recall", str(self.recall)])
        return [*near, *found, "--memory", self.memory, "--threads", str(THREADS)]


class Sets:
    """Files of vectors. Generated files are created on first use."""

    def __init__(self, adjoin: Path, work: Path) -> None:
        self.adjoin, self.work = adjoin, work
        self.real = Path(os.environ["ADJOIN_DATA"]) if "ADJOIN_DATA" in os.environ else None

    def real_set(self, name: str) -> Path:
        if self.real is None or not (self.real / name).exists():
            raise Failed(f"{name} is not in ADJOIN_DATA")
        return self.real / name

    def generated(self, rows: int, dimensions: int, element: str) -> Path:
        suffix = {"u8": "u8bin"}.get(element, "npy")
        path = self.work / f"gen-{rows}x{dimensions}.{element}.{suffix}"
        if not path.exists():
            shape = ["--rows", str(rows), "--dimensions", str(dimensions), "--element", element]
            run([self.adjoin, "gen", *shape, "-o", path, "--quiet"])
        return path

    def as_floats(self, bytes_path: Path) -> Path:
        """Returns a copy with f32 elements, for programs that read no other type."""
        path = self.work / (bytes_path.stem + ".fbin")
        if not path.exists():
            with bytes_path.open("rb") as source, path.open("wb") as target:
                target.write(source.read(8))
                while block := source.read(1 << 20):
                    target.write(struct.pack(f"<{len(block)}f", *block))
        return path


SIFT = "900,000 image descriptors, 128 bytes"
TEXTS = "30,000 text embeddings, 384 halves"
GRAPHS = ("usearch", "hnswlib")


def sift(sets: Sets) -> Path:
    return sets.real_set("sift-900k.u8bin")


def texts(sets: Sets) -> Path:
    return sets.real_set("debdesc.f16.npy")


def many_texts(sets: Sets) -> Path:
    return sets.generated(200_000, 384, "f16")


def wide(sets: Sets) -> Path:
    return sets.generated(1_000_000, 768, "f16")


def long(sets: Sets) -> Path:
    return sets.generated(10_000_000, 128, "u8")


ON_DISK = ("adjoin", "adjoin-pairs", "adjoin-f32", "diskjoin", "faiss-ivf")
SCANS = ("adjoin", "numpy", "faiss-flat")
JOBS = (
    Job("sift-10", f"{SIFT}, 10 neighbors", sift, "l2", 79.793, "64MiB", ON_DISK, 0.9),
    Job("sift-100", f"{SIFT}, 100 neighbors", sift, "l2", 163.884, "64MiB", ON_DISK, 0.9),
    Job("sift-10-all", f"{SIFT}, 10 neighbors, every pair", sift, "l2", 79.793, "128MiB", SCANS, 1.0),
    Job("sift-100-all", f"{SIFT}, 100 neighbors, every pair", sift, "l2", 163.884, "128MiB", SCANS, 1.0),
    Job("texts", f"{TEXTS}, cosine 0.9", texts, "cosine", 0.9, "256MB", (*SCANS, *GRAPHS, "semhash")),
    Job("gen-200k-10", "200,000 x 384 halves, generated, 10 neighbors", many_texts, "cosine", 0.95, "256MB", SCANS),
    Job("gen-200k-100", "200,000 x 384 halves, generated, 100 neighbors", many_texts, "cosine", 0.825, "256MB", SCANS),
    Job("gen-1m-768", "1,000,000 x 768 halves, generated", wide, "cosine", 0.9, "256MB", ("adjoin", "numpy")),
    Job("gen-10m", "10,000,000 x 128 bytes, generated", long, "l2", 150.0, "128MB", ("adjoin",), 0.9),
)


def by_adjoin(sets: Sets, job: Job, output: list[str], vectors: Path) -> Record:
    stats = sets.work / "stats.json"
    told = run([sets.adjoin, "join", vectors, *job.options(), *output, "--stats", stats, "--force", "--quiet"])
    told |= {"stats": json.loads(stats.read_text()), "source_bytes": vectors.stat().st_size}
    told["stats"]["memory"].pop("over_time", None)
    reached = told["stats"]["recall"]
    told["recall"] = {what: reached[what]["estimate"] for what in ("pair", "per_vector")}
    del told["output"]
    return told


def by_diskjoin(sets: Sets, job: Job) -> Record:
    vectors = sets.as_floats(job.vectors(sets))
    return peer_diskjoin.joined(sets.adjoin, vectors, job.threshold, sets.work / "diskjoin", THREADS)


def by_peer(sets: Sets, job: Job, name: str) -> Record:
    asked = {
        "vectors": str(job.vectors(sets)),
        "metric": job.metric,
        "threshold": job.threshold,
        "recall": job.recall or 0.9,
        "threads": THREADS,
        "patience": PATIENCE,
    }
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    told = run([python, Path(__file__).with_name("peer.py"), name, json.dumps(asked)])
    return {"peak_bytes": told["peak_bytes"]} | json.loads(told["output"].strip().splitlines()[-1])


def measure(sets: Sets, job: Job, contender: str) -> Record:
    counts = ["--result", "counts", "-o", str(sets.work / "counts.parquet")]
    if contender == "adjoin":
        return by_adjoin(sets, job, counts, job.vectors(sets))
    if contender == "adjoin-f32":
        return by_adjoin(sets, job, counts, sets.as_floats(job.vectors(sets)))
    if contender == "adjoin-pairs":
        return by_adjoin(sets, job, ["-o", str(sets.work / "pairs.parquet")], job.vectors(sets))
    if contender == "diskjoin":
        return by_diskjoin(sets, job)
    return by_peer(sets, job, contender)


def row(name: str, records: list[Record], ours: float | None) -> str:
    """Returns a contender's line in the table of a job."""
    told = median(records)
    if "failed" in told:
        return f"| {name} | not measured: {told['failed']} | | | | |"
    recall = told.get("recall")
    reached = " / ".join(f"{share:.3f}" for share in recall.values()) if recall else "-"
    notes = [told["version"]] if "version" in told else []
    if "setting" in told:
        notes.append(told["setting"])
    if told.get("queries", 0) < told.get("of", 0):
        notes.append(f"extrapolated from {told['queries'] / told['of']:.1%}")
    if len(records) > 1:
        notes.append(f"largest / smallest {spread(records):.2f}")
    if "stats" in told:
        seconds = told["stats"]["seconds"]
        phases = [phase for phase in ("build", "calibrate", "plan", "execute") if seconds.get(phase)]
        notes.append(", ".join(f"{phase} {seconds[phase]:.2f}" for phase in phases))
    times = f"{told['seconds'] / ours:.1f}" if ours else ""
    memory = f"{told['peak_bytes'] / 1e6:.0f} MB"
    return f"| {name} | {told['seconds']:.2f} | {times} | {memory} | {reached} | {'; '.join(notes)} |"


def limits_line(told: Record, rates: Rates) -> str:
    roofline, ideal = roofline_seconds(told, rates, THREADS), ideal_seconds(told, rates, THREADS)
    seconds = told["seconds"]
    return f"adjoin took {seconds / roofline:.1f} times the roofline of its work ({roofline:.2f} s), {seconds / ideal:.1f} times the ideal ({ideal:.2f} s)."


def table(job: Job, ledger: Ledger, rounds: int, rates: Rates) -> str:
    of = {name: [ledger.records[f"{job.name} {name} {k}"] for k in range(rounds)] for name in job.contenders}
    told = median(of["adjoin"])
    ours = None if "failed" in told else told["seconds"]
    asked = {None: "default recall", 1.0: "every pair"}.get(job.recall, f"both recalls {job.recall}")
    near = f"{'eps' if job.metric == 'l2' else 'cosine'} {job.threshold}"
    lines = [f"### {job.name}: {job.words}", "", f"{near}, {asked}, {job.memory} for adjoin, {THREADS} threads.", ""]
    lines += ["| | seconds | times adjoin's | memory | recall of pairs / per vector | |", "|---|---|---|---|---|---|"]
    lines += [row(name, records, ours) for name, records in of.items()]
    if ours:
        budget = "kept" if told["stats"]["memory"]["budget_bytes"] >= told["peak_bytes"] else "EXCEEDED"
        lines += ["", limits_line(told, rates) + f" Budget, as measured by the system: {budget}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="jobs whose name begins so")
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    asked = parser.parse_args()
    ledger = Ledger(asked.work / "bench.jsonl")
    rates = Rates(**ledger.measured("rates", lambda: measure_rates(asked.adjoin.parent))["rates"])
    jobs = [job for job in JOBS if job.name.startswith(asked.only)]
    sets = Sets(asked.adjoin.resolve(), asked.work)
    print("## adjoin compared with others\n")
    print(f"{machine()} {rates.words()} Seconds cover everything from the source file to the result.\n")
    for job in jobs:
        for number in range(asked.rounds):
            for name in job.contenders:
                print(f"{job.name}: {name}, round {number + 1}", file=sys.stderr)
                ledger.measured(f"{job.name} {name} {number}", lambda: measure(sets, job, name))
        print(table(job, ledger, asked.rounds, rates), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
