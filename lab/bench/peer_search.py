#!/usr/bin/env python3
"""Runs one peer of `search_peers.py` in a separate process: `peer_search.py NAME build|search JOB`, with the job as
JSON.

Every job has the keys `folder` (of the index) and `threads`. A build also has `base`, a .u8bin or .fbin file. A search
has these keys:

- `queries`, a file like `base`; `k`; `effort`, the setting of the peer that raises recall
- `lone`: whether each query is sent and timed separately, by `callers` threads of which each sends one query after
  another; `batch`: otherwise, queries per call
- `warm`: number of first queries that are answered but not timed
- `patience`: seconds after which no more queries are sent; `memory_bytes` for the peer's own caches
- `hits`: a file to write as k row numbers of 4 bytes for each answered query; `cgroup`: a folder that bounds memory, or
  null

The answer of a search has the keys `rate` (queries per second) and, for lone queries, `mean_ms`, `p50_ms` and `p99_ms`;
`read_bytes`, the bytes that a query reads from the disk; and `queries`, the number of timed queries. The answer of a
build has the key `version`. Libraries and queries are loaded before the bound of the memory applies, and the index is
loaded after that.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from peer import read

#: Number of rows that are converted and added at once.
BLOCK = 100_000
#: Number of sample rows per list with which faiss is trained. The minimum of faiss is 39.
TRAINED = 64
#: Number of dimensions per byte of a code, as in adjoin.
CODED = 4
NO_ROW = 2**32 - 1

Job = dict[str, Any]
#: A function that returns the row numbers of the k nearest of some queries. Its second argument is a number of threads.
Find = Callable[[Any, int], Any]


def shape(path: str) -> tuple[int, int]:
    rows, dimensions = numpy.fromfile(path, "<u4", 2).tolist()
    return rows, dimensions


def blocks(path: str) -> Iterator[tuple[Any, Any]]:
    """Yields row numbers and vectors as f32, one block at a time."""
    rows, dimensions = shape(path)
    element = numpy.dtype("u1" if path.endswith(".u8bin") else "<f4")
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        offset = 8 + start * dimensions * element.itemsize
        block = numpy.fromfile(path, element, count * dimensions, offset=offset).reshape(count, dimensions)
        yield numpy.arange(start, start + count), block.astype("float32")


def faiss_build(job: Job) -> None:
    """Builds an index block by block, and merges the blocks on disk, as in faiss's example of lists on disk."""
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    faiss.omp_set_num_threads(job["threads"])
    folder, (rows, dimensions) = Path(job["folder"]), shape(job["base"])
    lists, draw = int(4 * rows**0.5), numpy.random.default_rng(1)
    share = min(1.0, TRAINED * lists / rows)
    sample = [block[draw.random(len(block)) < share] for _, block in blocks(job["base"])]
    quantizer = faiss.IndexFlatL2(dimensions)
    index = faiss.IndexIVFFlat(quantizer, dimensions, lists)
    index.train(numpy.concatenate(sample))
    del sample
    parts = []
    for ids, block in blocks(job["base"]):
        index.add_with_ids(block, ids)
        parts.append(str(folder / f"part-{len(parts)}"))
        faiss.write_index(index, parts[-1])
        index.reset()
    merge_ondisk(index, parts, str(folder / "lists"))
    faiss.write_index(index, str(folder / "index"))
    for part in parts:
        os.remove(part)


def faiss_open(job: Job) -> Find:
    import faiss

    index = faiss.read_index(str(Path(job["folder"]) / "index"))
    index.nprobe = job["effort"]

    def find(queries: Any, threads: int) -> Any:
        faiss.omp_set_num_threads(threads)
        return index.search(queries, job["k"])[1]

    return find


def hnswlib_build(job: Job) -> None:
    import hnswlib

    rows, dimensions = shape(job["base"])
    index = hnswlib.Index(space="l2", dim=dimensions)
    index.init_index(max_elements=rows)
    for ids, block in blocks(job["base"]):
        index.add_items(block, ids, num_threads=job["threads"])
    index.save_index(str(Path(job["folder"]) / "index"))


def hnswlib_open(job: Job) -> Find:
    import hnswlib

    index = hnswlib.Index(space="l2", dim=shape(job["queries"])[1])
    index.load_index(str(Path(job["folder"]) / "index"))
    index.set_ef(job["effort"])
    return lambda queries, threads: index.knn_query(queries, k=job["k"], num_threads=threads)[0]


def usearch_build(job: Job) -> None:
    from usearch.index import Index

    index = Index(ndim=shape(job["base"])[1], metric="l2sq", dtype="f32")
    for ids, block in blocks(job["base"]):
        index.add(ids, block, threads=job["threads"])
    index.save(str(Path(job["folder"]) / "index"))


def usearch_open(job: Job) -> Find:
    from usearch.index import Index

    index = Index.restore(str(Path(job["folder"]) / "index"), view=True)
    index.expansion_search = job["effort"]
    return lambda queries, threads: index.search(queries, job["k"], threads=threads).keys


