"""Measures an index of as many vectors as a segment has in Starling's paper, which has 2 GB of memory and 10 GB of disk.

`search.py` calls it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from at_recall import CODE_BYTES, DEGREE, LISTS, K, shown, table
from measure import Record

if TYPE_CHECKING:
    from search import Bench

#: Memory of the build and of the searches.
MEMORY = "2GB"


def segment(bench: Bench) -> str:
    """Returns the cost of the build, and of searches by list length."""
    folder, truth = bench.work / "index", bench.truth()

    def build() -> Record:
        told = bench.build_index(bench.base, folder, "--memory", MEMORY)
        return told | {"index_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())}

    def search(list_of: int) -> Record:
        told = bench.asked(["search", folder, "-k", str(K), "-L", str(list_of), "--memory", MEMORY])
        return told | {"recall": bench.recall(truth)}

    built = bench.made(["build", MEMORY], folder, build)
    points = [bench.succeeded(["search", list_of, MEMORY], partial(search, list_of)) for list_of in LISTS]
    figures = (("recall", 4), ("reads", 1), ("from_disk", 1), ("rate", 0), ("mean_ms", 2), ("p99_ms", 2))
    rows = [[str(list_of), *(shown(point[figure], digits) for figure, digits in figures)] for list_of, point in zip(LISTS, points)]
    head = ["candidates", "recall@10", "reads per query", "from disk", "queries per second", "mean ms", "p99 ms"]
    peak = max(point["peak_bytes"] for point in points)
    return (
        f"{bench.rows:,} vectors of {bench.dimensions}, as many as a segment has in Starling's paper, which has 2 GB of memory and 10 GB "
        f"of disk. Build within {MEMORY}: {built['seconds']:,.0f} s, {built['peak_bytes'] / 1e6:,.0f} MB of memory. The index takes "
        f"{built['index_bytes'] / 1e9:.1f} GB, with {DEGREE} neighbors and codes of {CODE_BYTES} bytes. Searches take {peak / 1e6:,.0f} MB "
        f"of {MEMORY}:\n\n" + table(head, rows)
    )
