"""A join or a build in parts gives the result of one machine."""

import numpy
import pyarrow.parquet
import pytest

import adjoin
import adjoin.distributed


def rows_of(path):
    table = pyarrow.parquet.read_table(path)
    return sorted(zip(*(column.to_pylist() for column in table.columns)))


def test_parts_are_merged_to_the_result_of_one_machine(tmp_path, vectors):
    adjoin.build(vectors, tmp_path / "store")
    told = adjoin.plan(tmp_path / "store", tmp_path / "plan", parts=3, eps=0.3, exact=True)
    assert [part["part"] for part in told["plan"]["parts"]] == [1, 2, 3]
    for part in (2, 3, 1):
        assert adjoin.run_part(tmp_path / "plan", f"{part}/3", tmp_path / "parts", memory="200MB")["join"]["pairs"] >= 0
    assert adjoin.run_part(tmp_path / "plan", "1/3", tmp_path / "parts") is None
    stats = adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "pairs.parquet")
    adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "removed.parquet", result="removed")
    with adjoin.join(tmp_path / "store", eps=0.3, exact=True) as result:
        assert stats["join"]["pairs"] == len(result) > 0
        result.write(tmp_path / "one.parquet")
        result.write(tmp_path / "one-removed.parquet", "removed")
    assert rows_of(tmp_path / "pairs.parquet") == rows_of(tmp_path / "one.parquet")
    assert rows_of(tmp_path / "removed.parquet") == rows_of(tmp_path / "one-removed.parquet")


def test_merged_pairs_carry_columns(tmp_path, vectors):
    table = pyarrow.table({"vector": list(vectors), "name": [f"row {row}" for row in range(len(vectors))]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    adjoin.build(tmp_path / "rows.parquet", tmp_path / "store", columns=["name"])
    adjoin.plan(tmp_path / "store", tmp_path / "plan", parts=2, eps=0.3, recall=0.9, recall_of="pairs")
    for part in ("1/2", "2/2"):
        adjoin.run_part(tmp_path / "plan", part, tmp_path / "parts")
    stats = adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "pairs.parquet", columns=["name"])
    assert stats["recall"]["of_pairs_only"] and stats["recall"]["target"] == 0.9
    pairs = pyarrow.parquet.read_table(tmp_path / "pairs.parquet").to_pylist()
    assert len(pairs) == stats["join"]["pairs"] > 0
    assert all(pair[f"{side}_name"] == f"row {pair[f'{side}_id']}" for pair in pairs for side in ("left", "right"))
    removed = tmp_path / "removed.parquet"
    adjoin.distributed.join(tmp_path / "store", removed, parts=2, eps=0.3, exact=True, result="removed", columns=["name"])
    rows = pyarrow.parquet.read_table(removed).to_pylist()
    assert rows and all((row["name"], row["kept_name"]) == (f"row {row['id']}", f"row {row['kept_id']}") for row in rows)
    with pytest.raises(adjoin.OptionError, match="columns is for pairs, removed rows and clusters"):
        adjoin.distributed.join(tmp_path / "store", removed, parts=2, eps=0.3, result="counts", columns=["name"])


def test_missing_parts_and_wrong_numbers_are_refused(tmp_path, vectors):
    adjoin.build(vectors, tmp_path / "store")
    adjoin.plan(tmp_path / "store", tmp_path / "plan", parts=2, eps=0.3, result="counts")
    with pytest.raises(adjoin.OptionError, match="is not a part of"):
        adjoin.run_part(tmp_path / "plan", "3/2", tmp_path / "parts")
    adjoin.run_part(tmp_path / "plan", "2/2", tmp_path / "parts")
    with pytest.raises(adjoin.InputError, match="1 of 2 parts missing"):
        adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "counts.csv")
    adjoin.run_part(tmp_path / "plan", "1/2", tmp_path / "parts")
    with pytest.raises(adjoin.OptionError, match="was planned for the result counts"):
        adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "pairs.csv", result="pairs")


def test_parts_of_a_build_are_merged_to_the_store_of_one_machine(tmp_path, vectors):
    numpy.save(tmp_path / "set.npy", vectors)
    told = adjoin.plan_build(tmp_path / "set.npy", tmp_path / "plan", parts=2, metric="cosine")
    assert [part["phase"] for part in told["plan"]["parts"]] == ["read", "read", "write", "write"]
    with pytest.raises(adjoin.InputError, match="missing in .*: 1, 2"):
        adjoin.run_part(tmp_path / "plan", "3/4", tmp_path / "parts")
    for part in (2, 1, 4, 3):
        assert adjoin.run_part(tmp_path / "plan", f"{part}/4", tmp_path / "parts")["build_part"]["rows"] >= 0
    assert adjoin.run_part(tmp_path / "plan", "4/4", tmp_path / "parts") is None
    for option in ({"result": "pairs"}, {"keep_rule": "cluster"}, {"store": tmp_path}):
        with pytest.raises(adjoin.OptionError, match=f"{next(iter(option))} can be used only with the plan of a join"):
            adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "merged", **option)
    with pytest.raises(adjoin.OptionError, match="store can be used only with the plan of a join"):
        adjoin.run_part(tmp_path / "plan", "1/4", tmp_path / "parts", store=tmp_path)
    stats = adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "merged")
    assert stats["build_part"]["rows"] == len(vectors)
    adjoin.build(tmp_path / "set.npy", tmp_path / "one", metric="cosine")
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "merged" / file.name).read_bytes()
