"""Measures how the rule for updates of a graph in memory affects its recall: FreshDiskANN's sections 3.3 and 4.3, its
appendices B to D, and its Figure 18.

Each function returns Markdown. `live.py` calls them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from at_recall import at_recall, shown, table
from measure import Failed, Record

if TYPE_CHECKING:
    from live import Bench

#: Number of rows of these studies, and number of cycles, as in the paper.
ROWS, CYCLES = 50_000, 50
SHOWN = (0, 1, 2, 3, 5, 10, 20, 30, 40, 50)
ALPHAS = (1.0, 1.1, 1.2, 1.3)
SHARES = (0.05, 0.1, 0.5)
#: Rule and alpha by label.
RULES = {
    "edges are dropped (policy A)": ("drop", 1.2),
    "neighbors of the deleted, pruned above the degree, alpha of 1 (policy B)": ("connect", 1.0),
    "neighbors of the deleted (Algorithm 4)": ("neighbors", 1.2),
    "nearest to the deleted (IP-DiskANN)": ("nearest", 1.2),
    "first neighbor of the deleted": ("replace", 1.2),
}
#: Delete policies of the paper's Figure 1, each with its rule, and the graphs on which they are measured with an alpha of 1,
#: as the paper has it for other graphs than its own.
POLICIES = {"policy A": "drop", "policy B": "connect"}
GRAPHS = {"HNSW": "hnsw", "NSG": "nsg", "Vamana with an alpha of 1": "vamana"}
#: Bytes of codes. The paper has 32.
CODES = (32, 16)
#: Dimensions of generated floats. As many rows as elsewhere are searched, and others are queries.
WIDE, QUERIES = 768, 1_000
#: Numbers of nearest vectors for which recalls are compared.
KS = (1, 10, 100)
#: Lengths of candidate lists; one of them makes a build by inserts take as long as two passes.
BUILD_LISTS = (75, 100, 125, 150, 175, 200, 250)
#: Number of builds of which a table shows the median time.
BUILDS = 3
PRUNED_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
AT, EQUAL_AT = (0.9, 0.95, 0.98), (0.95, 0.98, 0.99)
#: Numbers of nearest vectors in the records of `lab/src/updates.rs`, in the order of their lists.
MEASURED_KS = (1, 5, 10, 100)
#: Target recall of searches before the first cycle.
RECALL = 0.95


def by_cycle(rows: Iterable[tuple[list[str], list[Record]]], heads: list[str], figure: str, digits: int) -> str:
    """Returns a table of a figure over the cycles, one run per row. A cell is empty if its run has fewer cycles."""
    body = []
    for words, records in rows:
        of = {record["cycle"]: record for record in records}
        body.append([*words, *(shown(of[cycle][figure], digits) if cycle in of else "" for cycle in SHOWN)])
    return table([*heads, *(f"cycle {cycle}" for cycle in SHOWN)], body)


def updates(bench: Bench, rule: str, alpha: float, share: float, file: Path | None = None, **named: object) -> list[Record]:
    return bench.updates(file=file, rows=ROWS, cycles=CYCLES, share=share, rule=rule, alpha=alpha, **named)


def recalls(runs: Iterable[tuple[str, list[Record]]]) -> list[tuple[list[str], list[Record]]]:
    """Returns rows for `by_cycle`, with the list length of the searches."""
    return [([words, str(of[0]["list"])], of) for words, of in runs]


def rules(bench: Bench) -> str:
    """Returns Figure 1, and rules that are not in the paper."""
    share = SHARES[0]
    rows = recalls(each_rule(bench))
    note = ""
    try:
        peer = bench.updates_of_hnswlib(rows=ROWS, cycles=CYCLES, share=share)
        words = f"hnswlib {peer[0]['version']}, a new vector replaces a deleted one"
        rows.append(([words, str(peer[0]["list"])], peer))
    except Failed as reason:
        note = f"\nhnswlib was not measured: {reason}.\n"
    return (
        f"5-recall@5 if each cycle deletes and inserts again {share:.0%} of {ROWS:,} vectors, newly drawn, by the rule that replaces "
        "a deleted out-neighbor (Figure 1). L is the list length of the searches, the shortest that reaches "
        f"{RECALL} before the first cycle:\n\n"
        + by_cycle(rows, ["rule", "L"], "recall_at_5", 4)
        + note
    )


def each_rule(bench: Bench, file: Path | None = None) -> list[tuple[str, list[Record]]]:
    return [(words, updates(bench, rule, alpha, SHARES[0], file)) for words, (rule, alpha) in RULES.items()]


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
    head += ["new edges in them", "s of deletes", "s of inserts", "recall@10, list that reaches 0.95 as built", "mean degree"]
    head += ["distances per query, L"]
    words = "Costs of these rules: means per cycle, but the smallest number of seconds; and the graph as built and after the last cycle:\n\n"
    return words + table(head, rows)


def other_graphs(bench: Bench) -> str:
    """Returns Figure 1 on other graphs."""
    runs = {
        f"{name}, {policy}": updates(bench, rule, 1.0, SHARES[0], graph=graph)
        for name, graph in GRAPHS.items()
        for policy, rule in POLICIES.items()
    }
    rows = recalls(runs.items())
    return (
        f"5-recall@5 of graphs with an alpha of 1 if each cycle deletes and inserts again {SHARES[0]:.0%} of {ROWS:,} vectors (Figure 1). "
        "Policy A drops edges to deleted vertices. Policy B links the in-neighbors of a deleted vertex to its out-neighbors, and prunes "
        "lists that become too long. Inserts prune with an alpha of 1, too. In NSG and Vamana, vertices that no path reaches are linked "
        "again after each step, which the paper's graphs do not do:\n\n"
        + by_cycle(rows, ["graph and policy", "L"], "recall_at_5", 4)
        + "\nMean degree in these runs, of HNSW in its lowest layer:\n\n"
        + by_cycle([(words[:1], of) for words, of in rows], ["graph and policy"], "degree", 1)
    )


def floats(bench: Bench) -> str:
    """Returns Figure 1 with wide floats."""
    file = bench.generated(ROWS + QUERIES, WIDE)
    rows = recalls(each_rule(bench, file))
    return (
        f"5-recall@5 of {ROWS:,} generated vectors of {WIDE} floats on Vamana, by the rule that replaces a deleted out-neighbor, else as "
        "in the first table of the rules:\n\n" + by_cycle(rows, ["rule", "L"], "recall_at_5", 4)
    )


def by_codes(bench: Bench) -> str:
    """Returns Figure 4 in memory."""
    share = SHARES[1]
    runs = {"vectors": updates(bench, "neighbors", 1.2, share)}
    runs |= {f"codes of {size} bytes": updates(bench, "neighbors", 1.2, share, codes=size) for size in CODES}
    return (
        f"5-recall@5 if each cycle deletes and inserts again {share:.0%} of {ROWS:,} vectors by Algorithm 4, with distances from vectors, "
        "or from product codes as in FreshDiskANN's merges (Figure 4). The graph is built and searched with vectors; in the paper, "
        "searches walk by codes:\n\n" + by_cycle(recalls(runs.items()), ["distances from", "L"], "recall_at_5", 4)
    )


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
    rows = [([shown(alpha)], updates(bench, "neighbors", alpha, share)) for alpha in ALPHAS]
    parts = [
        f"5-recall@5 by alpha of the build and of updates by Algorithm 4, {share:.0%} per cycle (Figure 3):\n\n",
        by_cycle(rows, ["alpha"], "recall_at_5", 4),
        "\nMean degree in these runs (Figure 12):\n\n",
        by_cycle(rows, ["alpha"], "degree", 1),
    ]
    return "".join(parts)


def build_seconds(bench: Bench, passes: int = 1, length: int = BUILD_LISTS[0]) -> float:
    """Returns the median time of some builds of a graph."""
    named = {"rows": ROWS, "cycles": 0, "alpha": 1.2, "passes": passes, "list": length}
    return median([bench.updates(again=again, **named)[0]["build_seconds"] for again in range(BUILDS)])


def relative(bench: Bench) -> str:
    """Returns Figure 11."""
    rows, build = [], build_seconds(bench)
    for share in SHARES:
        _, *cycles = updates(bench, "neighbors", 1.2, share)
        times = [median([cycle[figure] for cycle in cycles]) for figure in ("delete_seconds", "insert_seconds")]
        rows.append([f"{share:.0%}", *(shown(seconds, 2) for seconds in (*times, build)), f"{sum(times) / build:.0%}"])
    words = "Time of a cycle by Algorithm 4, medians, next to the build of the graph by inserts (Figure 11):\n\n"
    return words + table(["fraction", "s of deletes", "s of inserts", "s of the build", "of the build"], rows)


def by_k(bench: Bench) -> str:
    """Returns Figure 18."""
    rows = []
    for share in SHARES:
        of = updates(bench, "neighbors", 1.2, share)
        for k in KS:
            lists = [str(of[0]["lists"][MEASURED_KS.index(k)])]
            rows += [([f"{share:.0%}", str(k), *lists], [record | {"recall": record[f"recall_at_{k}"]} for record in of])]
    words = (
        "k-recall@k after the inserts of a cycle, by Algorithm 4 (Figure 18). L is the shortest list of at least k that reaches "
        f"{RECALL} before the first cycle:\n\n"
    )
    return words + by_cycle(rows, ["fraction", "k", "L"], "recall", 4)


def at_recall_of(built: Record, k: int, recall: float, figure: str) -> float | None:
    """Returns a figure of searches of a built graph at a k-recall@k, with lists of at least k. If the shortest list already
    exceeds the recall, returns its figure."""
    points = [point | {"recall": point[f"recall_at_{k}"]} for point in built["curve"] if point["list"] >= k]
    return points[0][figure] if points[0]["recall"] >= recall else at_recall(points, recall, figure)


def equal_time(bench: Bench) -> str:
    """Returns Figures 15 to 17."""
    static, fresh = build_seconds(bench, 2), {length: build_seconds(bench, 1, length) for length in BUILD_LISTS}
    equal = min(BUILD_LISTS[1:], key=lambda length: abs(fresh[length] - static))
    ways = [("two passes", 2, BUILD_LISTS[0], static)]
    ways += [("inserts alone", 1, length, fresh[length]) for length in (BUILD_LISTS[0], equal)]
    rows = []
    for words, passes, length, seconds in ways:
        built = bench.updates(again=0, rows=ROWS, cycles=0, alpha=1.2, passes=passes, list=length)[0]
        for k in KS:
            cells = []
            for recall in EQUAL_AT:
                times = [at_recall_of(built, k, recall, figure) for figure in ("microseconds", "distances")]
                cells.append(" / ".join(shown(value, 0) for value in times) if times[0] is not None else "")
            rows.append([f"{words}, list of {length}", shown(seconds, 2), str(k), *cells])
    head = ["build", "seconds", "k", *(f"at k-recall@k of {recall}" for recall in EQUAL_AT)]
    words = (
        "Microseconds and distances per query, one thread, of graphs that take about equally long to build: with two passes, and by "
        "inserts alone with a longer list (Figures 15 to 17). Lists of searches have at least k vertices. "
        "Microseconds of different rows vary with the machine; compare distances:\n\n"
    )
    return words + table(head, rows)


def builds(bench: Bench) -> str:
    """Returns Table 1 and Figure 13."""
    rows = []
    for alpha in ALPHAS:
        for passes in (1, 2):
            runs = [bench.updates(again=again, rows=ROWS, cycles=0, alpha=alpha, passes=passes)[0] for again in range(BUILDS)]
            distances = [shown(at_recall_of(runs[0], 10, recall, "distances"), 0) for recall in AT]
            seconds = median([built["build_seconds"] for built in runs])
            cells = [shown(seconds), shown(runs[0]["degree"]), *distances]
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


ALL = (rules, costs, shares, relative, by_k, alphas, builds, equal_time, pruning)
OTHERS = (other_graphs, floats, by_codes)
