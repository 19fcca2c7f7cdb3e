#!/usr/bin/env python3
"""Creates and reads runbooks of big-ann-benchmarks' streaming track, and finds the true neighbors of their searches.

usage: runbook.py make SHAPE --rows N [--steps N] [--seed N] [--clusters FILE] --name NAME -o RUNBOOK
       runbook.py clusters SET --count N [--seed N] -o SET
       runbook.py truth ADJOIN BASE QUERIES RUNBOOK --name NAME -o FOLDER

A runbook is a YAML file of numbered steps. `insert` and `delete` apply to the rows from `start` to `end`. `replace`
replaces the rows `tags_start` to `tags_end` with the rows `ids_start` to `ids_end`. `search` searches for all queries.
SHAPE is one of

  window   half of the rows are inserted; then each step inserts and deletes equally many (msturing-10M)
  expiry   rows are inserted and live for a random number of steps (wikipedia-1M, identical with its seed 1232)
  renewal  like expiry, but part of the rows is replaced before it expires (wikipedia-1M with replaces and deletes)
  rounds   rows are inserted and deleted cluster by cluster, five times (msturing-30M-clustered, final of 2023)

`clusters` writes a set in the order of its k-means clusters, so that the inserted rows drift. Next to the set, it
writes a `.json` file with the start of each cluster; the shape `rounds` takes that file. `truth` writes step{n}.gt100
for each search; ADJOIN is the program of adjoin. Needs numpy.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

#: A step with the keys of the file: `operation`, and the bounds of its ranges.
Step = dict[str, Any]
RANGES = {
    "insert": ("start", "end"),
    "delete": ("start", "end"),
    "replace": ("tags_start", "tags_end", "ids_start", "ids_end"),
    "search": (),
}
#: A number from 0 to DRAWN is drawn for each batch and decides how long its rows live, as in the published runbooks.
#: Up to the first value of LASTING, the rows are never deleted. Otherwise, if the number is below the second value,
#: they are deleted after as many steps as the runbook has; if not, after a FIFTH of these steps.
DRAWN, FIFTH = 18, 5
LASTING = {"expiry": (0, 4), "renewal": (1, 8)}
ROUNDS, SHARES = 5, (100, 15, 10, 5, 3)
KNOWN = 100
#: Number of sample rows for k-means, number of its rounds, and number of rows that are assigned at once.
LEARNT, MOVES, BLOCK = 20_000, 10, 50_000
TYPES = {".u8bin": ("u1", "uint8"), ".i8bin": ("i1", "int8"), ".fbin": ("<f4", "float")}


def ranged(operation: str, *bounds: int) -> Step:
    return {"operation": operation, **dict(zip(RANGES[operation], bounds))}


SEARCH: Step = ranged("search")


def window(rows: int, steps: int) -> Iterator[Step]:
    batch, half = rows // steps, steps // 2
    for step in range(steps):
        if step >= half:
            yield SEARCH
            yield ranged("delete", (step - half) * batch, (step - half + 1) * batch)
        yield ranged("insert", step * batch, (step + 1) * batch)
    yield SEARCH


def expiry(rows: int, steps: int, seed: int, shape: str = "expiry") -> Iterator[Step]:
    """Inserts one batch of rows per step, and deletes most batches some steps later. In the shape `renewal`, a step
    inserts only the first part of its batch, between half and nine tenths of it. The rest of the batch replaces the
    first rows of that part once half of their life is over."""
    draw, batch = random.Random(seed), rows // steps
    never, long = LASTING[shape]
    after: dict[int, list[Step]] = {}
    renewed: dict[int, list[Step]] = {}
    for step in range(steps):
        start, whole = step * batch, (step + 1) * batch
        end = start + int(draw.uniform(0.5, 0.9) * batch) if shape == "renewal" else whole
        yield ranged("insert", start, end)
        fate = draw.randint(0, DRAWN)
        life = steps if fate < long else steps // FIFTH
        if fate > never:
            after.setdefault(step + life, []).append(ranged("delete", start, end))
        if end < whole:
            half = step + (life if fate > never else steps - step) // 2
            renewed.setdefault(half, []).append(ranged("replace", start, start + whole - end, end, whole))
        yield from after.get(step, ())
        yield from renewed.get(step, ())
        yield SEARCH


def rounds(starts: list[int], seed: int) -> Iterator[Step]:
    """In each round, inserts some rows of each cluster, cluster by cluster. Then deletes most of the rows that are
    present."""
    draw = numpy.random.default_rng(seed)
    sizes = numpy.diff(starts)
    shares = draw.permuted(draw.dirichlet(SHARES, len(sizes)), axis=1)
    come, gone = list(starts[:-1]), list(starts[:-1])
    for turn in range(ROUNDS):
        for cluster, size in enumerate(sizes):
            start = come[cluster]
            come[cluster] += int(size * shares[cluster, turn])
            yield from changed("insert", start, come[cluster])
        for cluster in range(len(sizes)):
            start = gone[cluster]
            gone[cluster] += int(draw.uniform(0.5, 0.9) * (come[cluster] - start))
            yield from changed("delete", start, gone[cluster])


def changed(operation: str, start: int, end: int) -> Iterator[Step]:
    """Yields a step that changes rows, and a search after it."""
    if start < end:
        yield ranged(operation, start, end)
        yield SEARCH


def alive(steps: list[Step], rows: int) -> Iterator[tuple[int, Step, Any]]:
    """Yields each step, with its number and an array of the row of each tag. A tag without a row has -1. The array is
    reused."""
    row_of = numpy.full(rows, -1, dtype="i4")
    for number, step in enumerate(steps, 1):
        match step["operation"]:
            case "insert":
                row_of[step["start"] : step["end"]] = numpy.arange(step["start"], step["end"])
            case "delete":
                row_of[step["start"] : step["end"]] = -1
            case "replace":
                row_of[step["tags_start"] : step["tags_end"]] = numpy.arange(step["ids_start"], step["ids_end"])
        yield number, step, row_of


def most_alive(steps: list[Step]) -> int:
    """Returns the largest number of rows that are present at once."""
    there, most = 0, 0
    for step in steps:
        sign = {"insert": 1, "delete": -1}.get(step["operation"], 0)
        there += sign * (step.get("end", 0) - step.get("start", 0))
        most = max(most, there)
    return most


def write(path: Path, name: str, steps: list[Step]) -> None:
    lines = [f"{name}:"]
    for number, step in enumerate(steps, 1):
        lines += [f"  {number}:", *(f"    {key}: {value}" for key, value in step.items())]
    path.write_text("\n".join([*lines, f"  max_pts: {most_alive(steps)}", ""]))


def read(path: Path, name: str) -> list[Step]:
    """Returns the steps that a runbook has for a set. Parses only the parts of YAML that runbooks use: keys,
    indentation, numbers and words."""
    steps: dict[int, Step] = {}
    here, step = False, {}
    for line in path.read_text().splitlines():
        key, _, value = (part.strip().strip("'\"") for part in line.lstrip(" -").partition(":"))
        if line and not line.startswith(" "):
            here = key == name
        elif here and key.isdigit():
            step = steps.setdefault(int(key), {})
        elif here and key and key not in ("max_pts", "gt_url"):
            step[key] = int(value) if value.isdigit() else value
    if not steps:
        raise SystemExit(f"{path}: no steps of {name}")
    for number in range(1, len(steps) + 1):
        step = steps.get(number, {})
        needed = RANGES.get(step.get("operation", ""), ("operation",))
        wrong = [key for key in needed if not isinstance(step.get(key), int)]
        if wrong:
            raise SystemExit(f"{path}: step {number} of {name} has no {wrong[0]}")
    return [steps[number] for number in range(1, len(steps) + 1)]


def vectors(path: Path) -> Any:
    """Maps the rows of a file into memory. They are read when they are used."""
    rows, dimensions = numpy.fromfile(path, "<u4", 2).tolist()
    return numpy.memmap(path, TYPES[path.suffix][0], "r", offset=8, shape=(rows, dimensions))


def write_vectors(path: Path, rows: Any) -> None:
    with path.open("wb") as file:
        numpy.asarray(rows.shape, "<u4").tofile(file)
        rows.tofile(file)


def centers_of(sample: Any, count: int, draw: Any) -> Any:
    """Runs Lloyd's k-means. A center without rows stays in place."""
    centers = sample[draw.choice(len(sample), count, replace=False)]
    for _ in range(MOVES):
        near = nearest(sample, centers)
        for center in numpy.unique(near):
            centers[center] = sample[near == center].mean(axis=0)
    return centers


