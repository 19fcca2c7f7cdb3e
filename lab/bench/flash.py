#!/usr/bin/env python3
"""Measures what other devices gain: repeats the figures of NDSearch with real vectors, runs jobs on all modeled
devices, and compares the model with MQSim.

usage: flash.py ADJOIN [--set NAME] [--rows N] [--queries N] [--list L] [--batch N] [--large] [--disk FOLDER]
                [--work DIR]

A billion vectors fill 15,000 pages of each plane of NDSearch's device, but a set of a million would fit in its page
buffers. So the modeled device is a 32nd of it: one channel with everything that belongs to it (`flash_slice.toml`). The
batch is also a 32nd: 64 queries of 2,048. A soft decision takes as long as in the paper, so that it delays a search by
as much. But a 32nd of NDSearch's four cores is an eighth of a core, and would make only an eighth as many soft
decisions as the one core of the modeled device. So the measured slowdown from failing hard decisions is a lower bound.

Prints Markdown. Results are kept in WORK/flash and are not computed again. Vectors are from ADJOIN_DATA, or generated:
the first rows of a set (all or N) are searched, and the last ones are the queries. `--large` adds 10 million generated
vectors, whose graphs take hours. MQSIM names the program of MQSim for its part (`flash_mqsim.py`). `--disk` measures
the disk of a folder, and replays the traces on it; no other program may use that disk. Charts need matplotlib in
CHARTS_PYTHON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measure import Failed, Ledger, machine, run
from serve import VectorFile

#: Number of queries whose reads are traced.
TRACED = 300
#: The device for which the paper's figures are computed.
SLICE = Path(__file__).with_name("flash_slice.toml")
GRAPHS = ("vamana", "hnsw")
LARGE_ROWS, LARGE_DIMENSIONS = 10_000_000, 128
MEMORY = "12GiB"
#: Threshold and memory of the traced join, and the orders in which its tasks run.
NEAR, JOIN_MEMORY = "120", "40MiB"
ORDERS = ("tree", "block-nested", "gorder", "id")
CHARTS = Path("docs/charts")


@dataclass(frozen=True)
class Bench:
    """A set, and the folder with the files that are computed from it."""

    adjoin: Path
    name: str
    folder: Path
    ledger: Ledger
    rows: int
    queries: int
    list: int
    batch: int

    def path(self, name: str) -> Path:
        return self.folder / f"{self.name}-{name}"

    def call(self, *words: object) -> str:
        return run([self.adjoin, *(str(word) for word in words), "--quiet"])["output"]

    def made(self, name: str, *words: object) -> Path:
        """Returns a file or folder. If it is missing, a command creates it, with its path as the last argument."""
        path = self.path(name)
        if not path.exists():
            self.call(*words, path)
        return path

    def text(self, key: str, *words: object) -> str:
        """Returns the output of a command, or the reason why it failed."""
        return self.printed(key, lambda: self.call(*words))

    def tables(self, key: str, *words: object) -> str:
        """Returns tables that the laboratory prints."""
        program = self.adjoin.parent / "adjoin-lab"
        return self.printed(key, lambda: run([program, "flash-tables", *(str(word) for word in words)])["output"])

    def printed(self, key: str, call: Callable[[], str]) -> str:
        record = self.ledger.measured(f"{self.name} {key}", lambda: {"text": call()})
        return record.get("text") or f"\nFailed: {record['failed']}\n"

    def vectors(self) -> tuple[Path, Path]:
        """Returns the searched vectors and the queries."""
        base, queries = self.path("base.u8bin"), self.path("queries.u8bin")
        if not queries.exists():
            data = Path(os.environ.get("ADJOIN_DATA", ".")) / f"{self.name}.u8bin"
            whole = VectorFile.of(data if data.exists() else self.generated())
            others = whole.rows - self.queries
            whole.write_part(0, min(self.rows or others, others), base)
            whole.write_part(others, self.queries, queries)
        return base, queries

    def generated(self) -> Path:
        rows = LARGE_ROWS if self.name == "generated-10m" else 200_000
        how = ("--rows", rows + self.queries, "--dimensions", LARGE_DIMENSIONS, "--element", "u8", "-o")
        return self.made("all.u8bin", "gen", *how)

    def searched(self, graph: str) -> str:
        """Returns the paper's figures for one kind of graph."""
        base, queries = self.vectors()
        how = (f"graph={graph}", f"list={self.list}", f"batch={self.batch}", f"model={SLICE}", f"memory={MEMORY}")
        return self.tables(graph, base, queries, *how)

    def joined(self, name: str) -> Path:
        """Returns the trace of a join."""
        words = ("join", self.store(), "--eps", NEAR, "--memory", JOIN_MEMORY)
        return self.made(name, *words, "-o", self.path("pairs.csv"), "--force", "--trace")

    def ordered(self, order: str) -> Path:
        """Returns the trace of a join whose tasks run in an order."""
        path = self.path(f"{order}.trace")
        if not path.exists():
            named = (f"eps={NEAR}", f"memory={JOIN_MEMORY}", f"order={order}", f"trace={path}")
            run([self.adjoin.parent / "adjoin-lab", "join", self.store(), *named])
        return path

    def store(self) -> Path:
        return self.made("store", "build", self.vectors()[0], "-o")

    def traces(self) -> list[Path]:
        """Returns the traces of a join, of searches of buckets, and of searches of a graph on disk."""
        base, queries = self.vectors()
        few = self.path("few.u8bin")
        if not few.exists():
            VectorFile.of(queries).write_part(0, TRACED, few)
        store = self.store()
        index = self.made("index", "index", "build", store, "--memory", MEMORY, "-o")
        asked = ("--queries", few, "-k", 10, "-o", self.path("hits.csv"), "--force", "--trace")
        return [
            self.joined("join.trace"),
            self.made("buckets.trace", "search", store, "--nprobe", 8, *asked),
            self.made("graph.trace", "search", index, "--list", 50, *asked),
        ]


