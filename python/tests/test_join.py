"""Joins: all types of sources give equal pairs, and results by row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

import adjoin

from conftest import SAMPLE, pairs_within

EPS = 0.5


def rows_of(stream: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pyarrow.table(stream).to_pylist())


def as_fixed_lists(vectors: numpy.ndarray) -> pyarrow.Array:
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), vectors.shape[1])


def sources(vectors: numpy.ndarray, folder: Path) -> dict[str, Any]:
    """One set of vectors as each type of source."""
    table = pyarrow.table({"vector": as_fixed_lists(vectors)})
    pyarrow.parquet.write_table(table, folder / "vectors.parquet")
    numpy.save(folder / "vectors.npy", vectors)
    wide = numpy.zeros((len(vectors), 2 * vectors.shape[1]), vectors.dtype)
    wide[:, ::2] = vectors
    return {
        "a path": folder / "vectors.parquet",
        "a string": str(folder / "vectors.npy"),
        "a list of paths": [folder / "vectors.npy"],
        "numpy": vectors,
        "numpy, column by column": numpy.asfortranarray(vectors),
        "numpy, with gaps": wide[:, ::2],
        "numpy, f64": vectors.astype("float64"),
        "pyarrow": table,
        "a stream": pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100)),
        "polars": polars.DataFrame({"vector": vectors}),
        "duckdb": duckdb.from_arrow(table),
        "pandas": pandas.DataFrame({"vector": list(vectors)}),
    }


def test_every_source_gives_the_same_pairs(vectors: numpy.ndarray, tmp_path: Path) -> None:
    wanted = pairs_within(vectors, EPS)
    assert len(wanted) > 1000
    for name, source in sources(vectors, tmp_path).items():
        with adjoin.join(source, eps=EPS, exact=True) as result:
            assert len(result) == len(wanted), name
            found = {(left, right): distance for left, right, distance in rows_of(result.pairs())}
            assert found.keys() == wanted.keys(), name
            assert all(abs(found[pair] - wanted[pair]) <= 1e-6 for pair in wanted), name


def test_results_of_rows_agree_with_the_pairs(vectors: numpy.ndarray) -> None:
    wanted = pairs_within(vectors, EPS)
    with adjoin.join(vectors, eps=EPS, exact=True) as result:
        counts = dict(rows_of(result.counts()))
        assert counts == {row: sum(row in pair for pair in wanted) for row in range(len(vectors))}
        clusters = dict(rows_of(result.clusters()))
        assert clusters.keys() == {row for pair in wanted for row in pair}
        assert all(clusters[left] == clusters[right] for left, right in wanted)
        assert all(clusters[first] == first for first in clusters.values())
        gone = {row: (kept, distance) for row, kept, distance in rows_of(result.removed())}
        stay = {row for (row,) in rows_of(result.kept())}
        assert stay.isdisjoint(gone) and len(stay) + len(gone) == len(vectors)
        assert not any(left in stay and right in stay for left, right in wanted)
        assert all(kept in stay and (kept, row) in wanted for row, (kept, _) in gone.items())
        one_each = {row for (row,) in rows_of(result.kept("cluster"))}
        assert one_each == set(clusters.values()) | (set(range(len(vectors))) - clusters.keys())


def test_results_have_ids_of_the_column() -> None:
    with adjoin.join(SAMPLE, id_column="name", min_similarity=0.95, exact=True, memory="256MB") as result:
        pairs = polars.DataFrame(result.pairs())
        assert pairs.columns == ["left_id", "right_id", "similarity"]
        assert pairs["left_id"].dtype == polars.String and len(pairs) == len(result) > 100
        names = set(polars.read_parquet(SAMPLE, columns=["name"])["name"])
        assert set(pairs["left_id"]) <= names
        keep = polars.DataFrame(result.removed())
        assert keep.columns == ["id", "kept_id", "similarity"] and set(keep["kept_id"]) <= names
        assert polars.DataFrame(result.counts())["id"].to_list() == list(polars.read_parquet(SAMPLE)["name"])


def categorical(vectors: numpy.ndarray, names: list[str], folder: Path) -> dict[str, Any]:
    """Rows with dictionary-encoded text ids, as each type of source."""
    coded = pyarrow.array(names).dictionary_encode()
    table = pyarrow.table({"id": coded, "vector": as_fixed_lists(vectors)})
    pyarrow.parquet.write_table(table, folder / "ids.parquet")
    pandas_frame = pandas.DataFrame({"id": pandas.Categorical(names), "vector": list(vectors)})
    pandas_frame.to_parquet(folder / "pandas.parquet")
    pandas_frame.to_feather(folder / "pandas.feather")
    polars_frame = polars.DataFrame({"id": polars.Series(names, dtype=polars.Categorical), "vector": vectors})
    polars_frame.write_parquet(folder / "polars.parquet")
    polars_frame.write_ipc(folder / "polars.arrow")
    categories = polars.Enum(sorted(set(names)))
    of_enum = polars.DataFrame({"id": polars.Series(names, dtype=categories), "vector": vectors})
    of_enum.write_parquet(folder / "enum.parquet")
    halves = [table.slice(0, 300), pyarrow.table({"id": pyarrow.array(names[300:]).dictionary_encode(), "vector": table["vector"][300:]})]
    return {
        "pyarrow": table,
        "pyarrow, of parts with dictionaries of their own": pyarrow.concat_tables(halves),
        "pandas": pandas_frame,
        "polars": polars_frame,
        "polars, an enum": of_enum,
        **{file.name: file for file in folder.iterdir()},
    }


def test_categorical_columns_are_valid_ids(vectors: numpy.ndarray, tmp_path: Path) -> None:
    names = [f"name {row * 7919 % 600}" for row in range(600)]
    wanted = {(names[left], names[right]) for left, right in pairs_within(vectors, EPS)}
    for name, source in categorical(vectors, names, tmp_path).items():
        with adjoin.join(source, eps=EPS, exact=True) as result:
            assert {(left, right) for left, right, _ in rows_of(result.pairs())} == wanted, name


def test_pairs_have_row_numbers_without_ids(vectors: numpy.ndarray) -> None:
    table = pyarrow.table({"id": [0.5] * len(vectors), "vector": as_fixed_lists(vectors)})
    with adjoin.join(table, eps=EPS, exact=True, ids=False) as result:
        assert {(left, right) for left, right, _ in rows_of(result.pairs())} == pairs_within(vectors, EPS).keys()


def test_a_store_is_built_once_and_joined_often(vectors: numpy.ndarray, tmp_path: Path) -> None:
    store = adjoin.build(vectors, tmp_path / "store")
    assert len(store) == len(vectors) and store.info["metric"] == "l2" and "600 x 8 f32" in repr(store)
    for eps in (0.3, EPS):
        with adjoin.join(store, eps=eps, exact=True) as result:
            assert len(result) == len(pairs_within(vectors, eps))
    with adjoin.join(store, eps=EPS, recall=0.9) as result:
        assert result.stats["recall"]["target"] == 0.9 and result.stats["recall"]["kept"]
        assert "recall" in repr(result)


def test_a_result_does_not_change_if_its_store_is_replaced(vectors: numpy.ndarray, tmp_path: Path) -> None:
    store = tmp_path / "store"
    adjoin.build(vectors, store)
    result = adjoin.join(store, eps=EPS)
    counts = rows_of(result.counts())
    adjoin.build(vectors[: len(vectors) // 2], store, force=True)
    assert rows_of(result.counts()) == counts
    assert len(rows_of(result.removed())) + len(rows_of(result.kept())) == len(vectors)


def test_no_temporary_files_are_left(vectors: numpy.ndarray, tmp_path: Path) -> None:
    with adjoin.join(vectors, eps=EPS, temporary=tmp_path) as result:
        stream = result.pairs()
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert pyarrow.table(stream).num_rows == len(result), "a stream that was taken can still be read"
    with pytest.raises(adjoin.OptionError, match="this result was closed"):
        result.pairs()
    with pytest.raises(adjoin.OptionError):
        adjoin.join(vectors, temporary=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_budget_counts_only_memory_of_the_join(vectors: numpy.ndarray) -> None:
    ballast = numpy.ones(300 << 17)  # 300 MiB
    with adjoin.join(vectors, eps=EPS, memory="64MB") as result:
        memory = result.stats["memory"]
    assert memory["before_bytes"] > ballast.nbytes
    assert memory["kept"] and memory["peak_bytes"] - memory["before_bytes"] <= memory["budget_bytes"] == 64_000_000


def test_concurrent_joins_fit_their_budgets() -> None:
    many = numpy.random.default_rng(3).random((60_000, 128), dtype="f4")
    many[1::100] = many[::100]
    ready = threading.Barrier(3)

    def join(_: int) -> "tuple[list[tuple[Any, ...]], dict[str, Any]]":
        ready.wait()
        with adjoin.join(many, eps=0.1, exact=True, memory="64MB", threads=1) as result:
            return rows_of(result.pairs()), result.stats["memory"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # memory of one join does not count for another
        with ThreadPoolExecutor(3) as pool:
            for pairs, memory in pool.map(join, range(3)):
                assert [pair[:2] for pair in pairs] == [(row, row + 1) for row in range(0, 60_000, 100)]
                assert memory["kept"] and memory["budget_bytes"] == 64_000_000


class Wasteful:
    """A table that allocates much memory when it is read."""

    def __init__(self, table: pyarrow.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        self.ballast = numpy.ones(100 << 17)  # 100 MiB
        return self.table.__arrow_c_stream__(requested_schema)


def test_memory_is_a_fraction_of_the_machine_or_cgroup(vectors: numpy.ndarray) -> None:
    for given, share in ((None, 0.5), ("80%", 0.8)):
        with adjoin.join(vectors, eps=0.1, memory=given) as result:
            memory = result.stats["memory"]
        assert memory["share"] == share and memory["share_of"] in ("machine", "cgroup") and memory["kept"]
        assert abs(memory["budget_bytes"] - share * memory["share_of_bytes"]) <= 1 and memory["before_bytes"] > 0


def test_warns_if_the_budget_is_exceeded(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table = pyarrow.table({"vector": as_fixed_lists(vectors)})
    with pytest.warns(adjoin.PromiseWarning, match="the budget is 64000000") as told:
        adjoin.join(Wasteful(table), eps=EPS, memory="64MB").close()
    assert told[0].filename == __file__
    with pytest.warns(adjoin.PromiseWarning, match="the budget is 64000000") as told:
        adjoin.build(Wasteful(table), tmp_path / "store", memory="64MB")
    assert told[0].filename == __file__ and issubclass(adjoin.PromiseWarning, RuntimeWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjoin.build(table, tmp_path / "store", memory="64MB", force=True)
        with pytest.raises(adjoin.PromiseWarning):
            adjoin.join(Wasteful(table), eps=EPS, memory="64MB", temporary=tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["store"]


def bytes_of(process: subprocess.Popen[str], field: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def test_the_process_does_not_exceed_its_budget(tmp_path: Path) -> None:
    code = f"""import sys, adjoin
