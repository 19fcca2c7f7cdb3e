"""Columns in pairs, removed rows and clusters, equal to a join by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import adjoin

NAMES = ["text", "whole", "real", "truth", "when"]


def table(vectors: numpy.ndarray) -> pyarrow.Table:
    """Rows with columns of several types, in which every third value is null."""

    def some(values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
        return pyarrow.array([None if row % 3 == 1 else value for row, value in enumerate(values)], kind)

    rows = range(len(vectors))
    return pyarrow.table(
        {
            "id": pyarrow.array([f"row {row}" for row in rows]),
            "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), vectors.shape[1]),
            "text": some([f"text {row} é" * (row % 4) for row in rows], pyarrow.string()),
            "whole": some([row * 7 for row in rows], pyarrow.int64()),
            "real": some([row / 7 for row in rows], pyarrow.float64()),
            "truth": some([row % 2 == 0 for row in rows], pyarrow.bool_()),
            "when": some([row * 10**9 for row in rows], pyarrow.timestamp("us")),
        }
    )


def check(lines: pyarrow.Table, whole: pyarrow.Table, ids: list[str], names: list[list[str]]) -> None:
    """Checks that lines have the columns of the rows with these ids under these names."""
    assert len(lines) > 20
    for side, of_side in zip(ids, names):
        rows = pyarrow.array([int(name.removeprefix("row ")) for name in lines[side].to_pylist()])
        by_hand = whole.take(rows)
        for name, called in zip(NAMES, of_side):
            assert lines[called].to_pylist() == by_hand[name].to_pylist(), called


def called(prefix: str) -> list[str]:
    return [prefix + name for name in NAMES]


def test_pairs_and_removed_rows_carry_columns(vectors: numpy.ndarray, tmp_path: Path) -> None:
    whole = table(vectors)
    pyarrow.parquet.write_table(whole, tmp_path / "set.parquet")
    store = adjoin.build(whole, tmp_path / "set.store", columns=NAMES)
    for source in (whole, str(tmp_path / "set.parquet"), store):
        with adjoin.join(source, eps=0.3, exact=True, columns=NAMES) as result:
            pairs = pyarrow.table(result.pairs())
            check(pairs, whole, ["left_id", "right_id"], [called("left_"), called("right_")])
            check(pyarrow.table(result.removed()), whole, ["id", "kept_id"], [called(""), called("kept_")])
            check(pyarrow.table(result.clusters()), whole, ["id"], [called("")])
            result.write(tmp_path / "pairs.parquet", force=True)
            assert pyarrow.parquet.read_table(tmp_path / "pairs.parquet").equals(pairs)
            assert pyarrow.table(result.counts()).column_names == ["id", "count"]
        with adjoin.join(source, eps=0.3, exact=True) as result:
            plain = pyarrow.table(result.pairs())
        key = [("left_id", "ascending"), ("right_id", "ascending")]
        assert pairs.select(plain.column_names).sort_by(key).equals(plain.sort_by(key))


def test_rows_that_dedupe_removes_carry_columns(vectors: numpy.ndarray) -> None:
    whole = table(vectors)
    with adjoin.dedupe(whole, eps=0.3, exact=True, columns=NAMES) as deduped:
        check(pyarrow.table(deduped.removed()), whole, ["id", "kept_id"], [called(""), called("kept_")])


def test_missing_columns_are_refused(vectors: numpy.ndarray, tmp_path: Path) -> None:
    whole = table(vectors)
    store = adjoin.build(whole, tmp_path / "set.store", columns=["text", "whole"])
    with pytest.raises(adjoin.AdjoinError, match="it has text, whole"):
        adjoin.join(store, eps=0.3, columns=["url"])
    for work in (adjoin.join, adjoin.dedupe):
        with pytest.raises(adjoin.AdjoinError, match="url.*text"):
            work(whole, eps=0.3, columns=["url"])
