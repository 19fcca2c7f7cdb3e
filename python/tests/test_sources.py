"""Sources that are streamed batch by batch, and arrays of libraries other than NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import pairs_within

import adjoin

EPS = 0.3


def table_of(vectors: numpy.ndarray) -> pyarrow.Table:
    """A table with descending ids, and a column that is never read."""
    ids = [len(vectors) - 1 - row for row in range(len(vectors))]
    texts = [f"text {row}" for row in range(len(vectors))]
    return pyarrow.table({"text": texts, "v": pyarrow.array(list(vectors)), "id": ids})


def check(source: Any, vectors: numpy.ndarray, by_id: bool = True, **options: Any) -> None:
    """Checks that a join of the source finds the pairs of the vectors."""
    last = len(vectors) - 1
    name = (lambda row: last - row) if by_id else (lambda row: row)
    expected = {tuple(sorted((name(a), name(b)))) for a, b in pairs_within(vectors, EPS)}
    with adjoin.join(source, eps=EPS, exact=True, memory="128MiB", **options) as result:
        table = pyarrow.table(result.pairs())
    found = {tuple(sorted(pair)) for pair in zip(table["left_id"].to_pylist(), table["right_id"].to_pylist())}
    assert found == expected and len(found) > 100


def test_a_dataset_of_pyarrow_is_read_in_batches(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table = table_of(vectors)
    for part, start in enumerate(range(0, len(table), 250)):
        pyarrow.parquet.write_table(table.slice(start, 250), tmp_path / f"{part}.parquet")
    dataset = pyarrow.dataset.dataset(tmp_path)
    check(dataset, vectors)
    with adjoin.dedupe(dataset, eps=EPS, exact=True) as deduped:
        kept = pyarrow.table(deduped.kept())
    assert kept.column_names == ["text", "v", "id"] and 0 < len(kept) < len(table)
    with pytest.raises(adjoin.InputError, match="the table given: there is no column w"):
        adjoin.join(dataset, eps=EPS, vector_column="w")


def test_a_delta_table_has_only_its_current_rows(vectors: numpy.ndarray, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table, name = table_of(vectors), str(tmp_path / "table")
    deltalake.write_deltalake(name, table.slice(0, 100))
    deltalake.write_deltalake(name, table, mode="overwrite")
    for source in (name, f"{name}/*.parquet"):
        with pytest.raises(adjoin.InputError, match=r"Delta table.*pass deltalake.DeltaTable\(PATH\).to_pyarrow_dataset\(\)"):
            adjoin.join(source, eps=EPS)
    check(deltalake.DeltaTable(name).to_pyarrow_dataset(), vectors)


def test_a_lazy_frame_is_read_in_batches(vectors: numpy.ndarray, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(table_of(vectors), tmp_path / "a.parquet")
    frame = polars.scan_parquet(tmp_path / "a.parquet")
    check(frame, vectors)
    check(frame.with_columns(polars.struct("v").alias("s")).select("s", "id"), vectors, vector_column="s.v")
    with pytest.raises(adjoin.InputError, match="the polars.LazyFrame given cannot be read: "):
        adjoin.join(frame.select("w"), eps=EPS)
    with pytest.raises(adjoin.InputError, match="is not a folder, and only folders have splits; leave out split"):
        adjoin.join(frame, eps=EPS, split="train")


def test_hugging_face_data_sets_are_sources(vectors: numpy.ndarray) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset(table_of(vectors))
    check(whole, vectors)
    check(whole.select(range(len(vectors) - 1, -1, -1)), vectors)
    check(whole.to_iterable_dataset(), vectors)
    check(whole.to_iterable_dataset().map(lambda row: row), vectors)
    splits = datasets.DatasetDict({"train": whole, "test": whole.select([0, 1])})
    check(splits, vectors, split="train")
    with pytest.raises(adjoin.InputError, match="several splits, train, test; give one of these to split"):
        adjoin.join(splits, eps=EPS)
    with pytest.raises(adjoin.InputError, match="no split dev; give one of these to split: train, test"):
        adjoin.join(splits, eps=EPS, split="dev")


def test_list_views_are_sources(vectors: numpy.ndarray) -> None:
    table = table_of(vectors)
    for views in (pyarrow.list_view(pyarrow.float32()), pyarrow.large_list_view(pyarrow.float32())):
        column = pyarrow.array(vectors.tolist(), views)
        check(table.set_column(1, "v", column), vectors)
        check(column, vectors, by_id=False)
        whole = pyarrow.table({"id": table["id"], "v": column})
        with adjoin.dedupe(whole, eps=EPS, exact=True) as deduped:
            assert 0 < len(pyarrow.table(deduped.kept())) < len(table)


class Tensor:
    """An object with only the DLPack interface."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_tensors_are_arrays(vectors: numpy.ndarray) -> None:
    check(Tensor(vectors), vectors, by_id=False)


