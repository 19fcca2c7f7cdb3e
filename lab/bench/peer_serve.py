#!/usr/bin/env python3
"""Builds and serves one peer of `serve_peers.py` in a separate process: `peer_serve.py NAME build|serve|version JOB`, or
`peer_serve.py truth JOB`, with the job as JSON. Runs in PEERS_PYTHON, with numpy.

- chroma: Chroma's own server. Its effort is part of the collection, and applies from the next start of the server.
- lancedb, qdrant: libraries in a server of uvicorn, with one event loop and no framework, since no package registry has
  a server of them. qdrant is the engine of Qdrant as a library, `qdrant-edge-py`.

The keys of a job: `folder` of the peer, `base` (a .fbin file), `port`, `k`, `effort` (candidates of a search of the
graph), `memory_bytes` and `threads`. For the truth: `base`, `queries`, `k`, and `truth`, a file that gets the distance
of the k-th nearest row of each query as f64.

A server answers `POST /` with a body of f32, and an answer is a list of row numbers. Chroma has its own paths.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy
from peer import read
from peer_search import blocks, shape

#: Graph of each peer: neighbors of a vector, and candidates for them during the build.
NEIGHBORS, CANDIDATES = 16, 100
#: Number of rows that a request to a peer inserts.
INSERTED = 5_000
PACKAGES = {"chroma": "chromadb", "lancedb": "lancedb", "qdrant": "qdrant-edge-py"}
#: Slack for rounding in a comparison of distances.
SLACK = 1 + 1e-6

Job = dict[str, Any]
Search = Callable[[Any], Awaitable[list[int]]]


def truth(job: Job) -> None:
    """Compares each query with all rows. Sums of squares of bytes are exact in f32."""
    base, queries, k = read(Path(job["base"])), read(Path(job["queries"])), job["k"]
    norms, far = (base**2).sum(axis=1), []
    for block in numpy.array_split(queries, max(1, len(queries) // 50)):
        squares = (block**2).sum(axis=1)[:, None] - 2 * block @ base.T + norms
        far.append(numpy.partition(squares, k - 1, axis=1)[:, k - 1])
    (numpy.sqrt(numpy.concatenate(far).astype("f8")) * SLACK).tofile(job["truth"])


class Chroma:
    """Chroma's server, and its only collection."""

    def __init__(self, job: Job) -> None:
        self.url = f"http://127.0.0.1:{job['port']}/api/v2/tenants/default_tenant/databases/default_database/collections"
        program = Path(sys.executable).with_name("chroma")
        self.command = [str(program), "run", "--path", job["folder"], "--port", str(job["port"])]

    def __enter__(self) -> Chroma:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            try:
                self.ask("GET")
                return self
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"chroma: the server ended with {self.process.returncode}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, method: str, path: str = "", body: Job | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def path(self) -> str:
        """Returns the path of the collection below the URL."""
        return f"/{self.ask('GET')[0]['id']}"


def chroma_build(job: Job) -> None:
    with Chroma(job) as chroma:
        graph = {"space": "l2", "max_neighbors": NEIGHBORS, "ef_construction": CANDIDATES}
        chroma.ask("POST", "", {"name": "rows", "configuration": {"hnsw": graph}})
        path = chroma.path()
        for ids, block in blocks(job["base"]):
            for start in range(0, len(ids), INSERTED):
                some = slice(start, start + INSERTED)
                rows = {"ids": [str(row) for row in ids[some]], "embeddings": block[some].tolist()}
                chroma.ask("POST", f"{path}/add", rows)


