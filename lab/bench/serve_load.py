#!/usr/bin/env python3
"""Sends prepared HTTP requests to a server on this machine, and measures the latencies: `serve_load.py JOB`, with the
job as JSON. `serve_load.py empty` answers each request with an empty object, which shows the limits of the generator.

The keys of a job:

- `port`; `requests`: a file that `write_requests` wrote, whose requests are sent in turn
- `connections`: number of connections, each with at most one request at a time; `seconds`: duration
- `rate`: requests per second, which arrive at random moments (a Poisson process), whether or not earlier requests have
  been answered. Latency counts from the moment of arrival, so it includes the time for which a request waits until a
  connection is free. If `rate` is null, each connection sends a request as soon as the previous one is answered, and
  `requests_max` limits their number.
- `warm`: seconds before the measurement in which requests are sent, too; `seed` of the moments
- `answers`: a file to write the first answer of each request to (`read_answers`), or null

The answer has the counts `planned`, `answered` (200), `refused` (429 or 503), `failed` (other answers, or a closed
connection) and `unanswered`; `rate`, the answers per second of the measurement; `latency_ms` with quantiles; and
`late_ms_p99`, the delay of the generator itself. Requests without an answer have a latency, too: the time for which
they had waited when the generator gave up.
"""

from __future__ import annotations

import gc
import json
import math
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Seconds after the last arrival for which answers are awaited.
PATIENCE = 3.0
#: If the next arrival is nearer than this, the generator does not sleep: the system wakes it up too late.
AWAKE = 0.002
#: Quantiles of the latency.
QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
HEAD = "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
REFUSED = (429, 503)

Job = dict[str, Any]


def write_requests(path: Path, url_path: str, kind: str, bodies: Iterable[bytes]) -> None:
    """Writes a file of requests, each after its length."""
    with path.open("wb") as file:
        for body in bodies:
            request = HEAD.format(path=url_path, kind=kind, length=len(body)).encode() + body
            file.write(struct.pack("<I", len(request)) + request)


def read_records(path: Path) -> list[bytes]:
    """Reads a file of records, each after its length."""
    data, records, start = path.read_bytes(), [], 0
    while start < len(data):
        [length] = struct.unpack_from("<I", data, start)
        records.append(data[start + 4 : start + 4 + length])
        start += 4 + length
    return records


def read_answers(path: Path) -> list[Any]:
    """Reads the bodies of the answers to all requests; None for a request without an answer."""
    return [json.loads(body) if body else None for body in read_records(path)]


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Returns the smallest value that is at least as large as this fraction of all values."""
    return ordered[max(0, math.ceil(len(ordered) * fraction) - 1)]


class Truncated(Exception):
    """The answer has not arrived as a whole."""


def parse(data: bytes) -> tuple[int, bytes]:
    """Returns the status and the body of an answer.

    Raises Truncated if more bytes are needed, and ValueError if the answer has no Content-Length."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        raise Truncated
    _, named, rest = head.lower().partition(b"content-length:")
    if not named:
        raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
    if len(body) < int(rest.split(b"\r\n", 1)[0]):
        raise Truncated
    return int(head[9:12]), body


@dataclass
class Connection:
    """A connection, with the number of the request that it carries, and the bytes of its answer so far."""

    port: int
    number: int = -1
    received: bytes = b""
    socket: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)


@dataclass
class Outcome:
    """The moment at which each request arrived, and its status and the moment of its end. A status of 0 is a closed
    connection, and one of -1 no answer."""

    moments: list[float]
    statuses: list[int]
    ends: list[float]
    late: list[float]
    bodies: dict[int, bytes]

    def planned(self, moment: float) -> None:
        """Adds a request that is sent now."""
        self.moments.append(moment)
        self.statuses.append(-1)
        self.ends.append(0.0)


