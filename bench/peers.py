#!/usr/bin/env python3
"""adjoin beside faiss and semhash on one set: the same pairs, the same rows to remove, and what each needs for them.

usage: peers.py VECTORS.npy SIMILARITY [THREADS]

Each runs in a process of its own, which reads the vectors from the file. faiss compares everything with everything
(IndexFlatIP.range_search) and finds pairs; semhash, with its exact backend, finds rows to remove, greedily in their
order; adjoin finds both. Memory is told as the peak of the process, and what of it was there before the work began.
Needs the packages adjoin, faiss-cpu and semhash, those that are there.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

#: Pairs as (lesser row, greater row), rows that can be removed; none of what is not found.
Found = tuple[set[tuple[int, int]] | None, set[int] | None]


def by_adjoin(path: Path, similarity: float, threads: int) -> Callable[[], Found]:
    import adjoin
    import pyarrow

    def find() -> Found:
        with adjoin.join(path, min_similarity=similarity, exact=True, memory="256MB", threads=threads) as result:
            pairs, removed = pyarrow.table(result.pairs()), pyarrow.table(result.keep())
        return set(zip(pairs["left"].to_pylist(), pairs["right"].to_pylist())), set(removed["id"].to_pylist())

    return find


def by_faiss(path: Path, similarity: float, threads: int) -> Callable[[], Found]:
    import faiss

    def find() -> Found:
        faiss.omp_set_num_threads(threads)
        vectors = numpy.load(path).astype("float32")
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        # It gives what is above a threshold: a little less, so that rounding loses none; f64 decides what is so near.
        limits, scores, rows = index.range_search(vectors, similarity - 1e-6)
        left = numpy.repeat(numpy.arange(len(vectors)), numpy.diff(limits.astype("int64")))
        once = left < rows
        exact = numpy.load(path, mmap_mode="r")
        for k in numpy.nonzero(once & (numpy.abs(scores - similarity) < 2e-6))[0]:
            x, y = exact[left[k]].astype("float64"), exact[rows[k]].astype("float64")
            once[k] = x @ y / numpy.sqrt((x @ x) * (y @ y)) >= similarity
        return set(zip(left[once].tolist(), rows[once].tolist())), None

    return find


def by_semhash(path: Path, similarity: float, threads: int) -> Callable[[], Found]:
    from semhash import SemHash
    from vicinity import Backend

    def find() -> Found:
        vectors = numpy.load(path).astype("float32")
        records = [str(row) for row in range(len(vectors))]
        hashed = SemHash.from_embeddings(vectors, records, model=None, ann_backend=Backend.BASIC)
        return None, {int(one.record) for one in hashed.self_deduplicate(threshold=similarity).filtered}

    return find


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(prepare: Callable[[Path, float, int], Callable[[], Found]], *asked: Any) -> dict[str, Any]:
    """Runs one of them in a process of its own."""

    def work(sender: Any) -> None:
        try:
            find = prepare(*asked)
            before, started = peak_bytes(), time.monotonic()
            pairs, removed = find()
            seconds = time.monotonic() - started
            sender.send({"pairs": pairs, "removed": removed, "seconds": seconds, "before": before, "peak": peak_bytes()})
        except Exception:
            sender.send({"failed": traceback.format_exc(limit=1).splitlines()[-1]})

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(sender,))
    process.start()
    told: dict[str, Any] = receiver.recv()
    process.join()
    return told


def beside(ours: set[Any] | None, theirs: set[Any] | None) -> str:
    if theirs is None:
        return "-"
    same = "" if ours is None or ours == theirs else f" ({len(theirs - ours)} only here, {len(ours - theirs)} only adjoin)"
    return f"{len(theirs)}{same}"


def main() -> int:
    path, similarity = Path(sys.argv[1]), float(sys.argv[2])
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    results = {
        name: measured(prepare, path, similarity, threads)
        for name, prepare in {"adjoin": by_adjoin, "faiss": by_faiss, "semhash": by_semhash}.items()
    }
    ours = results["adjoin"]
    print(json.dumps({"set": path.name, "similarity": similarity, "threads": threads}))
    for name, told in results.items():
        if "failed" in told:
            print(f"{name:8} not measured: {told['failed']}")
            continue
        memory = f"{told['peak'] / 1e6:.0f} MB, {told['before'] / 1e6:.0f} of them before"
        pairs, removed = (beside(ours.get(what), told[what]) for what in ("pairs", "removed"))
        print(f"{name:8} {told['seconds']:6.2f} s  {memory}  pairs {pairs}  removed {removed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
