"""Clusters of many pairs: the merge of a join in parts, next to DuckDB, Polars and scipy.

Every contender reads the pairs from files, and writes each row with the first row of its cluster. The peers are in
`edges_peer.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from at_recall import table
from measure import Failed, Record, run

#: Rows of the generated set, the threshold, and the number of parts.
ROWS, EPS, PARTS = 1_000_000, 100, 4
#: Budgets of the plan and of the merge.
MEMORY, MERGE_MEMORY = "512MB", "128MB"
PEERS = ("scipy", "duckdb", "polars")
#: Seconds after which a peer is stopped.
PATIENCE = 60
HEAD = ["program", "seconds", "CPU s", "peak memory, MB", "clusters"]


def clusters(bench: Any) -> str:
    """Returns the table of clusters."""
    join = bench.whole("pairs for clusters", lambda: pairs(bench))
    told = {"adjoin": bench.whole("clusters adjoin", lambda: merged(bench))}
    for name in PEERS:
        told[name] = bench.ledger.measured(f"clusters {name}", lambda name=name: peer(bench, name))
    rows = [[name, *cells(one, told["adjoin"])] for name, one in told.items()]
    return (
        f"Clusters of {ROWS:,} generated rows with {join['pairs']:,} pairs. adjoin merges {PARTS} parts of pairs with `--result clusters "
        f"--memory {MERGE_MEMORY}`. The others read the merged pairs as Parquet. scipy finds connected components in memory; DuckDB and "
        "Polars lower the label of each row to the least label of its neighbors until none changes, within their default memory:\n\n"
        + table(HEAD, rows)
    )


def cells(one: Record, adjoin: Record) -> list[str]:
    if "failed" in one:
        return [one["failed"], "", "", ""]
    same = "equal" if one["digest"] == adjoin["digest"] else "**other rows**"
    count = f"{one['clusters']:,}" if one is adjoin else same
    return [f"{one['seconds']:.1f}", f"{one['cpu_seconds']:.1f}", f"{one['peak_bytes'] / 1e6:,.0f}", count]


def pairs(bench: Any) -> Record:
    """Joins the set in parts, and merges its pairs to a table."""
    store, (plan, folder) = bench.work / "edges.store", places(bench)
    if not store.exists():
        run([bench.adjoin, "build", bench.sets.generated(ROWS, 128, "u8"), "-o", store, "--quiet"])
    shutil.rmtree(folder, ignore_errors=True)
    bench.ran("plan", store, "--eps", EPS, "--recall", "0.9", "--memory", MEMORY, "--parts", PARTS, "-o", plan)
    for number in range(1, PARTS + 1):
        bench.ran("run-part", plan, "--part", f"{number}/{PARTS}", "--memory", MEMORY, "-o", folder)
    told = bench.ran("merge", plan, folder, "--memory", MEMORY, "-o", bench.work / "edges.parquet")
    return {"pairs": told["stats"]["join"]["pairs"]}


def merged(bench: Any) -> Record:
    out = bench.work / "clusters.parquet"
    told = bench.ran("merge", *places(bench), "--result", "clusters", "--memory", MERGE_MEMORY, "-o", out)
    return told | summary(out)


def peer(bench: Any, name: str) -> Record:
    out = bench.work / f"clusters-{name}.parquet"
    try:
        told = run(["timeout", str(PATIENCE), *peer_program(), name, bench.work / "edges.parquet", out, str(ROWS)])
    except Failed as reason:
        stopped = str(reason) == "exit code 124"
        raise Failed(f"stopped after {PATIENCE} s" if stopped else str(reason)) from None
    return told | summary(out)


def summary(path: Path) -> Record:
    """Returns the number of clusters in a table, and the digest of its rows."""
    count, digest = run([*peer_program(), "summary", path])["output"].split()
    return {"clusters": int(count), "digest": digest}


def peer_program() -> list[str | Path]:
    return [os.environ.get("PEERS_PYTHON", sys.executable), Path(__file__).with_name("edges_peer.py")]


def places(bench: Any) -> tuple[Path, Path]:
    return bench.work / "edges.plan", bench.work / "edges.parts"