def test_torch_tensors_are_sources(vectors: numpy.ndarray) -> None:
    torch = pytest.importorskip("torch")
    check(torch.from_numpy(vectors), vectors, by_id=False)
    check(torch.from_numpy(vectors.T.copy()).T, vectors, by_id=False)
    with pytest.raises(adjoin.InputError, match="the array given cannot be read as a numpy array"):
        adjoin.join(torch.from_numpy(vectors).requires_grad_(), eps=EPS)


def test_jax_arrays_are_sources(vectors: numpy.ndarray) -> None:
    jax = pytest.importorskip("jax")
    check(jax.numpy.asarray(vectors), vectors, by_id=False)


def test_bfloat16_arrays_and_files_are_sources(vectors: numpy.ndarray, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    halves = vectors.astype(ml_dtypes.bfloat16)
    floats = halves.astype("float32")
    check(halves, floats, by_id=False)
    check(numpy.asfortranarray(halves), floats, by_id=False)
    check((numpy.arange(len(vectors))[::-1], halves), floats)
    check({"id": numpy.arange(len(vectors))[::-1], "v": halves}, floats)
    numpy.save(tmp_path / "halves.npy", halves)
    check(tmp_path / "halves.npy", floats, by_id=False)
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"v": halves, "other": numpy.zeros(3)}, tmp_path / "halves.safetensors")
    check(tmp_path / "halves.safetensors", floats, by_id=False)
    safetensors.save_file({"v": vectors, "w": vectors[:7]}, tmp_path / "two.safetensors")
    check(tmp_path / "two.safetensors", vectors, by_id=False, vector_column="v")
    with pytest.raises(adjoin.InputError, match="several tensors may be the vectors: .*; choose one with vector_column"):
        adjoin.join(tmp_path / "two.safetensors", eps=EPS)


def test_bfloat16_tensors_are_sources(vectors: numpy.ndarray) -> None:
    torch = pytest.importorskip("torch")
    halves = torch.from_numpy(vectors).bfloat16()
    check(halves, halves.float().numpy(), by_id=False)


def test_deduped_safetensors_are_read_by_their_library(vectors: numpy.ndarray, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"v": vectors}, tmp_path / "a.safetensors")
    with adjoin.dedupe(tmp_path / "a.safetensors", tmp_path / "kept.safetensors", eps=EPS, exact=True) as deduped:
        removed = set(pyarrow.table(deduped.removed())["id"].to_pylist())
    kept = safetensors.load_file(tmp_path / "kept.safetensors")["v"]
    assert numpy.array_equal(kept, vectors[[row for row in range(len(vectors)) if row not in removed]])


def test_joins_one_split_of_a_folder(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table = table_of(vectors)
    for split, start in (("train", 0), ("test", 300)):
        pyarrow.parquet.write_table(table.slice(start, 300), tmp_path / f"{split}-00000-of-00001.parquet")
    with adjoin.join(tmp_path, eps=EPS, exact=True, split="train") as result:
        rows = set(pyarrow.table(result.pairs())["left_id"].to_pylist())
    assert rows and min(rows) >= 300
    with pytest.raises(adjoin.InputError, match='there is no split dev; the splits are test, train; give one of these to split'):
        adjoin.join(tmp_path, eps=EPS, split="dev")


def test_an_error_in_the_middle_of_a_stream_is_shown(vectors: numpy.ndarray) -> None:
    datasets = pytest.importorskip("datasets")

    def rows() -> Iterator[dict[str, Any]]:
        for _ in range(10):
            yield from ({"vector": vector} for vector in vectors.tolist())
        raise ValueError("the file of\nthe 6001st row is missing")

    with pytest.raises(adjoin.InputError, match="given cannot be read: the file of the 6001st row is missing$"):
        adjoin.join(datasets.IterableDataset.from_generator(rows), eps=0.5)
