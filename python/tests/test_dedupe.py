"""Deduplication of data sets."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

import adjoin


def table(rows: int = 90) -> pyarrow.Table:
    """Rows: every third is a near copy of the previous one, and every ninth has the text of the first."""
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


def test_kept_rows_are_a_stream_with_every_column() -> None:
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


def every_kind(rows: int = 500) -> pyarrow.Table:
    """Columns of every nested Parquet type, with nulls; each text occurs three times."""
    numbers = range(rows)
    day = datetime.date(2000, 1, 1)

    def some(kind: pyarrow.DataType, value: Callable[[int], Any]) -> pyarrow.Array:
        return pyarrow.array([None if row % 7 == 2 else value(row) for row in numbers], kind)

    inner = pyarrow.struct([("x", pyarrow.int64()), ("y", pyarrow.string())])
    vectors = numpy.random.default_rng(5).standard_normal(rows * 4, dtype="float32")
    return pyarrow.table(
        {
            "key": [f"text {row // 3}" for row in numbers],
            "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors), 4),
            "decimal": some(pyarrow.decimal128(20, 2), lambda row: decimal.Decimal(row)),
            "map": some(pyarrow.map_(pyarrow.string(), pyarrow.int32()), lambda row: [(str(k), k) for k in range(row % 4)]),
            "structs": some(pyarrow.list_(inner), lambda row: [{"x": k, "y": None if k else "y"} for k in range(row % 3)]),
            "lists": some(pyarrow.list_(pyarrow.list_(pyarrow.int16())), lambda row: [[1] * k if k else None for k in range(row % 4)]),
            "struct": some(inner, lambda row: {"x": row if row % 5 else None, "y": "z"}),
            "date": some(pyarrow.date32(), lambda row: day + datetime.timedelta(days=row)),
            "time": some(pyarrow.timestamp("ns", "Europe/Berlin"), lambda row: row * 10**9),
            "binary": some(pyarrow.binary(), lambda row: bytes([row % 256]) * (row % 50)),
            "fixed": some(pyarrow.binary(16), lambda row: row.to_bytes(16, "big")),
            "large": some(pyarrow.large_string(), lambda row: "ü" * (row % 300)),
            "flag": some(pyarrow.bool_(), lambda row: row % 2 == 0),
            "half": pyarrow.array([numpy.float16(row) for row in numbers]),
            "double": some(pyarrow.float64(), lambda row: row / 3),
            "unsigned": pyarrow.array([2**63 + row for row in numbers], pyarrow.uint64()),
            "null": pyarrow.nulls(rows),
            "page": pyarrow.array(["z" * 30_000 if row % 100 == 0 else "y" for row in numbers]),
        }
    )


@pytest.mark.parametrize(
    "written",
    [
        {"compression": "none", "row_group_size": 60},
        {"compression": "snappy", "data_page_version": "2.0", "data_page_size": 1000},
        {"compression": "gzip", "version": "1.0", "use_dictionary": False, "use_deprecated_int96_timestamps": True},
        {"compression": "brotli", "use_dictionary": ["key"], "write_page_index": True, "row_group_size": 333},
        {"compression": "lz4"},
        {
            "compression": "zstd",
            "use_dictionary": False,
            "column_encoding": {"double": "BYTE_STREAM_SPLIT", "unsigned": "DELTA_BINARY_PACKED", "large": "DELTA_BYTE_ARRAY"},
        },
    ],
    ids=lambda written: str(written["compression"]),
)
def test_every_column_type_is_preserved_for_any_writer(tmp_path: Path, written: dict[str, Any]) -> None:
    pyarrow.parquet.write_table(every_kind(), tmp_path / "a.parquet", **written)
    options: dict[str, Any] = {"eps": 1e-9, "exact_text": "key", "vector_column": "vector", "memory": "64MB"}
    with adjoin.dedupe(tmp_path / "a.parquet", tmp_path / "b.parquet", **options) as deduped:
        gone = set(pyarrow.table(deduped.removed())["id"].to_pylist())
    before, after = (pyarrow.parquet.ParquetFile(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert after.schema.equals(before.schema) and after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    stays = pyarrow.array([row not in gone for row in range(500)])
    assert len(gone) == 333 and after.read().equals(before.read().filter(stays))
    compressions = [file.metadata.row_group(0).column(1).compression for file in (before, after)]
    assert compressions[0] == compressions[1]


def test_rows_with_equal_texts_are_removed() -> None:
    whole = table()
    with adjoin.dedupe(whole, eps=1e-6, exact=True, exact_text="text") as deduped:
        removed = pyarrow.table(deduped.removed()).to_pylist()
        same = [f"row {row}" for row in range(90) if row % 10 and row % 9 == 3]
        assert [row["id"] for row in removed] == same[1:] and deduped.equal_rows == len(same) - 1 and not deduped.near_rows
        assert {(row["kept_id"], row["distance"], row["reason"]) for row in removed} == {(same[0], None, "equal text")}


def test_arrays_are_deduplicated_to_a_file(tmp_path: Path) -> None:
    vectors = numpy.array([[0, 0], [0, 1], [5, 0]], dtype="float32")
    adjoin.dedupe(vectors, tmp_path / "kept.npy", eps=1.5).close()
    assert numpy.load(tmp_path / "kept.npy").tolist() == [[0, 0], [5, 0]]


def test_refuses_invalid_arguments(tmp_path: Path) -> None:
    whole = table()
    frame = pandas.DataFrame({"vector": [[1.0, 2.0]]})
    for arguments, said in (
        ({"keep_by": "nothing"}, "there is no column nothing; choose from text, id, tags"),
        ({"keep_by": "length("}, "cannot read"),
        ({"exact_text": "wrong(text)"}, "no function wrong"),
        ({"output": tmp_path / "a.parquet"}, "name it .arrow"),
        ({"output": tmp_path / "nowhere" / "a.arrow"}, "nowhere does not exist"),
    ):
        with pytest.raises(adjoin.AdjoinError, match=said):
            adjoin.dedupe(whole, **{"eps": 0.1, **arguments})
    with pytest.raises(adjoin.OptionTypeError, match="keep_by is 3"):
        adjoin.dedupe(frame, eps=1, keep_by=3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_all_arrays_of_a_file_keep_the_same_rows(tmp_path: Path) -> None:
    vectors = numpy.arange(4000, dtype="float32").reshape(500, 8) * 10
    vectors[2::3] = vectors[1::3][: len(vectors[2::3])] + numpy.float32(0.01)
    arrays: dict[str, Any] = {
        "v": vectors,
        "id": numpy.array([f"ä{row}" for row in range(500)]),
        "score": numpy.arange(500)[::-1].copy(),
        "cubes": numpy.arange(2000, dtype="int16").reshape(500, 2, 2),
        "about": numpy.array([1.5, 2.5]),
    }
    numpy.save(tmp_path / "plain.npy", vectors)
    with adjoin.join(tmp_path / "plain.npy", eps=1, exact=True) as plain:
        expected = sorted(pyarrow.table(plain.pairs()).to_pylist(), key=str)
    for name, save in (("plain", numpy.savez), ("compressed", numpy.savez_compressed)):
        save(tmp_path / f"{name}.npz", **arrays)
        with adjoin.join(tmp_path / f"{name}.npz", eps=1, exact=True, ids=False) as joined:
            assert sorted(pyarrow.table(joined.pairs()).to_pylist(), key=str) == expected
        out = tmp_path / f"{name}-out.npz"
        with adjoin.dedupe(tmp_path / f"{name}.npz", out, eps=1, keep_by="score") as deduped:
            gone = {row["id"] for row in pyarrow.table(deduped.removed()).to_pylist()}
            with pytest.raises(adjoin.InputError, match="has the arrays .*; read it with numpy.load"):
                deduped.kept()
        assert gone == {f"ä{row}" for row in range(1, 498, 3)}
        stays = numpy.array([row not in gone for row in arrays["id"]])
        with numpy.load(out) as after:
            assert sorted(after.files) == sorted(arrays)
            assert numpy.array_equal(after["about"], arrays["about"])
            for column in ("v", "id", "score", "cubes"):
                assert after[column].dtype == arrays[column].dtype
                assert numpy.array_equal(after[column], arrays[column][stays])


def test_kept_rows_convert_to_tables_and_arrays(vectors: numpy.ndarray) -> None:
    frame = polars.DataFrame({"id": range(len(vectors)), "v": vectors})
    with adjoin.dedupe(frame, eps=0.3, exact=True) as deduped:
        kept, removed = deduped.to_pandas(), deduped.removed().to_polars()
        assert deduped.kept().to_polars()["id"].to_list() == list(kept["id"]) == deduped.to_arrow()["id"].to_pylist()
        with pytest.raises(adjoin.InputError, match="^the source is not an array; take its rows by kept()"):
            deduped.to_numpy()
    assert len(removed) > 0 and set(kept["id"]) == set(range(len(vectors))) - set(removed["id"])
    with adjoin.dedupe(vectors, eps=0.3, exact=True) as deduped:
        assert numpy.array_equal(deduped.to_numpy(), vectors[list(kept["id"])])
        assert deduped.to_polars().to_dict(as_series=False) == {"id": list(kept["id"])}, "row numbers"
        assert deduped.kept().to_arrow().schema.field("id").type == deduped.removed().to_arrow().schema.field("id").type


def test_texts_of_csv_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    pyarrow.csv.write_csv(pyarrow.table({"id": ["a", "b", "c"], "body": [*TEXTS[:2], TEXTS[0].upper() + "\n" * 1_500_000]}), file)
    # Texts may have line breaks, also where pyarrow would divide the file.
    with adjoin.dedupe(file, text="body") as deduped:
        assert deduped.kept().to_arrow().to_pydict() == {"id": ["a", "b"], "body": TEXTS[:2]}
        assert deduped.removed().to_arrow()["id"].to_pylist() == ["c"]
    for name in ("kept.csv", "kept.parquet"):
        with pytest.raises(adjoin.OptionError, match=f"{name} of a CSV file must end in .arrow; name it so, or, for another"):
            adjoin.dedupe(str(file), tmp_path / name, text="body")
    with adjoin.dedupe(str(file), tmp_path / "kept.arrow", text="body") as deduped:
        deduped.to_pandas().to_csv(tmp_path / "kept.csv", index=False)
    assert len(pyarrow.ipc.open_stream(tmp_path / "kept.arrow").read_all()) == 2
    with pytest.raises(adjoin.InputError, match="the extension .csv is not supported.*; convert the file, such as with .*duckdb"):
        adjoin.dedupe(file, eps=1.0)
    numpy.savez(tmp_path / "texts.npz", body=numpy.array(TEXTS[:2], dtype=str))
    with pytest.raises(adjoin.InputError, match="texts of .npz cannot be read; write them to Parquet"):
        adjoin.dedupe(tmp_path / "texts.npz", text="body")


@pytest.mark.parametrize("element", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("named", [lambda row: f"ä{row}", lambda row: 7 * row - 100])
def test_kept_rows_of_ids_and_an_array_are_ids_and_an_array(element: str, named: Any) -> None:
    rows = numpy.random.default_rng(2).integers(0, 200, (300, 8)).astype(element)
    rows[1::3] = rows[::3]
    names = numpy.array([named(row) for row in range(len(rows))])
    with adjoin.dedupe((names, rows), eps=0.5, exact=True) as deduped:
        ids, kept = deduped.to_numpy()
        assert len(ids) == len(deduped) == 200 and ids.dtype == names.dtype and kept.dtype == rows.dtype
        is_kept = numpy.arange(len(rows)) % 3 != 1
        assert numpy.array_equal(ids, names[is_kept]) and numpy.array_equal(kept, rows[is_kept])
        table = deduped.kept().to_arrow()
        assert table["id"].to_pylist() == list(ids)
        assert table["vectors"].to_pylist() == kept.tolist()
        assert deduped.to_pandas()["id"].tolist() == list(ids)


def test_json_lines_give_the_pairs_of_a_table(tmp_path: Path) -> None:
    whole = table()
    pyarrow.parquet.write_table(whole, tmp_path / "a.parquet")
    frame = whole.to_pandas()
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, double_precision=15, date_format="iso")
    pairs = []
    for name in ("a.parquet", "a.jsonl"):
        with adjoin.join(tmp_path / name, min_similarity=0.9, exact=True, id_column="id") as joined:
            pairs.append(sorted(pyarrow.table(joined.pairs()).to_pylist(), key=str))
    assert pairs[0] == pairs[1] and pairs[0]
    with adjoin.dedupe(tmp_path / "a.jsonl", tmp_path / "b.jsonl", min_similarity=0.9, exact=True) as deduped:
        gone = {row["id"] for row in pyarrow.table(deduped.removed()).to_pylist()}
        with pytest.raises(adjoin.InputError, match="b.jsonl: rows can be streamed only from files of Parquet and Arrow"):
            deduped.kept()
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line, row in zip(lines, whole.to_pylist()) if row["id"] not in gone]
    assert (tmp_path / "b.jsonl").read_bytes().splitlines(keepends=True) == kept


TEXTS = [
    "the quick brown fox jumps over the lazy dog near the old river bank",
    "a completely different text about something else entirely",
    "The quick  brown fox jumps over the lazy dog near the old river",
    None,
    "",
    "a completely different text about something else entirely",
    "",
]


@pytest.mark.parametrize(
    "source",
    [
        TEXTS,
        tuple(TEXTS),
        pyarrow.array(TEXTS),
        pyarrow.chunked_array([TEXTS[:2], TEXTS[2:]]),
        polars.Series(TEXTS),
        pandas.Series(TEXTS),
        numpy.array(TEXTS, dtype=object),
    ],
    ids=lambda source: type(source).__name__,
)
def test_near_texts_of_a_list_are_removed(source: Any) -> None:
    with adjoin.dedupe(source) as deduped:
        assert pyarrow.table(deduped.kept()).to_pydict() == {"text": [TEXTS[0], TEXTS[1], None, "", ""]}
        removed = pyarrow.table(deduped.removed()).to_pydict()
        assert removed["id"] == [2, 5] and removed["kept_id"] == [0, 1]
        assert removed["text"] == [TEXTS[2], TEXTS[5]] and removed["kept_text"] == [TEXTS[0], TEXTS[1]]
        assert removed["similarity"] == [pytest.approx(11 / 12), 1.0]
        assert (len(deduped), deduped.rows, deduped.near_rows, deduped.stats["skipped_rows"]) == (5, 7, 2, 3)
        assert deduped.stats["metric"] == "jaccard" and deduped.stats["dedupe"]["text"]["promised_recall"] == 1.0


def test_near_texts_of_a_column_are_removed(tmp_path: Path) -> None:
    whole = pyarrow.table({"id": list("abcdefg"), "body": TEXTS, "year": range(7)})
    pyarrow.parquet.write_table(whole, tmp_path / "a.parquet")
    for source in (whole, tmp_path / "a.parquet", polars.from_arrow(whole)):
        with adjoin.dedupe(source, text="body", min_jaccard=0.9, keep_by="year desc", columns=["year"]) as deduped:
            assert pyarrow.table(deduped.kept())["id"].to_pylist() == ["c", "d", "e", "f", "g"]
            removed = pyarrow.table(deduped.removed()).to_pydict()
            assert removed["id"] == ["a", "b"] and removed["kept_id"] == ["c", "f"] and removed["kept_year"] == [2, 5]
    with adjoin.dedupe(whole, text="body", shingles="characters", shingle_size=4, recall=0.9, min_jaccard=0.7) as deduped:
        assert deduped.stats["dedupe"]["text"]["shingle_size"] == 4 and len(deduped) == 5


def test_sources_and_options_that_do_not_fit_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = pyarrow.table({"body": TEXTS, "year": range(7)})
    pyarrow.parquet.write_table(whole, path)
    for source, options, words in (
        (str(path), {}, "give text=COLUMN to compare texts, or eps or min_similarity"),
        ([str(path)], {}, "which are files; give text=COLUMN"),
        (whole, {}, "give text=COLUMN"),
        ([1, 2], {}, "give texts or None"),
        (path, {"text": "year"}, "column year is Int64, not texts"),
        (path, {"text": "absent"}, "there is no column absent"),
        (path, {"text": "body", "min_jaccard": 0}, "min_jaccard=0 is no similarity; give a number above 0 and at most 1"),
        (path, {"text": "body", "shingle_size": 0}, "shingle_size=0 is out of range; give 1 to 1000 words"),
        (path, {"text": "body", "eps": 1}, "give only one of them"),
        (path, {"text": "body", "on_bad": "skip"}, "on_bad is for vectors"),
        (path, {"text": "body", "vector_column": "v"}, "leave out vector_column"),
        (path, {"eps": 1, "min_jaccard": 0.5}, "min_jaccard is for texts"),
        (path, {"text": "body", "shingles": "lines"}, "give words or characters"),
    ):
        with pytest.raises(adjoin.AdjoinError, match=words.replace("(", "\\(")):
            adjoin.dedupe(source, **options)
    with pytest.raises(adjoin.AdjoinError, match="at least one"):
        adjoin.dedupe([])


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    source, link, decisions = tmp_path / "s.parquet", tmp_path / "link.parquet", tmp_path / "d.jsonl"
    pyarrow.parquet.write_table(table(), source)
    link.symlink_to(source)
    decisions.write_text("")
    for output in (source, link, f"file://{source}", decisions):
        with pytest.raises(adjoin.OptionError, match="is an input, so the result cannot replace it"):
            adjoin.dedupe(source, output, eps=0.01, exact=True, decisions=decisions, force=True)
    assert pyarrow.parquet.read_table(source) == table() and decisions.read_text() == ""
