"""Data sets in the layouts of other tools have the pairs of one plain file, and copies keep folders, files and
columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pyarrow
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet
import pytest

import adjoin

EPS = 0.3
SPLITS = {"train": range(0, 450), "test": range(450, 600)}


def table_of(vectors: numpy.ndarray) -> pyarrow.Table:
    """A table with columns of several types, two of which can define partitions."""
    rows = range(len(vectors))
    return pyarrow.table(
        {
            "id": [f"row {row}" for row in rows],
            "text": [None if row % 7 == 0 else "x" * (row % 5) for row in rows],
            "meta": [{"url": f"u/{row}", "score": row / 2} for row in rows],
            "year": pyarrow.array([2020 + row % 3 for row in rows], pyarrow.int64()),
            "lang": [("de", "en", "fr é")[row % 3 if row < 300 else 0] for row in rows],
            "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), vectors.shape[1]),
        }
    )


def pairs_of(source: Any, **options: Any) -> set[tuple[str, ...]]:
    with adjoin.join(source, eps=EPS, exact=True, memory="128MiB", **options) as result:
        pairs = pyarrow.table(result.pairs())
    return {tuple(sorted(pair)) for pair in zip(pairs["left_id"].to_pylist(), pairs["right_id"].to_pylist())}


def read_parquet(path: Path) -> pyarrow.Table:
    # The file alone, without the folders' names as columns.
    return pyarrow.parquet.ParquetFile(path).read()


def read_stream(path: Path) -> pyarrow.Table:
    return pyarrow.ipc.open_stream(path).read_all()


def check(folder: Path, plain: pyarrow.Table, read: Callable[[Path], pyarrow.Table], **options: Any) -> Path:
    """Checks that a folder has the pairs of a plain table, and that a deduplicated copy is otherwise unchanged."""
    expected = pairs_of(plain)
    assert len(expected) > 100 and pairs_of(folder, **options) == expected
    out = folder.with_name("out")
    with adjoin.dedupe(folder, out, eps=EPS, exact=True, **options) as deduped:
        gone = set(pyarrow.table(deduped.removed())["id"].to_pylist())
        kept = pyarrow.table(deduped.kept())
    split, ending = options.get("split", ""), "*.parquet" if read is read_parquet else "*.arrow"
    files = [file for file in sorted(folder.rglob(ending)) if split in str(file.relative_to(folder))]
    written = [file for file in sorted(out.rglob("*")) if file.is_file()]
    assert len(files) > 1 and [f.relative_to(folder) for f in files] == [f.relative_to(out) for f in written]
    for before, after in zip(map(read, files), map(read, written)):
        stays = before.filter(pyarrow.array([name not in gone for name in before["id"].to_pylist()]))
        assert after.schema.equals(before.schema, check_metadata=True) and after.equals(stays)
    assert len(kept) == len(plain) - len(gone) and 0 < len(gone) < len(plain)
    assert set(kept["id"].to_pylist()) | gone == set(plain["id"].to_pylist())
    return out


def test_joins_and_dedupes_a_hub_folder(vectors: numpy.ndarray, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table, folder = table_of(vectors), tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    for split, shards in (("train", 3), ("test", 1)):
        part = datasets.Dataset(table).select(SPLITS[split])
        for shard in range(shards):
            name = f"data/{split}-{shard:05}-of-{shards:05}.parquet"
            part.shard(shards, shard, contiguous=True).to_parquet(folder / name)
    configs = "- split: train\n    path: data/train-*\n  - split: test\n    path: data/test-*"
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files:\n  {configs}\n---\n")
    assert pairs_of(folder) == pairs_of(table)
    out = check(folder, table.take(list(SPLITS["train"])), read_parquet, split="train")
    again = datasets.Dataset.from_parquet(
        [str(file) for file in sorted(out.rglob("*.parquet"))], cache_dir=str(tmp_path / "cache")
    )
    assert again.features == datasets.Dataset(table).features and 0 < len(again) < 450


def test_joins_and_dedupes_a_save_to_disk_folder(vectors: numpy.ndarray, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table, folder = table_of(vectors), tmp_path / "set"
    whole = datasets.Dataset(table)
    splits = datasets.DatasetDict({split: whole.select(rows) for split, rows in SPLITS.items()})
    splits.save_to_disk(folder, num_shards={"train": 3, "test": 2})
    assert pairs_of(folder) == pairs_of(table)
    out = check(folder, table.take(list(SPLITS["train"])), read_stream, split="train")
    # The data set's own description is not copied, since it would list removed rows: the shards are read one by one.
    again = datasets.concatenate_datasets([datasets.Dataset.from_file(str(file)) for file in sorted(out.rglob("*.arrow"))])
    assert again.features == whole.features and 0 < len(again) < 450


def test_a_data_set_from_a_kept_stream_has_the_same_features(vectors: numpy.ndarray) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset(table_of(vectors))
    with adjoin.dedupe(whole, eps=EPS, exact=True) as deduped:
        kept = datasets.Dataset(pyarrow.table(deduped.kept()))
        assert len(kept) == len(deduped) < len(whole)
    assert kept.features == whole.features and kept[0] == whole[0]


def test_joins_and_dedupes_hive_partitions_by_pyarrow(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table, folder = table_of(vectors), tmp_path / "set"
    keys = pyarrow.schema([table.schema.field("lang"), table.schema.field("year")])
    hive = pyarrow.dataset.partitioning(keys, flavor="hive")
    pyarrow.dataset.write_dataset(table, folder, format="parquet", partitioning=hive)
    out = check(folder, table, read_parquet)
    again = pyarrow.dataset.dataset(out, partitioning=hive).to_table()
    before = dict(zip(table["id"].to_pylist(), zip(table["lang"].to_pylist(), table["year"].to_pylist())))
    rows = zip(again["id"].to_pylist(), again["lang"].to_pylist(), again["year"].to_pylist())
    assert all(before[name] == (lang, year) for name, lang, year in rows)
    with pytest.raises(adjoin.OptionError, match="only in names of folders such as year=2020"):
        adjoin.dedupe(folder, eps=EPS, keep_by="year desc")
    # As a data set of pyarrow the folders' names are columns.
    dataset = pyarrow.dataset.dataset(folder, partitioning=hive)
    assert pairs_of(dataset) == pairs_of(table)
    with adjoin.dedupe(dataset, eps=EPS, exact=True, keep_by="year desc, lang") as deduped:
        kept = pyarrow.table(deduped.kept())
        removed = pyarrow.table(deduped.removed())
    assert set(kept.column_names) == set(table.column_names)
    year = dict(zip(table["id"].to_pylist(), table["year"].to_pylist()))
    assert all(year[a] <= year[b] for a, b in zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist()))


def test_joins_and_dedupes_hive_partitions_by_duckdb(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table, folder = table_of(vectors), tmp_path / "set"
    duckdb.sql(f"COPY (FROM \"table\") TO '{folder}' (FORMAT parquet, PARTITION_BY (lang, year))")
    out = check(folder, table, read_parquet)
    query = "SELECT year, lang, count(*) FROM read_parquet('{}/**/*.parquet', hive_partitioning = true) GROUP BY ALL"
    before, after = [duckdb.sql(query.format(at)).fetchall() for at in (folder, out)]
    assert {row[:2] for row in after} <= {row[:2] for row in before}
    assert sum(row[2] for row in after) < sum(row[2] for row in before) == len(table)
