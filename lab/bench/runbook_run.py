#!/usr/bin/env python3
"""Compares collections that follow a runbook: adjoin, LanceDB and DiskANN. Also kills them in the middle of steps.

usage: runbook_run.py ADJOIN [--rows N] [--steps N] [--shape SHAPE] [--queries N] [--set FILE] [--memory MB]
                      [--work DIR] [--only WORD]

Prints Markdown. Measurements are kept in WORK/runbooks.jsonl and are not repeated; each step of each run is in a file
next to it. The set is sift-200k.u8bin of ADJOIN_DATA, and its last rows are the queries. ADJOIN is the program; engines
run in ADJOIN_PYTHON (adjoin's package, numpy) and PEERS_PYTHON (lancedb, numpy), within equal memory if PEERS_CGROUP
names a cgroup (see `search_peers.py`). DiskANN runs if DISKANN_LIVE names `diskann-benchmark` (crate of that name,
0.61, feature `bftree`, compiled as `search.py` says).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from as_floats import as_floats
from at_recall import THREADS, K, shown, table
from cgroup import memory_cgroup
from measure import Failed, Ledger, Record, machine, run

SEED, CLUSTERS = 1232, 64
#: Number of times that each engine is killed.
KILLS = 2
#: Degree and number of candidates of DiskANN's build, equal to the defaults of adjoin.
DEGREE, BUILD_LIST = 32, 75


@dataclass(frozen=True)
class Contender:
    """An engine with its settings: the number of unsettled rows that it may have, its build options, and the efforts of
    its searches, from fast to careful. The table shows the first effort that has enough recall on average, or else the
    last one."""

    words: str
    engine: str
    settled: int
    build: Record
    efforts: tuple[Any, ...]


@dataclass(frozen=True)
class Setting:
    """The shape and the size of a runbook, and the memory for engines that follow it."""

    shape: str = "expiry"
    rows: int = 150_000
    steps: int = 30
    queries: int = 200
    memory_mb: int = 512
    file: str = "sift-200k.u8bin"

    @property
    def name(self) -> str:
        return f"{Path(self.file).stem}-{self.shape}-{self.rows}-{self.steps}-{self.queries}"


LISTS = (16, 24, 48)
HNSW = tuple({"nprobes": 1, "ef": ef, "refine": 1} for ef in (20, 60))
CONTENDERS = (
    Contender("adjoin, merged every {settled} rows", "adjoin", 100_000, {}, LISTS),
    Contender("LanceDB, IVF_HNSW_SQ, optimized every {settled} rows", "lancedb", 20_000, {"index": "HnswSq"}, HNSW),
)
ENOUGH = 0.95


class Bench:
    """A set, a runbook for it, and the truth of its searches."""

    def __init__(self, adjoin: Path, work: Path, setting: Setting) -> None:
        self.adjoin, self.setting, self.memory = adjoin.resolve(), setting, setting.memory_mb * 1_000_000
        self.ledger = Ledger(work.resolve() / "runbooks.jsonl")
        self.name, self.work = setting.name, work.resolve() / setting.name
        self.work.mkdir(parents=True, exist_ok=True)
        suffix = Path(setting.file).suffix
        self.base, self.queries = self.work / f"base{suffix}", self.work / f"queries{suffix}"
        self.runbook, self.truth = self.work / "runbook.yaml", self.work / "truth"

    def python(self, name: str) -> str:
        return os.environ.get("ADJOIN_PYTHON" if name == "adjoin" else "PEERS_PYTHON", sys.executable)

    def prepare(self) -> None:
        """Divides the set, creates the runbook, and finds the truth. Existing files are kept."""
        tool, clusters = [self.python("adjoin"), Path(__file__).with_name("runbook.py")], self.work / "clusters.json"
        if not self.queries.exists():
            self.cut()
        made = ["make", self.setting.shape, "--rows", str(self.setting.rows), "--steps", str(self.setting.steps)]
        if self.setting.shape == "rounds":
            ordered = self.work / f"clusters{self.base.suffix}"
            if not clusters.exists():
                run([*tool, "clusters", self.base, "--count", str(CLUSTERS), "--seed", str(SEED), "-o", ordered])
                ordered.rename(self.base)
            made += ["--clusters", str(clusters)]
        run([*tool, *made, "--seed", str(SEED), "--name", self.name, "-o", self.runbook])
        run([*tool, "truth", self.adjoin, self.base, self.queries, self.runbook, "--name", self.name, "-o", self.truth])

    def cut(self) -> None:
        """Writes the first rows of the set as the base, and the last ones as queries."""
        source = Path(os.environ.get("ADJOIN_DATA", "")) / self.setting.file
        if not source.exists():
            raise Failed(f"{self.setting.file} is not in ADJOIN_DATA")
        with source.open("rb") as file:
            rows, dimensions = struct.unpack("<2I", file.read(8))
            width = (source.stat().st_size - 8) // rows
            queries = self.setting.queries
            if rows < self.setting.rows + queries:
                raise Failed(f"{self.setting.file} has {rows} rows: --rows of {rows - queries} at most")
            for path, start, count in ((self.base, 0, self.setting.rows), (self.queries, rows - queries, queries)):
                file.seek(8 + start * width)
                with path.open("wb") as to:
                    to.write(struct.pack("<2I", count, dimensions))
                    for _ in range(count):
                        to.write(file.read(width))

    def job(self, of: Contender) -> Record:
        paths = {"base": self.base, "queries": self.queries, "runbook": self.runbook, "truth": self.truth}
        paths |= {"folder": self.work / of.engine, "log": self.work / f"{of.engine}-{of.settled}.jsonl"}
        told = {"name": self.name, "k": K, "threads": THREADS, "memory_bytes": self.memory, "cgroup": None}
        told |= {"settled": of.settled, "efforts": of.efforts, "build": of.build}
        return {key: str(path) for key, path in paths.items()} | told

    def followed(self, of: Contender) -> Record:
        return self.ledger.measured(self.key("run", of), lambda: self.follow(of, self.job(of)))

    def key(self, what: str, of: Contender) -> str:
        bound = [self.memory, os.environ.get("PEERS_CGROUP", "")]
        return json.dumps([self.name, what, of.engine, of.settled, of.build, of.efforts, *bound])

    def follow(self, of: Contender, job: Record) -> Record:
        folder = Path(job["folder"])
        shutil.rmtree(folder, ignore_errors=True)
        with memory_cgroup(self.memory) as (cgroup, refused):
            try:
                told = run(self.command(of, "run", job | {"cgroup": cgroup and str(cgroup)}))
            except Failed as reason:
                where = f", in a cgroup of {self.memory / 1e6:.0f} MB" if cgroup else ""
                raise Failed(f"{reason}{where}") from None
        shutil.rmtree(folder)
        answer: Record = json.loads(told.pop("output").strip().splitlines()[-1])
        steps = [json.loads(line) for line in Path(job["log"]).read_text().splitlines()]
        points = [summed(steps, number) | {"effort": tag(effort)} for number, effort in enumerate(of.efforts)]
        peak = max(told["peak_bytes"], *(step["peak_bytes"] for step in steps))
        figures = {"peak_bytes": peak, "written_bytes": steps[-1]["written_bytes"], "unbounded": refused, "words": ""}
        figures["took"] = [[step["settled"], step["settled"] + first_seconds(step)] for step in steps]
        return told | answer | enough(points) | figures

    def command(self, of: Contender, what: str, job: Record) -> list[Any]:
        program = Path(__file__).with_name("runbook_engines.py")
        return [self.python(of.engine), program, of.engine, what, json.dumps(job)]

    def killed(self, of: Contender, took: list[list[float]]) -> list[Record]:
        """Kills the engine several times in the middle of a step. Returns, for each kill, what was left. Every second
        kill is in a step in which rows were settled, if any step settled rows. `took` has, for each step, the seconds
        spent on settling and the seconds in total."""
        draw, key = random.Random(SEED), self.key("kill", of)
        steps = range(2, len(took))
        settling = [step for step in steps if took[step][0]] or steps
        kills = [draw.choice(settling if number % 2 else steps) for number in range(KILLS)]
        moments = [(step, draw.random() * took[step][1]) for step in kills]
        return [
            self.ledger.measured(f"{key} {number}", lambda moment=moment: self.kill(of, *moment))
            for number, moment in enumerate(moments)
        ]

    def kill(self, of: Contender, steps: int, seconds: float) -> Record:
        """Kills a run `seconds` after `steps` steps were complete, and checks what it left."""
        job = self.job(of) | {"log": str(self.work / "killed.jsonl"), "efforts": of.efforts[:1]}
        log = Path(job["log"])
        shutil.rmtree(job["folder"], ignore_errors=True)
        log.unlink(missing_ok=True)
        command = [str(part) for part in self.command(of, "run", job)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) >= steps):
                time.sleep(0.01)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        if process.returncode != -signal.SIGKILL:
            raise Failed(f"the run had ended before it was killed, {seconds:.1f} s after step {steps}")
        told = run(self.command(of, "check", job))
        return {"steps": steps, "after": seconds} | json.loads(told["output"].strip().splitlines()[-1])


def tag(effort: Any) -> str:
    return "-".join(str(part) for part in effort.values()) if isinstance(effort, dict) else str(effort)


def first_seconds(step: Record) -> float:
    """Returns the seconds that a step took, without settling. For a search, these are the seconds with the first
    effort."""
    return float(step["points"][0]["seconds"] if "points" in step else step["seconds"])


def summed(steps: list[Record], number: int) -> Record:
    """Computes the figures of a run from the figures of its steps. For searches, takes one of the efforts."""
    searches = [(step["points"][number], step["queries"]) for step in steps if "points" in step]
    changes = [step for step in steps if "rows" in step]
    settled = [step["settled"] for step in steps if step["settled"]]
    asked = sum(point["seconds"] for point, _ in searches)
    changing = sum(step["seconds"] for step in changes) + sum(settled)
    return {
        "seconds": asked + changing,
        "recall": mean(point["recall"] for point, _ in searches),
        "least_recall": min(point["recall"] for point, _ in searches),
        "rate": sum(queries for _, queries in searches) / asked,
        "least_rate": min(queries / point["seconds"] for point, queries in searches),
        "changes": sum(step["rows"] for step in changes) / changing,
        "slowest_change": max(step["seconds"] for step in changes),
        "settles": len(settled),
        "longest_settle": max(settled, default=0.0),
    }


def enough(points: list[Record]) -> Record:
    """Returns the first point with enough recall, or the last."""
    return next((point for point in points if point["recall"] >= ENOUGH), points[-1])


class DiskAnn:
    """Runs the runbook with DiskANN's own program. Its page provider, bf-tree, accepts floats only. In the program's
    setup (`StorageBackend::Memory`), it keeps all pages in memory and writes no log. So its memory is not bounded, and
    a kill would leave nothing to check."""

    LISTS = (25, 40, 60)
    KINDS = {
        "graph-index-stream-bftree-full-precision": "DiskANN, bf-tree provider, floats, all in memory",
        "graph-index-dynamic-run": "DiskANN, in memory",
    }

    def __init__(self, bench: Bench, kind: str) -> None:
        self.bench, self.kind = bench, kind

    def job(self) -> Record:
        types = {".u8bin": "uint8", ".i8bin": "int8", ".fbin": "float32"}
        bench, base, queries = self.bench, self.bench.base, self.bench.queries
        if self.kind != "graph-index-dynamic-run":
            base, queries = (as_floats(path, path.with_suffix(".fbin")) for path in (base, queries))
        build = {"data_type": types[base.suffix], "data": str(base), "distance": "squared_l2"}
        build |= {"max_degree": DEGREE, "l_build": BUILD_LIST, "alpha": 1.2, "backedge_ratio": 1.0}
        runs = [{"search_n": K, "search_l": list(self.LISTS), "recall_k": K}]
        search = {"search-type": "topk", "queries": str(queries), "groundtruth": str(queries), "reps": 1}
        method = {"method": "visited_and_top_k", "params": {"k_value": 20, "l_value": BUILD_LIST}}
        book = {"runbook_path": str(bench.runbook), "dataset_name": bench.name, "gt_directory": str(bench.truth)}
        book |= {"ip_delete_method": method, "ip_delete_num_to_replace": 3}
        build |= {"num_threads": THREADS, "start_point_strategy": "medoid"}
        content = {"build": build, "runbook_params": book}
        content["search_phase"] = search | {"num_threads": [THREADS], "runs": runs}
        if self.kind == "graph-index-dynamic-run":
            book["consolidate_threshold"] = 0.2
        else:
            none = ("cb_max_record_size", "cb_min_record_size", "read_promotion_rate", "scan_promotion_rate")
            none += ("cb_copy_on_access_ratio", "read_record_cache", "cache_only")
            # A power of two is required; two stores share half of the memory.
            buffer = 1 << ((bench.memory // 4).bit_length() - 1)
            store = {"cb_size_byte": buffer, "leaf_page_size": 4096, "use_snapshot": False}
            store |= dict.fromkeys(none)
            content |= {"vector_store_config": store, "neighbor_store_config": store}
        return {"search_directories": [str(bench.work)], "jobs": [{"type": self.kind, "content": content}]}

    def followed(self) -> Record:
        key = [self.bench.name, "run", self.kind, self.LISTS, self.bench.memory]
        return self.bench.ledger.measured(json.dumps(key), self.follow)

    def follow(self) -> Record:
        if "DISKANN_LIVE" not in os.environ:
            raise Failed("DISKANN_LIVE is not set")
        asked, told = self.bench.work / "job.json", self.bench.work / f"{self.kind}.json"
        asked.write_text(json.dumps(self.job()))
        told.unlink(missing_ok=True)
        program = os.environ["DISKANN_LIVE"]
        ran = run([program, "--quiet", "run", "--input-file", asked, "--output-file", told])
        steps = [as_ours(step, self.bench.setting.queries) for step in json.loads(told.read_text())[0]["results"]]
        points = [summed(steps, number) | {"effort": str(size)} for number, size in enumerate(self.LISTS)]
        return ran | {"output": "", "words": "", "written_bytes": 0, "start_bytes": 0} | enough(points)


def as_ours(step: Record, queries: int) -> Record:
    """Converts a step of DiskANN to ours; its times are in microseconds."""
    if "Search" in step:
        points = [{"seconds": queries / max(one["qps"]), "recall": one["recall"]["average"]} for one in step["Search"]]
        return {"queries": queries, "points": points, "settled": 0.0}
    if "Maintain" in step:
        return {"settled": sum(phase["total_time"] for phase in step["Maintain"]) / 1e6}
    told = next(step[kind] for kind in ("Insert", "Replace", "Delete") if kind in step)
    rows = told.get("vectors_inserted", told.get("vectors", 0))
    return {"rows": rows, "seconds": told["total_time"] / 1e6, "settled": 0.0}


HEAD = ["", "recall@10, smallest", "queries/s, smallest", "rows/s", "slowest change s", "maintenance: count, longest s"]
HEAD += ["MB, part of it at start", "GB written", "minutes", "after SIGKILL"]


def line(words: str, told: Record, kills: list[Record]) -> list[str]:
    if "failed" in told:
        return [f"{words}: not measured: {told['failed']}", *[""] * (len(HEAD) - 1)]
    return [
        words,
        f"{told['recall']:.3f}, {told['least_recall']:.3f}",
        f"{told['rate']:,.0f}, {told['least_rate']:,.0f}",
        f"{told['changes']:,.0f}",
        shown(told["slowest_change"], 2),
        f"{told['settles']}, {told['longest_settle']:.1f}",
        f"{told['peak_bytes'] / 1e6:,.0f}, {told['start_bytes'] / 1e6:,.0f}",
        f"{told['written_bytes'] / 1e9:.2f}",
        f"{told['seconds'] / 60:.1f}",
        after(kills),
    ]


def after(kills: list[Record]) -> str:
    """Returns how often the engine opened again, and the losses."""
    if not kills:
        return "not durable"
    opened = [kill for kill in kills if "failed" not in kill]
    lost, risen = (sum(kill[what] for kill in opened) for what in ("lost", "risen"))
    words = f"opens {len(opened)} of {len(kills)} times; {lost} rows lost, {risen} deleted rows present"
    return words + "".join(f"; {kill['failed']}" for kill in kills if "failed" in kill)


def tables(bench: Bench, only: str = "") -> str:
    """Returns the tables of all contenders with one runbook. Measures what the ledger lacks."""
    rows = []
    for of in CONTENDERS:
        words = of.words.format(settled=f"{of.settled:,}")
        if only in words:
            told = bench.followed(of)
            kills = [] if "failed" in told else bench.killed(of, told["took"])
            rows.append(line(f"{words}, effort {told.get('effort')}", told, kills))
    for kind, words in DiskAnn.KINDS.items():
        if only in words:
            told = DiskAnn(bench, kind).followed()
            rows.append(line(f"{words}, effort {told.get('effort')}", told, []))
    of = bench.setting
    return (
        f"{of.rows:,} rows of {Path(of.file).stem} in {of.steps} steps of the shape `{of.shape}`, "
        f"{of.queries:,} queries in each search, {THREADS} threads, {of.memory_mb} MB. {machine()}\n\n"
        + table(HEAD, rows)
    )


def beside_peers(bench: Any) -> str:
    """Returns the table for the document, with the program and the folder of `bench`."""
    mine = Bench(bench.adjoin, bench.work, Setting())
    mine.prepare()
    return tables(mine)


ALL = (beside_peers,)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--shape", default=Setting.shape, choices=["window", "expiry", "renewal", "rounds"])
    for name in ("rows", "steps", "queries"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Setting, name))
    parser.add_argument("--memory", type=int, default=Setting.memory_mb, help="MB for each engine")
    parser.add_argument("--set", default=Setting.file)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    parser.add_argument("--only", default="", help="contenders whose words have this")
    asked = parser.parse_args()
    setting = Setting(asked.shape, asked.rows, asked.steps, asked.queries, asked.memory, asked.set)
    try:
        bench = Bench(asked.adjoin, asked.work, setting)
        bench.prepare()
    except Failed as reason:
        print(f"runbooks: not measured: {reason}")
        return 0
    print(tables(bench, asked.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
