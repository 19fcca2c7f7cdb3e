"""Draws charts as SVG for `search_charts.py`, which passes them as a file of JSON. Needs matplotlib.

A chart has a `path`, and `panels` that are drawn next to each other. A panel has the keys `x` and `y` (the labels of
its axes), `logarithmic` (the names of logarithmic axes), `from_zero` (whether the vertical axis starts at 0), and
`lines`, each a name and its points. Lines of equal name have equal color in all panels. Equal charts give equal bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

#: Texts are not converted to outlines, and the names of elements depend on the content only.
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "adjoin"}
matplotlib.rcParams |= {"font.size": 8, "font.sans-serif": ["DejaVu Sans"]}
MARKERS = "osD^vP"


def draw(chart: dict[str, Any]) -> None:
    panels = chart["panels"]
    names = list(dict.fromkeys(name for panel in panels for name, _ in panel["lines"]))
    figure = Figure(figsize=(3.4 * len(panels), 2.8), layout="constrained")
    for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0]):
        for name, points in panel["lines"]:
            at = names.index(name)
            style = {"color": f"C{at}", "marker": MARKERS[at % len(MARKERS)]}
            axes.plot(*zip(*points), label=name, markersize=3, linewidth=1.2, **style)
        axes.set_xlabel(panel["x"])
        axes.set_ylabel(panel["y"])
        for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            if axis.axis_name in panel["logarithmic"]:
                set_scale("log")
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(ScalarFormatter())
                axis.set_minor_locator(NullLocator())
        if panel["from_zero"]:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(chart["path"], metadata={"Date": None, "Creator": None})


def main() -> int:
    for chart in json.loads(Path(sys.argv[1]).read_text()):
        draw(chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