def numbers(text: str, title: str) -> list[list[str]]:
    """Returns the rows of the table below a title, starting with the head."""
    part = text.split(f"## {title}", 1)[-1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [rows[0], *rows[2:]] if rows else []


def chart(bench: Bench, of_graph: dict[str, str]) -> str:
    """Draws the gain of LUNs over chips and over an FPGA, by sensing time and by batch size."""
    by_time, by_batch = [], []
    for graph, text in of_graph.items():
        claims, batches = numbers(text, "Claims over the time"), numbers(text, "Figure 19")
        if not claims or not batches:
            return ""
        times = [float(cell.split()[0]) for cell in claims[0][2:-1]]
        for what in ("over smartssd", "over deepstore-chip"):
            values = next(row for row in claims if row[0] == what)[2:-1]
            by_time.append((f"{graph} {what}", list(zip(times, map(float, values)))))
        by_batch.append((f"{graph} over deepstore-chip", [(float(row[0]), float(row[3])) for row in batches[1:]]))
    panels = [
        {"x": "time of sensing, us", "y": "gain of NDSearch", "lines": by_time, "logarithmic": "xy", "from_zero": False},
        {"x": "batch", "y": "gain of NDSearch", "lines": by_batch, "logarithmic": "x", "from_zero": True},
    ]
    path = CHARTS / f"{bench.name}-flash.svg"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"path": str(path), "panels": panels}], file)
        file.flush()
        try:
            run([os.environ.get("CHARTS_PYTHON", sys.executable), Path(__file__).parent / "draw.py", file.name])
        except Failed as reason:
            return f"\nNo chart: {reason}\n"
    return f"\n![Gains of logic in LUNs](charts/{path.name})\n"


def told(bench: Bench) -> None:
    """Prints the section of a set."""
    print(f"\n# {bench.name}\n")
    of_graph = {graph: bench.searched(graph) for graph in GRAPHS}
    print(chart(bench, of_graph))
    for text in of_graph.values():
        print(text.replace("\n## ", "\n### ").replace("# ", "## ", 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--set", default="sift-900k")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--list", type=int, default=48)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    given = parser.parse_args()
    folder = given.work.resolve() / "flash"
    ledger = Ledger(folder / "made.jsonl")
    how = (folder, ledger, given.rows, given.queries, given.list, given.batch)
    names = [given.set, *(["generated-10m"] if given.large else [])]
    benches = [Bench(given.adjoin.resolve(), name, *how) for name in names]
    print(f"# Other devices\n\nGenerated by `lab/bench/flash.py`, which documents the method. Times of devices are computed. Machine: {machine()}")
    for bench in benches:
        told(bench)
    first = benches[0]
    traces = first.traces()
    print("\n# Jobs on all devices\n")
    print(first.tables("jobs", *(f"trace={trace}" for trace in traces)).replace("\n## ", "\n### "))
    print("\n# Other orders of a join on all devices\n")
    ordered = [first.ordered(order) for order in ORDERS]
    print(first.tables("orders", *(f"trace={trace}" for trace in ordered)).replace("\n## ", "\n### "))
    if given.disk:
        print("\n# Comparison with the disk of this machine\n")
        replayed = (word for trace in traces for word in ("--replay", trace))
        calibrated = first.path("disk.toml")
        print("```text\n" + first.text("disk", "flash", "calibrate", given.disk, *replayed, "-o", calibrated, "--force") + "```")
    if "MQSIM" in os.environ:
        print("\n# Comparison with MQSim\n")
        beside = [sys.executable, Path(__file__).parent / "flash_mqsim.py", given.adjoin, *traces, "--work", folder / "mqsim"]
        print(ledger.measured(f"{first.name} mqsim", lambda: run(beside)).get("output", "Failed."))


if __name__ == "__main__":
    try:
        main()
    except Failed as reason:
        sys.exit(f"flash.py: {reason}")
