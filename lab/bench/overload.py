"""Overloads a server with three times its peak rate, for `serve.py`. Server and client run on one core each."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from at_recall import shown, table
from measure import Failed, Record, run

#: Body of each request. The server should refuse a request that it cannot answer before the deadline.
ASKED = {"k": 10, "nprobe": 20, "deadline_ms": 200}
#: Numbers of the cores on which the server and the client run.
SERVER, CLIENT = "0", "1"
#: First rate to try. It is doubled while the answered rate grows by at least the factor GAIN. A trial takes
#: TRIAL_SECONDS.
FIRST_RATE, GAIN, TRIAL_SECONDS = 250, 1.05, 8
#: Rate of the overload as a multiple of the peak, and its duration in seconds.
OVERLOAD, OVERLOAD_SECONDS = 3, 60
#: Rate before and after the overload as a fraction of the peak, and its duration in seconds.
CALM, CALM_SECONDS = 0.5, 10
MEMORY = "512MB"
#: Number of connections, each with one request: fewer than a server with this memory can hold, and more than it can
#: answer within the deadline.
CONNECTIONS = 1_024


class Server:
    """A server for a store. It runs on one core."""

    def __init__(self, adjoin: Path, store: Path, work: Path) -> None:
        self.adjoin, self.work = adjoin, work
        command = [adjoin, "serve", store, "--memory", MEMORY, "--threads", "1", "--listen", "127.0.0.1:0", "--log", "error"]
        self.process = subprocess.Popen(["taskset", "-c", SERVER, *map(str, command)], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http://"):
            raise Failed("the server does not listen")

    def peak_bytes(self) -> int:
        """Returns the peak resident memory, as reported by the system."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def asked(self, queries: Path, rate: float, seconds: float) -> Record:
        """Sends requests at a rate. Returns the statistics of their answers."""
        stats = self.work / "overload.json"
        named = {"queries": queries, "rate": rate, "seconds": seconds, "members": json.dumps(ASKED), "connections": CONNECTIONS}
        words = [word for name, value in named.items() for word in (f"--{name}", value)]
        run(["taskset", "-c", CLIENT, self.adjoin, "bench-serve", f"{self.url}/v1/search", *words, "--stats", stats, "--force"])
        return json.loads(stats.read_text())

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def phases(server: Server, queries: Path) -> Record:
    """Returns the peak rate, the answered rates before, during and after the overload, and the memory of the server."""
    rate, peak = FIRST_RATE, 0.0
    while (told := server.asked(queries, rate, TRIAL_SECONDS)["answered_per_second"]) > GAIN * peak:
        rate, peak = 2 * rate, told
    peak = max(peak, told)
    of = {"before": server.asked(queries, CALM * peak, CALM_SECONDS)}
    of["during"] = server.asked(queries, OVERLOAD * peak, OVERLOAD_SECONDS)
    time.sleep(1)
    of["after"] = server.asked(queries, CALM * peak, CALM_SECONDS)
    return {"peak": peak, "peak_bytes": server.peak_bytes(), "phases": of}


def overload(adjoin: Path, store: Path, queries: Path, measured: Callable[..., Record]) -> str:
    """Returns a table of the phases."""

    def measure() -> Record:
        server = Server(adjoin, store, queries.parent)
        try:
            return phases(server, queries)
        finally:
            server.end()

    told = measured(json.dumps(["overload", MEMORY, ASKED]), measure)
    if "failed" in told:
        raise Failed(told["failed"])
    body = []
    for name, one in told["phases"].items():
        counts = [shown(one[key], 0) for key in ("requests", "answered", "refused", "late", "failed")]
        share = 100 * one["answered_per_second"] / told["peak"]
        answers, refusals = one["latency_ms"] or {}, one["refusal_ms"] or {}
        times = [shown(times[key]) if times else "-" for times in (answers, refusals) for key in ("p50", "p99", "max")]
        rate, late = shown(one["answered_per_second"], 0), shown(one["sent_late_ms_max"], 0)
        body.append([name, *counts, rate, shown(share, 0), *times, late])
    head = ["", "requests", "answered", "refused", "late", "failed", "answered per second", "% of the peak"]
    head += [f"{of} {key}, ms" for of in ("answers", "refusals") for key in ("p50", "p99", "max")] + ["largest send delay, ms"]
    words = (
        f"A server with {MEMORY} on one core, its client on the other; {ASKED['nprobe']} buckets per query, a deadline of "
        f"{ASKED['deadline_ms']} ms. The load is {OVERLOAD} times the peak rate ({shown(told['peak'], 0)} answers per second) for "
        f"{OVERLOAD_SECONDS} s, half of the peak rate before, and half again from one second after. Answers are timed from the "
        f"scheduled time of the request, refusals from the time when it was sent. The server used at most "
        f"{shown(told['peak_bytes'] / 1e6, 0)} MB.\n\n"
    )
    return words + table(head, body)
