"""Folders of any kind: opened, searched, fetched from and verified in one way."""

from __future__ import annotations

import numpy
import pytest

import adjoin

KINDS = ("store", "index", "collection")


@pytest.fixture(scope="module")
def vectors():
    return numpy.random.default_rng(1).standard_normal((1_000, 16), dtype="float32")


@pytest.fixture(scope="module")
def folders(vectors, tmp_path_factory):
    """Returns a folder of each kind, of the same rows with texts as ids and a column."""
    polars = pytest.importorskip("polars")
    at = tmp_path_factory.mktemp("folders")
    rows = range(len(vectors))
    table = polars.DataFrame({"id": [f"row {row}" for row in rows], "vector": vectors, "number": list(rows)})
    adjoin.build(table, at / "store", columns=["number"])
    adjoin.build_index(table, at / "index", code_bytes=16, columns=["number"])
    with adjoin.Collection.create(at / "collection", 16, ids="text", code_bytes=16, columns={"number": "int64"}) as some:
        some.write(insert=table[:600])
        some.merge()
        some.write(insert=table[600:])
    return at


@pytest.mark.parametrize("kind", KINDS)
def test_any_folder_is_opened_and_searched(vectors, folders, kind):
    opened = adjoin.open(folders / kind, read_only=True)
    assert type(opened) is {"store": adjoin.Store, "index": adjoin.Index, "collection": adjoin.Collection}[kind]
    info = opened.info
    assert (info["kind"], info["rows"], info["dimensions"], info["ids"]) == (kind, 1_000, 16, "utf8")
    assert len(opened) == 1_000 and repr(opened).endswith("1000 x 16 f32, l2>")
    with opened.search(vectors[:5], 1, exact=True) as hits:
        assert hits.ids.ravel().tolist() == [f"row {row}" for row in range(5)]
    with opened.search(vectors[:5], 1, exact=True, where="number >= 3") as hits:
        assert hits.ids.ravel().tolist()[3:] == ["row 3", "row 4"]
    with pytest.raises(adjoin.OptionError, match="is for"):
        opened.search(vectors[:1], 1, **({"list": 10} if kind == "store" else {"nprobe": 1}))
    if kind != "store":
        with pytest.raises(adjoin.OptionError, match="cannot be its own queries"):
            opened.search(opened, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_hits_carry_columns_equal_to_a_join_by_hand(vectors, folders, kind):
    polars = pytest.importorskip("polars")
    opened = adjoin.open(folders / kind, read_only=True)
    with opened.search(vectors[:50], 4, columns=["number"]) as hits:
        table = hits.to_polars()
        assert hits.ids.shape == (50, 4) and hits.values.shape == (50, 4)
    assert table.columns == ["query", "rank", "id", "distance", "number"]
    assert table["number"].to_list() == [int(name.removeprefix("row ")) for name in table["id"]]
    with opened.search(vectors[:5], radius=3.0, where="number >= 500", columns=["number"]) as hits:
        assert all(number >= 500 for number in hits.to_polars()["number"])
    assert isinstance(table, polars.DataFrame)
    for columns, error, words in (
        (["number", "text"], adjoin.OptionError, "columns=.*text.* has no such column; it has number"),
        (["number", "number"], adjoin.OptionError, "named twice"),
        ("number", adjoin.OptionTypeError, "columns"),
    ):
        with pytest.raises(error, match=words):
            opened.search(vectors[:1], 1, columns=columns)


def test_hits_carry_nulls_and_columns_with_the_names_of_others(tmp_path):
    polars = pytest.importorskip("polars")
    rows = range(300)
    texts = [None if row % 3 == 1 else f"text {row}" for row in rows]
    table = polars.DataFrame(
        {
            "id": [row * 7 for row in rows],
            "vector": numpy.random.default_rng(3).standard_normal((300, 4), dtype="float32"),
            "rank": texts,
            "truth": [None if row % 4 == 1 else row % 2 == 0 for row in rows],
            "day": polars.Series([row * 11 for row in rows]).cast(polars.Date),
        }
    )
    store = adjoin.build(table, tmp_path / "store", columns=["rank", "truth", "day"])
    with store.search(store, 5, columns=["day", "rank", "truth"]) as hits:
        found = hits.to_polars()
    assert found.columns == ["query", "rank", "id", "distance", "day", "columns.rank", "truth"]
    by_hand = found.select("id").join(table.select("id", "day", "rank", "truth"), on="id", how="left", maintain_order="left")
    for name, by_name in (("day", "day"), ("columns.rank", "rank"), ("truth", "truth")):
        assert found[name].to_list() == by_hand[by_name].to_list()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_any_folder_are_fetched_in_the_order_of_the_ids(vectors, folders, kind):
    opened = adjoin.open(folders / kind, read_only=True)
    wanted = [999, 0, 500, 0, 650]
    rows = opened.get([f"row {row}" for row in wanted])
    assert len(rows) == 5 and rows.ids.tolist() == [f"row {row}" for row in wanted]
    assert (rows.vectors == vectors[wanted]).all()
    table = rows.to_polars()
    assert table.columns == ["id", "vector", "number"] and table["number"].to_list() == wanted
    assert (numpy.array(table["vector"].to_list(), "float32") == vectors[wanted]).all()
    with pytest.raises(adjoin.InputError, match="no row has the id \"x\", 2 of 3 ids are missing; .* on_missing=\"skip\""):
        opened.get(["row 1", "x", "y"])
    assert opened.get(["row 1", "x", "row 2"], on_missing="skip").ids.tolist() == ["row 1", "row 2"]
    assert len(opened.get([])) == 0 and opened.get([]).vectors.shape == (0, 16)
    for call, words in (
        (lambda: opened.get("row 1"), "a list of integers or of texts"),
        (lambda: opened.get(["row 1"], on_missing="none"), "error or skip"),
        (lambda: opened.get([1]), "texts"),
        (lambda: opened.get(["row 1"], memory="20MB"), "memory"),
    ):
        with pytest.raises(adjoin.AdjoinError, match=words):
            call()


@pytest.mark.parametrize("element", ["float32", "float16", "uint8", "int8"])
def test_rows_without_ids_are_named_by_their_numbers(tmp_path, element):
    vectors = (numpy.random.default_rng(2).random((100, 8)) * 100).astype(element)
    for opened in (adjoin.build(vectors, tmp_path / "store"), adjoin.build_index(vectors, tmp_path / "index", code_bytes=8)):
        rows = opened.get([99, 3])
        assert rows.ids.tolist() == [99, 3] and rows.vectors.dtype == element
        assert (rows.vectors == vectors[[99, 3]]).all()
        with pytest.raises(adjoin.InputError, match="no row has the number 100"):
            opened.get([100])


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_of_any_folder_is_verified(vectors, folders, tmp_path, kind):
    import shutil

    folder = tmp_path / kind
    shutil.copytree(folders / kind, folder)
    (folder / "notes.txt").write_text("mine")
    opened = adjoin.open(folder, read_only=True)
    assert opened.verify() == {"leftovers": [], "strangers": ["notes.txt"]}
    largest = max((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size // 2)
        file.write(bytes(64))
    with pytest.raises(adjoin.CorruptError, match=kind):
        opened.verify()


def test_a_store_that_grows_is_seen_by_the_object_that_was_given(vectors, tmp_path):
    store, other = adjoin.build(vectors[:900], tmp_path / "store"), adjoin.Store(tmp_path / "store")
    adjoin.append(store, vectors[900:950], delete=[3])
    assert (len(store), len(other), len(adjoin.open(tmp_path / "store"))) == (949, 900, 949)
    assert store.get([3, 940], on_missing="skip").ids.tolist() == [940] and (other.get([3]).vectors == vectors[3]).all()


def test_what_is_no_folder_of_ours_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(adjoin.InputError, match="is not a store, an index or a collection"):
            adjoin.open(path)
    with pytest.raises(adjoin.OptionTypeError, match="path is 3"):
        adjoin.open(3)


@pytest.mark.parametrize("kind", KINDS)
def test_folders_are_copied(folders, kind, tmp_path):
    target = tmp_path / "target"
    done = adjoin.copy(folders / kind, f"file://{target}", progress=False)
    files = [path for path in target.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    assert done == {"kind": kind, "files": len(files), "bytes": size}
    assert len(adjoin.open(target, read_only=True)) == 1_000
    with pytest.raises(adjoin.InputError, match="is already a .*; give force=True to replace it"):
        adjoin.copy(folders / kind, target)
    assert adjoin.copy(folders / kind, target, force=True) == done
