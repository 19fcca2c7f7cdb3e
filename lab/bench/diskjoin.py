"""DiskJoin's figures on smaller and on wider sets than in `tables.py`: 9 with the memory of the process, 14, 18, and the seeds
of section 6.3; and the authors' program.

`papers.py` prints them.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import peer_diskjoin
import tables
from as_floats import as_floats
from at_recall import shown, table
from measure import Failed, Ledger, Record, run

#: Number of seeds of the centers, as in the paper.
SEEDS = 50
#: Choices of the paper for a join of whole buckets, and of the authors' program for the assignment.
ARC = "rule=arc order=gorder-out caching=belady threshold=0.9 recall-of=pairs threads=1"
DRAWN = ("centers=random", f"buckets={tables.SMALL.rows // 100}")
#: For Figure 9: the generated set, its similarity, and percentages of its bytes that the process may use.
WIDE_ROWS, WIDE_DIMENSIONS, SIMILARITY = 1_200_000, 768, 0.95
PERCENTAGES = (5, 10, 15, 20)
#: For Figure 14: sizes of the pieces of a file, the number of runs, and the cache of buckets.
PIECES, RUNS, CACHE = (None, 1 << 20, 128 << 10, 16 << 10), 5, 0.1
#: Rules of Figure 18. The authors' program considers the 245 nearest buckets of each.
RULES = ("triangle", "union", "margin-sum", "distance", "nearest", "arc", "arc candidates=245", "arc-mu", "arc-radius", "arc-radius-mu")
FIGURE_18 = tables.Figure(
    "Figure 18: which pairs are checked",
    ("CPU seconds", "pairs checked per vector", "edges", "recall of pairs / per vector"),
    tuple(tables.Run(f"{n} neighbors, {rule}", n, strategy=f"rule={rule}") for n in tables.BOTH for rule in RULES),
)
#: Fraction of the rows that are centers in the authors' program.
CENTERS = 0.01
#: `FALLOC_FL_COLLAPSE_RANGE`: removes a range of a file, and moves what follows it without copying it.
COLLAPSE_RANGE = 0x08


class Bench:
    """Runs adjoin and the laboratory, and keeps their output."""

    def __init__(self, lab: Path, work: Path) -> None:
        self.adjoin, self.lab, self.work = lab.parent / "adjoin", lab, work / "diskjoin"
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.work / "diskjoin.jsonl")

    def tables(self) -> tables.Bench:
        """Returns the runs of `tables.py` on the smaller set."""
        return tables.Bench(self.adjoin, self.work, tables.SMALL)

    def join(self, source: Path, *options: str) -> Record:
        """Joins a source or a store, and counts the neighbors of its rows."""
        stats = self.work / "stats.json"
        output = ["--result", "counts", "-o", self.work / "counts.parquet", "--stats", stats, "--force", "--quiet"]
        told = run([self.adjoin, "join", source, *options, *output])
        told["stats"] = json.loads(stats.read_text())
        told["stats"]["memory"].pop("over_time", None)
        return told

    def wide(self) -> Path:
        """Returns the generated set."""
        path = self.work / "wide.npy"
        if not path.exists():
            shape = ["--rows", str(WIDE_ROWS), "--dimensions", str(WIDE_DIMENSIONS), "--element", "f16"]
            run([self.adjoin, "gen", *shape, "-o", path, "--quiet"])
        return path


def figure_18(bench: Bench) -> str:
    """Returns the pairs that rules check."""
    return (
        f"Figure 18: which pairs are checked. Joins of a store of {tables.SMALL.rows:,} image descriptors with trained centers, both "
        "recalls 0.9. The threshold of each rule is calibrated, except `triangle`, which has none: it is DiskJoin without pruning. Rules "
        "but `union` and `margin-sum` run in memory. CPU seconds are of the whole process:\n\n" + bench.tables().rows(FIGURE_18)
    )


def seeds(bench: Bench) -> str:
    """Returns the effect of the vectors that are drawn as centers (section 6.3)."""
    measured = bench.tables()
    ways = {
        "trained, union rule": ("", ()),
        "random, union rule": ("", ("centers=random",)),
        "as published: random, HNSW, arc rule": (ARC, (*DRAWN, "assign=hnsw")),
        "as published, rule of two centers": (ARC, (*DRAWN, "assign=hnsw-two")),
    }
    rows = []
    for name, (strategy, build) in ways.items():
        asked = (tables.Run(f"{name}, seed {seed}", strategy=strategy, build=(*build, f"seed={seed}")) for seed in range(1, SEEDS + 1))
        told = [measured.joined(one) for one in asked]
        recalls = [[one["stats"]["recall"][what]["estimate"] for one in told] for what in ("pair", "per_vector")]
        checked = [one["stats"]["join"]["verified_pairs"] / one["stats"]["rows"] for one in told]
        read = [one["stats"]["predicted"]["bytes_read"] / one["store_bytes"] for one in told]
        figures = [(recalls[0], 3), (recalls[1], 3), (checked, 1), (read, 2), ([one["cpu_seconds"] for one in told], 2)]
        rows.append([name, *(f"{shown(statistics.mean(of), digits)} ({shown(statistics.stdev(of), digits)})" for of, digits in figures)])
    head = ["centers", "recall of pairs", "per vector", "pairs checked per vector", "times the store was read", "CPU s of the join"]
    return (
        f"Section 6.3: {SEEDS} seeds of the centers, for {tables.SMALL.rows:,} descriptors with 100 neighbors, recall 0.9 and a cache of "
        "10 % of the store. Means, with standard deviations in parentheses. Recalls are estimates from a sample. The union rule promises "
        "both recalls, on two threads; as published, lambda is 0.9 and nothing is calibrated, on one thread:\n\n" + table(head, rows)
    )


def figure_9(bench: Bench) -> str:
    """Returns the cost of a join in a memory of a few percent of the data."""
    source = bench.wide()
    size = source.stat().st_size
    near = ("--min-similarity", str(SIMILARITY), "--recall", "0.9")
    rows = []
    for percent in PERCENTAGES:
        memory = size * percent // 100
        told = bench.ledger.measured(f"memory {percent}", lambda: bench.join(source, *near, "--memory", str(memory)))  # noqa: B023
        if "failed" in told:
            rows.append([f"{percent} %", shown(memory / 1e6), told["failed"], *[""] * 6])
            continue
        stats = told["stats"]
        recalls = "{:.3f} / {:.3f}".format(*(stats["recall"][what]["estimate"] for what in ("pair", "per_vector")))
        read = stats["predicted"]["bytes_read"] / size
        figures = [stats["seconds"]["build"], stats["seconds"]["execute"], told["seconds"], told["cpu_seconds"]]
        cells = [shown(memory / 1e6), shown(told["peak_bytes"] / 1e6), *(shown(one) for one in figures), shown(read, 2)]
        rows.append([f"{percent} %", *cells, shown(stats["io"]["spill_bytes"] / size, 2), recalls])
    head = ["memory", "MB", "peak MB", "build s", "execute s", "total s", "CPU s", "times the data were read", "spilled", "recall of pairs / per vector"]
    return (
        f"Figure 9: memory of the whole process, build and join, as a percentage of the data. {WIDE_ROWS:,} generated vectors of "
        f"{WIDE_DIMENSIONS} halves ({size / 1e9:.2f} GB), cosine similarity {SIMILARITY}, recall 0.9. {least(bench, source, near)} The peak "
        "is the resident memory as the system reports it. Spilled bytes are a fraction of the data:\n\n" + table(head, rows)
    )


def least(bench: Bench, wide: Path, near: tuple[str, ...]) -> str:
    """Returns a sentence with the least budgets of joins, which their refusals name."""
    small = Path(os.environ.get("ADJOIN_DATA", "")) / tables.SMALL.file
    sets = {"them": (wide, near), f"the {tables.SMALL.rows:,} descriptors": (small, ("--eps", str(tables.SMALL.eps[100]), "--recall", "0.9"))}
    words = []
    for name, (source, options) in sets.items():
        told = bench.ledger.measured(f"least {name}", lambda: bench.join(source, *options, "--memory", "1MB"))  # noqa: B023
        refused = told.get("failed", "")
        needed = re.search(r"needs at least ([0-9.]+) MB", refused)
        if not needed:
            raise Failed(f"a join in 1 MB is not refused with its least budget, but with {refused!r}")
        share = float(needed[1]) * 1e6 / source.stat().st_size
        words.append(f"{needed[1]} MB for {name}, {share:.1%} of the bytes")
    return f"The least budget of a join is {' and '.join(words)}."


def figure_14(bench: Bench) -> str:
    """Returns the cost of a join with a store in fragments."""
    measured = bench.tables()
    built = measured.built(())
    near = ("--eps", str(tables.SMALL.eps[100]), "--recall", "0.9")
    cache = ("--cache", str(int(built["store_bytes"] * CACHE)), "--memory", "4GiB")
    rows = []
    for piece in PIECES:
        store = bench.work / "fragments"
        copied: list[int] = []

        def measure() -> Record:
            if not copied:
                copied.append(fragmented(bench.work / "store", store, piece))  # noqa: B023
            return bench.join(store, *near, *cache) | {"extents": copied[0]}  # noqa: B023

        told = [bench.ledger.measured(f"fragments {piece} {number}", measure) for number in range(RUNS)]
        io = told[0]["stats"]["io"]
        execute = [one["stats"]["seconds"]["execute"] for one in told]
        cells = [f"{told[0]['extents']:,}", f"{io['reads']:,}", shown(io["bytes_read"] / 1e6)]
        cells += [shown(statistics.median(execute), 2), shown(min(execute), 2), shown(max(execute), 2)]
        rows.append(["none" if piece is None else f"{piece >> 10} KiB", *cells])
    head = ["pieces", "extents", "reads", "MB read", "execute s, median", "least", "most"]
    return (
        f"Figure 14: fragmentation. Copies of the store of {tables.SMALL.rows:,} descriptors ({built['store_bytes'] / 1e6:.1f} MB of "
        "vectors). Each extent of a copy has the size of a piece, because every other piece of a file of twice the size was removed "
        "(`fallocate --collapse-range`); `filefrag` counts the extents. 100 neighbors, both recalls 0.9, a cache of "
        f"{CACHE:.0%} of the store, {RUNS} runs:\n\n" + table(head, rows)
    )


def fragmented(store: Path, copy: Path, piece: int | None) -> int:
    """Copies a store. If a size of pieces is given, the file of its vectors is not contiguous beyond that size. Returns the
    number of extents of that file."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
    path = next(copy.glob("vectors-*"))
    if piece is not None:
        write_in_pieces(path, path.read_bytes(), piece)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    counted = re.search(r"(\d+) extents? found", str(run(["filefrag", path])["output"]))
    if not counted:
        raise Failed(f"filefrag does not count the extents of {path}")
    return int(counted[1])


