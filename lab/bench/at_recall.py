"""Tables that compare the figures of searches at equal recall, and settings that several benchmarks share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from measure import Record

THREADS = 2
QUERIES = 1_000
K = 10
PAGE_BYTES = 4_096
#: Degree, list of the build and bytes of a code, for adjoin and DiskANN; and the beam of DiskANN's searches.
DEGREE, BUILD_LIST, CODE_BYTES, BEAM = 32, 75, 32, 4
RECALLS = (0.9, 0.95, 0.98, 0.99)
#: List lengths for searches of an index.
LISTS = (10, 16, 24, 32, 48, 64, 96, 128, 192)


def at_recall(points: Sequence[Record], recall: float, figure: str) -> float | None:
    """Returns a figure at a recall. Interpolates between the two points around that recall, by the logarithm of the
    fraction that is missed."""
    ordered = sorted((point for point in points if "recall" in point), key=lambda point: point["recall"])
    missed = lambda value: math.log(max(1 - value, 1e-6))  # noqa: E731
    for low, high in zip(ordered, ordered[1:]):
        if low["recall"] <= recall <= high["recall"] and low["recall"] < high["recall"]:
            share = (missed(recall) - missed(low["recall"])) / (missed(high["recall"]) - missed(low["recall"]))
            return float(low[figure] + share * (high[figure] - low[figure]))
    return None


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def with_rows(page: str, text: str) -> str:
    """Replaces rows of a table in a page by the rows of `text` with equal first cells. The text is a line that is above the
    table in the page, and a table with an equal head.

    Raises ValueError if the page has no such table, or no such row."""
    title, _, head, _, *rows = text.strip().splitlines()
    before, found, after = page.partition(f"{title}\n\n{head}\n")
    lines = after.splitlines(keepends=True)
    for row in rows:
        first = row.split(" | ")[0] + " | "
        end = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
        at = next((at for at, line in enumerate(lines[:end]) if line.startswith(first)), None)
        if not found or at is None:
            raise ValueError(f"the page has no row {first!r} below {title!r}")
        lines[at] = row + "\n"
    return before + found + "".join(lines)


def shown(value: float | None, digits: int = 1) -> str:
    """Formats a figure; empty if there is none."""
    return "" if value is None else f"{value:,.{digits}f}"