def lance_build(job: Job) -> None:
    import lancedb
    import pyarrow
    from lancedb.index import IvfPq

    rows, dimensions = shape(job["base"])
    vectors = pyarrow.list_(pyarrow.float32(), dimensions)
    schema = pyarrow.schema({"id": pyarrow.uint32(), "vector": vectors})

    def batches() -> Iterator[Any]:
        for ids, block in blocks(job["base"]):
            column = pyarrow.FixedSizeListArray.from_arrays(block.ravel(), dimensions)
            yield pyarrow.record_batch([pyarrow.array(ids.astype("u4")), column], schema=schema)

    table = lancedb.connect(job["folder"]).create_table("base", batches(), schema=schema)
    codes = {"num_partitions": int(rows**0.5), "num_sub_vectors": max(1, dimensions // CODED)}
    table.create_index("vector", config=IvfPq(distance_type="l2", **codes))


def lance_open(job: Job) -> Find:
    """Opens the index. Each thread sends one query after another. The cached part of the index takes at most half of
    the memory."""
    import lancedb

    caches = {"index_cache_size_bytes": job["memory_bytes"] // 2, "metadata_cache_size_bytes": job["memory_bytes"] // 8}
    table = lancedb.connect(job["folder"], session=lancedb.Session(**caches)).open_table("base")
    probes, refine = job["effort"]

    def one(query: Any) -> Any:
        search = table.search(query).select(["id", "_distance"]).limit(job["k"])
        found = search.nprobes(probes).refine_factor(refine).to_arrow()["id"].to_numpy()
        return numpy.pad(found, (0, job["k"] - len(found)), constant_values=NO_ROW)

    def find(queries: Any, threads: int) -> Any:
        if threads == 1:
            return [one(query) for query in queries]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, queries))

    return find


def adjoin_build(job: Job) -> None:
    import adjoin

    adjoin.build_index(job["base"], Path(job["folder"]) / "index", threads=job["threads"])


def adjoin_open(job: Job) -> Find:
    import adjoin

    index = adjoin.open(Path(job["folder"]) / "index", memory=job["memory_bytes"])
    return lambda queries, threads: index.search(queries, job["k"], list=job["effort"]).ids


@dataclass(frozen=True)
class Peer:
    """A peer: its package and its module, and the functions that build and open an index of it."""

    package: str
    module: str
    build: Callable[[Job], None]
    open: Callable[[Job], Find]


PEERS = {
    "adjoin": Peer("adjoin", "adjoin", adjoin_build, adjoin_open),
    "faiss-ivf": Peer("faiss-cpu", "faiss", faiss_build, faiss_open),
    "hnswlib": Peer("hnswlib", "hnswlib", hnswlib_build, hnswlib_open),
    "usearch": Peer("usearch", "usearch.index", usearch_build, usearch_open),
    "lancedb": Peer("lancedb", "lancedb", lance_build, lance_open),
}


def forget(folder: Path) -> None:
    """Evicts the files of an index from the page cache, into which the build wrote them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_bytes() -> int:
    """Returns the bytes that this process read from the disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def ask(find: Find, queries: Any, job: Job) -> tuple[list[Any], list[float]]:
    """Runs batches of queries until all are answered or the patience is over. Returns the hits of the answered
    queries, and the seconds of each batch."""
    step, threads = (1, 1) if job["lone"] else (job["batch"], job["threads"])
    found: list[Any] = []
    spent: list[float] = []
    begun = time.monotonic()
    for start in range(0, len(queries), step):
        asked = time.monotonic()
        if asked - begun > job["patience"]:
            break
        found.extend(numpy.reshape(find(queries[start : start + step], threads), (-1, job["k"])))
        spent.append(time.monotonic() - asked)
    return found, spent


def ask_by_callers(find: Find, queries: Any, job: Job) -> tuple[list[Any], list[float]]:
    """Runs lone queries on several threads, each with a part of the queries. If the patience ends before all are
    answered, the order of the hits is not that of the queries."""
    with ThreadPoolExecutor(job["callers"]) as pool:
        parts = list(pool.map(lambda some: ask(find, some, job), numpy.array_split(queries, job["callers"])))
    return [row for found, _ in parts for row in found], [seconds for _, spent in parts for seconds in spent]


def search(peer: Peer, job: Job) -> dict[str, float]:
    queries = read(Path(job["queries"]))
    forget(Path(job["folder"]))
    if job["cgroup"]:
        (Path(job["cgroup"]) / "cgroup.procs").write_text(str(os.getpid()))
    find = peer.open(job)
    first, _ = ask(find, queries[: job["warm"]], job)
    before, begun = read_bytes(), time.monotonic()
    found, spent = (ask_by_callers if job["callers"] > 1 else ask)(find, queries[len(first) :], job)
    seconds = time.monotonic() - begun
    told = {"queries": len(found), "rate": len(found) / seconds, "read_bytes": (read_bytes() - before) / len(found)}
    numpy.asarray(first + found).astype("<u4").tofile(job["hits"])
    if job["lone"]:
        told |= {"mean_ms": 1e3 * sum(spent) / len(spent)}
        told |= {f"p{part}_ms": float(numpy.percentile(spent, part)) * 1e3 for part in (50, 99)}
    return told


def main() -> int:
    peer, what, job = PEERS[sys.argv[1]], sys.argv[2], json.loads(sys.argv[3])
    # LanceDB has no argument for threads. It uses this variable and the number of cores. The number of cores is limited
    # for all peers.
    os.environ["LANCE_CPU_THREADS"] = str(job["threads"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["threads"]])
    importlib.import_module(peer.module)
    if what == "build":
        peer.build(job)
        print(json.dumps({"version": importlib.metadata.version(peer.package)}))
    else:
        print(json.dumps(search(peer, job)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