def write_in_pieces(path: Path, contents: bytes, piece: int) -> None:
    """Writes a file with a gap after each piece, and then removes the gaps from the file, from the last to the first."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    path.unlink()
    ends = range(piece, len(contents), piece)
    with path.open("wb") as file:
        for start in range(0, len(contents), piece):
            file.write(contents[start : start + piece])
            if start + piece in ends:
                file.write(bytes(piece))
        file.flush()
        os.fsync(file.fileno())
        for end in reversed(ends):
            if fallocate(file.fileno(), COLLAPSE_RANGE, 2 * end - piece, piece):
                raise Failed(f"{path}: {os.strerror(ctypes.get_errno())}; the file system cannot remove ranges of files")
    if path.read_bytes() != contents:
        raise Failed(f"{path} differs from the file that was copied")


def program(bench: Bench) -> str:
    """Returns the cost of the authors' program, next to ours."""
    vectors = as_floats(Path(os.environ.get("ADJOIN_DATA", "")) / tables.SMALL.file, bench.work / "small.fbin")
    eps = tables.SMALL.eps[100]
    near = ("--eps", str(eps), "--recall", "0.9", "--recall-of", "pairs", "--memory", "128MB", "--threads", "1")
    ways = {
        "the authors' program": lambda: peer_diskjoin.joined(bench.adjoin, vectors, eps, bench.work, 1, CENTERS),
        "adjoin": lambda: bench.join(vectors, *near),
    }
    rows = []
    for name, way in ways.items():
        told = bench.ledger.measured(name, way)
        if "failed" in told:
            rows.append([f"{name}: not measured: {told['failed']}", *[""] * 4])
            continue
        recall = (told.get("recall") or told["stats"]["recall"])["pair"]
        reached = recall["estimate"] if isinstance(recall, dict) else recall
        cells = [shown(told[figure], digits) for figure, digits in (("seconds", 1), ("cpu_seconds", 1))]
        rows.append([name, *cells, shown(told["peak_bytes"] / 1e6, 0), f"{reached:.3f}"])
    return (
        f"The authors' program ({peer_diskjoin.REPOSITORY} at {peer_diskjoin.COMMIT[:7]}), from the file of vectors to the count of "
        f"pairs, on one thread. {tables.SMALL.rows:,} descriptors as floats, 100 neighbors, with the settings of its configuration for "
        "BigANN100M at recall 0.9 (K 245, cache in proportion to the rows), but 1 % of the rows as centers, as in the paper: with 0.2 % as "
        "in that configuration, K would be more than half of all buckets here. It counts pairs of sampled rows; its recall is of one row in "
        f"{peer_diskjoin.OURS}, compared with an exact join. adjoin estimates its recall of pairs, and holds the floats as bytes, since all are small integers:\n\n"
        + table(["program", "seconds", "CPU s", "peak MB", "recall of pairs"], rows)
    )


FIGURES: tuple[Callable[[Bench], str], ...] = (figure_18, seeds, figure_14, figure_9, program)
