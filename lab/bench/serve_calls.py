"""Measures calls of one query each from Python, with an open index, next to peers at equal recall. For `serve.py`.

PEERS_PYTHON needs the packages adjoin, faiss-cpu, hnswlib, usearch and lancedb; a contender without its package is not
measured. PEERS_CGROUP is that of `search_peers.py`. The example `read_rates` must have been built.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from at_recall import shown, table
from measure import Failed, Record, machine, run
from search_peers import PEERS, Contender

if TYPE_CHECKING:
    from serve_beside import Beside

#: Recall that a contender reaches with its least effort, and number of threads that call at once.
RECALL, CALLERS = 0.95, 4
#: Number of first queries that are not timed.
WARM = 500
#: Megabytes of memory for contenders that search from disk.
MEMORY_MB = 192


class Caller(Contender):
    """A contender whose queries are sent one at a time."""

    def called(self, effort: object, callers: int = 1) -> Record:
        """Runs calls on some threads. Those of one thread have a recall."""
        key = ["calls", self.name, effort, callers, self.memory_bytes, os.environ.get("PEERS_CGROUP", "")]

        def call() -> Record:
            told = self.asked(effort, {"lone": True, "warm": WARM, "callers": callers})
            return told | ({"recall": self.recall()} if callers == 1 else {})

        record = self.bench.measured(key, call)
        if "failed" in record:
            raise Failed(record["failed"])
        return record

    def figures(self) -> tuple[Record, Record]:
        """Returns the calls of one thread with the least effort that reaches the recall, and those of several threads."""
        for effort in self.peer.efforts:
            one = self.called(effort)
            if one["recall"] >= RECALL:
                return one, self.called(effort, CALLERS)
        raise Failed(f"no effort reaches a recall of {RECALL}")

    def row(self) -> list[str]:
        built = self.built()
        try:
            if "failed" in built:
                raise Failed(built["failed"])
            one, several = self.figures()
        except Failed as reason:
            return [f"{self.peer.words}: not measured: {reason}", *[""] * 8]
        words = f"{self.peer.words} ({built['version']})"
        if self.peer.on_disk:
            words += "; page cache not limited" if one["unbounded"] else "; page cache bounded"
        times = [shown(one[name], 2) for name in ("mean_ms", "p50_ms", "p99_ms")]
        rates = [shown(record["rate"], 0) for record in (one, several)]
        memory = f"{max(one['peak_bytes'], several['peak_bytes']) / 1e6:,.0f}"
        return [words, f"{one['recall']:.3f}", *times, *rates, shown(one["read_bytes"] / 1024), memory]


def latency_ms(bench: Beside) -> float:
    """Returns the duration of a random read of 4 KiB, if one read follows another."""
    program = bench.adjoin.parent / "examples/read_rates"
    told = bench.measured(["read_rates"], lambda: run([program, bench.work]))
    if "failed" in told:
        raise Failed(told["failed"])
    lines = [line.split() for line in told["output"].splitlines()]
    return min(1e3 / float(line[3]) for line in lines if line[1:3] == ["4096", "1"])


def bound(bench: Beside, ours: Caller) -> str:
    """Returns a sentence that relates the calls of adjoin to the reads of the disk; empty if either is not measured."""
    try:
        latency, (one, _) = latency_ms(bench), ours.figures()
    except Failed:
        return ""
    reads = one["read_bytes"] / 4096
    return (
        f"\nA read of 4 KiB takes {latency:.3f} ms if one read follows another. adjoin reads {reads:.1f} pages per call, which would "
        f"take {reads * latency:.2f} ms one after another; the mean of a call is {one['mean_ms']:.2f} ms.\n"
    )


def calls(bench: Beside) -> str:
    """Compares calls of one query each."""
    memory = MEMORY_MB * 1_000_000
    ours = Caller(bench, "adjoin", memory)
    rows = [ours.row(), *(Caller(bench, name, memory).row() for name in PEERS)]
    head = ["", "recall", "mean ms", "p50", "p99", "calls per second", f"by {CALLERS} threads", "KiB read", "MB"]
    words = (
        f"{machine()} One query a call from Python, after {WARM} calls that are not timed, with the least effort that reaches a recall@10",
        f"of {RECALL}. MB is the peak resident memory, with Python and its libraries; contenders that search from disk get",
        f"{MEMORY_MB} MB. Processes are bound to two cores. KiB are read from the disk per call. adjoin bypasses the page cache.",
    )
    return " ".join(words) + "\n\n" + table(head, rows) + bound(bench, ours)
