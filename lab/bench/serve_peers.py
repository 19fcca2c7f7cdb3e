"""Compares servers of an index and of a collection with other vector databases under load, for `serve.py`.

Peers run in PEERS_PYTHON (chromadb, lancedb, qdrant-edge-py, uvicorn, uvloop, httptools, numpy). If PEERS_CGROUP names a
cgroup (see `search_peers.py`), each server runs in a memory cgroup of its own, adjoin's too. A server has one core, and
the load generator (`serve_load.py`) has the other one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from at_recall import K, shown, table
from cgroup import memory_cgroup, peak_bytes
from measure import Failed, Record, machine, run
from overload import CLIENT, SERVER
from search_peers import Judged
from serve_load import PATIENCE, QUANTILES, read_answers, write_requests

if TYPE_CHECKING:
    from serve import Bench, VectorFile

RECALL = 0.95
#: Fills the hits of a query that found fewer rows than K.
NO_ROW = 2**32 - 1
#: Number of queries that are measured, and number of other queries with which the efforts are chosen.
QUERIES, TUNING = 1_000, 1_000
#: Candidates of a search of a graph.
EFFORTS = (10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256)
#: Number of connections of the generator, and of a closed loop, which measures the capacity.
CONNECTIONS, CLOSED = 512, 32
#: Rates as fractions of the capacity of a server. The last one shows whether the server recovers from the overload.
FRACTIONS = (0.5, 0.75, 0.9, 1.5, 0.5)
#: Rates in requests per second. A server gets rates below its capacity, unless its requests have a deadline, which changes
#: nothing at such rates.
RATES = (200, 500, 1_000, 2_000)
#: Deadline of requests of one contender. A server may refuse them at once, so its queue stays short.
DEADLINE_MS = 100
SECONDS, WARM, SEED = 8.0, 1.0, 1
#: Seconds for a server to start.
START = 60.0
#: Memory of a server in megabytes, page cache included.
MEMORY_MB = 512
WORDS = (
    "One query per request, {rows:,} vectors. Each server has {memory_mb} MB of memory in a cgroup, page cache included;",
    "adjoin has it as its budget, too. A server has one core, and the load generator the other one. The efforts are the least",
    "of {efforts} that reach a recall@{k} of {recall} on {tuning:,} other queries. Requests arrive at random moments (Poisson) for",
    "{seconds:.0f} s, after {warm:.0f} s of warm-up, on up to {connections} open connections. Latency counts from the moment of arrival.",
    "The capacity is the rate of {closed} clients that each wait for an answer. The last line of a server follows its overload.",
    "Requests are not answered if they are refused, fail, or have no answer {patience:.0f} s after the end. The last kind counts in",
    "the latencies. MB is the peak resident memory / the peak of the cgroup. adjoin and the libraries in uvicorn get vectors as",
    "raw f32, Chroma gets JSON. adjoin holds bytes, the others hold floats. Requests with a deadline have one of {deadline_ms} ms.",
    "The first server answers without a search, so it shows the limits of the generator.",
)


@dataclass(frozen=True)
class Contender:
    """A server: the name of its program, the key of its folder, how the ids of hits are extracted from an answer, other
    options of a request to adjoin, and words after the version in the table."""

    words: str
    name: str
    ids: Callable[[Any], list[int]]
    options: str = ""
    more: str = ""

    @property
    def is_ours(self) -> bool:
        return self.name in OURS


def ids_of_adjoin(answer: Any) -> list[int]:
    return [int(hit["id"]) for hit in answer["hits"][0]]


OURS = ("index", "collection")
EMPTY = Contender("a server that does not search", "empty", lambda answer: [])
CONTENDERS = (
    Contender("adjoin, an index", "index", ids_of_adjoin),
    Contender("adjoin, an index, with a deadline", "index", ids_of_adjoin, f"&deadline_ms={DEADLINE_MS}"),
    Contender("adjoin, a collection", "collection", ids_of_adjoin),
    Contender("Chroma's server", "chroma", lambda answer: [int(row) for row in answer["ids"][0]]),
    Contender("LanceDB", "lancedb", lambda answer: answer, more=", IVF_HNSW_SQ, in uvicorn"),
    Contender("Qdrant Edge", "qdrant", lambda answer: answer, more=", HNSW, in uvicorn"),
)


class Questions:
    """Queries with their truth, for a `Judged`."""

    element = "f32"

    def __init__(self, base: Path, source: VectorFile, first: int, count: int) -> None:
        self.base, self.dimensions = base, source.dimensions
        self.queries = base.with_name(f"asked-{first}.fbin")
        [self.rows] = array("I", base.open("rb").read(4))
        if not self.queries.exists():
            source.write_part(first, count, self.queries)

    def truth(self) -> array[float]:
        """Returns for each query the distance of its K-th nearest row, by brute force."""
        return self.far

    @cached_property
    def far(self) -> array[float]:
        file = self.queries.with_suffix(".f64")
        if not file.exists():
            job = {"base": str(self.base), "queries": str(self.queries), "k": K, "truth": str(file)}
            run([*peer_program(), "truth", json.dumps(job)])
        return array("d", file.read_bytes())

    def bodies(self) -> list[bytes]:
        """Returns the queries as f32."""
        data, width = self.queries.read_bytes()[8:], 4 * self.dimensions
        return [data[start : start + width] for start in range(0, len(data), width)]

    def recall(self, answers: list[Any], ids: Callable[[Any], list[int]]) -> float:
        """Returns the recall of the answers to all queries. A query without an answer has found nothing."""
        hits = array("I")
        for answer in answers:
            found = ids(answer)[:K] if answer else []
            hits.extend(found + [NO_ROW] * (K - len(found)))
        file = self.queries.with_suffix(".u32")
        file.write_bytes(hits.tobytes())
        return Judged(self).recall(file)


def peer_program() -> list[str | Path]:
    return [os.environ.get("PEERS_PYTHON", sys.executable), Path(__file__).with_name("peer_serve.py")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@dataclass
class Server:
    """A running server, and where it answers."""

    process: subprocess.Popen[str]
    port: int
    path: str
    cgroup: Path | None

    def memory(self) -> Record:
        """Returns the peak resident memory of its processes, and with the page cache if it runs in a cgroup."""
        pids = [self.process.pid]
        if self.cgroup:
            pids = [int(line) for line in (self.cgroup / "cgroup.procs").read_text().split()]
        resident = 0
        for pid in pids:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            resident += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        return {"peak_bytes": resident, "cgroup_bytes": peak_bytes(self.cgroup) if self.cgroup else None}


class Peers:
    """All contenders with the set of a bench."""

    def __init__(self, bench: Bench, memory_bytes: int) -> None:
        self.bench, self.adjoin, self.work, self.memory_bytes = bench, bench.adjoin, bench.work, memory_bytes
        self.base = bench.vectors("base")
        source, first = bench.source(), bench.source().rows - bench.set.queries
        self.measured_queries = Questions(self.base, source, first, QUERIES)
        self.tuning_queries = Questions(self.base, source, first + QUERIES, TUNING)

    def measured(self, key: list[Any], measure: Callable[[], Record]) -> Record:
        told = self.bench.ledger.measured(json.dumps(["peers", *key]), measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told

    def folder(self, name: str) -> Path:
        return self.work / f"served-{name}"

    def job(self, name: str, **more: Any) -> str:
        common = {"folder": str(self.folder(name)), "base": str(self.base), "k": K, "memory_bytes": self.memory_bytes}
        return json.dumps(common | more)

    def bytes(self) -> Path:
        """Returns a file with the base as bytes, for adjoin. Peers hold floats."""
        path = self.work / "base.u8bin"
        if not path.exists():
            self.bench.source().write_part(0, self.measured_queries.rows, path)
        return path

    def build(self, of: Contender) -> Record:
        """Builds the folder of a contender."""
        folder = self.folder(of.name)
        shutil.rmtree(folder, ignore_errors=True)
        if of.name == "index":
            return run([self.adjoin, "index", "build", self.bytes(), "-o", folder, "--quiet"])
        if of.name == "collection":
            dimensions = str(self.measured_queries.dimensions)
            run([self.adjoin, "collection", "create", folder, "--dimensions", dimensions, "--element", "u8"])
            run([self.adjoin, "collection", "write", folder, "--insert", self.bytes(), "--quiet"])
            return run([self.adjoin, "collection", "merge", folder, "--quiet"])
        version = run([*peer_program(), of.name, "version", self.job(of.name, threads=2)])["output"].strip()
        return run([*peer_program(), of.name, "build", self.job(of.name, threads=2, port=free_port())]) | {"version": version}

    def built(self, of: Contender) -> Record:
        return self.measured(["build", of.name], lambda: self.build(of))

    def command(self, of: Contender, effort: int) -> list[str | Path]:
        if of is EMPTY:
            return [sys.executable, Path(__file__).with_name("serve_load.py"), "empty"]
        if of.is_ours:
            memory = ["--memory", f"{self.memory_bytes // 1_000_000}MB", "--threads", "1", "--listen", "127.0.0.1:0"]
            return [self.adjoin, "serve", self.folder(of.name), *memory, "--log", "error", "--quiet"]
        return [*peer_program(), of.name, "serve", self.job(of.name, effort=effort, port=free_port(), threads=1)]

    @contextmanager
    def serving(self, of: Contender, effort: int) -> Iterator[Server]:
        """Starts a server with an effort, and ends it."""
        with memory_cgroup(self.memory_bytes) as (cgroup, _):

            def join() -> None:
                if cgroup:
                    (cgroup / "cgroup.procs").write_text(str(os.getpid()))

            command = [str(word) for word in self.command(of, effort)]
            process = subprocess.Popen(
                ["taskset", "-c", SERVER, *command], stdout=subprocess.PIPE, text=True, preexec_fn=join
            )
            try:
                yield Server(process, *self.address(of, process, effort), cgroup)
            finally:
                process.terminate()
                process.wait()
                emptied(cgroup)

    def address(self, of: Contender, process: subprocess.Popen[str], effort: int) -> tuple[int, str]:
        """Returns the port and the path for searches, which a server prints when it listens."""
        assert process.stdout
        line = process.stdout.readline().strip()
        if not line:
            raise Failed(f"the server ended with {process.wait(START)}")
        if of is EMPTY:
            return int(line), "/"
        if of.is_ours:
            return int(line.rsplit(":", 1)[1].strip("/")), f"/v1/search?k={K}&list={effort}&element=f32{of.options}"
        told = json.loads(line)
        return told["port"], told["path"]

    def requests(self, of: Contender, server: Server, queries: Questions) -> Path:
        """Writes the requests with all queries."""
        file, bodies, kind = self.work / "serve-requests", queries.bodies(), "application/octet-stream"
        if of.name == "chroma":
            vectors = [array("f", body).tolist() for body in bodies]
            texts = [json.dumps({"query_embeddings": [one], "n_results": K, "include": []}) for one in vectors]
            bodies, kind = [text.encode() for text in texts], "application/json"
        write_requests(file, server.path, kind, bodies)
        return file

    def load(self, server: Server, requests: Path, connections: int, **named: Any) -> Record:
        """Sends requests to a server. Returns the figures of the generator."""
        job = {"port": server.port, "requests": str(requests), "connections": connections, "seed": SEED}
        job |= {"warm": WARM, "seconds": SECONDS, "rate": None, "answers": None} | named
        program = Path(__file__).with_name("serve_load.py")
        told = run(["taskset", "-c", CLIENT, sys.executable, program, json.dumps(job)])
        if server.process.poll() is not None:
            raise Failed(f"the server ended with {server.process.returncode}")
        answer: Record = json.loads(told["output"])
        return answer

    def recall(self, of: Contender, server: Server, queries: Questions) -> float:
        """Sends each query once. Returns the recall of the answers."""
        requests, answers = self.requests(of, server, queries), self.work / "serve-answers"
        once = {"requests_max": QUERIES, "seconds": START, "warm": 0.0, "answers": str(answers)}
        told = self.load(server, requests, 4, **once)
        if told["answered"] < told["planned"]:
            raise Failed(f"{told['planned'] - told['answered']} of {told['planned']} queries were not answered")
        return queries.recall(read_answers(answers), of.ids)

    def recall_at(self, of: Contender, effort: int) -> float:
        """Returns the recall of an effort on the queries for tuning."""

        def measure() -> Record:
            with self.serving(of, effort) as server:
                return {"recall": self.recall(of, server, self.tuning_queries)}

        return float(self.measured(["tune", of.name, effort, self.memory_bytes], measure)["recall"])

    def effort(self, of: Contender) -> int:
        """Returns the least effort with enough recall on the queries for tuning."""
        low, high = 0, len(EFFORTS) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.recall_at(of, EFFORTS[middle]) >= RECALL else (middle + 1, high)
        return EFFORTS[low]

    def trials(self, of: Contender, effort: int) -> Record:
        """Measures the recall and the capacity of a server, then its latencies at all rates, and last its memory."""
        with self.serving(of, effort) as server:
            recall = None if of is EMPTY else self.recall(of, server, self.measured_queries)
            requests = self.requests(of, server, self.measured_queries)
            capacity = self.load(server, requests, CLOSED)["rate"]
            rates: list[tuple[float | None, float]] = [(None, rate) for rate in RATES if rate < capacity and not of.options]
            rates += [(fraction, fraction * capacity) for fraction in FRACTIONS]
            loads = [
                {"fraction": fraction, "offered": rate} | self.load(server, requests, CONNECTIONS, rate=rate)
                for fraction, rate in rates
            ]
            return {"recall": recall, "capacity": capacity, "loads": loads} | server.memory()

    def row_of(self, of: Contender) -> Record:
        """Returns the measurement of a contender, with its build."""
        if of is EMPTY:
            return self.measured(["trials", of.name, SECONDS, RATES, FRACTIONS], lambda: self.trials(of, 0))
        built, effort = self.built(of), self.effort(of)
        key = ["trials", of.name + of.options, effort, self.memory_bytes, SECONDS, RATES, FRACTIONS, os.environ.get("PEERS_CGROUP", "")]
        return self.measured(key, lambda: self.trials(of, effort)) | {"version": built.get("version")}


def emptied(cgroup: Path | None) -> None:
    """Ends the processes of a cgroup, which can be removed only when it has none."""
    until = time.monotonic() + START
    while cgroup and (left := (cgroup / "cgroup.procs").read_text().split()) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)


def bounded_ms(load: Record, name: str) -> str:
    """Formats a quantile of the latency; as a lower bound if it counts requests that were never answered."""
    last = load["latency_ms"][name]
    return f"{'> ' if last >= 1e3 * PATIENCE and load['unanswered'] else ''}{last:,.{2 if last < 10 else 0}f}"


def lines(of: Contender, told: Record) -> list[list[str]]:
    """Returns the lines of a contender, one for each load."""
    body, version = [], f" {told['version']}" if told.get("version") else ""
    recall = "" if told["recall"] is None else shown(told["recall"], 3)
    used = "" if of is EMPTY else " / ".join(shown(told[key] and told[key] / 1e6, 0) for key in ("peak_bytes", "cgroup_bytes"))
    for load in told["loads"]:
        fraction = "equal rate" if load["fraction"] is None else f"{load['fraction']:.0%} of {told['capacity']:,.0f}"
        lost = load["refused"] + load["unanswered"] + load["failed"]
        rates = [shown(load["offered"], 0), shown(load["rate"], 0), shown(100 * lost / max(1, load["planned"]))]
        body.append([of.words + version + of.more, fraction, *rates, *(bounded_ms(load, name) for name in QUANTILES), used, recall])
    return body


def introduction(rows: int) -> str:
    """Returns the text above the tables."""
    figures = {"rows": rows, "memory_mb": MEMORY_MB, "efforts": len(EFFORTS), "k": K, "recall": RECALL, "tuning": TUNING}
    figures |= {"seconds": SECONDS, "warm": WARM, "connections": CONNECTIONS, "closed": CLOSED, "patience": PATIENCE}
    return " ".join([machine(), *WORDS]).format(**figures, deadline_ms=DEADLINE_MS) + "\n"


def served_peers(bench: Bench) -> str:
    """Returns two tables: latencies at equal rates, and latencies at fractions of the capacity of each server."""
    contenders, rows, missing = Peers(bench, MEMORY_MB * 1_000_000), [], []
    for of in (EMPTY, *CONTENDERS):
        try:
            rows += lines(of, contenders.row_of(of))
        except Failed as reason:
            missing.append(f"Not measured: {of.words}: {reason}.\n")
    head = ["server", "load", "offered per second", "answered", "not answered, %", "p50, ms", "p99", "p99.9", "MB", f"recall@{K}"]
    equal, own = ([row for row in rows if (row[1] == "equal rate") == is_equal] for is_equal in (True, False))
    equal.sort(key=lambda row: float(row[2].replace(",", "")))
    without_load = [[row[2], row[0], *row[3:]] for row in equal]
    parts = [introduction(contenders.measured_queries.rows), *missing]
    parts += ["At equal rates:\n", table([head[2], head[0], *head[3:]], without_load)]
    parts += ["At fractions of the capacity of each server:\n", table(head, own)]
    return "\n".join(parts)
