#!/usr/bin/env python3
"""adjoin beside faiss and semhash on one set: the same pairs, and what each needs in time and memory.

usage: peers.py VECTORS.npy SIMILARITY [THREADS]

Each runs in a process of its own, which reads the vectors from the file. faiss compares everything with everything
(IndexFlatIP.range_search); semhash finds duplicates with its exact backend. Needs the packages adjoin, faiss-cpu and
semhash, those that are there.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy

Pairs = numpy.ndarray  # two columns, the lesser row first


def by_adjoin(path: Path, similarity: float, threads: int) -> Pairs:
    import adjoin
    import pyarrow

    with adjoin.join(path, min_similarity=similarity, exact=True, memory="256MB", threads=threads) as result:
        table = pyarrow.table(result.pairs())
    return numpy.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1).astype("int64")


def by_faiss(path: Path, similarity: float, threads: int) -> Pairs:
    import faiss

    faiss.omp_set_num_threads(threads)
    vectors = numpy.load(path).astype("float32")
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    # It gives what is above a threshold: a little less, so that rounding loses none.
    limits, _, rows = index.range_search(vectors, similarity - 1e-6)
    left = numpy.repeat(numpy.arange(len(vectors)), numpy.diff(limits.astype("int64")))
    return numpy.stack([left, rows], axis=1)[left < rows]


def by_semhash(path: Path, similarity: float, threads: int) -> Pairs:
    from semhash import SemHash
    from vicinity import Backend

    vectors = numpy.load(path).astype("float32")
    records = [{"text": str(row)} for row in range(len(vectors))]
    hashed = SemHash.from_embeddings(vectors, records, model=None, ann_backend=Backend.BASIC)
    found = hashed.self_deduplicate(threshold=similarity)
    pairs = [
        sorted((int(one.record["text"]), int(other["text"])))
        for one in found.filtered
        for other, _ in one.duplicates
    ]
    return numpy.array(pairs, dtype="int64").reshape(-1, 2)


def measured(find: Callable[[Path, float, int], Pairs], path: Path, similarity: float, threads: int) -> dict[str, object]:
    """Runs one of them in a process of its own."""

    def work(sender: multiprocessing.connection.Connection) -> None:
        before = time.monotonic()
        try:
            pairs = find(path, similarity, threads)
        except ImportError as error:
            sender.send({"missing": str(error)})
            return
        seconds = time.monotonic() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sender.send({"pairs": {tuple(pair) for pair in pairs.tolist()}, "seconds": seconds, "peak_bytes": peak})

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(sender,))
    process.start()
    told = receiver.recv()
    process.join()
    return told


def main() -> int:
    path, similarity = Path(sys.argv[1]), float(sys.argv[2])
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    ways = {"adjoin": by_adjoin, "faiss": by_faiss, "semhash": by_semhash}
    results = {name: measured(find, path, similarity, threads) for name, find in ways.items()}
    ours = results["adjoin"].get("pairs")
    print(json.dumps({"set": path.name, "similarity": similarity, "threads": threads}))
    for name, told in results.items():
        if "missing" in told:
            print(f"{name:8} not measured: {told['missing']}")
            continue
        pairs = told["pairs"]
        beside = "" if name == "adjoin" or ours is None else f"  only here {len(pairs - ours)}, only adjoin {len(ours - pairs)}"
        print(f"{name:8} {len(pairs):9} pairs  {told['seconds']:7.2f} s  {told['peak_bytes'] / 1e6:8.1f} MB at most{beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
