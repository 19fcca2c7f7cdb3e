"""Draws charts of the measurements of `search.py`, as files that its Markdown includes.

Charts need matplotlib in CHARTS_PYTHON, by default this Python; the output states if it is missing. Each function takes
a bench of a set and returns Markdown. When a function runs, all figures that it needs are in the ledger.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from at_recall import K, at_recall
from measure import Failed, Record, run
from search_peers import PEERS, Contender
from search_sweeps import AT, BETAS, GAMMAS, PLENTY, memory_points, tried

if TYPE_CHECKING:
    from search import Bench

#: Smallest recall that is drawn.
RECALL_MIN = 0.8
Line = tuple[str, list[tuple[float, float]]]
Panel = dict[str, Any]


def panel(x: str, y: str, lines: Sequence[Line], logarithmic: str = "", from_zero: bool = False) -> Panel:
    """Returns a panel. Lines without points are left out. `logarithmic` names axes; the vertical axis may start at 0.
"""
    drawn = [line for line in lines if line[1]]
    return {"x": x, "y": y, "lines": drawn, "logarithmic": logarithmic, "from_zero": from_zero}


def over_recall(name: str, points: Sequence[Record], figure: str) -> Line:
    found = [(point["recall"], point[figure]) for point in points if point.get("recall", 0) >= RECALL_MIN]
    return name, sorted(found)


def contenders(bench: Bench) -> dict[str, Sequence[Record]]:
    """Returns the searches of all contenders measured with a set, by name."""
    of: dict[str, Sequence[Record]] = {"adjoin": bench.searches(bench.memory())[0]}
    try:
        of["DiskANN"] = bench.points_of_diskann()
    except Failed:
        pass
    if bench.is_first:
        for name in PEERS:
            contender = Contender(bench, name, bench.memory() * 1_000_000)
            if "failed" not in contender.built():
                of[name] = contender.points()
    return of


def recalls(bench: Bench) -> list[Panel]:
    all_points = contenders(bench)
    on_disk = [over_recall(name, all_points[name], "reads") for name in ("adjoin", "DiskANN") if name in all_points]
    rates = [over_recall(name, points, "rate") for name, points in all_points.items()]
    x = f"recall@{K}"
    return [panel(x, "reads per query", on_disk, from_zero=True), panel(x, "queries per second", rates, "y")]


def candidates(bench: Bench) -> list[Panel]:
    points = [(list_of, bench.search(list_of, PLENTY)) for list_of in GAMMAS]
    of = lambda figure: [("adjoin", [(float(list_of), point[figure]) for list_of, point in points])]  # noqa: E731
    x = "candidates"
    return [panel(x, f"recall@{K}", of("recall"), "x"), panel(x, "reads per query", of("reads"), "xy")]


def memories(bench: Bench) -> list[Panel]:
    all_points = memory_points(bench)
    lines = []
    for recall in AT:
        rates = [(float(memory), at_recall(points, recall, "rate")) for memory, points in all_points]
        lines.append((f"recall {recall}", [(memory, rate) for memory, rate in rates if rate is not None]))
    return [panel("MB allowed", "queries per second", lines, from_zero=True)]


def rounds(bench: Bench) -> list[Panel]:
    of = {layout: by_rounds for layout, by_rounds in tried(bench).items() if BETAS[0] in by_rounds}

    def of_part(part: int, words: str) -> Panel:
        lines = [(layout, [(float(beta), by[beta][part]) for beta in BETAS]) for layout, by in of.items()]
        return panel("rounds", words, lines, "x", from_zero=True)

    return [of_part(0, "OR(G)"), of_part(1, "seconds")]


OF_ALL = {"recall": recalls}
OF_FIRST = OF_ALL | {"candidates": candidates, "memory": memories, "rounds": rounds}
WORDS = {
    "recall": "Reads and queries per second by recall",
    "candidates": "Recall and reads by candidates",
    "memory": "Queries per second by memory",
    "rounds": "OR(G) and seconds by rounds",
}


def charts(bench: Bench) -> str:
    """Draws the charts. Returns Markdown that includes them, for a document next to their folder."""
    bench.charts.mkdir(parents=True, exist_ok=True)
    of_set = OF_FIRST if bench.is_first else OF_ALL
    paths = {name: bench.charts / f"{bench.work.name}-{name}.svg" for name in of_set}
    job = [{"path": str(paths[name]), "panels": of(bench)} for name, of in of_set.items()]
    python = os.environ.get("CHARTS_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "charts.json").write_text(json.dumps(job))
        try:
            run([python, Path(__file__).with_name("draw.py"), Path(folder) / "charts.json"])
        except Failed as reason:
            return f"No charts: {reason}.\n"
    return "\n".join(f"![{WORDS[name]}]({bench.charts.name}/{path.name})" for name, path in paths.items()) + "\n"
