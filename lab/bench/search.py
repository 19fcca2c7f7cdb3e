#!/usr/bin/env python3
"""Compares searches of a graph index with DiskANN and other peers, and measures the gain of each idea.

usage: search.py ADJOIN [--rounds N] [--only WORD --page FILE] [--segment] [--work DIR] [--charts DIR]
       search.py ADJOIN --orders NAME,... --page FILE [--work DIR]

Prints Markdown. Measurements are kept in WORK/search.jsonl and are not repeated. Real sets need ADJOIN_DATA. DiskANN
runs if DISKANN names the program `diskann-benchmark` (crate of that name, 0.61, feature `disk-index`). Compile it as
its repository does, with RUSTFLAGS="-C target-cpu=x86-64-v3" and CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1: otherwise it
trains codes at a fiftieth of the speed. Both bypass the page cache and run on two threads, with codes of equal size,
equal degree, and as many candidates in the build. adjoin searches within the memory that DiskANN used without a
cache, or within its own minimum if that is larger. DiskANN caches as many vertices as fit in the same memory. The
other peers run for the first set only; `search_peers.py` has them and their requirements (PEERS_PYTHON,
PEERS_CGROUP). `search_sweeps.py` has tables of one parameter each, `search_ranges.py` radius searches and filters.
`--segment` adds a segment as in Starling's paper (`search_segment.py`), which takes an hour and 40 GB of disk; else
it is copied from the page FILE, also if `--only` names it. Charts are written to DIR, by matplotlib in CHARTS_PYTHON
(`search_charts.py`). With `--only`, sets without WORD in their name are copied from the page FILE. With `--orders`,
only these rows of the table of page orders are measured, without times, and replaced in the page FILE.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import search_ranges
import search_segment
import search_sweeps
from at_recall import BEAM, BUILD_LIST, CODE_BYTES, DEGREE, LISTS, PAGE_BYTES, QUERIES, RECALLS, THREADS, K, at_recall, shown, table, with_rows
from measure import Failed, Ledger, Record, kept, measured_on, median, print_parts, read_page, run
from search_charts import charts
from search_peers import beside_peers

KNOWN = 100
#: Rows that are converted at once.
PIECE = 4_096
#: Bytes that DiskANN needs for a cached vertex in addition to its vector and neighbors, approximately.
OVERHEAD_OF_NODE = 64
LISTS_OF_DISKANN = (15, 25, 40, 60, 90, 130, 190)


@dataclass(frozen=True)
class Set:
    """Vectors: a file of ADJOIN_DATA, or rows and dimensions to generate."""

    name: str
    file: str = ""
    shape: tuple[int, int, str] = (0, 0, "")


SETS = (
    Set("sift-900k", "sift-900k.u8bin"),
    Set("debdesc", "debdesc.f16.npy"),
    Set("wordnet", "wordnet-20k.f16.npy"),
    Set("generated, 1,000,000 x 128 bytes", shape=(1_000_000, 128, "u8")),
    Set("generated, 1,000,000 x 768 floats", shape=(1_000_000, 768, "f32")),
    Set("generated, 200,000 x 1,536 floats", shape=(200_000, 1_536, "f32")),
    # Dimensions and elements of DEEP, SSNPP and Text2image, on which Starling's paper measures. Distances are L2.
    Set("generated, 1,000,000 x 96 floats, as DEEP", shape=(1_000_000, 96, "f32")),
    Set("generated, 1,000,000 x 256 bytes, as SSNPP", shape=(1_000_000, 256, "u8")),
    Set("generated, 1,000,000 x 200 floats, as Text2image", shape=(1_000_000, 200, "f32")),
)
#: As many vectors of as many bytes as a segment has in Starling's paper.
SEGMENT = Set("a segment: 33,000,000 x 128 bytes", shape=(33_000_000, 128, "u8"))


def split(source: Path, base: Path, queries: Path) -> None:
    """Writes the last rows of a file as queries, and the others as the base. Converts halves to floats, which both
    programs read. Works in pieces, since a set may be larger than memory."""
    with source.open("rb") as file:
        head = file.read(8)
        if source.suffix == ".npy":
            text = file.read(struct.unpack("<H", file.read(2))[0])
            rows, dimensions = (int(word) for word in text.decode().split("(")[1].split(")")[0].split(",")[:2])
            width, convert = 2, lambda piece: struct.pack(f"<{len(piece) // 2}f", *struct.unpack(f"<{len(piece) // 2}e", piece))
        else:
            rows, dimensions = struct.unpack("<2I", head)
            width = (source.stat().st_size - 8) // (rows * dimensions)
            convert = bytes
        for path, count in ((base, rows - QUERIES), (queries, QUERIES)):
            with path.open("wb") as to:
                to.write(struct.pack("<2I", count, dimensions))
                for start in range(0, count, PIECE):
                    to.write(convert(file.read(min(PIECE, count - start) * dimensions * width)))


class Bench:
    """One set: files of the base and of the queries, an index of each contender, and searches of the indexes."""

    def __init__(self, asked: argparse.Namespace, of: Set) -> None:
        self.adjoin, self.rounds, self.charts = asked.adjoin.resolve(), asked.rounds, asked.charts
        work = asked.work.resolve()
        #: Whether the set is the first one. Peers and sweeps use only that.
        self.of, self.is_first = of, of is SETS[0]
        self.work = work / of.name.replace(" ", "-").replace(",", "")
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(work / "search.jsonl")
        self.element = "u8" if of.file.endswith("u8bin") or of.shape[2] == "u8" else "f32"
        suffix = "u8bin" if self.element == "u8" else "fbin"
        self.base, self.queries = self.work / f"base.{suffix}", self.work / f"queries.{suffix}"
        self.hits = self.work / "hits.csv"
        if not self.queries.exists():
            self.cut()
        with self.base.open("rb") as base:
            self.rows, self.dimensions = struct.unpack("<2I", base.read(8))

    def cut(self) -> None:
        """Writes the last rows as queries."""
        if self.of.file:
            if "ADJOIN_DATA" not in os.environ or not (Path(os.environ["ADJOIN_DATA"]) / self.of.file).exists():
                raise Failed(f"{self.of.file} is not in ADJOIN_DATA")
            source = Path(os.environ["ADJOIN_DATA"]) / self.of.file
        else:
            rows, dimensions, element = self.of.shape
            source = self.work / ("all.u8bin" if element == "u8" else "all.fbin")
            shape = ["--rows", str(rows + QUERIES), "--dimensions", str(dimensions), "--element", element]
            run([self.adjoin, "gen", *shape, "-o", source, "--quiet", "--force"])
        split(source, self.base, self.queries)
        if not self.of.file:
            source.unlink()  # the base and the queries have all its rows

    def measured(self, key: object, measure: object) -> Record:
        """Measures some rounds, recorded under a key. Returns the round with the median of the seconds."""
        keys = [json.dumps([self.of.name, key, number]) for number in range(self.rounds)]
        return median([self.ledger.measured(one, measure) for one in keys])

    def succeeded(self, key: object, measure: object) -> Record:
        """Returns the record of a key as `measured` does. Raises Failed if it is a failure."""
        record = self.measured(key, measure)
        if "failed" in record:
            raise Failed(record["failed"])
        return record

    def made(self, key: object, folder: Path, build: Callable[[], Record]) -> Record:
        """Returns the record of the build of a folder. Builds it again if it has a record and is missing."""
        built = self.succeeded(key, build)
        if not folder.exists():
            build()
        return built

    def truth(self, nearest: int = K) -> array[float]:
        """Returns for each query the distance of its `nearest`-th nearest row, by which searches are judged. Writes all
        known neighbors to a file for DiskANN."""
        file, far = self.work / "truth.bin", array("d")
        if not file.exists():
            hits = self.work / "truth.csv"
            known = ["-k", str(KNOWN), "--exact", "-o", hits, "--quiet", "--force"]
            run([self.adjoin, "search", self.store(), "--queries", self.queries, *known])
            ids, squares = array("I"), array("f")
            with hits.open() as lines:
                for line in csv.DictReader(lines):
                    ids.append(int(line["id"])), squares.append(float(line["distance"]) ** 2)
            file.write_bytes(struct.pack("<2I", QUERIES, KNOWN) + ids.tobytes() + squares.tobytes())
        squares = array("f", file.read_bytes()[8 + 4 * QUERIES * KNOWN :])
        far.extend(squares[query * KNOWN + nearest - 1] ** 0.5 * (1 + 1e-6) for query in range(QUERIES))
        return far

    def store(self) -> Path:
        """Returns a store of the base, for exact scans."""
        store = self.work / "store"
        if not store.exists():
            run([self.adjoin, "build", self.base, "-o", store, "--quiet"])
        return store

    def index(self, layout: str = "grown", navigation: int = 0) -> Path:
        """Builds an index with a page order and `navigation` vectors in its navigation graph."""
        folder = self.work / (f"index-{layout}" + (f"-{navigation}" if navigation else ""))

        def build() -> Record:
            if layout != "grown":
                lab = self.adjoin.parent / "adjoin-lab"
                return run([lab, "relayout", self.index(), folder, layout, f"threads={THREADS}"])
            return self.build_index(self.base, folder, *(["--navigation", str(navigation)] if navigation else []))

        self.made(["build", layout, navigation], folder, build)
        return folder

    def build_index(self, source: Path, folder: Path, *options: str) -> Record:
        """Builds an index of a source or of a store, with the options that all indexes have in common."""
        shape = ["--degree", str(DEGREE), "--build-list", str(BUILD_LIST), "--code-bytes", str(CODE_BYTES)]
        threads = ["--threads", str(THREADS), "--force"]
        return run([self.adjoin, "index", "build", source, "-o", folder, *shape, *options, *threads])

    def built(self, layout: str = "grown") -> Record:
        """Returns the cost of an index and the quality of its page order: `overlap`, `layout_seconds`."""
        self.index(layout)
        told = self.measured(["build", layout, 0], lambda: {})
        overlap = re.search(r"([0-9.]+) % of a vector's page", told["words"])
        seconds = re.search(r"order of pages in ([0-9.]+) s", told["words"])
        return told | {"overlap": float(overlap[1]) / 100, "layout_seconds": float(seconds[1])}

    def memory(self, navigation: int = 0) -> int:
        """Returns the megabytes of memory for searches: as much as DiskANN used, if it runs, but at least the minimum
        of adjoin."""
        try:
            seen = self.diskann(cached=0)[1].get("peak_bytes", 0)
        except Failed:
            seen = 0
        memory = max(16, math.ceil(seen / 1e6))
        while named := re.search(
            r"give --memory (\d+)MB", self.search(LISTS[-1], f"{memory}MB", navigation=navigation).get("failed", "")
        ):
            memory = int(named[1]) + 12  # its minimum, including queries and hits
        return memory

    def searches(self, memory: int) -> tuple[list[Record], list[Record]]:
        """Searches with each list length. Returns searches with many queries at once, and with one at a time per
        thread."""
        of = lambda strategy: [self.search(list_of, f"{memory}MB", strategy) for list_of in LISTS]  # noqa: E731
        return of(""), of("walks=1")

    def search(self, list_of: int, memory: str, strategy: str = "", layout: str = "grown", navigation: int = 0) -> Record:
        """Searches with one list length."""
        truth = self.truth()
        index = self.index(layout, navigation)

        def search() -> Record:
            if strategy:
                told = self.walked(index, list_of, memory, strategy)
            else:
                told = self.asked(["search", index, "-k", str(K), "-L", str(list_of), "--memory", memory])
            return told | {"recall": self.recall(truth)}

        return self.measured(["search", list_of, memory, strategy, layout, navigation], search)

    def asked(self, search: list[str | Path], queries: Path | None = None) -> Record:
        """Runs a search. Returns its statistics, and leaves its hits in the file `hits`."""
        stats = self.work / "stats.json"
        common = ["--queries", queries or self.queries, "--threads", str(THREADS), "--quiet", "--force"]
        return self.counted(run([self.adjoin, *search, *common, "-o", self.hits, "--stats", stats]), stats)

    def walked(self, index: Path, list_of: int, memory: str, strategy: str) -> Record:
        """Runs a search with a strategy of the laboratory. Returns its statistics, and leaves its hits in the file
        `hits`."""
        lab, stats = self.adjoin.parent / "adjoin-lab", self.work / "stats.json"
        named = [f"strategy={strategy}", f"k={K}", f"list={list_of}", f"memory={memory}", f"threads={THREADS}"]
        return self.counted(run([lab, "search", index, self.queries, self.hits, *named, f"stats={stats}"]), stats)

    def counted(self, told: Record, stats: Path) -> Record:
        """Adds the figures of its statistics to the record of a search."""
        counted = json.loads(stats.read_text())
        of_search = counted["search"]
        latency, count = of_search["latency_ms"] or {}, of_search["queries"]
        told |= {"hits": of_search["hits"], "reads": of_search["reads_per_query"]}
        told |= {"rate": of_search["queries_per_second"]}
        told |= {"from_disk": counted["io"]["reads"] / count, "read_bytes": counted["io"]["bytes_read"] / count}
        told |= {"utilization": of_search["vertex_utilization"], "passing": of_search["passing_rows"]}
        told |= {"pages": (of_search["bytes_per_query"] or 0) / PAGE_BYTES}
        return told | {f"{name}_ms": latency.get(name) for name in ("mean", "p95", "p99")}

    def found(self, hits: Path | None = None) -> Iterable[tuple[int, int, float]]:
        """Returns the hits of the last search, or those in a file: query, row, distance."""
        with (hits or self.hits).open() as lines:
            for line in csv.DictReader(lines):
                yield int(line["query"]), int(line["id"]), float(line["distance"])

    def recall(self, truth: array[float], nearest: int = K) -> float:
        """Returns the recall@`nearest` of the last search, given the distance of the last true hit of each query."""
        right = sum(query < QUERIES and distance <= truth[query] for query, _, distance in self.found())
        return right / (nearest * QUERIES)

    def disk(self) -> float:
        """Returns how many random reads of 4 KiB the disk answers per second, at the best depth."""
        told = self.measured("disk", lambda: run([self.adjoin.parent / "examples/read_rates", self.work]))
        return max(float(line.split()[3]) for line in told["output"].splitlines() if " 4096 " in line)

    def cached_nodes(self) -> int:
        """Returns the number of vertices that DiskANN can cache in the memory that adjoin gets."""
        free = self.memory() * 1e6 - self.diskann(cached=0)[1].get("peak_bytes", 0)
        width = 1 if self.element == "u8" else 4
        return max(0, int(free / (self.dimensions * width + 4 * DEGREE + OVERHEAD_OF_NODE)))

    def diskann(self, cached: int) -> tuple[Record, Record]:
        """Returns the records of DiskANN's build and of its searches with a number of cached vertices."""
        if "DISKANN" not in os.environ:
            raise Failed("DISKANN is not set")
        self.truth()
        types = {"u8": "uint8", "f32": "float32"}
        made = {"data_type": types[self.element], "data": str(self.base), "distance": "squared_l2", "dim": self.dimensions}
        made |= {"max_degree": DEGREE, "l_build": BUILD_LIST, "num_pq_chunks": CODE_BYTES, "quantization_type": "FP"}
        path = str(self.work / "diskann")
        made |= {"num_threads": THREADS, "build_ram_limit_gb": 16.0, "save_path": path, "disk-index-source": "Build"}
        load = {"disk-index-source": "Load", "data_type": made["data_type"], "load_path": path}
        asked = {"queries": str(self.queries), "groundtruth": str(self.work / "truth.bin"), "recall_at": K}
        asked |= {"beam_width": BEAM, "num_threads": THREADS, "distance": "squared_l2", "vector_filters_file": None}
        mode = {"adaptive_l": None, "is_flat_search": False}
        asked |= {"post_processor": None, "search_io_limit": None, "search_mode": mode}

        def job(source: Record, lists: Iterable[int], nodes: int) -> Record:
            content = {"source": source, "search_phase": asked | {"search_list": list(lists), "num_nodes_to_cache": nodes or None}}
            jobs = {"search_directories": [], "jobs": [{"type": "disk-index", "content": content}]}
            (self.work / "job.json").write_text(json.dumps(jobs))
            files = ["--input-file", self.work / "job.json", "--output-file", self.work / "job.out"]
            told = run([os.environ["DISKANN"], "--quiet", "run", *files])
            return told | {"output": json.loads((self.work / "job.out").read_text())[0]["results"]}

        built = self.measured("build diskann", lambda: job(made, LISTS_OF_DISKANN[:1], 0))
        return built, self.succeeded(["search diskann", cached], lambda: job(load, LISTS_OF_DISKANN, cached))

    def points_of_diskann(self) -> list[Record]:
        """Returns DiskANN's searches in the memory that adjoin gets, one per list length, with the figures of adjoin's
        searches."""
        searched = self.diskann(self.cached_nodes())[1]
        words = {"recall": "recall", "mean_ios": "reads", "qps": "rate", "mean_latency": "mean_ms", "p95_latency": "p95_ms"}
        scales = {"recall": 0.01, "mean_latency": 1e-3, "p95_latency": 1e-3}
        return [
            {to: point[of] * scales.get(of, 1) for of, to in words.items()}
            for point in searched["output"]["search"]["search_results_per_l"]
        ]


