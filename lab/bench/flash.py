#!/usr/bin/env python3
"""Measures what other devices gain: repeats the figures of NDSearch with real vectors, runs jobs on all modeled
devices, and compares the model with MQSim.

usage: flash.py ADJOIN [--set NAME] [--rows N] [--whole N] [--large] [--no-jobs] [--disk FOLDER] [--page FILE]
                [--work DIR]

A billion vectors fill 15,000 pages of each plane of NDSearch's device, but a set of a million would fit in its page
buffers. So the modeled device is a 32nd of it: one channel with everything that belongs to it (`flash_slice.toml`). The
batch is also a 32nd: 64 queries of 2,048. A soft decision takes as long as in the paper, so that it delays a search by
as much. But a 32nd of NDSearch's four cores is an eighth of a core, and would make only an eighth as many soft
decisions as the one core of the modeled device. So the measured slowdown from failing hard decisions is a lower bound.
`--whole N` adds the whole device with batches of 2,048 and N queries.

Prints Markdown. Results are kept in WORK/flash and are not computed again. Vectors are from ADJOIN_DATA, or generated:
the first rows of a set (all or N) are searched, and the last ones are the queries. `--large` adds 10 million generated
vectors, whose graphs take hours. MQSIM names the program of MQSim for its part (`flash_mqsim.py`). `--disk` measures
the disk of a folder, and replays the traces on it; no other program may use that disk. These parts, and those of jobs
with `--no-jobs`, are copied from the page FILE if they are not measured. Charts need matplotlib in CHARTS_PYTHON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measure import Failed, Ledger, kept, machine, read_page, run
from serve import VectorFile

#: Number of queries whose reads are traced.
TRACED = 300
#: The device for which the paper's figures are computed.
SLICE = Path(__file__).with_name("flash_slice.toml")
#: Graphs, each with a list length for a recall of 90 to 95 %, to which the paper tunes all sets.
GRAPHS = {"vamana": 40, "hnsw": 48}
#: Queries and batch of the slice. Batch and graphs of the whole device, and tables that are left out there: a run of it
#: takes 32 times as long.
SCALE = (512, 64)
WHOLE_BATCH, WHOLE_GRAPHS, WHOLE_OPTIONS = 2_048, ("vamana",), ("without=link,orders,assumed,errors", "sensing=5,40,106")
LARGE_ROWS, LARGE_DIMENSIONS = 10_000_000, 128
MEMORY = "12GiB"
#: Threshold and memory of the traced join, and the orders in which its tasks run.
NEAR, JOIN_MEMORY = "120", "40MiB"
ORDERS = ("tree", "block-nested", "gorder", "id")
CHARTS = Path("docs/charts")
KEPT = "This part is from an earlier run, on AMD EPYC with two cores."


@dataclass(frozen=True)
class Bench:
    """A set, and the folder with the files that are computed from it."""

    adjoin: Path
    #: Set, and the name of its files and records.
    set: str
    name: str
    folder: Path
    ledger: Ledger
    rows: int
    queries: int
    batch: int
    #: Name or file of the modeled device.
    model: str | Path = SLICE
    graphs: tuple[str, ...] = tuple(GRAPHS)
    #: Further options of the tables.
    options: tuple[str, ...] = ()

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
            data = Path(os.environ.get("ADJOIN_DATA", ".")) / f"{self.set}.u8bin"
            whole = VectorFile.of(data if data.exists() else self.generated())
            others = whole.rows - self.queries
            whole.write_part(0, min(self.rows or others, others), base)
            whole.write_part(others, self.queries, queries)
        return base, queries

    def generated(self) -> Path:
        rows = LARGE_ROWS if self.set == "generated-10m" else 200_000
        how = ("--rows", rows + self.queries, "--dimensions", LARGE_DIMENSIONS, "--element", "u8", "-o")
        return self.made("all.u8bin", "gen", *how)

    def searched(self, graph: str) -> str:
        """Returns the paper's figures for one kind of graph."""
        base, queries = self.vectors()
        how = (f"graph={graph}", f"list={GRAPHS[graph]}", f"batch={self.batch}", f"model={self.model}", f"memory={MEMORY}", *self.options)
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


def holding(text: str, what: str) -> tuple[str, str]:
    """Returns the value of a claim in the model, and the figures at which it holds."""
    times, causes = (numbers(text, title) for title in ("Claims over the time", "What makes each claim true"))
    of_time = next(row for row in times if row[0] == what)
    usual = [row for row in causes if row[0] == what]
    if of_time[-1] == "more everywhere":
        return usual[0][2], "more at every time of sensing"
    everywhere = {"more everywhere": "from {} to {} and more", "nowhere": ""}
    cells = [(row[3].split(",")[0], everywhere.get(row[-1], row[-1]).format(row[4], row[5])) for row in usual]
    found = [f"{figure}: {cell}" for figure, cell in cells if cell]
    if of_time[-1][0].isdigit():
        found = [f"timing.read: {of_time[-1]}", *found]
    return usual[0][2], "; ".join(found) or "none of the figures tried"


