"""Errors are exceptions of their kind with one line of text, and leave no files."""

from __future__ import annotations

import os
import re
import struct
import tempfile
from fractions import Fraction
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

#: Name, source, options of the join, type of the error, words in its message.
CASES: list[tuple[str, Source, dict[str, Any], type[Exception], list[str]]] = [
    ("NaN", lambda _: with_nan(), L2, adjoin.InputError, ["the array given: the vector of row 2", 'on_bad="skip"']),
    ("NaN in a table", lambda _: pyarrow.table({"v": list(with_nan())}), L2, adjoin.InputError, ["the table given: the vector of row 2"]),
    ("NaN in a list", lambda _: pyarrow.array(list(with_nan())), L2, adjoin.InputError, ["the array given: the vector of row 2"]),
    ("numbers", lambda _: pyarrow.array([1.0, 2.0]), L2, adjoin.InputError, ["the array given"]),
    ("infinity", lambda _: numpy.full((3, 2), numpy.inf, "f4"), L2, adjoin.InputError, ["row 0", 'on_bad="skip"']),
    ("zero vector", lambda _: numpy.zeros((3, 2), "f4"), COSINE, adjoin.InputError, ["row 0", "zero"]),
    ("shards differ", shards, L2, adjoin.InputError, ["b.npy", "3", "2"]),
    ("truncated", lambda at: written(fbin(4, 2, 5), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("over-long", lambda at: written(fbin(4, 2, 9), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("wrong magic", lambda at: written(b"no numpy file at all", "v.npy", at), L2, adjoin.InputError, ["v.npy"]),
    ("lying header", lambda at: written(fbin(1 << 31, 2, 8), "v.fbin", at), L2, adjoin.InputError, ["v.fbin"]),
    ("no rows", lambda _: numpy.zeros((0, 2), "f4"), L2, adjoin.InputError, ["no rows"]),
    ("three dimensions", lambda _: numpy.zeros((2, 2, 2), "f4"), L2, adjoin.InputError, ["the array given has 3 dimensions", "x.reshape(len(x), -1)"]),
    ("one dimension", lambda _: numpy.zeros(4, "f4"), L2, adjoin.InputError, ["has 1 dimension;", "x.reshape(-1, d)"]),
    ("integers", lambda _: numpy.zeros((2, 2), "i8"), L2, adjoin.InputError, ["elements of type int64", "x.astype"]),
    ("Fortran order", lambda at: npy(numpy.asfortranarray(numpy.ones((4, 3), "f4")), at), L2, adjoin.InputError, ["vectors.npy"]),
    ("objects", lambda _: numpy.array([["a", 1], ["b", 2]], object), L2, adjoin.InputError, ["elements of type object"]),
    ("rows as objects", lambda _: numpy.array([GOOD[0], None], object), L2, adjoin.InputError, ["numpy.stack(x)"]),
    ("negative eps", lambda _: GOOD, {"eps": -1.0}, adjoin.OptionError, ["eps is -1"]),
    ("infinite eps", lambda _: GOOD, {"eps": float("inf")}, adjoin.OptionError, ["eps is inf"]),
    ("eps is no number", lambda _: GOOD, {"eps": float("nan")}, adjoin.OptionError, ["eps is NaN"]),
    ("similarity", lambda _: GOOD, {"min_similarity": 1.5}, adjoin.OptionError, ["1.5", "between -1 and 1"]),
    ("recall 0", lambda _: GOOD, {**L2, "recall": 0.0}, adjoin.OptionError, ["recall is 0"]),
    ("recall 1.5", lambda _: GOOD, {**L2, "recall": 1.5}, adjoin.OptionError, ["recall is 1.5"]),
    ("both thresholds", lambda _: GOOD, {**L2, **COSINE}, adjoin.OptionError, ["either eps or min_similarity"]),
    ("no threshold", lambda _: GOOD, {}, adjoin.OptionError, ["either eps or min_similarity"]),
    ("recall and exact", lambda _: GOOD, {**L2, "recall": 0.9, "exact": True}, adjoin.OptionError, ["leave out recall"]),
    ("an id twice", lambda _: table([1, 2, 1]), L2, adjoin.InputError, ['on_duplicate_id="keep"']),
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
    ("neither file nor array", lambda _: 7, L2, adjoin.OptionTypeError, ["source is 7 (int)", "numpy"]),
    ("None", lambda _: None, L2, adjoin.OptionTypeError, ["source is None", "numpy"]),
    ("no paths", lambda _: [], L2, adjoin.OptionError, ["source is []", "at least one path"]),
    ("lists", lambda _: [[1.0, 2.0]], L2, adjoin.OptionTypeError, ["source is [[1.0, 2.0]] (list)", "numpy"]),
    ("what numpy cannot read", lambda _: Tensor(), L2, adjoin.InputError, ["the array given", "on another device"]),
]


class Tensor:
    """An array on another device."""

    def __array__(self, *_: Any, **__: Any) -> numpy.ndarray:
        raise TypeError("it is on another\ndevice")


#: Options of the wrong type or out of range, and words of the message.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"eps": "1"}, "eps is '1' (str); give a number"),
    ({"eps": True}, "eps is True (bool); give a number"),
    ({"eps": numpy.ones(3)}, "eps is array([1., 1., 1.]) (ndarray); give a number"),
    ({"eps": 10**400}, "give a number that a float can hold"),
    ({"eps": 10**5000}, "give a number that a float can hold"),
    ({"eps": 1j}, "eps is 1j (complex); give a number"),
    ({**L2, "recall": "0.9"}, "recall is '0.9' (str); give a number"),
    ({"min_similarity": [0.9]}, "min_similarity is [0.9] (list); give a number"),
    ({**L2, "exact": 1}, "exact is 1 (int); give True or False"),
    ({**L2, "exact": None}, "exact is None (NoneType); give True or False"),
    ({**L2, "progress": "no"}, "progress is 'no' (str); give True or False"),
    ({**L2, "memory": 1e9}, "memory is 1000000000.0 (float); give a size such as '2GiB', a fraction such as '80%', or a whole number of bytes"),
    ({**L2, "memory": "0%"}, "0% is not a fraction of the memory; write it like 80%"),
    ({**L2, "memory": True}, "memory is True (bool); give a size"),
    ({**L2, "memory": -1}, "memory is -1; it must not be negative"),
    ({**L2, "threads": 1.0}, "threads is 1.0 (float); give a whole number"),
    ({**L2, "threads": 2**70}, f"threads is {2**70}; give at most {2**64 - 1}"),
    ({**L2, "seed": None}, "seed is None (NoneType); give a whole number"),
    ({**L2, "seed": 2**64}, f"seed is {2**64}; give at most {2**64 - 1}"),
    ({**L2, "buckets": 2**32}, f"buckets is {2**32}; give at most {2**32 - 1}"),
    ({**L2, "buckets": False}, "buckets is False (bool); give a whole number"),
    ({**L2, "id_column": 3}, "id_column is 3 (int); give a text"),
    ({**L2, "vector_column": b"v"}, "vector_column is b'v' (bytes); give a text"),
    ({**L2, "on_bad": None}, "on_bad is None (NoneType); give error or skip"),
    ({**L2, "on_duplicate_id": "KEEP"}, "on_duplicate_id is 'KEEP'; give error or keep"),
    ({**L2, "temporary": 3}, "temporary is 3 (int); give a path"),
    ({**L2, "temporary": b"/tmp/\xff"}, "give a path in UTF-8"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
def test_options_of_the_wrong_type_are_reported(options: dict[str, Any], words: str) -> None:
    is_type = re.search(r" \(\w+\); give", words) is not None
    with pytest.raises(adjoin.OptionError) as raised:
        adjoin.join(GOOD, **options)
    assert words in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 200
    assert isinstance(raised.value, TypeError) == is_type


def test_arguments_of_builds_and_results_are_checked(tmp_path: Path) -> None:
    for options, words in [({"metric": 2}, "metric is 2 (int); give l2 or cosine"), ({"force": "yes"}, "force is 'yes' (str); give True or False")]:
        with pytest.raises(adjoin.OptionTypeError) as raised:
            adjoin.build(GOOD, tmp_path / "store", **options)  # type: ignore[arg-type]
        assert words in str(raised.value)
    with pytest.raises(adjoin.OptionTypeError, match="store is None .NoneType.; give a path"):
        adjoin.build(GOOD, None)  # type: ignore[arg-type]
    with pytest.raises(adjoin.OptionTypeError, match="path is 3 .int.; give a path"):
        adjoin.Store(3)  # type: ignore[arg-type]
    with adjoin.join(GOOD, eps=1.0) as result, pytest.raises(adjoin.OptionError, match="rule is 'first'; give greedy or cluster"):
        result.removed("first")  # type: ignore[arg-type]


def test_accepts_numbers_and_paths_of_every_type(tmp_path: Path) -> None:
    numpy.save(tmp_path / "v.npy", GOOD)
    scalars: list[dict[str, Any]] = [
        {"eps": numpy.float32(1), "threads": numpy.int64(1), "seed": numpy.uint8(3), "exact": numpy.bool_(True)},
        {"eps": numpy.int32(1), "recall": numpy.float64(0.9), "memory": numpy.int64(1 << 30), "buckets": numpy.uint32(1)},
        {"eps": 1, "threads": None, "temporary": os.fsencode(tmp_path)},
        {"eps": Fraction(1, 2), "temporary": str(tmp_path)},
        {"eps": numpy.array(1.0)},
    ]
    paths: list[Any] = [tmp_path / "v.npy", str(tmp_path / "v.npy"), os.fsencode(tmp_path / "v.npy"), [os.fsencode(tmp_path / "v.npy")]]
    for options in scalars:
        with adjoin.join(GOOD, **options) as result:
            assert len(result) == 6
    for path in paths:
        with adjoin.join(path, eps=1.0) as result:
            assert len(result) == 6
    assert len(adjoin.build(GOOD, os.fsencode(tmp_path / "store"))) == 4


@pytest.mark.parametrize(("source", "options", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_invalid_inputs_are_reported_in_one_line(
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


def test_an_existing_store_is_replaced_only_with_force(tmp_path: Path) -> None:
    adjoin.build(GOOD, tmp_path / "store")
    with pytest.raises(adjoin.InputError, match="give force"):
        adjoin.build(GOOD, tmp_path / "store")
    assert len(adjoin.build(numpy.ones((9, 2), "float32"), tmp_path / "store", force=True)) == 9


@pytest.fixture
def powerless() -> Iterator[None]:
    """Drops the rights of root for a while, if root runs the tests."""
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
    """A folder with entries that cannot be read or written."""
    with tempfile.TemporaryDirectory() as name:  # readable by all users, unlike the folders of pytest
        folder = Path(name)
        folder.chmod(0o755)
        numpy.save(folder / "set.npy", GOOD)
        adjoin.build(GOOD, folder / "store")
        written(fbin(2, 2, 4), "secret.fbin", folder).chmod(0o000)
        (folder / "locked").mkdir(0o555)
        yield folder


@pytest.mark.parametrize("name", ["secret.fbin", "locked/store", "locked"])
def test_missing_permissions_are_reported(name: str, guarded: Path, powerless: None) -> None:
    before = sorted(guarded.rglob("*"))
    with pytest.raises(OSError) as raised:  # adjoin.DeviceError, or Python's error for the temporary folder
        if name == "secret.fbin":
            adjoin.join(guarded / name, eps=1.0)
        elif name == "locked":
            adjoin.join(guarded / "store", eps=1.0, temporary=guarded / name)
        else:
            adjoin.build(guarded / "set.npy", guarded / name)
    said = str(raised.value)
    assert name.split("/")[0] in said and "denied" in said, said
    assert sorted(guarded.rglob("*")) == before


def test_a_missing_temporary_folder_is_refused(tmp_path: Path) -> None:
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


def test_refuses_build_options_for_a_store(tmp_path: Path) -> None:
    store = adjoin.build(GOOD, tmp_path / "store")
    options: list[dict[str, Any]] = [{"id_column": "id"}, {"vector_column": "v"}, {"buckets": 3}, {"on_bad": "skip"}, {"ids": False}]
    for option in options:
        with pytest.raises(adjoin.OptionError, match=f"{next(iter(option))}[^ ]* applies only when a store is built"):
            adjoin.join(store, eps=1.0, **option)
    with pytest.raises(adjoin.OptionError, match="cannot be combined with other inputs"):
        adjoin.join([store.path, store.path], eps=1.0)


def test_refuses_a_folder_that_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(adjoin.InputError, match="is not a store"):
        adjoin.Store(tmp_path)


def test_damage_is_found(tmp_path: Path) -> None:
    store = adjoin.build(GOOD, tmp_path / "store")
    (vectors,) = store.path.glob("vectors-*")
    content = bytearray(vectors.read_bytes())
    content[70] ^= 1
    vectors.write_bytes(content)
    with pytest.raises(adjoin.CorruptError, match="build the store again"):
        adjoin.join(store, eps=1.0)


def test_errors_derive_from_builtin_exceptions() -> None:
    assert issubclass(adjoin.InputError, ValueError) and issubclass(adjoin.OptionError, ValueError)
    assert issubclass(adjoin.BudgetError, MemoryError) and issubclass(adjoin.DeviceError, OSError)
