"""Compares searches of a graph index with faiss, hnswlib, usearch and LanceDB at equal recall, for `search.py`.

The peers run if PEERS_PYTHON, by default this Python, has their packages (faiss-cpu, hnswlib, usearch, lancedb). Peers
that search from disk use the page cache. If PEERS_CGROUP names a cgroup in which children may be created, the peers run
in a memory cgroup that has the limit of adjoin and includes the page cache. Root creates a cgroup with `mkdir` in the
tree of the memory controller. With version 2, the cgroup and its parent need `+memory` in `cgroup.subtree_control`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from at_recall import QUERIES, RECALLS, THREADS, K, at_recall, shown, table
from cgroup import memory_cgroup
from measure import Failed, Record, run

if TYPE_CHECKING:
    from search import Bench
    from serve_beside import Beside
    from serve_peers import Questions

#: Seconds after which a search gets no more queries. Its figures then describe the first queries, which were answered.
PATIENCE = 15.0
#: If a search takes more seconds than this, no greater effort is tried.
LONGEST = 300.0


@dataclass(frozen=True)
class Peer:
    """The description of a peer, and its efforts, from fast to careful."""

    words: str
    efforts: tuple[Any, ...]
    on_disk: bool = True


PROBES = (4, 8, 16, 32, 64, 128, 256)
WIDTHS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256)
PEERS = {
    "faiss-ivf": Peer("faiss, IndexIVFFlat on disk", PROBES),
    "hnswlib": Peer("hnswlib, in memory", WIDTHS, on_disk=False),
    "usearch": Peer("usearch, a view of a file", WIDTHS),
    "lancedb": Peer("LanceDB, IVF_PQ, refined", tuple((probes, max(4, probes // 4)) for probes in PROBES)),
}
#: adjoin as a package of Python. Its budget limits its memory, and it bypasses the page cache.
ADJOIN = Peer("adjoin, an index on disk", WIDTHS, on_disk=False)


def ask(name: str, what: str, job: Record) -> Record:
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    told = run([python, Path(__file__).with_name("peer_search.py"), name, what, json.dumps(job)])
    answer: Record = json.loads(told.pop("output").strip().splitlines()[-1])
    return told | answer


class Judged:
    """Judges the rows that a peer found, by their true distances. Of several rows at equal distance, each one counts. A
    row that was found several times counts once."""

    def __init__(self, bench: Bench | Beside | Questions) -> None:
        self.bench, self.truth = bench, bench.truth()
        self.row = struct.Struct(f"<{bench.dimensions}{'B' if bench.element == 'u8' else 'f'}")

    def recall(self, hits: Path) -> float:
        found, right = array("I", hits.read_bytes()), 0
        with self.bench.base.open("rb") as base, self.bench.queries.open("rb") as queries:
            for query in range(len(found) // K):
                asked = self.vector(queries, query)
                rows = {row for row in found[query * K : (query + 1) * K] if row < self.bench.rows}
                right += sum(math.dist(asked, self.vector(base, row)) <= self.truth[query] for row in rows)
        return right / len(found)

    def vector(self, file: Any, row: int) -> tuple[float, ...]:
        file.seek(8 + row * self.row.size)
        return self.row.unpack(file.read(self.row.size))


class Contender:
    """One peer with the set of a bench: its index, and searches of it within the memory that adjoin has."""

    def __init__(self, bench: Bench | Beside, name: str, memory_bytes: int, batch: int = 100) -> None:
        self.bench, self.name, self.memory_bytes = bench, name, memory_bytes
        self.peer = ADJOIN if name == "adjoin" else PEERS[name]
        self.batch = batch
        self.folder, self.hits = bench.work / name, bench.work / "hits.u32"
        self.judged = Judged(bench)

    def build(self) -> Record:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        try:
            job = {"folder": str(self.folder), "base": str(self.bench.base), "threads": THREADS}
            return ask(self.name, "build", job)
        except Failed:
            shutil.rmtree(self.folder)
            raise

    def built(self) -> Record:
        return self.bench.measured(["peer", self.name, "build"], self.build)

    def points(self) -> list[Record]:
        """Searches with increasing effort, until a search reaches the recall or takes too long. Failed searches have a
        point, too."""
        points: list[Record] = []
        for effort in self.peer.efforts:
            key = ["peer", self.name, effort, self.memory_bytes, os.environ.get("PEERS_CGROUP", "")]
            points.append(self.bench.measured(key, lambda: self.search(effort)))
            if points[-1].get("recall", 1) >= RECALLS[-1] or points[-1].get("seconds", 0) > LONGEST:
                break
        return points

    def search(self, effort: Any) -> Record:
        """Runs all queries at once for the rate, then each separately for the latency."""
        lone = self.asked(effort, {"lone": True})
        batch = self.asked(effort, {"lone": False})
        worst = {"peak_bytes": max(lone["peak_bytes"], batch["peak_bytes"])}
        worst["queries"] = min(lone["queries"], batch["queries"])
        return lone | batch | worst | {"recall": self.recall()}

    def asked(self, effort: Any, how: Record) -> Record:
        """Runs queries. Leaves their hits in the file `hits`."""
        if not self.folder.exists():
            self.build()
        job = {"folder": str(self.folder), "queries": str(self.bench.queries), "k": K, "threads": THREADS, "warm": 0}
        job |= {"effort": effort, "batch": self.batch, "hits": str(self.hits), "memory_bytes": self.memory_bytes, "callers": 1}
        return self.bounded(job | {"patience": PATIENCE} | how)

    def recall(self) -> float:
        """Returns the recall of the last queries."""
        return self.judged.recall(self.hits)

    def bounded(self, job: Record) -> Record:
        if not self.peer.on_disk:
            return ask(self.name, "search", job | {"cgroup": None})
        with memory_cgroup(self.memory_bytes) as (cgroup, refused):
            try:
                told = ask(self.name, "search", job | {"cgroup": cgroup and str(cgroup)})
            except Failed as reason:
                raise Failed(f"{reason}, in a cgroup of {self.memory_bytes / 1e6:.0f} MB" if cgroup else str(reason))
        return told | {"unbounded": refused}

    def row(self) -> list[str]:
        built = self.built()
        if "failed" in built:
            return line(f"{self.peer.words}: not measured: {built['failed']}")
        points = self.points()
        failed = [point["failed"] for point in points if "failed" in point]
        points = [point for point in points if "failed" not in point]
        if not points:
            return line(f"{self.peer.words}: not measured: {failed[0]}", built=built)
        notes = [f"{self.peer.words} ({built['version']})", *failed]
        fewest = min(point["queries"] for point in points)
        if fewest < QUERIES:
            notes.append(f"at least {fewest} queries each, limited to {PATIENCE:.0f} s")
        last = points[-1]
        if last["recall"] < RECALLS[-1] and last["seconds"] > LONGEST:
            cost = f"{last['rate']:.1f} queries per second, {last['read_bytes'] / 1e6:,.0f} MB read for each"
            notes.append(f"stopped at a recall of {last['recall']:.2f}, effort {len(points)} of {len(self.peer.efforts)}: {cost}")
        if self.peer.on_disk:
            unbounded = points[0]["unbounded"]
            notes.append("page cache not limited" if unbounded else "page cache bounded")
        return line("; ".join(notes), points, points, built)


def line(
    words: str, points: Sequence[Record] = (), lone: Sequence[Record] = (), built: Record | None = None
) -> list[str]:
    """Returns a line of the table. Cells without a measurement are empty."""
    memory = f"{max(one['peak_bytes'] for one in points) / 1e6:,.0f}" if points else ""
    cells = []
    for recall in RECALLS:
        read, rate = (at_recall(points, recall, figure) for figure in ("read_bytes", "rate"))
        p99 = at_recall(lone, recall, "p99_ms")
        cells.append("" if rate is None or read is None else f"{read / 1024:,.1f} / {rate:,.0f} / {shown(p99) or '-'}")
    build = [f"{built['seconds']:,.1f}", f"{built['peak_bytes'] / 1e6:,.0f}"] if built else ["", ""]
    return [words, memory, *cells, *build]


def beside_peers(bench: Bench) -> str:
    """Compares all contenders at equal recall."""
    memory = bench.memory()
    ours, lone = ([point for point in points if "failed" not in point] for points in bench.searches(memory))
    rows = [line("adjoin, bypassing the page cache", ours, lone, bench.built())]
    rows += [Contender(bench, name, memory * 1_000_000).row() for name in PEERS]
    head = ["", "MB", *(f"at {recall:.2f}" for recall in RECALLS), "build s", "build MB"]
    words = (
        f"Other peers, with {THREADS} threads each. The cells at each recall@{K} are KiB read from the disk per query / queries",
        "per second / p99 in ms. MB is the peak resident memory, for peers including Python and its libraries. adjoin",
        f"searches within {memory} MB. A bounded peer gets as much for its index and searches, page cache included.",
        "Every search begins with nothing of its index in the page cache. For p99 a peer gets one query at a time,",
        f"adjoin one at a time on each of {THREADS} threads. Peers hold floats. Graphs are built with their defaults; for n",
        "vectors faiss builds 4 sqrt(n) lists and LanceDB sqrt(n). faiss reads ahead with threads of its own. LanceDB",
        "has no argument for threads and is bound to as many cores; its caches take half of the memory.",
    )
    return " ".join(words) + "\n\n" + table(head, rows)