print("ready", flush=True)
sys.stdin.readline()
with adjoin.join({str(SAMPLE)!r}, id_column="name", min_similarity=0.9, memory="96MB", temporary={str(tmp_path)!r}) as result:
    print(len(result), flush=True)
    sys.stdin.readline()
"""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
        before = bytes_of(process, "VmRSS")
        print(file=process.stdin, flush=True)
        assert int(process.stdout.readline()) > 30_000
        assert bytes_of(process, "VmHWM") - before <= 96_000_000
        print(file=process.stdin, flush=True)
    assert process.returncode == 0


def test_a_table_in_one_chunk_fits_the_budget(vectors: numpy.ndarray) -> None:
    wide = numpy.tile(vectors, (400, 1))[:, :4].copy()
    ballast = pyarrow.array(["x" * 100] * len(wide))
    table = pyarrow.table({"text": ballast, "vector": as_fixed_lists(wide)})
    with adjoin.join(table, eps=0.0, recall=0.9, memory="64MB") as result:
        assert result.stats["memory"]["kept"] and result.stats["rows"] == len(wide)
    # Dictionaries may differ from chunk to chunk.
    chunks = [pyarrow.table({"kind": pyarrow.array([kind]).dictionary_encode(), "vector": [[1.0, 2.0]]}) for kind in "ab"]
    with adjoin.join(pyarrow.concat_tables(chunks), eps=0.0, exact=True) as result:
        assert len(result) == 1


@pytest.mark.parametrize("lists", [as_fixed_lists, lambda vectors: pyarrow.array(list(vectors))])
def test_spooling_does_not_split_small_batches(lists: Any, tmp_path: Path) -> None:
    table = pyarrow.table({"vector": lists(numpy.ones((60_000, 64), "float32"))})
    batches = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1_000))
    for source, most in [(batches, 60), (table, 60_000 * 64 * 8 // (8 << 20) + 1)]:
        options = adjoin._options.store_options(1, None, None, None, True, None, "error", "error")
        adjoin._engine.spool(source, str(tmp_path / "all.arrow"), options, False)
        with pyarrow.ipc.open_stream(tmp_path / "all.arrow") as written:
            rows = [batch.num_rows for batch in written]
        assert len(rows) <= most and sum(rows) == 60_000


@pytest.mark.parametrize("as_lists", [as_fixed_lists, lambda vectors: pyarrow.array(list(vectors))])
def test_arrays_of_lists_are_sources(as_lists: Any, vectors: numpy.ndarray) -> None:
    lists = as_lists(vectors)
    struct = pyarrow.StructArray.from_arrays([lists], ["v"])
    halves = pyarrow.chunked_array([lists[:100], lists[100:]])
    with adjoin.join(vectors, eps=EPS, exact=True) as result:
        expected = rows_of(result.pairs())
    for source in [lists, halves, polars.Series(lists), struct, pyarrow.chunked_array([struct])]:
        with adjoin.join(source, eps=EPS, exact=True) as result:
            assert rows_of(result.pairs()) == expected
    part = lists[17:317]
    with adjoin.join(part, eps=EPS, exact=True) as result, adjoin.join(vectors[17:317], eps=EPS, exact=True) as other:
        assert rows_of(result.pairs()) == rows_of(other.pairs())


@pytest.mark.parametrize("element", [">f4", ">f8", "<f2", ">f2"])
def test_arrays_in_any_byte_order_are_sources(element: str, vectors: numpy.ndarray) -> None:
    with adjoin.join(vectors.astype(element), eps=EPS, exact=True) as result:
        assert result.stats["join"]["pairs"] > 0 and result.stats["element"] == ("f16" if "2" in element else "f32")


def test_errors_of_a_stream_are_reported() -> None:
    def batches() -> Any:
        yield pyarrow.record_batch({"vector": [[1.0, 2.0]]})
        raise ValueError("the well is dry")

    schema = pyarrow.schema({"vector": pyarrow.list_(pyarrow.float64())})
    with pytest.raises(OSError, match="cannot read the table given: .*the well is dry"):
        adjoin.join(pyarrow.RecordBatchReader.from_batches(schema, batches()), eps=1.0)


def test_row_results_can_be_requested_concurrently(vectors: numpy.ndarray, tmp_path: Path) -> None:
    with adjoin.join(vectors, eps=EPS, exact=True, temporary=tmp_path) as result:
        takers = 4 * [result.counts, result.clusters, result.removed, result.kept]
        wanted = [rows_of(take()) for take in takers]
        with ThreadPoolExecutor(len(takers)) as pool:
            assert [rows_of(found) for found in pool.map(lambda take: take(), takers)] == wanted
        (folder,) = tmp_path.iterdir()
        assert not list(folder.glob("*.parquet")), "what was taken needs no name"


def test_engine_messages_are_logged(vectors: numpy.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "adjoin")
    with adjoin.join(vectors, eps=EPS) as result:
        result.removed()
    assert "to keep, " in caplog.text


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with adjoin.join(SAMPLE, id_column="name", min_similarity=0.5, exact=True, progress=True) as result:
        assert result.stats["join"]["pairs"] > 0
    assert "buckets" in capsys.readouterr().err


def test_an_interrupt_stops_the_work(tmp_path: Path) -> None:
    before = time.monotonic()
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            adjoin.join(SAMPLE, id_column="name", min_similarity=-1.0, exact=True, temporary=tmp_path)
    finally:
        signal.signal(signal.SIGINT, heard)
    assert time.monotonic() - before < 20
    assert not list(tmp_path.iterdir())


def test_the_package_installs_the_command(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "adjoin"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.split() == ["adjoin", adjoin.__version__]
    output = tmp_path / "pairs.csv"
    join = [command, "join", SAMPLE, "--id-column", "name", "--min-similarity", "0.99", "--exact", "-o", output]
    subprocess.run(join, check=True, capture_output=True)
    assert output.read_text().startswith("left_id,right_id,similarity\n")
    refused = subprocess.run([*join, "--recall", "2"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and refused.stderr.startswith("adjoin: ")


def test_target_rows_finds_a_threshold(vectors: numpy.ndarray) -> None:
    with adjoin.join(vectors, target_rows=100, exact=True) as result:
        left = pyarrow.table(result.kept()).num_rows
        assert abs(left - 100) <= 20 and result.stats["join"]["eps"] > 0, result.stats["join"]
    with adjoin.join(vectors, target_rows=300, metric="cosine", exact=True) as result:
        left = pyarrow.table(result.kept()).num_rows
        assert abs(left - 300) <= 40 and result.stats["join"]["min_similarity"] < 1, result.stats["join"]
    for options, words in [
        ({"target_rows": 10, "eps": 1.0}, "either eps, min_similarity or target_rows"),
        ({"eps": 1.0, "metric": "l2"}, "metric is for target_rows"),
        ({"target_rows": 600}, "600 usable rows"),
        ({"target_rows": 10, "where": "id = 1"}, "leave out other, new, where"),
    ]:
        with pytest.raises(adjoin.OptionError, match=words):
            adjoin.join(vectors, **options)


def test_joins_only_rows_and_pairs_that_pass_the_filter(vectors: numpy.ndarray, tmp_path: Path) -> None:
    languages = ["en", "de", None]
    table = pyarrow.table(
        {
            "vector": as_fixed_lists(vectors),
            "lang": [languages[row % 3] for row in range(len(vectors))],
            "year": [2000 + row % 7 for row in range(len(vectors))],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "set.parquet")
    store = adjoin.build(table, tmp_path / "set.store", columns=["lang", "year"])
    by_year = adjoin.build(table, tmp_path / "by-year.store", columns=["lang"], sort_by="year")
    assert by_year.info["sorted_by"] == "year"
    every = pairs_within(vectors, EPS)
    english = {pair for pair in every if pair[0] % 3 == 0 and pair[1] % 3 == 0}
    other = {pair for pair in every if {pair[0] % 3, pair[1] % 3} == {0, 1} and pair[0] % 7 < pair[1] % 7}
    assert english and other
    for source in (store, by_year, table, tmp_path / "set.parquet", polars.DataFrame(table)):
        with adjoin.join(source, eps=EPS, exact=True, where="lang = 'en'") as result:
            assert {row[:2] for row in rows_of(result.pairs())} == english
            assert result.stats["join"]["passing_rows"] == len(vectors[::3])
            assert {row[0] for row in rows_of(result.counts())} == set(range(0, len(vectors), 3))
        with adjoin.join(
            source, eps=EPS, exact=True, where_pair="left.lang <> right.lang and left.year < right.year"
        ) as result:
            assert {row[:2] for row in rows_of(result.pairs())} == other
    with pytest.raises(adjoin.AdjoinError, match="there is no column language"):
        adjoin.join(store, eps=EPS, where="language = 'en'")
    with pytest.raises(adjoin.OptionError, match="where_pair|condition on pairs"):
        adjoin.join(store, eps=EPS, where_pair="left.lang <>")
    with pytest.raises(adjoin.OptionTypeError, match="where is 3"):
        adjoin.join(store, eps=EPS, where=3)  # type: ignore[arg-type]


def clusters_of_two(pairs: set[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """The clusters of rows that are connected by pairs of a left and a right row, by repeated relabeling."""
    labels = {row: row[1] for left, right in pairs for row in (("left", left), ("right", right + 10**9))}
    changed = True
    while changed:
        changed = False
        for left, right in pairs:
            both = [("left", left), ("right", right + 10**9)]
            first = min(labels[row] for row in both)
            changed |= any(labels[row] != first for row in both)
            labels.update((row, first) for row in both)
    ordered = sorted(labels, key=lambda row: (labels[row], row[1]))
    return [(number % 10**9, labels[side, number], side) for side, number in ordered]


def test_two_sets_are_joined_with_each_other(vectors: numpy.ndarray, tmp_path: Path) -> None:
    left, right = vectors[:200], vectors[150:250]
    apart = numpy.sqrt(((left[:, None].astype("f8") - right[None].astype("f8")) ** 2).sum(axis=2))
    wanted = {(int(i), int(j)) for i, j in zip(*numpy.nonzero(apart <= EPS))}
    near = {i for i, _ in wanted}
    assert 50 < len(near) < 200
    names = [f"n{row}" for row in range(len(right))]
    store = adjoin.build(left, tmp_path / "left.store")
    for first, second in [(left, right), (store, right), (left, [tmp_path / "right.npy"])]:
        numpy.save(tmp_path / "right.npy", right)
        with adjoin.join(first, other=second, eps=EPS, exact=True) as result:
            assert {row[:2] for row in rows_of(result.pairs())} == wanted
            counts = {row[0]: row[1] for row in rows_of(result.counts())}
            assert counts == {i: sum(pair[0] == i for pair in wanted) for i in range(200)}
            assert {row[0] for row in rows_of(result.kept())} == set(range(200)) - near
            assert result.stats["join"]["with_rows"] == len(right)
            assert rows_of(result.clusters()) == sorted(clusters_of_two(wanted))
    table = pyarrow.table({"id": names, "vector": as_fixed_lists(right), "even": [row % 2 == 0 for row in range(len(right))]})
    with adjoin.join(left, other=table, eps=EPS, exact=True, where_other="even") as result:
        assert {row[:2] for row in rows_of(result.pairs())} == {(i, names[j]) for i, j in wanted if j % 2 == 0}
        assert {row[0] for row in rows_of(result.counts())} == set(range(200))
        result.write(tmp_path / "pairs.csv")
    assert (tmp_path / "pairs.csv").read_text().startswith("left_id,right_id,")
    for options, words in [
        ({"where_other": "even"}, "give other"),
        ({"other": 3}, "other is 3"),
        ({"other": right[:, :2]}, "f32"),
    ]:
        with pytest.raises(adjoin.AdjoinError, match=words):
            adjoin.join(left, eps=EPS, **options)


def test_new_rows_are_joined_with_all_rows(vectors: numpy.ndarray, tmp_path: Path) -> None:
    old, new = vectors[:200], vectors[200:240]
    apart = numpy.sqrt(((vectors[:240, None].astype("f8") - vectors[None, :240].astype("f8")) ** 2).sum(axis=2))
    wanted = {(int(i), int(j)) for i, j in zip(*numpy.nonzero(apart <= EPS)) if i < j and j >= 200}
    assert len(wanted) > 20 and any(i >= 200 for i, _ in wanted)
    gone: set[int] = set()
    for row in range(200, 240):
        if any((i, row) in wanted and i not in gone for i in range(row)):
            gone.add(row)
    store = adjoin.build(old, tmp_path / "old.store")
    for first in (old, store):
        with adjoin.join(first, new=new, eps=EPS, exact=True) as result:
            assert {row[:2] for row in rows_of(result.pairs())} == wanted
            counts = {row[0]: row[1] for row in rows_of(result.counts())}
            assert counts == {row: sum(row in pair for pair in wanted) for row in range(200, 240)}
            assert {row[0] for row in rows_of(result.kept())} == set(range(200, 240)) - gone
            assert result.stats["join"]["new_rows"] == 40 and result.stats["recall"]["kept"]
            clusters = rows_of(result.clusters())
            assert {row[0] for row in clusters} == {row for pair in wanted for row in pair}
            assert all(is_new == (row >= 200) for row, _, is_new in clusters)
            cluster_of = {row: cluster for row, cluster, _ in clusters}
            assert all(cluster_of[i] == cluster_of[j] for i, j in wanted)
    for options, words in [({"new": new, "other": new}, "give one of them"), ({"new": 3}, "new is 3")]:
        with pytest.raises(adjoin.AdjoinError, match=words):
            adjoin.join(old, eps=EPS, **options)


def test_append_inserts_and_deletes_rows(vectors: numpy.ndarray, tmp_path: Path) -> None:
    def pairs(of: object) -> set[tuple[int, int]]:
        with adjoin.join(of, eps=EPS, exact=True) as result:
            return {row[:2] for row in rows_of(result.pairs())}

    store = adjoin.build(vectors[:200], tmp_path / "grown.store")
    done = adjoin.append(store, vectors[200:240], delete=numpy.array([7, 9, 500]))
    assert (done["new_rows"], done["removed_rows"], done["missing_ids"], done["skipped_rows"]) == (40, 2, 1, 0)
    assert pairs(tmp_path / "grown.store") == {pair for pair in pairs(vectors[:240]) if not {7, 9} & set(pair)}
    assert adjoin.append(tmp_path / "grown.store", delete=[3])["removed_rows"] == 1
    assert len(adjoin.Store(store)) == 237 and adjoin.Store(store).info["built_rows"] == 200

    table = pyarrow.table({"id": ["a", "b"], "v": [[0.0, 1.0], [1.0, 0.0]], "lang": ["en", None]})
    named = adjoin.build(table, tmp_path / "named.store", columns=["lang"])
    new = pyarrow.table({"id": ["b", "c"], "v": [[1.0, 0.5], [0.0, 0.5]], "lang": [None, "de"]})
    with pytest.raises(adjoin.InputError, match="the id b of row 0"):
        adjoin.append(named, new)
    adjoin.append(named, new, delete=["b"])
    with adjoin.join(named, eps=0.5, exact=True, where="lang is not null") as result:
        assert rows_of(result.pairs()) == [("a", "c", 0.5)]
    for arguments, words in [((), "nothing to append"), ((3,), "new is 3"), ((new["v"],), "there is no column lang")]:
        with pytest.raises(adjoin.AdjoinError, match=words):
            adjoin.append(named, *arguments)
