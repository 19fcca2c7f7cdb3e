"""Measures how the rule for updates of a graph in memory affects its recall: FreshDiskANN's sections 3.3 and 4.3, and
appendices B to D.

Each function returns Markdown. `live.py` calls them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from at_recall import at_recall, shown, table
from measure import Failed, Record

if TYPE_CHECKING:
    from live import Bench

#: Number of rows of these studies, and the number of cycles by the fraction that a cycle replaces. With each fraction,
#: a row is replaced two or three times on average.
ROWS = 50_000
CYCLES = {0.05: 50, 0.1: 20, 0.5: 5}
SHOWN = (0, 1, 2, 3, 5, 10, 20, 30, 40, 50)
#: Values of alpha, and the number of cycles with each.
ALPHAS = {1.0: 50, 1.1: 20, 1.2: 50, 1.3: 20}
#: Number of cycles of hnswlib. It takes longer than any rule to insert vectors in the place of deleted ones.
CYCLES_OF_HNSWLIB = 10
SHARES = (0.05, 0.1, 0.5)
#: Rule and alpha by label.
RULES = {
    "edges are dropped (policy A)": ("drop", 1.2),
    "neighbors of the deleted, pruned above the degree, alpha of 1 (policy B)": ("connect", 1.0),
    "neighbors of the deleted (Algorithm 4)": ("neighbors", 1.2),
    "nearest to the deleted (IP-DiskANN)": ("nearest", 1.2),
    "first neighbor of the deleted": ("replace", 1.2),
}
PRUNED_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
AT = (0.9, 0.95, 0.98)
#: Target recall of searches before the first cycle.
RECALL = 0.95


def by_cycle(rows: Iterable[tuple[list[str], list[Record]]], heads: list[str], figure: str, digits: int) -> str:
    """Returns a table of a figure over the cycles, one run per row. A cell is empty if its run has fewer cycles."""
    body = []
    for words, records in rows:
        of = {record["cycle"]: record for record in records}
        body.append([*words, *(shown(of[cycle][figure], digits) if cycle in of else "" for cycle in SHOWN)])
    return table([*heads, *(f"cycle {cycle}" for cycle in SHOWN)], body)


def updates(bench: Bench, rule: str, alpha: float, share: float, cycles: int = 0) -> list[Record]:
    return bench.updates(rows=ROWS, cycles=cycles or CYCLES[share], share=share, rule=rule, alpha=alpha)


def rules(bench: Bench) -> str:
    """Returns Figure 1, and rules that are not in the paper."""
    share = SHARES[0]
    rows = [([words, str(of[0]["list"])], of) for words, of in each_rule(bench)]
    note = ""
    try:
        peer = bench.updates_of_hnswlib(rows=ROWS, cycles=CYCLES_OF_HNSWLIB, share=share)
        words = f"hnswlib {peer[0]['version']}, a new vector replaces a deleted one"
        rows.append(([words, str(peer[0]["list"])], peer))
    except Failed as reason:
        note = f"\nhnswlib was not measured: {reason}.\n"
    return (
        f"5-recall@5 if each cycle deletes and inserts again {share:.0%} of {ROWS:,} vectors, newly drawn, by the rule that replaces "
        "a deleted out-neighbor (Figure 1). L is the list length of the searches, the smallest that reaches "
        f"{RECALL} before the first cycle:\n\n"
        + by_cycle(rows, ["rule", "L"], "recall_at_5", 4)
        + note
    )


def each_rule(bench: Bench) -> list[tuple[str, list[Record]]]:
    return [(words, updates(bench, rule, alpha, SHARES[0])) for words, (rule, alpha) in RULES.items()]


def costs(bench: Bench) -> str:
    """Measures the writes and the time of each rule."""
    rows = []
    for words, records in each_rule(bench):
        cycles = records[1:]
        mean = lambda figure: sum(cycle[figure] for cycle in cycles) / len(cycles)  # noqa: E731
        changed = ("delete_lists", "delete_edges", "insert_lists", "insert_edges")
        lists = [shown(mean(figure) / 1_000) for figure in changed]
        least = lambda figure: min(cycle[figure] for cycle in cycles)  # noqa: E731
        seconds = [shown(least(figure), 2) for figure in ("delete_seconds", "insert_seconds")]
        ends = [records[0], records[-1]]
        change = [" to ".join(shown(end[figure], digits) for end in ends) for figure, digits in FIGURES]
        rows.append([words, *lists, *seconds, *change])
    head = ["rule", "lists changed by deletes, thousands", "new edges in them", "lists changed by inserts"]
    head += ["new edges in them", "s of deletes", "s of inserts", "recall@10", "mean degree", "distances per query"]
    words = "Costs of these rules: means per cycle, but the smallest number of seconds; and the graph as built and after the last cycle:\n\n"
    return words + table(head, rows)


FIGURES = (("recall_at_10", 4), ("degree", 1), ("distances", 0))


def shares(bench: Bench) -> str:
    """Returns Figure 2."""
    rows = [([f"{share:.0%}"], updates(bench, "neighbors", 1.2, share)) for share in SHARES]
    return "5-recall@5 by the fraction that a cycle deletes (by Algorithm 4) and inserts (Figure 2):\n\n" + by_cycle(
        rows, ["fraction"], "recall_at_5", 4
    )


def alphas(bench: Bench) -> str:
    """Returns Figures 3 and 12."""
    share = SHARES[0]
    rows = [([shown(alpha)], updates(bench, "neighbors", alpha, share, cycles)) for alpha, cycles in ALPHAS.items()]
    parts = [
        f"5-recall@5 by alpha of the build and of updates by Algorithm 4, {share:.0%} per cycle (Figure 3):\n\n",
        by_cycle(rows, ["alpha"], "recall_at_5", 4),
        "\nMean degree in these runs (Figure 12):\n\n",
        by_cycle(rows, ["alpha"], "degree", 1),
    ]
    return "".join(parts)


def curve_cells(built: Record) -> list[str]:
    """Returns the number of distances per query at each recall@10."""
    points = [point | {"recall": point["recall_at_10"]} for point in built["curve"]]
    return [shown(at_recall(points, recall, "distances"), 0) for recall in AT]


def builds(bench: Bench) -> str:
    """Returns Table 1 and Figure 13."""
    rows = []
    for alpha in ALPHAS:
        for passes in (1, 2):
            built = bench.updates(rows=ROWS, cycles=0, alpha=alpha, passes=passes)[0]
            cells = [shown(built["build_seconds"]), shown(built["degree"]), *curve_cells(built)]
            rows.append([shown(alpha), str(passes), *cells])
    at = [f"distances per query at recall@10 of {recall}" for recall in AT]
    head = ["alpha", "passes", "seconds", "mean degree", *at]
    words = "Graphs built by inserts alone, and with a second pass that inserts all vectors again (Table 1, Figure 13):\n\n"
    return words + table(head, rows)


def pruning(bench: Bench) -> str:
    """Returns Figure 14."""
    rows = []
    for share in PRUNED_SHARES:
        cycle = bench.updates(rows=ROWS, cycles=1, share=share)[1]
        each = cycle["delete_seconds"] / cycle["delete_lists"] * 1e6
        cells = [shown(cycle["delete_candidates"]), shown(cycle["delete_lists"], 0), shown(cycle["delete_seconds"], 2)]
        rows.append([f"{share:.0%}", *cells, shown(each), shown(each / cycle["delete_candidates"], 2)])
    head = ["fraction deleted", "candidates per list", "lists changed", "seconds"]
    head += ["microseconds per list", "microseconds per candidate"]
    words = "Algorithm 4 by the number of candidates (Figure 14), including the search for vertices that became unreachable:\n\n"
    return words + table(head, rows)


ALL = (rules, costs, shares, alphas, builds, pruning)
