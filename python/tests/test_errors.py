"""What is wrong is said in one line, as an exception of its kind, and leaves nothing behind."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy
import pyarrow
import pytest

import adjoin

GOOD = numpy.ones((4, 2), "float32")


def npy(array: numpy.ndarray, folder: Path) -> Path:
    numpy.save(folder / "vectors.npy", array, allow_pickle=True)
    return folder / "vectors.npy"


def written(content: bytes, name: str, folder: Path) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def fbin(rows: int, dimensions: int, floats: int) -> bytes:
    return struct.pack("<II", rows, dimensions) + bytes(4 * floats)


def shards(folder: Path) -> Path:
    numpy.save(folder / "a.npy", GOOD)
    numpy.save(folder / "b.npy", numpy.ones((4, 3), "float32"))
    return folder


def with_nan() -> numpy.ndarray:
    vectors = GOOD.copy()
    vectors[2, 1] = numpy.nan
    return vectors


def table(ids: list[int]) -> pyarrow.Table:
    return pyarrow.table({"id": ids, "vector": [[1.0, 2.0]] * len(ids)})


def of_floats(ids: list[float]) -> pyarrow.Table:
    return pyarrow.table({"id": ids, "vector": [[1.0, 2.0]] * len(ids)})


L2: dict[str, Any] = {"eps": 1.0}
COSINE: dict[str, Any] = {"min_similarity": 0.9}

Source = Callable[[Path], Any]

#: Name, source, options of the join, kind of the error, words that it has.
CASES: list[tuple[str, Source, dict[str, Any], type[Exception], list[str]]] = [
    ("NaN", lambda _: with_nan(), L2, adjoin.InputError, ["row 2", "on_bad skip"]),
    ("infinity", lambda _: numpy.full((3, 2), numpy.inf, "f4"), L2, adjoin.InputError, ["row 0", "on_bad skip"]),
    ("zero vector", lambda _: numpy.zeros((3, 2), "f4"), COSINE, adjoin.InputError, ["row 0", "zero"]),
    ("shards differ", shards, L2, adjoin.InputError, ["b.npy", "3", "2"]),
    ("truncated", lambda at: written(fbin(4, 2, 5), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("over-long", lambda at: written(fbin(4, 2, 9), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("wrong magic", lambda at: written(b"no numpy file at all", "v.npy", at), L2, adjoin.InputError, ["v.npy"]),
    ("lying header", lambda at: written(fbin(1 << 31, 2, 8), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("no rows", lambda _: numpy.zeros((0, 2), "f4"), L2, adjoin.InputError, ["no rows"]),
    ("three dimensions", lambda _: numpy.zeros((2, 2, 2), "f4"), L2, adjoin.InputError, ["vectors.npy"]),
    ("Fortran order", lambda at: npy(numpy.asfortranarray(numpy.ones((4, 3), "f4")), at), L2, adjoin.InputError, ["vectors.npy"]),
    ("objects", lambda _: numpy.array([["a", 1], ["b", 2]], object), L2, adjoin.InputError, ["vectors.npy"]),
    ("negative eps", lambda _: GOOD, {"eps": -1.0}, adjoin.OptionError, ["eps is -1"]),
    ("infinite eps", lambda _: GOOD, {"eps": float("inf")}, adjoin.OptionError, ["eps is inf"]),
    ("eps is no number", lambda _: GOOD, {"eps": float("nan")}, adjoin.OptionError, ["eps is NaN"]),
    ("similarity", lambda _: GOOD, {"min_similarity": 1.5}, adjoin.OptionError, ["1.5", "between -1 and 1"]),
    ("recall 0", lambda _: GOOD, {**L2, "recall": 0.0}, adjoin.OptionError, ["recall is 0"]),
    ("recall 1.5", lambda _: GOOD, {**L2, "recall": 1.5}, adjoin.OptionError, ["recall is 1.5"]),
    ("both thresholds", lambda _: GOOD, {**L2, **COSINE}, adjoin.OptionError, ["either eps or min_similarity"]),
    ("no threshold", lambda _: GOOD, {}, adjoin.OptionError, ["either eps or min_similarity"]),
    ("recall and exact", lambda _: GOOD, {**L2, "recall": 0.9, "exact": True}, adjoin.OptionError, ["leave out recall"]),
    ("an id twice", lambda _: table([1, 2, 1]), L2, adjoin.InputError, ["on_duplicate_id keep"]),
    ("no such column", lambda _: table([1, 2]), {**L2, "vector_column": "v"}, adjoin.InputError, ["v", "vector"]),
    ("ids of floats", lambda _: of_floats([0.5, 1.5]), L2, adjoin.InputError, ["column id is", "pass id_column", "ids=False"]),
    ("ids and no ids", lambda _: GOOD, {**L2, "id_column": "a", "ids": False}, adjoin.OptionError, ["id_column", "ids=False"]),
    ("no such file", lambda at: at / "missing.npy", L2, adjoin.AdjoinError, ["missing.npy"]),
    ("memory", lambda _: GOOD, {**L2, "memory": "20MB"}, adjoin.BudgetError, ["give memory"]),
    ("no size", lambda _: GOOD, {**L2, "memory": "much"}, adjoin.OptionError, ["much"]),
    ("no threads", lambda _: GOOD, {**L2, "threads": 0}, adjoin.OptionError, ["threads is 0"]),
    ("negative", lambda _: GOOD, {**L2, "seed": -1}, adjoin.OptionError, ["seed is -1"]),
    ("on_bad", lambda _: GOOD, {**L2, "on_bad": "fix"}, adjoin.OptionError, ["error or skip"]),
    ("masked", lambda _: numpy.ma.masked_equal(numpy.ones((2, 2), "f4"), 1), L2, adjoin.InputError, ["row 0", "NaN"]),
    ("masked integers", lambda _: numpy.ma.masked_equal(numpy.ones((2, 2), "u1"), 1), L2, adjoin.InputError, ["masked"]),
    ("neither file nor array", lambda _: 7, L2, adjoin.InputError, ["int", "numpy"]),
]


@pytest.mark.parametrize(("source", "options", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_wrong_is_said(
    source: Source, options: dict[str, Any], kind: type[Exception], words: list[str], tmp_path: Path
) -> None:
    given, temporary = tmp_path / "given", tmp_path / "temporary"
    given.mkdir()
    temporary.mkdir()
    vectors = source(given)
    before = sorted(given.iterdir())
    with pytest.raises(adjoin.AdjoinError) as raised:
        adjoin.join(vectors, temporary=temporary, **options)
    assert raised.type is kind or kind is adjoin.AdjoinError, raised.value
    said = str(raised.value)
    assert all(word in said for word in words) and "\n" not in said and " --" not in said, said
    assert sorted(given.iterdir()) == before and not list(temporary.iterdir())


def test_a_store_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    adjoin.build(GOOD, tmp_path / "store")
    with pytest.raises(adjoin.InputError, match="give force"):
        adjoin.build(GOOD, tmp_path / "store")
    assert len(adjoin.build(numpy.ones((9, 2), "float32"), tmp_path / "store", force=True)) == 9


@pytest.fixture
def powerless() -> Iterator[None]:
    """Takes the rights of root for a while, where root runs the tests."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A folder with what may not be read or not be written."""
    with tempfile.TemporaryDirectory() as name:  # that everybody can look into, as those of pytest cannot
        folder = Path(name)
        folder.chmod(0o755)
        numpy.save(folder / "set.npy", GOOD)
        adjoin.build(GOOD, folder / "store")
        written(fbin(2, 2, 4), "secret.fbin", folder).chmod(0o000)
        (folder / "locked").mkdir(0o555)
        yield folder


