"""Measures a graph in memory that grows by inserts and deletes: FreshDiskANN's Figures 9 and 10.

Returns Markdown. `live.py` calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from at_recall import shown, table

if TYPE_CHECKING:
    from live import Bench

ROWS = 100_000
#: Options of `lab/src/growth.rs` by the part of a figure.
GROWTHS = {
    "a tenth, then 1.2 % inserted and 1 % deleted per cycle (9)": {"first": 0.1, "inserts": 0.012, "deletes": 0.01, "cycles": 450, "every": 45},
    "one vector, then 2 % inserted per cycle (10)": {"first": 0, "inserts": 0.02, "deletes": 0, "cycles": 50, "every": 10},
    "30 %, then 2 % inserted and 0.4 % deleted; both 0.4 % when all are present (10)": {
        "first": 0.3,
        "inserts": 0.02,
        "deletes": 0.004,
        "cycles": 90,
        "every": 9,
    },
}


def growth(bench: Bench) -> str:
    """Returns Figures 9 and 10."""
    program, body = bench.adjoin.parent / "adjoin-lab", []
    for words, named in GROWTHS.items():
        for record in bench.printed([program, "growth", bench.data()], {"rows": ROWS, **named}):
            recalls = [shown(record.get(name), 4) for name in ("recall_at_5", "recall_at_5_of_fresh")]
            costs = [shown(record["distances"], 0), *(shown(record.get(name), 1) for name in ("delete_seconds", "insert_seconds"))]
            body.append([words, record["phase"], f"{record['rows']:,}", str(record["list"]), *recalls, *costs])
            words = ""
    heads = ["at first", "when", "rows present", "L", "5-recall@5", "of these rows inserted at once", "distances per query"]
    return (
        f"A graph of up to {ROWS:,} vectors that grows by inserts and deletes (Algorithms 2 and 4; Figures 9 and 10). The first line of "
        "each part is the graph of all vectors, built at once:\n\n" + table([*heads, "s of deletes", "s of inserts"], body)
    )
