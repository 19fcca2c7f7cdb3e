"""The laboratory as `papers.py` runs it, and the set and settings that its tables share."""

from __future__ import annotations

import argparse
import json
import os
from array import array
from collections.abc import Iterable
from pathlib import Path

import diskann_package
from measure import Failed, Ledger, Record, run

FILE, ROWS, DIMENSIONS = "sift-200k.u8bin", 200_000, 128
#: Thresholds, each under the number of neighbors that a vector of the set has there on average.
EPS = {10: 126.566, 100: 226.555}
RECALL = 0.9
#: Fraction of the store that the cache of buckets holds, and the memory of searches and joins.
CACHE_SHARE, MEMORY = 0.1, "128MB"


class Bench:
    """Runs the laboratory, and keeps its output."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.program, self.work = asked.lab.resolve(), asked.work.resolve() / "papers"
        self.adjoin = self.program.parent / "adjoin"
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.work / "papers.jsonl")

    def rows(self, name: str, chosen: Iterable[int], file: str = FILE) -> Path:
        """Returns a file with some rows of a set."""
        path = self.work / f"{name}.u8bin"
        if not path.exists():
            source = Path(os.environ.get("ADJOIN_DATA", "")) / file
            if "ADJOIN_DATA" not in os.environ or not source.exists():
                raise Failed(f"{file} is not in ADJOIN_DATA")
            vectors = memoryview(source.read_bytes())[8:]
            numbers = list(chosen)
            with path.open("wb") as out:
                array("I", [len(numbers), DIMENSIONS]).tofile(out)
                for row in numbers:
                    out.write(vectors[row * DIMENSIONS : (row + 1) * DIMENSIONS])
        return path

    def measured(self, *words: object) -> Record:
        """Runs an experiment of the laboratory. If the words name a file `stats=`, the record has its statistics."""
        stats = self.work / "stats.json"

        def measure() -> Record:
            told = run([self.program, *(str(word).replace("stats=", f"stats={stats}") for word in words)])
            if "stats=" in words:
                told["stats"] = json.loads(stats.read_text())
                told["stats"]["memory"].pop("over_time", None)
            return told

        key = json.dumps([str(word).replace(str(self.work), "") for word in words])
        return self.ledger.succeeded(key, measure)

    def peer(self, what: str, job: Record) -> Record:
        """Runs DiskANN's Python package."""
        key = json.dumps(["diskann", what, job]).replace(str(self.work), "")
        return self.ledger.succeeded(key, lambda: diskann_package.called(what, job))

    def store(self, *options: str, source: Path | None = None) -> tuple[Path, Record]:
        """Builds a store of the whole set, or of a file. Returns it with the cost of its build and the bytes of its
        buckets."""
        store = self.work / "-".join(["store", *([source.stem] if source else []), *(option.split("=")[1] for option in options)])
        built = self.measured("build", source or self.rows("all", range(ROWS)), store, *options)
        return store, built | {"store_bytes": sum(path.stat().st_size for path in store.glob("vectors-*"))}

    def joined(self, neighbors: int, options: tuple[str, ...], *words: str) -> tuple[Record, Record]:
        """Joins a store. Returns the costs of its build and of the join."""
        store, built = self.store(*options)
        cache = f"cache={int(built['store_bytes'] * CACHE_SHARE)}"
        return built, self.measured("join", store, f"eps={EPS[neighbors]}", cache, "threads=1", *words, "stats=")

    def pairs(self, neighbors: int) -> int:
        """Returns the true number of pairs of the whole set, at the threshold for a number of neighbors."""
        told = self.measured("join", self.store()[0], f"eps={EPS[neighbors]}", "recall=1", "stats=")
        return int(told["stats"]["join"]["pairs"])

    def index(self, name: str, base: Path, queries: Path, *options: str) -> Path:
        """Builds an index with the engine's order of pages. Returns its folder."""
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        self.measured("index", base, queries, folder, "lists=20", "recalls=", *options)
        return next(folder.glob("grown-*"))