def claims(slice_of: Bench, whole: Bench) -> str:
    """Returns the claims of the paper at both scales."""
    texts = [bench.searched("vamana") for bench in (slice_of, whole)]
    lines = ["| claim | paper, at most | a 32nd | holds with | whole device | holds with |", "| --- " * 6 + "|"]
    causes = numbers(texts[0], "What makes each claim true")
    for what, paper in dict.fromkeys((row[0], row[1]) for row in causes[1:]):
        cells = [cell for text in texts for cell in holding(text, what)]
        lines.append(f"| {' | '.join([what, paper, *cells])} |")
    words = (
        "Factors of NDSearch over other platforms and ways, on Vamana. Each figure is changed alone: the time to sense a page in us, "
        "rates in MB/s, other times in the unit of the figure, the size of the set in percent of the paper's, and the batch in queries."
    )
    return "\n".join(["", words, "", *lines, ""])


def copied(page: Path | None, heading: str) -> str:
    """Returns the part of a page below a heading of the first level, including the heading; empty if there is none."""
    part = kept(read_page(page), 1, heading)
    return part and f"\n# {heading}\n" + ("\n" if KEPT in part else f"\n{KEPT}\n\n") + part


def told(bench: Bench) -> None:
    """Prints the section of a set."""
    print(f"\n# {bench.name}\n")
    of_graph = {graph: bench.searched(graph) for graph in bench.graphs}
    print(chart(bench, of_graph))
    for text in of_graph.values():
        print(text.replace("\n## ", "\n### ").replace("# ", "## ", 1))


def jobs(bench: Bench) -> str:
    """Returns the time of jobs on all devices."""
    return bench.tables("jobs", *(f"trace={trace}" for trace in bench.traces())).replace("\n## ", "\n### ")


def orders(bench: Bench) -> str:
    """Returns the time of orders of a join on all devices."""
    return bench.tables("orders", *(f"trace={bench.ordered(order)}" for order in ORDERS)).replace("\n## ", "\n### ")


def disk(bench: Bench, folder: Path) -> str:
    """Returns a comparison of the model with the disk of a folder."""
    replayed = (word for trace in bench.traces() for word in ("--replay", trace))
    return "```text\n" + bench.text("disk", "flash", "calibrate", folder, *replayed, "-o", bench.path("disk.toml"), "--force") + "```"


def mqsim(bench: Bench) -> str:
    """Returns a comparison of the model with MQSim."""
    beside = [sys.executable, Path(__file__).parent / "flash_mqsim.py", bench.adjoin, *bench.traces(), "--work", bench.folder / "mqsim"]
    return bench.ledger.measured(f"{bench.name} mqsim", lambda: run(beside)).get("output", "Failed.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--set", default="sift-900k")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--whole", type=int, default=0)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--no-jobs", dest="jobs", action="store_false")
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    given = parser.parse_args()
    folder = given.work.resolve() / "flash"
    ledger = Ledger(folder / "made.jsonl")
    adjoin, how = given.adjoin.resolve(), (folder, ledger, given.rows)
    benches = [Bench(adjoin, name, name, *how, *SCALE) for name in (given.set, *(["generated-10m"] if given.large else []))]
    whole = Bench(adjoin, given.set, f"{given.set}-whole", *how, given.whole, WHOLE_BATCH, "ndsearch", WHOLE_GRAPHS, WHOLE_OPTIONS)
    print(f"# Other devices\n\nGenerated by `lab/bench/flash.py`, which documents the method. Times of devices are computed. Machine: {machine()}")
    first = benches[0]
    if given.whole:
        print("\n# Claims at both scales\n" + claims(first, whole))
    for bench in [*benches, *([whole] if given.whole else [])]:
        told(bench)
    if not given.large:
        print(copied(given.page, "generated-10m"))
    parts = {
        "Jobs on all devices": given.jobs and partial(jobs, first),
        "Other orders of a join on all devices": given.jobs and partial(orders, first),
        "Comparison with the disk of this machine": given.disk and partial(disk, first, given.disk),
        "Comparison with MQSim": "MQSIM" in os.environ and partial(mqsim, first),
    }
    for heading, measure in parts.items():
        print(f"\n# {heading}\n\n{measure()}" if measure else copied(given.page, heading))


if __name__ == "__main__":
    try:
        main()
    except Failed as reason:
        sys.exit(f"flash.py: {reason}")
