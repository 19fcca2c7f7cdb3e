"""Measures the effect of each parameter of a graph index, by repeating the tables of Starling's appendix (sections H to
M).

Each function takes a bench of a set and returns Markdown. `search.py` calls them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from at_recall import LISTS, at_recall, shown, table
from measure import Record, run

if TYPE_CHECKING:
    from search import Bench

#: Fractions of the vectors that are in the navigation graph (mu), fractions of a page's vertices that are expanded
#: (sigma), numbers of pages requested at once, and numbers of candidates (Gamma).
MUS = (0.001, 0.01, 0.1)
SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
DEPTHS = (1, 2, 4, 8, 16)
GAMMAS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: Numbers of rounds for layouts that improve another layout (beta).
BETAS = (1, 2, 4, 8, 16)
#: Recalls at which these tables are evaluated.
AT = (0.95, 0.99)
FIGURES = ("reads", "from_disk", "rate")
LAYOUTS = ("grown", "bns", "bnf", "bnp", "margo", "gp1", "gp2", "gp3", "degree", "bfs")
PLENTY = "2GiB"
#: Strategies of walks, each without one of the ideas of walks.
WITHOUT = {
    "all ideas": "",
    "entry vertex of the graph instead of the navigation graph": "entry=vertex",
    "only vertices in the list are expanded": "expanded=0",
    "all vertices of a page are expanded": "expanded=1",
    "a beam of 4 that waits for all its reads": "beam=4",
    "one query at a time per thread": "walks=1",
    "one query at a time per thread, without read-ahead": "walks=1,ahead=1",
}


def rows_at_recalls(points: list[Record], figures: Iterable[str] = FIGURES) -> list[str]:
    """Returns cells with the figures at each recall."""
    return [shown(at_recall(points, recall, figure)) for recall in AT for figure in figures]


def head_at_recalls(first: str, words: Iterable[str] = ("reads", "from disk", "queries per second")) -> list[str]:
    """Returns the head of a table of such cells."""
    return [first, *(f"{word} at {recall}" for recall in AT for word in words)]


def ideas(bench: Bench) -> str:
    """Measures walks that lack one idea each."""
    lists = lambda strategy: [bench.search(list_of, PLENTY, strategy) for list_of in LISTS]  # noqa: E731
    figures = ("reads", "rate", "mean_ms")
    rows = [[words, *rows_at_recalls(lists(strategy), figures)] for words, strategy in WITHOUT.items()]
    return "Each row without one idea, with ample memory:\n\n" + table(
        head_at_recalls("walks", ("reads", "queries per second", "mean ms")), rows
    )


def candidates(bench: Bench) -> str:
    """Returns Figure 21, and which fraction of a page's vertices are used."""
    rows = []
    for list_of in GAMMAS:
        one = bench.search(list_of, PLENTY)
        rows.append([
            str(list_of),
            *(shown(one.get(figure), digits) for figure, digits in (("recall", 4), ("reads", 1), ("rate", 0))),
            *(shown(one.get(figure), 2) for figure in ("mean_ms", "p99_ms", "utilization")),
        ])
    head = ["candidates", "recall@10", "reads", "queries per second", "mean ms", "p99 ms", "fraction of vertices expanded"]
    return "List length (Figure 21), with ample memory:\n\n" + table(head, rows)


def leading(bench: Bench) -> str:
    """Returns Figure 20."""
    lists = lambda sigma: [bench.search(list_of, PLENTY, f"expanded={sigma}") for list_of in LISTS]  # noqa: E731
    rows = [[shown(sigma), *rows_at_recalls(lists(sigma))] for sigma in SIGMAS]
    return "Fraction of a page that is expanded in addition to vertices in the list (Figure 20, sigma):\n\n" + table(head_at_recalls("fraction"), rows)


def looking_ahead(bench: Bench) -> str:
    """Measures NDSearch's speculative searching: a lone query reads pages that it will probably need, before it knows.
"""
    rows = []
    for depth in DEPTHS:
        points = [bench.search(list_of, f"{bench.memory()}MB", f"walks=1,ahead={depth}") for list_of in LISTS]
        rows.append([str(depth), *rows_at_recalls(points, ("reads", "from_disk", "mean_ms", "p99_ms"))])
    words = ("pages needed", "read", "mean ms", "p99 ms")
    return "Pages requested at once by a single query on its thread:\n\n" + table(head_at_recalls("pages", words), rows)


