#!/usr/bin/env python3
"""Compares the search for the nearest neighbors of each row with faiss and hnswlib, at equal recall and in one run.

usage: nearest.py ADJOIN [--rounds N] [--only WORD] [--work DIR]

Prints Markdown. Measurements are kept in WORK/nearest.jsonl and are not repeated. Sets are files of ADJOIN_DATA; peers
run in PEERS_PYTHON, by default this Python, with faiss-cpu, hnswlib, numpy and pyarrow (`nearest_peers.py`). The
contenders take turns in each round, so that other load on the machine affects all of them. The seconds of adjoin cover
the whole command, from the file of vectors to a Parquet file of neighbors. The seconds of a peer start with vectors in
memory, as floats (of length 1 if the metric is cosine), and end with neighbors in memory. Each peer builds several
indexes, and the fastest one counts. CPU seconds are the sum over all threads, and depend less on other load.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from at_recall import THREADS, K, at_recall, shown, table
from measure import Failed, Ledger, Record, machine, run, spread

#: Recall that adjoin promises. Peers increase their effort until they reach the recall that adjoin reached.
RECALL = 0.95
PEERS = {"faiss-ivf": "faiss, IndexIVFFlat", "hnswlib": "hnswlib"}


@dataclass(frozen=True)
class Set:
    """Vectors of ADJOIN_DATA."""

    file: str
    metric: str

    @property
    def name(self) -> str:
        return self.file.split(".")[0]


SETS = (Set("sift-200k.u8bin", "l2"), Set("debdesc.f16.npy", "cosine"), Set("sift-900k.u8bin", "l2"))


class Bench:
    """One set, and the measurements of all contenders that find neighbors in it."""

    def __init__(self, of: Set, adjoin: str, work: Path, rounds: int) -> None:
        self.of, self.adjoin, self.work, self.rounds = of, adjoin, work, rounds
        self.file = Path(os.environ["ADJOIN_DATA"]) / of.file
        self.ledger = Ledger(work / "nearest.jsonl")

    def ask(self, what: str, **job: object) -> Record:
        """Runs a peer in a separate process. Returns its answer, and the cost of the process."""
        python = os.environ.get("PEERS_PYTHON", sys.executable)
        job |= {"file": str(self.file), "metric": self.of.metric, "k": K, "threads": THREADS}
        job |= {"truth": str(self.work / f"{self.of.name}.truth.npy")}
        told = run([python, Path(__file__).with_name("nearest_peers.py"), what, json.dumps(job)])
        answer: Record = json.loads(told.pop("output").strip().splitlines()[-1])
        return told | answer

    def ours(self) -> Record:
        found, stats = self.work / "neighbors.parquet", self.work / "nearest.json"
        wanted = ["--neighbors", str(K), "--recall", str(RECALL), "--metric", self.of.metric, "--threads", str(THREADS)]
        command = [self.adjoin, "join", self.file, *wanted, "-o", found, "--force", "--stats", stats, "--quiet"]
        told = run(command)
        nearest = json.loads(stats.read_text())["nearest"]
        judged = self.ask("judge", found=str(found))["recall"]
        return told | {"recall": judged, "distances": nearest["distances_per_row"]}

    def measured(self, name: str) -> list[Record]:
        """Returns the records of a contender, one per round."""
        measure = self.ours if name == "adjoin" else lambda: self.ask(name, recall=self.reached())
        key = lambda number: f"{self.of.name} {name} {number}"  # noqa: E731
        return [self.ledger.measured(key(number), measure) for number in range(self.rounds)]

    def reached(self) -> float:
        """Returns the recall that adjoin reached. It is equal in all rounds."""
        return float(self.ledger.measured(f"{self.of.name} adjoin 0", self.ours)["recall"])

    def table(self) -> str:
        self.ledger.measured(f"{self.of.name} truth", lambda: self.ask("write-truth"))
        for number in range(self.rounds):
            for name in ("adjoin", *PEERS):
                measure = self.ours if name == "adjoin" else lambda: self.ask(name, recall=self.reached())  # noqa: B023
                self.ledger.measured(f"{self.of.name} {name} {number}", measure)
        ours = self.measured("adjoin")
        if "failed" in ours[0]:
            return f"adjoin: {ours[0]['failed']}\n"
        recall = self.reached()
        rows = [line("adjoin", ours, ours, [f"{ours[0]['distances']:,.0f} distances per row"])]
        for name, words in PEERS.items():
            told = self.measured(name)
            if failed := [one["failed"] for one in told if "failed" in one]:
                rows.append([f"{words}: not measured: {failed[0]}", "", "", "", "", "", ""])
                continue
            reached = [at(one, recall) for one in told]
            notes = [f"built with {reached[0]['made']}"] if "made" in reached[0] else []
            rows.append(line(f"{words} ({told[0]['version']})", reached, ours, notes))
        head = ["", "seconds", "CPU s", "times adjoin's seconds", "times its CPU", "MB", "spread"]
        words = f"{self.of.name}, {self.of.metric}: {K} neighbors per row at a recall of {recall:.4f}, {THREADS} threads."
        return f"{words}\n\n{table(head, rows)}"


def at(told: Record, recall: float) -> Record:
    """Returns what it costs a peer to reach a recall: the time to build an index and to search it. Interpolates between
    the two efforts around the recall, or takes the smallest effort if that already exceeds the recall. Of the peer's
    indexes, the one that takes the fewest CPU seconds counts."""
    ways = []
    for made in {point["made"] for point in told["points"]}:
        points = [point for point in told["points"] if point["made"] == made]
        if points[0]["recall"] >= recall:
            ways.append(points[0])
        elif points[-1]["recall"] >= recall:
            figures = {name: at_recall(points, recall, name) for name in ("seconds", "cpu_seconds")}
            ways.append({"made": made, **figures})
    return {"peak_bytes": told["peak_bytes"], **min(ways, key=lambda way: float(way["cpu_seconds"]), default={})}


def middle(records: list[Record], figure: str) -> float | None:
    values = sorted(record[figure] for record in records if figure in record)
    return values[(len(values) - 1) // 2] if values else None


def line(words: str, records: list[Record], ours: list[Record], notes: list[str]) -> list[str]:
    """Returns the medians of the rounds."""
    figures = [middle(records, "seconds"), middle(records, "cpu_seconds")]
    beside = [middle(ours, "seconds"), middle(ours, "cpu_seconds")]
    ratios = [shown(a / b, 2) if a is not None and b else "" for a, b in zip(figures, beside)]
    whole = [record for record in records if "seconds" in record]
    peak = max(record["peak_bytes"] for record in records) / 1e6
    said = "; ".join([words, *notes]) if whole else f"{words}: does not reach the recall"
    return [said, *map(shown, figures), *ratios, f"{peak:,.0f}", f"{spread(whole):.2f}" if whole else ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("adjoin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    asked = parser.parse_args()
    print(f"# Nearest neighbors of each row\n\n{machine()}\n")
    for of in SETS:
        if asked.only in of.name:
            try:
                print(Bench(of, os.path.abspath(asked.adjoin), asked.work, asked.rounds).table(), flush=True)
            except Failed as reason:
                print(f"{of.name}: not measured: {reason}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