class Generator:
    """Sends requests over its connections."""

    def __init__(self, job: Job) -> None:
        self.job, self.requests = job, read_records(Path(job["requests"]))
        self.poll = select.epoll()
        self.open: dict[int, Connection] = {}
        self.idle: list[Connection] = []
        for _ in range(job["connections"]):
            self.connect()

    def connect(self) -> None:
        connection = Connection(self.job["port"])
        self.open[connection.socket.fileno()] = connection
        self.poll.register(connection.socket.fileno(), select.EPOLLIN)
        self.idle.append(connection)

    def send(self, connection: Connection, number: int) -> None:
        request, connection.number = self.requests[number % len(self.requests)], number
        try:
            if connection.socket.send(request) < len(request):
                raise ValueError(f"a request of {len(request)} bytes does not fit into the buffer of a socket")
        except OSError:
            pass  # The server closed the connection, which the next `recv` notices.

    def received(self, connection: Connection) -> tuple[int, bytes] | None:
        """Returns the answer on a connection, or None if it has not arrived as a whole. Replaces a closed connection."""
        try:
            data = connection.socket.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(connection.socket.fileno())
            del self.open[connection.socket.fileno()]
            connection.socket.close()
            if connection in self.idle:
                self.idle.remove(connection)
            self.connect()
            return (0, b"") if connection.number >= 0 else None
        connection.received += data
        try:
            answer = parse(connection.received)
        except Truncated:
            return None
        connection.received = b""
        self.idle.append(connection)
        return answer

    def moments(self) -> list[float]:
        """Returns the moments of arrival, in seconds. A closed loop has none."""
        draw, now, moments, job = random.Random(self.job["seed"]), 0.0, [], self.job
        while job["rate"] and (now := now + draw.expovariate(job["rate"])) < job["warm"] + job["seconds"]:
            moments.append(now)
        return moments

    def run(self) -> Outcome:
        """Sends all requests, and waits for their answers."""
        moments, is_open, number = self.moments(), bool(self.job["rate"]), 0
        done = Outcome(moments, [-1] * len(moments), [0.0] * len(moments), [], {})
        waiting: deque[int] = deque()
        end, limit = self.job["warm"] + self.job["seconds"], self.job.get("requests_max") or math.inf
        begun, clock = time.monotonic(), time.monotonic
        while True:
            now = clock() - begun
            while is_open and number < len(moments) and moments[number] <= now:
                done.late.append(now - moments[number])
                waiting.append(number)
                number += 1
            while self.idle and (waiting or (not is_open and now < end and len(moments) < limit)):
                if not is_open:
                    waiting.append(len(moments))
                    done.planned(now)
                self.send(self.idle.pop(), waiting.popleft())
            is_over = (now >= end or len(moments) >= limit) and not waiting and len(self.idle) == len(self.open)
            if is_over or now > end + PATIENCE:
                return self.ended(done, now)
            soon = moments[number] - now if number < len(moments) else AWAKE + 0.05
            for file, _ in self.poll.poll(0 if soon < AWAKE else soon - AWAKE):
                self.take(self.open[file], done, begun)

    def take(self, connection: Connection, done: Outcome, begun: float) -> None:
        answer, number = self.received(connection), connection.number
        if answer and number >= 0:
            done.statuses[number], done.ends[number] = answer[0], time.monotonic() - begun
            if self.job["answers"] and answer[0] == 200:
                done.bodies.setdefault(number % len(self.requests), answer[1])
            connection.number = -1

    def ended(self, done: Outcome, now: float) -> Outcome:
        done.ends = [end or now for end in done.ends]
        if self.job["answers"]:
            with Path(self.job["answers"]).open("wb") as file:
                for number in range(len(self.requests)):
                    body = done.bodies.get(number, b"")
                    file.write(struct.pack("<I", len(body)) + body)
        return done


def summary(done: Outcome, warm: float, seconds: float) -> dict[str, Any]:
    """Returns the figures of the requests that arrived after the warm-up."""
    measured = [
        (status, end, end - moment)
        for moment, status, end in zip(done.moments, done.statuses, done.ends)
        if moment >= warm
    ]
    counts = {
        "planned": len(measured),
        "answered": sum(status == 200 for status, _, _ in measured),
        "refused": sum(status in REFUSED for status, _, _ in measured),
        "unanswered": sum(status == -1 for status, _, _ in measured),
    }
    counts["failed"] = counts["planned"] - sum(counts[key] for key in ("answered", "refused", "unanswered"))
    within = sum(status == 200 and warm <= end < warm + seconds for status, end in zip(done.statuses, done.ends))
    times = sorted(1e3 * latency for status, _, latency in measured if status in (200, -1)) or [0.0]
    late = sorted(1e3 * delay for delay in done.late) or [0.0]
    latency = {name: quantile(times, fraction) for name, fraction in QUANTILES.items()} | {"max": times[-1]}
    return counts | {"rate": within / seconds, "latency_ms": latency, "late_ms_p99": quantile(late, 0.99)}


def serve_empty() -> None:
    """Answers every request with an empty object. Prints the port first."""
    listener, poll, open_sockets = socket.create_server(("127.0.0.1", 0), backlog=1024), select.epoll(), {}
    print(listener.getsockname()[1], flush=True)
    poll.register(listener.fileno(), select.EPOLLIN)
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    while True:
        for file, _ in poll.poll():
            if file == listener.fileno():
                accepted, _ = listener.accept()
                open_sockets[accepted.fileno()] = accepted
                poll.register(accepted.fileno(), select.EPOLLIN)
                continue
            try:
                is_open = bool(open_sockets[file].recv(1 << 16))  # requests are small, and arrive as a whole
                if is_open:
                    open_sockets[file].send(answer)
            except OSError:
                is_open = False
            if not is_open:
                poll.unregister(file)
                open_sockets.pop(file).close()


def main() -> int:
    if sys.argv[1] == "empty":
        serve_empty()
    job = json.loads(sys.argv[1])
    generator = Generator(job)
    gc.disable()
    print(json.dumps(summary(generator.run(), job["warm"], job["seconds"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