def nearest(rows: Any, centers: Any) -> Any:
    squares = numpy.einsum("ij,ij->i", centers, centers)
    return (squares - 2 * rows @ centers.T).argmin(axis=1)


def in_clusters(source: Path, to: Path, count: int, seed: int) -> None:
    rows, draw = vectors(source), numpy.random.default_rng(seed)
    learnt = numpy.sort(draw.choice(len(rows), min(LEARNT, len(rows)), replace=False))
    centers = centers_of(rows[learnt].astype("f4"), count, draw)
    blocks = (rows[start : start + BLOCK].astype("f4") for start in range(0, len(rows), BLOCK))
    near = numpy.concatenate([nearest(block, centers) for block in blocks])
    write_vectors(to, rows[numpy.argsort(near, kind="stable")])
    starts = [0, *numpy.cumsum(numpy.bincount(near, minlength=count)).tolist()]
    to.with_suffix(".json").write_text(json.dumps(starts))


def truth(adjoin: Path, base: Path, queries: Path, steps: list[Step], folder: Path) -> None:
    """Writes, for each search of the runbook, the nearest tags of each query, in the format of big-ann. Existing files
    are kept."""
    rows = vectors(base)
    folder.mkdir(parents=True, exist_ok=True)
    live, tags = folder / f"live{base.suffix}", folder / "live.tags"
    for number, step, row_of in alive(steps, len(rows)):
        found = folder / f"step{number}.gt{KNOWN}"
        if step["operation"] != "search" or found.exists():
            continue
        there = numpy.flatnonzero(row_of >= 0)
        write_vectors(live, rows[row_of[there]])
        write_vectors(tags, there.astype("<u4")[:, None])
        files = ["--base_file", live, "--query_file", queries, "--tags_file", tags, "--gt_file", found]
        kind = ["--data_type", TYPES[base.suffix][1], "--dist_fn", "l2", "--K", str(min(KNOWN, len(there)))]
        subprocess.run([adjoin, "groundtruth", *kind, *files, "--quiet"], check=True)
    for left in (live, tags):
        left.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make, clusters, true = (verbs.add_parser(verb) for verb in ("make", "clusters", "truth"))
    make.add_argument("shape", choices=["window", "expiry", "renewal", "rounds"])
    make.add_argument("--rows", type=int, required=True)
    make.add_argument("--steps", type=int, default=100)
    make.add_argument("--clusters", type=Path, help="where clusters begin, of `rounds`")
    clusters.add_argument("set", type=Path)
    clusters.add_argument("--count", type=int, required=True)
    for name in ("adjoin", "base", "queries", "runbook"):
        true.add_argument(name, type=Path)
    for verb in (make, clusters):
        verb.add_argument("--seed", type=int, default=1232)
    for verb in (make, true):
        verb.add_argument("--name", required=True, help="what the runbook calls the set")
    for verb in (make, clusters, true):
        verb.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.verb == "clusters":
        in_clusters(asked.set, asked.output, asked.count, asked.seed)
    elif asked.verb == "truth":
        truth(asked.adjoin, asked.base, asked.queries, read(asked.runbook, asked.name), asked.output)
    else:
        write(asked.output, asked.name, list(made(asked)))
    return 0


def made(asked: argparse.Namespace) -> Iterator[Step]:
    if asked.shape == "rounds":
        if asked.clusters is None:
            raise SystemExit("rounds need --clusters")
        return rounds(json.loads(asked.clusters.read_text()), asked.seed)
    if asked.shape == "window":
        return window(asked.rows, asked.steps)
    return expiry(asked.rows, asked.steps, asked.seed, asked.shape)


if __name__ == "__main__":
    sys.exit(main())