INTRODUCTION = f"""Generated by `make -C lab tables-search`, which resumes after an interruption. All searches use {QUERIES:,} held-out rows as queries,
on {THREADS} threads, for the {K} nearest. A figure at a recall is interpolated between two list lengths. adjoin and DiskANN bypass the
page cache, with {DEGREE} neighbors, {BUILD_LIST} candidates in the build and codes of {CODE_BYTES} bytes; a read is a page of 4 KiB.
Memory is the peak resident memory as reported by the system. Searches take a second or less, so rates vary by a tenth.
DiskANN's program (crate `diskann-benchmark`) is compiled for AVX2, as in its repository; adjoin chooses kernels at run time."""



def beside_diskann(bench: Bench) -> str:
    """Compares adjoin and DiskANN at equal recall."""
    cached, theirs = bench.cached_nodes(), bench.points_of_diskann()
    built, searched = bench.diskann(cached)
    memory, built_ours = bench.memory(), bench.built()
    ours, lone = bench.searches(memory)
    disk = bench.disk()
    rows = []
    for recall in RECALLS:
        figures = ((ours, "reads"), (ours, "rate"), (lone, "mean_ms"), (lone, "p95_ms"))
        pairs = [(at_recall(of, recall, figure), at_recall(theirs, recall, figure)) for of, figure in figures]
        cells = [f"{shown(a)} / {shown(b)}" + (f" ({a / b:.2f})" if a and b else "") for a, b in pairs]
        p99, from_disk, rate = at_recall(lone, recall, "p99_ms"), at_recall(ours, recall, "from_disk"), at_recall(ours, recall, "rate")
        rows.append([f"{recall:.2f}", *cells, shown(p99), "" if rate is None else f"{100 * from_disk * rate / disk:.0f} %"])
    of_lone = "one query at a time per thread"
    head = ["recall@10", "reads per query", "queries per second", f"mean ms, {of_lone}", "p95 ms", "p99 ms", "fraction of the disk's rate"]
    seconds = (built_ours["seconds"], built["output"]["build"]["build_time"] / 1e6)
    return (
        f"{bench.rows:,} vectors of {bench.dimensions}, {QUERIES:,} held-out queries; adjoin / DiskANN (ratio).\n\n"
        + table(head, rows)
        + f"\nBuild {seconds[0]:.1f} / {seconds[1]:.1f} s, {built_ours['peak_bytes'] / 1e6:.0f} / {built['peak_bytes'] / 1e6:.0f} MB; "
        f"search within {memory} MB: {max(one.get('peak_bytes', 0) for one in ours) / 1e6:.0f} / {searched['peak_bytes'] / 1e6:.0f} MB "
        f"with {cached:,} cached vertices of DiskANN, as many as fit. Its program counts these as reads, too. "
        f"The disk delivers {disk:,.0f} reads of 4 KiB per second.\n"
    )


