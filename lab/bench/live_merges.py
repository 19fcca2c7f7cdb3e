"""Measures the cost of merges, and the index after many of them: FreshDiskANN's section 5.3, its Figure 4 and its Table 2.

Each function returns Markdown. `live.py` calls them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from at_recall import shown, table
from measure import Record

if TYPE_CHECKING:
    from live import Bench

#: Number of rows that are present, the fraction of them that each cycle deletes and replaces with others, the number of
#: cycles, and the number of cycles between two measurements.
ROWS, SHARE, CYCLES, EVERY = 100_000, 0.1, 200, 20
#: Methods that serve only for comparison, and the number of their cycles.
OTHERS, FEW_CYCLES = ("change-1", "change-32"), 40
#: Files with numbers of their rows, and the fractions that successive merges delete and insert.
SIZES = (("sift-200k.u8bin", 100_000), ("sift-900k.u8bin", 850_000))
SHARES = (0.001, 0.01, 0.05, 0.1, 0.5)


def cycles(bench: Bench, file: str, method: str, **named: object) -> list[Record]:
    """Runs `live_cycles.py`. Returns the records that it prints."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    program = Path(__file__).with_name("live_cycles.py")
    return bench.printed([python, program, bench.data(file)], {"adjoin": bench.adjoin, "method": method, **named})


def turnovers(bench: Bench) -> str:
    """Returns Figure 4: recall, reads, order and size after many merges."""
    body = []
    for method, count in (("change", CYCLES), *((method, FEW_CYCLES) for method in OTHERS)):
        of = cycles(bench, "sift-200k.u8bin", method, rows=ROWS, shares=SHARE, cycles=count, every=EVERY)
        for record in of:
            after = "built from the last rows" if record["cycle"] is None else f"{record['cycle'] * SHARE:.0f} turnovers"
            figures = [shown(record[f"recall_{width}"], 4) for width in (20, 40, 80)]
            order = [shown(record["reads_40"], 1), shown(record["overlap_ratio"], 3), f"{record['bytes'] / 1e6:.1f}"]
            body.append([method, after, *figures, *order])
    return (
        f"{ROWS:,} vectors on disk, of which {SHARE:.0%} are deleted and as many others inserted before each merge. `change` is "
        "the method of `collection merge` if little has changed: it replaces a deleted neighbor by at most 8 of its neighbors, "
        "`change-1` by one, and `change-32` by all, since the degree is 32. "
        "10-recall@10 and reads per query with lists of 20, 40 and 80, OR(G) of the pages:\n\n"
        + table(["merges", "after", "L 20", "L 40", "L 80", "reads, L 40", "OR(G)", "MB"], body)
    )


def cost(bench: Bench) -> str:
    """Compares the cost of merges with a build (Table 2)."""
    body, inserted = [], []
    for file, rows in SIZES:
        named = {"rows": rows, "shares": ",".join(map(str, SHARES)), "cycles": len(SHARES), "every": 1}
        first, *merges, fresh = cycles(bench, file, "fastest", **named)
        changes = [(f"{share:.1%}", 2 * rows * share, record) for share, record in zip(SHARES, merges)]
        for words, changed, record in [("built", rows, first), *changes, ("built from the last rows", rows, fresh)]:
            written = [shown(record["written_bytes"] / 1e6, 0), shown(record["written_bytes"] / changed, 0)]
            figures = [shown(record[f"recall_{width}"], 4) for width in (20, 40)]
            seconds = [shown(record["seconds"], 2), f"{record['seconds'] / first['seconds']:.0%}"]
            body.append([f"{rows:,}", words, *seconds, *written, shown(record["peak_bytes"] / 1e6, 0), *figures])
        program = bench.adjoin.parent / "adjoin-lab"
        built = bench.printed([program, "updates", bench.data(file)], {"rows": rows, "cycles": 0})[0]
        inserted.append(f"{built['build_seconds']:.1f} s for {rows:,} rows")
    heads = ["rows", "deleted and inserted", "seconds", "of the build", "MB written", "bytes per row that changed", "peak MB", "L 20", "L 40"]
    return (
        "Merges with the default method, one after the other into one collection of vectors of 128 bytes, each timed as a whole "
        "command (Table 2 at a smaller scale; section 6.2, cost of updates in writes). If the file has too few other rows, a write "
        "deletes some rows and inserts them again. 10-recall@10 with lists of 20 and 40. Building "
        f"a graph in memory by single inserts takes {', and '.join(inserted)}:\n\n" + table(heads, body)
    )
