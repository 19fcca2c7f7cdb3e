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
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import peer_diskjoin
from as_floats import as_floats
from limits import Rates, ideal_seconds, measure_rates, roofline_seconds
from measure import Failed, Ledger, Record, machine, median, run, spread

THREADS = 2
#: Seconds after which a peer gets no more queries; its time for all queries is then extrapolated.
PATIENCE = 60.0
#: A contender whose first round takes more seconds gets no other round.
ONCE = 60.0
#: Number of different random numbers that are added to vectors; it is prime, so as many successive rows get different ones.
NOISE = 10_007


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
    #: Vectors as floats, for contenders that read floats. Generated ones are not rounded to halves.
    floats: Callable[[Sets], Path] | None = None

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

    def as_floats(self, path: Path) -> Path:
        """Returns a copy of a file of bytes with f32 elements."""
        return as_floats(path, self.work / f"{path.stem}.fbin")

    def with_noise(self, path: Path) -> Path:
        """Returns a copy of a file of bytes with f32 elements, each plus a number from -0.5 to 0.5."""
        random = Random(1)
        return as_floats(path, self.work / f"{path.stem}.noise.fbin", [random.random() - 0.5 for _ in range(NOISE)])


SIFT = "900,000 image descriptors, 128 bytes"
NOISY = "900,000 image descriptors with noise, 128 floats"
TEXTS = "30,000 text embeddings, 384 halves"
GRAPHS = ("usearch", "hnswlib")


def sift(sets: Sets) -> Path:
    return sets.real_set("sift-900k.u8bin")


def sift_as_floats(sets: Sets) -> Path:
    return sets.as_floats(sift(sets))


def sift_with_noise(sets: Sets) -> Path:
    return sets.with_noise(sift(sets))


def texts(sets: Sets) -> Path:
    return sets.real_set("debdesc.f16.npy")


def many_texts(sets: Sets) -> Path:
    return sets.generated(200_000, 384, "f16")


def many_texts_as_floats(sets: Sets) -> Path:
    return sets.generated(200_000, 384, "f32")


def wide(sets: Sets) -> Path:
    return sets.generated(1_000_000, 768, "f16")


def wide_as_floats(sets: Sets) -> Path:
    return sets.generated(1_000_000, 768, "f32")


def long(sets: Sets) -> Path:
    return sets.generated(10_000_000, 128, "u8")


ON_DISK = ("adjoin", "adjoin-avx2", "adjoin-pairs", "adjoin-f32", "adjoin-f32-avx2", "diskjoin", "faiss-ivf")
OF_FLOATS = ("adjoin", "adjoin-avx2", "diskjoin")
SCANS = ("adjoin", "numpy", "faiss-flat")
BOTH = ("adjoin", "adjoin-f32", "numpy", "faiss-flat")
JOBS = (
    Job("sift-10", f"{SIFT}, 10 neighbors", sift, "l2", 79.793, "64MiB", ON_DISK, 0.9, sift_as_floats),
    Job("sift-100", f"{SIFT}, 100 neighbors", sift, "l2", 163.884, "64MiB", ON_DISK, 0.9, sift_as_floats),
    Job("noise-10", f"{NOISY}, 10 neighbors", sift_with_noise, "l2", 79.93, "64MiB", OF_FLOATS, 0.9),
    Job("noise-100", f"{NOISY}, 100 neighbors", sift_with_noise, "l2", 163.95, "64MiB", OF_FLOATS, 0.9),
    Job("sift-10-all", f"{SIFT}, 10 neighbors, every pair", sift, "l2", 79.793, "128MiB", SCANS, 1.0),
    Job("sift-100-all", f"{SIFT}, 100 neighbors, every pair", sift, "l2", 163.884, "128MiB", SCANS, 1.0),
    Job("texts", f"{TEXTS}, cosine 0.9", texts, "cosine", 0.9, "256MB", ("adjoin-avx2", *SCANS, "numpy-avx2", *GRAPHS, "semhash")),
    Job("gen-200k-10", "200,000 x 384 halves, generated, 10 neighbors", many_texts, "cosine", 0.95, "256MB", BOTH, floats=many_texts_as_floats),
    Job("gen-200k-100", "200,000 x 384 halves, generated, 100 neighbors", many_texts, "cosine", 0.825, "256MB", BOTH, floats=many_texts_as_floats),
    Job("gen-1m-768", "1,000,000 x 768 halves, generated", wide, "cosine", 0.9, "256MB", ("adjoin", "adjoin-f32", "numpy"), floats=wide_as_floats),
    Job("gen-10m", "10,000,000 x 128 bytes, generated, 100 neighbors", long, "l2", 82.5, "128MB", ("adjoin",), 0.9),
)


def by_adjoin(sets: Sets, job: Job, variant: list[str]) -> Record:
    """Runs adjoin. Words of `variant`: `pairs` (writes pairs instead of counts), `f32` (from a file of floats), and `avx2`
    (uses these instructions only)."""
    stats, of_floats = sets.work / "stats.json", job.floats if "f32" in variant else None
    vectors = (of_floats or job.vectors)(sets)
    counts: list[str | Path] = ["--result", "counts", "-o", sets.work / "counts.parquet"]
    output = ["-o", sets.work / "pairs.parquet"] if "pairs" in variant else counts
    if "avx2" in variant:
        output += ["--kernel", "avx2"]
    told = run([sets.adjoin, "join", vectors, *job.options(), *output, "--stats", stats, "--force", "--quiet"])
    told |= {"stats": json.loads(stats.read_text()), "source_bytes": vectors.stat().st_size}
    told["stats"]["memory"].pop("over_time", None)
    reached = told["stats"]["recall"]
    told["recall"] = {what: reached[what]["estimate"] for what in ("pair", "per_vector")}
    del told["output"]
    return told


def by_diskjoin(sets: Sets, job: Job) -> Record:
    vectors = (job.floats or job.vectors)(sets)
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
    name, *variant = name.split("-avx2")
    # The library that multiplies matrices for numpy (OpenBLAS) then uses AVX2 and nothing newer.
    environment = ["env", "OPENBLAS_CORETYPE=Haswell"] if variant else []
    told = run([*environment, python, Path(__file__).with_name("peer.py"), name, json.dumps(asked)])
    return {"peak_bytes": told["peak_bytes"]} | json.loads(told["output"].strip().splitlines()[-1])


def measure(sets: Sets, job: Job, contender: str) -> Record:
    name, *variant = contender.split("-")
    if name == "adjoin":
        return by_adjoin(sets, job, variant)
    return by_diskjoin(sets, job) if contender == "diskjoin" else by_peer(sets, job, contender)


def rounds_of(sets: Sets, job: Job, ledger: Ledger, rounds: int) -> dict[str, list[Record]]:
    """Returns the records of each contender: one for each round, or one in all if it is slow."""
    records: dict[str, list[Record]] = {name: [] for name in job.contenders}
    for number in range(rounds):
        for name, runs in records.items():
            if number == 0 or runs[0].get("seconds", 0.0) <= ONCE:
                print(f"{job.name}: {name}, round {number + 1}", file=sys.stderr)
                runs.append(ledger.measured(f"{job.name} {name} {number}", lambda: measure(sets, job, name)))
    return records


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


def table(job: Job, of: dict[str, list[Record]], rates: Rates) -> str:
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
        print(table(job, rounds_of(sets, job, ledger, asked.rounds), rates), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
