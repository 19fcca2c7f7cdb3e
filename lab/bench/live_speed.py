"""Measures the speed of writes and searches of a collection: FreshDiskANN's section 6, and its Figures 5 to 8 and 19 to 22
on a smaller scale.

Each function returns Markdown. `live.py` calls them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from at_recall import shown, table
from measure import Record

if TYPE_CHECKING:
    from live import Bench

#: Fraction of the rows that exist at first, duration of a run in minutes, and numbers of rows to insert per second (0
#: inserts as many as possible). As many rows are deleted per second.
FILE, SHARE, MINUTES, RATES = "sift-900k.u8bin", 0.9, 30, (0,)
#: Number of lines that a run has in the table, and the latencies of its writes.
LINES = 10
LATENCIES = {"p99": "write_p99_ms", "p99.9": "write_p999_ms", "largest": "write_max_ms"}
#: Fraction of the rows with which a growing collection begins, its number of lines, and its searches, as in the paper.
GROWING = {"share": 0.05, "minutes": 4, "keep": 1, "k": 5, "list": 100}
GROWING_LINES = 10
#: Fraction of the rows that are present in runs by threads, their minutes, and their threads that merge, threads that
#: search, hits per query, and list lengths.
FEW_ROWS, FEW_MINUTES = 0.2, 1
THREADS_AND_LISTS = ((1, 1, 10, 40), (2, 1, 10, 40), (1, 2, 10, 40), (2, 2, 10, 40), (1, 1, 100, 150), (2, 1, 100, 150))
#: Numbers of rows in a burst, rows on disk before it, and the budget of the collection.
BURSTS, BURST_MERGED, BURST_MEMORY = (10_000, 100_000, 400_000, 1_000_000), 100_000, 4 << 30


def records(bench: Bench, words: list[str | Path], **named: object) -> list[Record]:
    """Runs an experiment of `lab/src/collection/` in a separate folder. Returns the records that it prints."""
    folder = bench.work / f"live-{words[0]}"
    shutil.rmtree(folder, ignore_errors=True)
    told = bench.printed([bench.adjoin.parent / "adjoin-lab", "live", words[0], folder, *words[1:]], named)
    shutil.rmtree(folder, ignore_errors=True)
    return told


def writes(bench: Bench) -> str:
    """Measures writes of one row each, compared with a file that is synced after each row."""
    of = records(bench, ["writes"], rows=100_000)
    [sync] = [record["per_second"] for record in of if record["what"] == "sync"]
    [opened] = [record for record in of if record["what"] == "open"]
    body = []
    for record in of:
        if record["what"] in ("insert", "delete"):
            times = [shown(record[name], 0) for name in ("p50_us", "p99_us")]
            of_sync = shown(record["per_second"] / sync, 1) if record["durability"] == "group" else ""
            rate = shown(record["per_second"], 0)
            body.append([record["what"], record["durability"], str(record["writers"]), rate, *times, of_sync])
    return (
        f"Writes of one row of 128 bytes, one per call. For comparison, a file that is synced after each 184 bytes reaches "
        f"{sync:,.0f} writes per second:\n\n"
        + table(["write", "durability", "writers", "per second", "p50, us", "p99, us", "relative to single syncs"], body)
        + f"\nA collection with {opened['writes']:,} records in its log opens in {opened['seconds']:.2f} s.\n"
    )


def sustained(bench: Bench) -> str:
    """Measures inserts, deletes and searches at the same time."""
    body, notes = [], []
    for rate in RATES:
        named = {"share": SHARE, "minutes": MINUTES, "rate": rate}
        of = records(bench, ["sustained", bench.data(FILE)], **named)
        asked = shown(rate, 0) if rate else "unlimited"
        idle = [record for record in of if record["phase"] == "idle"]
        body.append([asked, "idle", *figures(idle)])
        for begin, merging in ((False, "no merge"), (True, "merging")):
            some = [record for record in of if record["phase"] == "all" and record["merging"] == begin]
            if some:
                body.append([asked, merging, *figures(some)])
        rest = [record for record in of if record["phase"] == "all"]
        recalls = [record["recall"] for record in of if record["phase"] == "recall"]
        of_writes = ", ".join(f"{name} {shown(rest[-1][key], 1)}" for name, key in LATENCIES.items())
        notes.append(
            f"\nRates: {asked}. Recall@10, measured every minute while no row is written: {min(recalls):.4f} to {max(recalls):.4f}. "
            f"Durable writes, ms: {of_writes}.\n"
        )
        for number in range(LINES):
            part = rest[number * len(rest) // LINES : (number + 1) * len(rest) // LINES]
            if part:
                body.append([asked, f"to minute {part[-1]['at'] / 60:.0f}", *figures(part)])
    heads = ["requested rows per second", "when", "writes per second", "searches per second", "mean, ms", "p99, ms", "rows in memory"]
    return (
        f"{SHARE:.0%} of 890,000 vectors on disk. One thread deletes the oldest rows and inserts as many others, ten of each per "
        "durable write; one searches, one query after the other, L 40; and automatic merges run on one thread. Rows that are "
        "inserted and deleted count as writes:\n\n"
        + table([*heads, "waited, s", "merges", "log, MB", "resident, MB"], body)
        + "".join(notes)
    )


def growing(bench: Bench) -> str:
    """Measures searches while a collection grows (Figure 5)."""
    run = records(bench, ["sustained", bench.data(FILE)], **GROWING)
    first = run[0]["rows"]
    of = [record for record in run if record["phase"] == "all" and record["writes_per_second"] > 0]
    last = max(record["rows"] for record in of)
    body = []
    for line in range(GROWING_LINES):
        ends = [first + (last - first) * (line + at) / GROWING_LINES for at in (0, 1)]
        if part := [record for record in of if ends[0] <= record["rows"] and (record["rows"] < ends[1] or record["rows"] == last == ends[1])]:
            mean = lambda name: sum(record[name] for record in part) / len(part)  # noqa: E731, B023
            times = [shown(mean(name) / 1e3, 2) for name in ("mean_us", "p99_us")]
            merging = sum(record["merging"] for record in part) / len(part)
            inserts = shown(mean("writes_per_second"), 0)
            body.append([f"{part[-1]['rows']:,}", f"{part[-1]['at']:.0f}", inserts, *times, f"{merging:.0%}", shown(mean("unmerged"), 0)])
    heads = ["rows", "s", "inserts per second", "mean, ms", "p99, ms", "of the time merging", "rows in memory"]
    return (
        f"A collection that grows from {first:,} rows: one thread inserts ten rows per durable write as fast as it may, one searches "
        f"(k {GROWING['k']}, L {GROWING['list']}), and automatic merges run on one thread (Figure 5):\n\n" + table(heads, body)
    )


def by_threads(bench: Bench) -> str:
    """Measures searches and merges by their threads (Figures 7, 8, and 19 to 22)."""
    body = []
    for merge_threads, searchers, k, length in THREADS_AND_LISTS:
        named = {"share": FEW_ROWS, "minutes": FEW_MINUTES, "merge_threads": merge_threads, "searchers": searchers}
        of = [record for record in records(bench, ["sustained", bench.data(FILE)], **named, k=k, list=length) if record["phase"] != "recall"]
        loaded = max(record["merges"] for record in of if record["phase"] == "idle")
        merges = {record["merges"]: record["last_merge_seconds"] for record in of if record["merges"] > loaded}
        seconds = sum(merges.values()) / len(merges) if merges else None
        for words, some in (
            ("idle", [record for record in of if record["phase"] == "idle"]),
            ("no merge", [record for record in of if record["phase"] == "all" and not record["merging"]]),
            ("merging", [record for record in of if record["phase"] == "all" and record["merging"]]),
        ):
            if some:
                [writes, searches, mean, p99, *_] = figures(some)
                merged = [f"{len(merges)}", shown(seconds, 1)] if words == "merging" else ["", ""]
                body.append([str(merge_threads), str(searchers), f"{k}, {length}", words, writes, searches, mean, p99, *merged])
    heads = ["threads that merge", "threads that search", "k, L", "when", "writes per second", "searches per second"]
    return (
        f"Deletes, inserts and searches as above, but with {FEW_ROWS:.0%} of the rows and for a minute, by the number of threads "
        "(Figures 7, 8 and 19 to 22):\n\n"
        + table([*heads, "mean, ms", "p99, ms", "merges", "seconds of a merge"], body)
    )


def bursts(bench: Bench) -> str:
    """Measures inserts that no merge follows, and searches among these rows."""
    body = []
    for rows in BURSTS:
        [of] = records(bench, ["burst", bench.data(FILE)], rows=rows, merged=BURST_MERGED, memory=BURST_MEMORY)
        times = [shown(of[name][key] / 1e3, 2) for name in ("all", "buckets") for key in ("mean_us", "p99_us")]
        counts = [f"{rows:,}", shown(of["inserts_per_second"], 0), *times, shown(of["recall"], 4), shown(of["bucket_seconds"], 1)]
        body.append([*counts, shown(of["open_seconds"], 2), shown(of["unmerged_bytes"] / 1e6, 0)])
    heads = ["rows", "inserts per second", "all rows: mean, ms", "p99, ms", "buckets: mean, ms", "p99, ms", "recall@10"]
    return (
        f"Bursts of inserts that no merge follows, {BURST_MERGED:,} rows on disk. 100 rows a write, buffered. Then one query a call, "
        "recall 0.95, before and after the unmerged rows are in buckets:\n\n"
        + table([*heads, "seconds of grouping", "seconds of opening again", "MB in memory"], body)
    )


def figures(some: list[Record]) -> list[str]:
    """Returns the means over some lines of a run. Counters have the value of the last of these lines."""
    mean = lambda name: sum(record[name] for record in some) / len(some)  # noqa: E731
    last = some[-1]
    counted = [last["waited_seconds"], last["merges"], last["log_bytes"] / 1e6, last["resident_bytes"] / 1e6]
    averages = [shown(mean("writes_per_second"), 0), shown(mean("searches_per_second"), 0)]
    times = [shown(mean(name) / 1e3, 2) for name in ("mean_us", "p99_us")]
    return [*averages, *times, shown(mean("unmerged"), 0), *(shown(value, 0) for value in counted)]


ALL = (writes, sustained, by_threads, growing, bursts)
