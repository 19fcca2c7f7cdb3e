"""Joins in parts whose store, plan and parts are in a bucket of a real S3 server, moto's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from at_recall import table
from measure import Failed, Record

ROWS, DIMENSIONS, EPS, MEMORY = 3_000, 32, "2.0", "256MB"
PARTS = (1, 2, 4)
#: Bound on the requests for buckets, relative to the buckets that the plan lists.
REQUESTS_MAX = 1.1
SECRETS = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1", "ALLOW_HTTP": "true"}
SIGNATURE = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class Server:
    """A running server with one bucket, `bucket`, whose log lists all requests."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.log, self.seen = url, log, 0

    def call(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{self.url}/{path}", method=method)
        if method == "GET":  # the server asks for a signature of private objects, and does not check it
            request.add_header("Authorization", SIGNATURE)
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def requests(self) -> list[str]:
        """Returns the lines of the log since the last call."""
        lines = self.log.read_text().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        return new


@contextmanager
def started(folder: Path) -> Iterator[Server]:
    """Starts the server, and points the environment of child processes to it."""
    program = Path(os.environ.get("PEERS_PYTHON", sys.executable)).with_name("moto_server")
    if not program.exists():
        raise Failed(f"{program} is missing; install moto[server] in PEERS_PYTHON")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server, log = Server(f"http://127.0.0.1:{port}", folder / "moto.log"), folder / "moto.log"
    with log.open("wb") as out:
        process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=out, stderr=out)
    variables = {f"AWS_{name}": value for name, value in {**SECRETS, "ENDPOINT_URL": server.url}.items()}
    try:
        make_bucket(server, process)
        os.environ.update(variables)
        yield server
    finally:
        for name in variables:
            os.environ.pop(name, None)
        process.kill()
        process.wait()


def make_bucket(server: Server, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            server.call("PUT", "bucket")
            return
        except urllib.error.HTTPError as refused:
            raise Failed(f"the S3 server refuses a bucket: {refused}") from None
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)  # the server has not opened its port yet
    raise Failed(f"the S3 server ended at its start; see {server.log}")


def over_s3(bench: Any) -> str:
    """Returns the table of joins in a bucket."""
    told = bench.whole("s3", lambda: measured(bench))
    rows = [
        [
            f"{one['parts']}",
            "yes" if one["equal"] else "**no**",
            f"{one['requests']:,}",
            f"{one['buckets']:,}",
            f"{one['requests'] / one['buckets']:.2f}",
            f"{one['other_requests'] / (2 * one['parts']):.0f}",
            "yes" if one["repeated"] else "**no**",
        ]
        for one in told["runs"]
    ]
    head = ["parts", "equal pairs", "requests for buckets", "buckets to read", "requests / buckets", "other requests per run of a part"]
    return (
        f"A store of {ROWS:,} rows in a bucket of moto's S3 server, with the plan, the parts and the merged pairs. The plan was made with a "
        "copy of the store on a disk. Every part runs twice. "
        f"Requests are counted by the server; at most {REQUESTS_MAX} per bucket were asked for:\n\n" + table([*head, "equal when run twice"], rows)
    )


def measured(bench: Any) -> Record:
    folder = bench.work / "s3"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vectors, store, one = folder / "set.fbin", folder / "one.store", folder / "one.csv"
    bench.ran_plain("gen", "--rows", ROWS, "--dimensions", DIMENSIONS, "-o", vectors)
    bench.ran_plain("build", vectors, "-o", store)
    bench.ran_plain("join", store, "--eps", EPS, "--memory", MEMORY, "-o", one)
    expected = sorted(one.read_bytes().splitlines())
    with started(folder) as server:
        bench.ran_plain("copy", store, "s3://bucket/one.store")
        return {"runs": [in_parts(bench, server, store, parts, expected) for parts in PARTS]}


def in_parts(bench: Any, server: Server, store: Path, parts: int, expected: list[bytes]) -> Record:
    """Plans with the local store, because a calibration in the bucket takes thousands of requests, and runs the parts with the bucket."""
    at, remote = f"s3://bucket/{parts}", ("--store", "s3://bucket/one.store", "--memory", MEMORY)
    facts = bench.ran("plan", store, "--eps", EPS, "--memory", MEMORY, "--parts", parts, "-o", f"{at}.plan")
    buckets = sum(part["buckets"] for part in facts["stats"]["plan"]["parts"])
    server.requests()
    written = set()
    for number in [*range(parts, 0, -1)] * 2:
        bench.ran("run-part", f"{at}.plan", "--part", f"{number}/{parts}", *remote, "-o", f"{at}.parts")
        written.add(server.call("GET", f"bucket/{parts}.parts/part-{number:05}-of-{parts:05}"))
    lines = [line for line in server.requests() if " HTTP/1.1" in line]
    of_buckets = [line for line in lines if "GET /bucket/one.store/vectors-" in line]
    bench.ran("merge", f"{at}.plan", f"{at}.parts", *remote, "-o", f"{at}.csv")
    merged = sorted(server.call("GET", f"bucket/{parts}.csv").splitlines())
    return {
        "parts": parts,
        "equal": merged == expected,
        "repeated": len(written) == parts,
        "requests": len(of_buckets) // 2,
        "buckets": buckets,
        "other_requests": len(lines) - len(of_buckets) - 2 * parts,
    }
