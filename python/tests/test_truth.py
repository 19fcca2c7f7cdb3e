"""Ground truth, generated vectors, and joins and builds that continue from a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import numpy
import pyarrow
import pytest

import adjoin
from conftest import pairs_within


def test_brute_force_finds_the_pairs_of_a_loop(vectors: numpy.ndarray) -> None:
    expected = pairs_within(vectors, 0.3)
    pairs = adjoin.groundtruth(vectors, eps=0.3).to_arrow()
    assert {*zip(pairs["left_id"].to_pylist(), pairs["right_id"].to_pylist())} == {*expected}
    assert len(expected) == pairs.num_rows > 0


def test_a_sample_finds_some_pairs_of_all(tmp_path: Path) -> None:
    adjoin.generate(tmp_path / "set.fbin", 2000, 8, seed=3)
    whole = adjoin.groundtruth(tmp_path / "set.fbin", eps=1.0).to_arrow().num_rows
    part = adjoin.groundtruth(tmp_path / "set.fbin", eps=1.0, sample=200).to_arrow().num_rows
    assert 0 < part < whole
    with adjoin.join(tmp_path / "set.fbin", eps=1.0, exact=True) as result:
        assert len(result) == whole


def test_vectors_are_generated_in_the_type_of_the_file(tmp_path: Path) -> None:
    adjoin.generate(tmp_path / "set.npy", 100, 16, element="f16")
    array = numpy.load(tmp_path / "set.npy")
    assert (array.shape, array.dtype) == ((100, 16), numpy.float16)
    with pytest.raises(adjoin.InputError, match="force=True"):
        adjoin.generate(tmp_path / "set.npy", 100, 16)
    with pytest.raises(adjoin.OptionError, match="element is 'f64'"):
        adjoin.generate(tmp_path / "other.npy", 100, 16, element="f64")  # type: ignore[arg-type]


def sorted_pairs(result: adjoin.Result) -> pyarrow.Table:
    return result.pairs().to_arrow().sort_by([("left_id", "ascending"), ("right_id", "ascending")])


def test_a_join_continues_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, place = tmp_path / "set.fbin", tmp_path / "night"
    adjoin.generate(source, 3000, 8)
    with adjoin.join(source, eps=1.0, exact=True) as plain:
        expected = sorted_pairs(plain)
    join = adjoin._engine.join
    # Pairs are handed over after the last checkpoint, here into a folder that does not exist.
    monkeypatch.setattr(adjoin._engine, "join", lambda *given: join(*given[:4], os.path.join(given[4], "missing"), given[5]))
    with pytest.raises(adjoin.DeviceError, match="cannot write"):
        adjoin.join(source, eps=1.0, exact=True, resume=place)
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {"set.fbin", ".adjoin-night.resume"}
    with pytest.raises(adjoin.InputError, match="differs in .*force=True to start again"):
        adjoin.join(source, eps=1.1, exact=True, resume=place)
    with adjoin.join(source, eps=1.0, exact=True, resume=place) as result:
        told = result.stats["resume"]
        assert told["runs"] == 2 and told["legs_done_before"] == told["legs"] > 0
        assert sorted_pairs(result) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["set.fbin"]


def test_only_files_can_be_resumed(vectors: numpy.ndarray, tmp_path: Path) -> None:
    adjoin.generate(tmp_path / "set.fbin", 1000, 8)
    store = adjoin.build(tmp_path / "set.fbin", tmp_path / "store", resume=True)
    assert len(store) == 1000
    with pytest.raises(adjoin.OptionError, match="source is in memory"):
        adjoin.build(vectors, tmp_path / "other", resume=True)
    with pytest.raises(adjoin.OptionError, match="new is in memory"):
        adjoin.join(store, eps=1.0, new=vectors, resume=tmp_path / "night")
    with pytest.raises(adjoin.OptionError, match="give resume too"):
        adjoin.join(store, eps=1.0, force=True)
    with adjoin.join(store, eps=1.0, resume=tmp_path / "night") as result:
        assert result.stats["resume"]["runs"] == 1
