"""A data set without its near-duplicates, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import adjoin


def table(rows: int = 90) -> pyarrow.Table:
    """Rows of which every third is a near copy of the one before, and every ninth says what the first says."""
    vectors = numpy.random.default_rng(3).standard_normal((rows, 8), dtype="float32")
    vectors[2::3] = vectors[1::3] + 0.001
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), 8)
    return pyarrow.table(
        {
            "text": [None if row % 10 == 0 else "same" if row % 9 == 3 else "x" * (row % 5) + str(row) for row in range(rows)],
            "id": pyarrow.array([f"row {row}" for row in range(rows)]),
            "tags": [["a"] * (row % 3) for row in range(rows)],
            "when": pyarrow.array([row * 10**9 for row in range(rows)], pyarrow.timestamp("ns", "UTC")),
            "kind": pyarrow.array(["even", "odd"] * (rows // 2)).dictionary_encode(),
            "vector": lists,
        }
    )


def without(whole: pyarrow.Table, gone: set[Any]) -> pyarrow.Table:
    return whole.filter(pyarrow.array([name not in gone for name in whole["id"].to_pylist()]))


def gone_of(deduped: adjoin.Deduped) -> set[Any]:
    return set(pyarrow.table(deduped.removed())["id"].to_pylist())


def test_what_stays_comes_as_a_stream_with_every_column() -> None:
    whole = table()
    for source in (whole, whole.to_batches(max_chunksize=17), polars.from_arrow(whole), whole.to_pandas()):
        if isinstance(source, list):
            source = pyarrow.RecordBatchReader.from_batches(whole.schema, source)
        with adjoin.dedupe(source, eps=0.01, exact=True) as deduped:
            kept, gone = pyarrow.table(deduped.kept()), gone_of(deduped)
            assert len(deduped) == len(kept) == 60 and deduped.rows == 90 and deduped.near_rows == len(gone) == 30
            assert gone == {f"row {row}" for row in range(2, 90, 3)}
            assert deduped.stats["command"] == "dedupe" and deduped.stats["memory"]["kept"]
            assert len(deduped.examples) == 5 and deduped.examples[0]["value"] >= deduped.examples[1]["value"]
            assert "60 of 90" in repr(deduped)
        expected = without(whole, gone)
        if isinstance(source, pyarrow.Table):
            assert kept.cast(expected.schema).equals(expected) and kept.schema.equals(whole.schema)
        else:
            assert kept["id"].to_pylist() == expected["id"].to_pylist()
            assert kept["tags"].to_pylist() == expected["tags"].to_pylist()


def test_a_folder_of_parquet_becomes_a_folder_of_parquet(tmp_path: Path) -> None:
    whole = table()
    (tmp_path / "set" / "sub").mkdir(parents=True)
    properties: dict[str, Any] = {"row_group_size": 10, "compression": "zstd"}
    pyarrow.parquet.write_table(whole.slice(0, 50), tmp_path / "set" / "a.parquet", **properties)
    pyarrow.parquet.write_table(whole.slice(50), tmp_path / "set" / "sub" / "b.parquet", **properties)
    with adjoin.dedupe(tmp_path / "set", tmp_path / "out", eps=0.01, exact=True, keep_by="length(text) desc, id desc") as deduped:
        gone = gone_of(deduped)
        assert pyarrow.table(deduped.kept()).num_rows == 60
    for name in ("a.parquet", "sub/b.parquet"):
        before, after = (pyarrow.parquet.read_table(tmp_path / folder / name) for folder in ("set", "out"))
        assert after.schema.equals(before.schema, check_metadata=True)
        assert after.to_pylist() == without(before, gone).to_pylist()
    first, second = whole.slice(1).to_pylist()[::3], whole.slice(2).to_pylist()[::3]

    def stays(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        lengths = [-1 if row["text"] is None else len(row["text"]) for row in (a, b)]
        if lengths[0] != lengths[1]:
            return a if lengths[0] > lengths[1] else b
        return max(a, b, key=lambda row: str(row["id"]))

    expected = {(b if stays(a, b) is a else a)["id"] for a, b in zip(first, second)}
    assert gone == expected
    with pytest.raises(adjoin.InputError, match="out exists already"):
        adjoin.dedupe(tmp_path / "set", tmp_path / "out", eps=0.01)
    assert not list(tmp_path.glob(".adjoin*"))


def test_rows_that_say_the_same_count_as_one() -> None:
    whole = table()
    with adjoin.dedupe(whole, eps=1e-6, exact=True, exact_text="text") as deduped:
        removed = pyarrow.table(deduped.removed()).to_pylist()
        same = [f"row {row}" for row in range(90) if row % 10 and row % 9 == 3]
        assert [row["id"] for row in removed] == same[1:] and deduped.equal_rows == len(same) - 1 and not deduped.near_rows
        assert {(row["kept_id"], row["distance"], row["reason"]) for row in removed} == {(same[0], None, "equal text")}


def test_arrays_go_to_a_file(tmp_path: Path) -> None:
    vectors = numpy.array([[0, 0], [0, 1], [5, 0]], dtype="float32")
    adjoin.dedupe(vectors, tmp_path / "kept.npy", eps=1.5).close()
    assert numpy.load(tmp_path / "kept.npy").tolist() == [[0, 0], [5, 0]]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    whole = table()
    frame = pandas.DataFrame({"vector": [[1.0, 2.0]]})
    for arguments, said in (
        ({"keep_by": "nothing"}, "there is no column nothing; choose from text, id, tags"),
        ({"keep_by": "length("}, "cannot read"),
        ({"exact_text": "wrong(text)"}, "no function wrong"),
        ({"output": tmp_path / "a.parquet"}, "same ending"),
        ({"output": tmp_path / "nowhere" / "a.arrow"}, "nowhere is missing"),
    ):
        with pytest.raises(adjoin.AdjoinError, match=said):
            adjoin.dedupe(whole, **{"eps": 0.1, **arguments})
    with pytest.raises(adjoin.OptionTypeError, match="keep_by is 3"):
        adjoin.dedupe(frame, eps=1, keep_by=3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