def measured(part: Callable[[Bench], str], asked: argparse.Namespace, of: Set) -> str:
    """Returns a part. Its bench is created here, since that fails if the set is missing."""
    return part(Bench(asked, of))


def replace_orders(asked: argparse.Namespace) -> None:
    """Replaces rows of the table of page orders in a page."""
    text = search_sweeps.layouts(Bench(asked, SETS[0]), asked.orders.split(","), is_timed=False)
    asked.page.write_text(with_rows(asked.page.read_text(), text))


def parts_of(of: Set) -> list[Callable[[Bench], str]]:
    """Returns the tables of a set."""
    parts = [beside_diskann, *(search_ranges.ALL if of.file else ())]
    return [*parts, beside_peers, *search_sweeps.ALL] if of is SETS[0] else parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    parser.add_argument("--charts", type=Path, default=Path("docs/charts"))
    parser.add_argument("--segment", action="store_true")
    parser.add_argument("--orders")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    if asked.orders:
        replace_orders(asked)
        return 0
    print(f"# Searches of a graph index\n\n{INTRODUCTION}\n")
    # Each set names its machine, since sets may be measured on different ones.
    parts = {of.name: [measured_on, *(partial(measured, part, asked, of) for part in [*parts_of(of), charts])] for of in SETS}
    page = read_page(asked.page)
    if asked.segment:
        parts[SEGMENT.name] = [measured_on, partial(measured, search_segment.segment, asked, SEGMENT)]
    elif older := kept(page, 2, SEGMENT.name):
        parts[SEGMENT.name] = [lambda: older]
    print_parts(2, parts, asked.only, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
