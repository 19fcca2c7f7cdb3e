"""Writes vectors with filter columns as Parquet, for `search_ranges.py`. Needs numpy and pyarrow.

usage: attributes.py VECTORS PARQUET

Values of both columns range from 0 to 999. `pick` is random. `near` grows with the distance from a row drawn at random,
so that the rows with values below a number are a cluster around that row.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet

PARTS = 1_000
#: Number of rows for which distances are computed at once.
PIECE = 8_192


def distances(rows: Any, center: Any) -> Any:
    """Returns the squared distance of each row from a center."""
    pieces = (rows[start : start + PIECE].astype("f4") for start in range(0, len(rows), PIECE))
    return numpy.concatenate([((piece - center.astype("f4")) ** 2).sum(axis=1) for piece in pieces])


def main() -> int:
    source, target = Path(sys.argv[1]), sys.argv[2]
    count, dimensions = (int(number) for number in numpy.fromfile(source, dtype="<u4", count=2))
    element = "u1" if source.suffix == ".u8bin" else "<f4"
    rows = numpy.fromfile(source, dtype=element, offset=8).reshape(count, dimensions)
    random = numpy.random.default_rng(1)
    near = numpy.empty(count, dtype="i4")
    by_distance = numpy.argsort(distances(rows, rows[random.integers(count)]), kind="stable")
    near[by_distance] = numpy.arange(count) * PARTS // count
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), dimensions)
    columns = {"vector": vectors, "pick": random.integers(0, PARTS, count, dtype="i4"), "near": near}
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