def navigation(bench: Bench) -> str:
    """Returns Tables 14 and 15, and Figure 19: navigation graphs, and instead of them, cached pages."""
    rows = []
    for mu in MUS:
        count = max(1, round(mu * bench.rows))
        points = [bench.search(list_of, PLENTY, navigation=count) for list_of in LISTS]
        memory = bench.memory(navigation=count)
        held = [bench.search(list_of, f"{memory}MB", "entry=vertex", navigation=count) for list_of in LISTS]
        within = [bench.search(list_of, f"{memory}MB", navigation=count) for list_of in LISTS]
        rows.append([shown(mu, 3), *rows_at_recalls(points), str(memory), *rows_at_recalls(within), *rows_at_recalls(held)])
    head = head_at_recalls("fraction of vectors")
    within = head_at_recalls("", ("reads", "from disk", "per second"))[1:]
    head += ["MB", *(f"within MB: {word}" for word in within), *(f"without it: {word}" for word in within)]
    return (
        "The navigation graph (Tables 14 and 15, Figure 19, mu): with ample memory; within the MB that it needs; and within as "
        "many MB without it, with walks that begin at one vertex and more cached pages:\n\n" + table(head, rows)
    )


def memory_points(bench: Bench) -> list[tuple[int, list[Record]]]:
    """Returns sizes of the memory in megabytes, each with the searches within it."""
    sizes = [round(factor * bench.memory()) for factor in (1.0, 1.5, 2.0, 3.0, 5.0)]
    return [(size, [bench.search(list_of, f"{size}MB") for list_of in LISTS]) for size in sizes]


def memories(bench: Bench) -> str:
    """Returns Table 19: what more memory gains."""
    rows = []
    for size, points in memory_points(bench):
        peak = max(one.get("peak_bytes", 0) for one in points)
        rows.append([str(size), f"{peak / 1e6:.0f}", *rows_at_recalls(points)])
    return "Memory (Table 19):\n\n" + table(["MB allowed", *head_at_recalls("MB used")], rows)


def layouts(bench: Bench, orders: Iterable[str] = LAYOUTS, is_timed: bool = True) -> str:
    """Returns Tables 7 to 13: cost and gain of page orders. Without times, their cells are empty."""
    rows = []
    for layout in orders:
        points = [bench.search(list_of, PLENTY, layout=layout) for list_of in LISTS]
        facts = bench.built(layout)
        seconds = facts["layout_seconds"]
        share = seconds / bench.built()["seconds"]
        cells = [shown(seconds), f"{100 * share:.0f} %"] if is_timed else ["", ""]
        reads, rates = (rows_at_recalls(points, [figure]) for figure in ("reads", "rate"))
        pairs = zip(reads, rates if is_timed else ["", ""])
        rows.append([layout, shown(facts["overlap"], 3), *cells, *(cell for pair in pairs for cell in pair)])
    head = ["order of pages", "OR(G)", "seconds", "of the build", *head_at_recalls("", ("reads", "queries per second"))[1:]]
    return "Orders of pages (Tables 7 to 13):\n\n" + table(head, rows)


def tried(bench: Bench) -> dict[str, dict[int, tuple[float, float]]]:
    """Returns, for each layout and number of rounds, OR(G) and the seconds to compute the layout. Layouts without
    rounds are under 0."""
    told = bench.succeeded("layouts by rounds", lambda: run([bench.adjoin.parent / "adjoin-lab", "layouts", bench.index()]))
    by_layout: dict[str, dict[int, tuple[float, float]]] = {}
    for line in told["output"].splitlines()[1:]:
        layout, rounds_max, ratio, seconds = line.split()
        by_layout.setdefault(layout, {})[int(rounds_max)] = (float(ratio), float(seconds))
    return by_layout


def rounds(bench: Bench) -> str:
    """Returns Tables 5 to 12: rounds of layouts that improve an order, compared with layouts without rounds."""
    cell = lambda of: f"{of[0]:.3f} / {of[1]:.1f}" if of else ""  # noqa: E731
    rows = [[layout, *(cell(of.get(beta)) for beta in (0, *BETAS))] for layout, of in tried(bench).items()]
    head = ["order of pages", "without rounds", *(f"up to {beta}" for beta in BETAS)]
    return "OR(G) / seconds by the number of rounds that improve an order (Tables 5 to 12, beta):\n\n" + table(head, rows)


ALL = (ideas, candidates, leading, looking_ahead, layouts, rounds, navigation, memories)