@pytest.mark.parametrize("name", ["secret.fbin", "locked/store", "locked"])
def test_what_may_not_be_read_or_written_is_said(name: str, guarded: Path, powerless: None) -> None:
    before = sorted(guarded.rglob("*"))
    with pytest.raises(OSError) as raised:  # adjoin.DeviceError, or Python's own for the temporary folder
        if name == "secret.fbin":
            adjoin.join(guarded / name, eps=1.0)
        elif name == "locked":
            adjoin.join(guarded / "store", eps=1.0, temporary=guarded / name)
        else:
            adjoin.build(guarded / "set.npy", guarded / name)
    said = str(raised.value)
    assert name.split("/")[0] in said and "denied" in said, said
    assert sorted(guarded.rglob("*")) == before


def test_a_place_for_temporary_files_must_be_there(tmp_path: Path) -> None:
    adjoin.build(GOOD, tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    place = tmp_path / "missing"
    for work in (
        lambda: adjoin.join(tmp_path / "store", eps=1.0, temporary=place),
        lambda: adjoin.build(GOOD, tmp_path / "other", temporary=place),
    ):
        with pytest.raises(adjoin.DeviceError, match="missing cannot be written; name another folder"):
            work()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_of_the_other_metric_is_refused(tmp_path: Path) -> None:
    store = adjoin.build(GOOD, tmp_path / "store")
    with pytest.raises(adjoin.OptionError, match="give eps"):
        adjoin.join(store, min_similarity=0.9)


def test_options_for_builds_have_no_meaning_for_a_store(tmp_path: Path) -> None:
    store = adjoin.build(GOOD, tmp_path / "store")
    options: list[dict[str, Any]] = [{"id_column": "id"}, {"vector_column": "v"}, {"buckets": 3}, {"on_bad": "skip"}, {"ids": False}]
    for option in options:
        with pytest.raises(adjoin.OptionError, match=f"{next(iter(option))}(=False)? has a meaning only while one is built"):
            adjoin.join(store, eps=1.0, **option)
    with pytest.raises(adjoin.OptionError, match="joins alone"):
        adjoin.join([store.path, store.path], eps=1.0)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(adjoin.InputError, match="is no store"):
        adjoin.Store(tmp_path)


def test_damage_is_found(tmp_path: Path) -> None:
    store = adjoin.build(GOOD, tmp_path / "store")
    (vectors,) = store.path.glob("vectors-*")
    content = bytearray(vectors.read_bytes())
    content[70] ^= 1
    vectors.write_bytes(content)
    with pytest.raises(adjoin.CorruptError, match="build the store again"):
        adjoin.join(store, eps=1.0)


def test_kinds_are_those_of_python() -> None:
    assert issubclass(adjoin.InputError, ValueError) and issubclass(adjoin.OptionError, ValueError)
    assert issubclass(adjoin.BudgetError, MemoryError) and issubclass(adjoin.DeviceError, OSError)
