#!/usr/bin/env python3
"""Cycles of deletes and inserts of a collection, each followed by a merge: `live_cycles.py FILE NAME=VALUE ...`.

Needs a Python with numpy and pyarrow. Names:

- `adjoin`: the program
- `method`: how merges change the graph: a method of `collection merge`, or `change-N` of the laboratory, which replaces a
  deleted neighbor with at most N vertices
- `rows`: the number of rows of the file that are present at a time
- `shares`: fractions of these rows, separated by commas. Each cycle deletes the next of them, from the first one again after
  the last one, and inserts as many rows. If the file has too few others, some deleted ones are inserted again
- `cycles`: the number of cycles; `every`: the number of cycles between two printed lines of JSON

A line has the duration, the peak of resident memory and the bytes written of the last merge. The last line describes an
index that is built from the rows that are present at the end.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
from live_peers import QUERIES, K, nearest

LISTS = (20, 40, 80)


class Live:
    """A collection in a folder."""

    def __init__(self, adjoin: str, folder: Path, threads: int) -> None:
        self.adjoin, self.folder, self.index, self.threads = adjoin, folder, folder / "live", threads

    def run(self, command: str, *words: object) -> dict[str, float]:
        """Runs a command. Returns its cost (`cost_of`)."""
        limits = [] if command == "create" else ["--threads", str(self.threads), "--quiet"]
        group = [] if command == "search" else ["collection"]
        return cost_of([self.adjoin, *group, command, str(self.index), *(str(word) for word in words), *limits])

    def merge(self, method: str) -> dict[str, float]:
        """Merges with a method. Returns the cost."""
        if not method.startswith("change-"):
            return self.run("merge", "--method", method)
        lab, replacements = Path(self.adjoin).parent / "adjoin-lab", method.removeprefix("change-")
        words = [f"replacements={replacements}", f"threads={self.threads}"]
        return cost_of([str(lab), "live", "merge", str(self.index), *words])

    def write(self, come: Any, vectors: Any, gone: Any = ()) -> None:
        """Deletes some ids, and inserts others with their vectors."""
        table, ids = self.folder / "come.parquet", self.folder / "gone.txt"
        elements = pyarrow.array(numpy.ascontiguousarray(vectors).reshape(-1))
        columns = pyarrow.FixedSizeListArray.from_arrays(elements, vectors.shape[1])
        pyarrow.parquet.write_table(pyarrow.table({"id": pyarrow.array(come), "vector": columns}), table)
        ids.write_text("".join(f"{row}\n" for row in gone))
        self.run("write", "--delete", ids, "--insert", table)

    def measured(self, queries: Path, truth: Any) -> dict[str, Any]:
        """Returns recall and reads of searches, and the size and the page order of the index."""
        hits, told, record = self.folder / "hits.csv", self.folder / "stats.json", {}
        for width in LISTS:
            wanted = ["--queries", queries, "-k", K, "-L", width, "-o", hits, "--stats", told, "--force"]
            self.run("search", *wanted)
            with hits.open() as rows:
                found = sum(round(float(hit["distance"]) ** 2) <= truth[int(hit["query"])] for hit in csv.DictReader(rows))
            reads = json.loads(told.read_text())["search"]["reads_per_query"]
            record |= {f"recall_{width}": found / len(truth) / K, f"reads_{width}": reads}
        (index,) = self.index.glob("index-*")
        manifest = json.loads((index / "manifest.json").read_text())
        record["bytes"] = sum(file.stat().st_size for file in index.iterdir())
        return record | {"overlap_ratio": manifest["overlap_ratio"]}


#: Runs a program (`measure.run`), and prints its costs.
RUN = """import json, sys, measure
told = measure.run(sys.argv[1:])
print(json.dumps({name: told[name] for name in ("seconds", "peak_bytes", "written_bytes")}))"""


def cost_of(command: list[str]) -> dict[str, float]:
    """Runs a program. Returns its duration, the peak of its resident memory, and the bytes that it caused to be written.
    Another process starts it, because the peak includes the memory of the process that does."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    told = subprocess.run([sys.executable, "-c", RUN, *command], check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(told.stdout)


def main() -> None:
    file, named = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
    count, dimensions = numpy.fromfile(file, dtype=numpy.uint32, count=2)
    all_rows = numpy.memmap(file, dtype=numpy.uint8, offset=8, mode="r", shape=(count, dimensions))
    random = numpy.random.default_rng(3)
    order = random.permutation(count)
    queries, pool, rows = all_rows[order[:QUERIES]], all_rows[numpy.sort(order[QUERIES:])], int(named["rows"])
    order = random.permutation(len(pool))
    here, spare = order[:rows], order[rows:]
    changes = itertools.cycle(int(rows * float(share)) for share in named["shares"].split(","))
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "queries.u8bin"
        with asked.open("wb") as out:
            numpy.array(queries.shape, dtype=numpy.uint32).tofile(out)
            queries.tofile(out)

        def record(live: Live, cycle: int | None, cost: dict[str, float]) -> None:
            truth = nearest(pool[here].astype("f4"), queries.astype("f4"))[:, K - 1]
            print(json.dumps({"cycle": cycle} | cost | live.measured(asked, truth)), flush=True)

        def built(name: str) -> tuple[Live, dict[str, float]]:
            (Path(folder) / name).mkdir()
            live = Live(named["adjoin"], Path(folder) / name, int(named["threads"]))
            live.run("create", "--dimensions", dimensions, "--element", "u8")
            live.write(here, pool[here])
            return live, live.merge("build")

        live, cost = built("changed")
        record(live, 0, cost)
        for cycle in range(1, int(named["cycles"]) + 1):
            change = next(changes)
            gone = random.choice(rows, change, replace=False)
            spare = numpy.concatenate([spare, here[gone]])
            come, spare = spare[:change], spare[change:]
            live.write(come, pool[come], here[gone])
            here = numpy.concatenate([numpy.delete(here, gone), come])
            cost = live.merge(named["method"])
            if cycle % int(named["every"]) == 0:
                record(live, cycle, cost)
        fresh, cost = built("fresh")
        record(fresh, None, cost)


main()
