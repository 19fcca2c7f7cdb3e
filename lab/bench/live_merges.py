"""Measures the cost of merges, and the index after many of them: FreshDiskANN's section 5.3, and its Figures 2 and 3 on
disk.

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
#: Number of cycles of methods that serve only for comparison.
FEW_CYCLES = 40
LARGE, LARGE_ROWS, SHARES = "sift-900k.u8bin", 850_000, (0.05,)


def cycles(bench: Bench, file: str, method: str, **named: object) -> list[Record]:
    """Runs `live_cycles.py`. Returns the records that it prints."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    program = Path(__file__).with_name("live_cycles.py")
    return bench.printed([python, program, bench.data(file)], {"adjoin": bench.adjoin, "method": method, **named})


def turnovers(bench: Bench) -> str:
    """Returns Figure 2 on disk: recall, reads, order and size after many merges."""
    body = []
    for method, count in (("change", CYCLES), ("change-nearest", FEW_CYCLES)):
        of = cycles(bench, "sift-200k.u8bin", method, rows=ROWS, share=SHARE, cycles=count, every=EVERY)
        for record in of:
            after = "built from the last rows" if record["cycle"] is None else f"{record['cycle'] * SHARE:.0f} turnovers"
            figures = [shown(record[f"recall_{width}"], 4) for width in (20, 40, 80)]
            order = [shown(record["reads_40"], 1), shown(record["overlap_ratio"], 3), f"{record['bytes'] / 1e6:.1f}"]
            body.append([method, after, *figures, *order])
    return (
        f"{ROWS:,} vectors on disk, of which {SHARE:.0%} are deleted and as many others inserted before each merge. `change` is "
        "the method of `collection merge` if little has changed; `change-nearest` replaces a deleted neighbor by one vertex. "
        "10-recall@10 and reads per query with lists of 20, 40 and 80, OR(G) of the pages:\n\n"
        + table(["merges", "after", "L 20", "L 40", "L 80", "reads, L 40", "OR(G)", "MB"], body)
    )


def cost(bench: Bench) -> str:
    """Compares the cost of a merge with a build."""
    body = []
    for method in ("change", "build"):
        for share in SHARES:
            named = {"rows": LARGE_ROWS, "share": share, "cycles": 1, "every": 1}
            first, merged, fresh = cycles(bench, LARGE, method, **named)
            figures = [shown(record[f"recall_{width}"], 4) for record in (merged, fresh) for width in (20, 40)]
            body.append([method, f"{share:.0%}", f"{merged['seconds']:.1f}", f"{first['seconds']:.1f}", *figures])
    heads = ["merge", "deleted and inserted", "seconds", "first build, s", "L 20", "L 40", "fresh, L 20", "fresh, L 40"]
    program = bench.adjoin.parent / "adjoin-lab"
    inserted = bench.printed([program, "updates", bench.data(LARGE)], {"rows": LARGE_ROWS, "cycles": 0})[0]["build_seconds"]
    return (
        f"A merge of {LARGE_ROWS:,} vectors of 128 bytes (Table 2 at a smaller scale), timed as a whole command. Building a graph "
        f"of them in memory by single inserts takes {inserted:.1f} s:\n\n" + table(heads, body)
    )


ALL = (turnovers, cost)