def chroma_serve(job: Job) -> None:
    """Sets the effort, starts the server again, and waits until this process is terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the server is ended, too
    with Chroma(job) as chroma:
        path = chroma.path()
        chroma.ask("PUT", path, {"new_configuration": {"hnsw": {"ef_search": job["effort"]}}})
    with Chroma(job) as chroma:
        print(json.dumps({"port": job["port"], "path": f"{chroma.url}{path}/query".split(str(job["port"]), 1)[1]}), flush=True)
        chroma.process.wait()


def lance_build(job: Job) -> None:
    import lancedb
    import pyarrow
    from lancedb.index import HnswSq

    column = pyarrow.list_(pyarrow.float32(), shape(job["base"])[1])
    schema = pyarrow.schema({"id": pyarrow.uint32(), "vector": column})
    table = lancedb.connect(job["folder"]).create_table("rows", schema=schema)
    for ids, block in blocks(job["base"]):
        vectors = pyarrow.FixedSizeListArray.from_arrays(block.ravel(), block.shape[1])
        table.add(pyarrow.table([pyarrow.array(ids.astype("u4")), vectors], schema=schema))
    table.optimize()
    graph = HnswSq(distance_type="l2", num_partitions=1, m=NEIGHBORS, ef_construction=CANDIDATES)
    table.create_index("vector", config=graph)


async def lance_open(job: Job) -> Search:
    import lancedb

    caches = {"index_cache_size_bytes": job["memory_bytes"] // 2, "metadata_cache_size_bytes": job["memory_bytes"] // 8}
    base = await lancedb.connect_async(job["folder"], session=lancedb.Session(**caches))
    table = await base.open_table("rows")

    async def search(query: Any) -> list[int]:
        asked = table.query().nearest_to(query).limit(job["k"]).nprobes(1).ef(job["effort"]).fast_search()
        found: list[int] = (await asked.select(["id", "_distance"]).to_arrow())["id"].to_pylist()
        return found

    return search


def qdrant_build(job: Job) -> None:
    import qdrant_edge as edge

    Path(job["folder"]).mkdir()
    vectors = edge.EdgeVectorParams(size=shape(job["base"])[1], distance=edge.Distance.Euclid)
    graph = edge.HnswIndexConfig(NEIGHBORS, CANDIDATES, full_scan_threshold=100, max_indexing_threads=job["threads"])
    shard = edge.EdgeShard.create(job["folder"], edge.EdgeConfig(vectors=vectors, hnsw_config=graph))
    for ids, block in blocks(job["base"]):
        for start in range(0, len(ids), INSERTED):
            some = zip(ids[start : start + INSERTED].tolist(), block[start : start + INSERTED].tolist())
            shard.update(edge.UpdateOperation.upsert_points([edge.Point(row, vector, None) for row, vector in some]))
    shard.optimize()
    shard.close()


async def qdrant_open(job: Job) -> Search:
    import qdrant_edge as edge

    shard, effort = edge.EdgeShard.load(job["folder"]), edge.SearchParams(hnsw_ef=job["effort"])

    async def search(query: Any) -> list[int]:
        # A search holds the only core, so a thread for it would only add work.
        asked = edge.SearchRequest(query=edge.Query.Nearest(query.tolist()), limit=job["k"], params=effort)
        return [int(point.id) for point in shard.search(asked)]

    return search


class App:
    """An application of ASGI that searches with each body that it receives."""

    def __init__(self, search: Search) -> None:
        self.search = search

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, is_whole = b"", False
        while not is_whole:
            part = await receive()
            body, is_whole = body + part.get("body", b""), not part.get("more_body")
        answer = json.dumps(await self.search(numpy.frombuffer(body, "<f4"))).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def serve(opened: Callable[[Job], Awaitable[Search]], job: Job) -> None:
    import uvicorn

    app = App(await opened(job))
    config = uvicorn.Config(app, port=job["port"], log_level="error", access_log=False, lifespan="off", backlog=1024)
    server = uvicorn.Server(config)
    served = asyncio.ensure_future(server.serve())
    while not server.started and not served.done():
        await asyncio.sleep(0.05)
    print(json.dumps({"port": job["port"], "path": "/"}), flush=True)
    await served


def serve_by_uvicorn(opened: Callable[[Job], Awaitable[Search]]) -> Callable[[Job], None]:
    def run(job: Job) -> None:
        import uvloop

        uvloop.run(serve(opened, job))

    return run


BUILD: dict[str, Callable[[Job], None]] = {"chroma": chroma_build, "lancedb": lance_build, "qdrant": qdrant_build}
SERVE = {
    "chroma": chroma_serve,
    "lancedb": serve_by_uvicorn(lance_open),
    "qdrant": serve_by_uvicorn(qdrant_open),
}


def main() -> int:
    *words, last = sys.argv[1:]
    job = json.loads(last)
    if words == ["truth"]:
        truth(job)
        return 0
    name, action = words
    os.environ["LANCE_CPU_THREADS"] = str(job["threads"])
    if action == "version":
        print(importlib.metadata.version(PACKAGES[name]))
    else:
        {"build": BUILD, "serve": SERVE}[action][name](job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
