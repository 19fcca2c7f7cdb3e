"""Searches of a graph index with Python data."""

from __future__ import annotations

import threading

import numpy
import pytest

import adjoin


@pytest.fixture(scope="module")
def vectors():
    return numpy.random.default_rng(1).standard_normal((3_000, 16), dtype="float32")


@pytest.fixture(scope="module")
def index(vectors, tmp_path_factory):
    return adjoin.build_index(vectors, tmp_path_factory.mktemp("index") / "index", code_bytes=16)


def nearest(vectors, queries, k):
    distances = numpy.linalg.norm(queries[:, None].astype("float64") - vectors[None].astype("float64"), axis=2)
    return numpy.argsort(distances, axis=1, kind="stable")[:, :k]


def reached(hits, wanted):
    return numpy.mean([len(set(found) & set(true)) / len(true) for found, true in zip(hits.ids.tolist(), wanted.tolist())])


def test_a_list_of_all_vertices_equals_numpy(vectors, index):
    queries = vectors[:50] + 0.01
    with index.search(queries, 7, list=len(vectors)) as hits:
        assert (hits.ids == nearest(vectors, queries, 7)).all() and hits.stats["recall"] is None
        assert hits.to_arrow().column_names == ["query", "rank", "id", "distance"]


@pytest.mark.parametrize("effort", [{"exact": True}, {"recall": 1.0}])
def test_an_exact_search_equals_numpy(vectors, index, effort):
    queries = vectors[:50] + 0.01
    with index.search(queries, 7, **effort) as hits:
        assert (hits.ids == nearest(vectors, queries, 7)).all()
        assert hits.stats["recall"]["at_k"]["low"] == 1.0 and hits.stats["strategy"]["probes"] == "whole"


def test_the_requested_recall_is_reached_and_reported(vectors, index):
    queries = numpy.random.default_rng(2).standard_normal((300, 16), dtype="float32")
    wanted = nearest(vectors, queries, 10)
    lists = []
    for recall in (0.5, 0.97):
        with index.search(queries, 10, recall=recall) as hits:
            told, search = hits.stats["recall"], hits.stats["search"]
            assert told["kept"] and told["target"] == recall and told["queries"] == "rows of the index"
            assert reached(hits, wanted) >= recall
            assert search["reads_per_query"] > 0 and search["distances_per_query"] > 10
            lists.append(hits.stats["strategy"]["t"])
    assert lists[0] <= lists[1]  # a list holds at least k candidates


def test_range_search_finds_all_rows(vectors, index):
    queries = numpy.random.default_rng(2).standard_normal((900, 16), dtype="float32")
    distances = numpy.linalg.norm(queries[:, None].astype("float64") - vectors[None].astype("float64"), axis=2)
    for asked, probes in ((queries[:20], "whole"), (queries, "walk")):
        wanted = [set(numpy.flatnonzero(row <= 3.5)) for row in distances[: len(asked)]]
        with index.search(asked, radius=3.5, recall=0.9) as hits:
            found = [set(hits.ids[start:end].tolist()) for start, end in zip(hits.offsets, hits.offsets[1:])]
            assert all(one <= other for one, other in zip(found, wanted)) and hits.stats["recall"]["kept"]
            assert sum(map(len, found)) >= 0.85 * sum(map(len, wanted)) > 0
            assert hits.stats["strategy"]["probes"] == probes and hits.stats["search"]["k"] is None
    for wrong in ({}, {"k": 3, "radius": 1.0}, {"min_similarity": 0.9}):
        with pytest.raises(adjoin.AdjoinError):
            index.search(queries, **wrong)


def test_calibration_queries_give_the_recall_of_other_queries(vectors, index, tmp_path):
    queries = 3 * numpy.random.default_rng(3).standard_normal((600, 16), dtype="float32")
    numpy.save(tmp_path / "like.npy", queries)
    with index.search(queries, 10, recall=0.9, calibrate_with=tmp_path / "like.npy") as hits:
        assert hits.stats["recall"]["queries"] == "calibrate-with" and hits.stats["recall"]["sample_queries"] == 600
        assert reached(hits, nearest(vectors, queries, 10)) >= 0.9


def test_an_open_index_is_searched_by_several_threads(vectors, index):
    wanted = nearest(vectors, vectors[:20], 3)
    found = {}

    def search(number):
        with index.search(vectors[:20], 3, list=len(vectors)) as hits:
            found[number] = hits.ids.tolist()

    threads = [threading.Thread(target=search, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == {number: wanted.tolist() for number in range(4)}


def test_builds_an_index_from_a_store_or_a_table_with_text_ids(vectors, tmp_path):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"id": [f"name {row}" for row in range(len(vectors))], "vector": vectors})
    store = adjoin.build(table, tmp_path / "store", metric="cosine")
    index = adjoin.build_index(store, tmp_path / "index", degree=16, page="8KiB")
    assert (len(index), index.info["metric"], index.info["page_bytes"]) == (3_000, "cosine", 8_192)
    assert repr(index).endswith("3000 x 16 f32, cosine>")
    with adjoin.Index(index).search(table[:5], k=2) as hits:
        assert hits.ids[:, 0].tolist() == table["id"][:5].to_list()
        assert hits.to_polars().columns == ["query", "rank", "id", "similarity"]
    with pytest.raises(adjoin.InputError, match="already"):
        adjoin.build_index(store, tmp_path / "index")
    with pytest.raises(adjoin.InputError, match="is a store, not a graph index"):
        adjoin.Index(store.path)
    with pytest.raises(adjoin.InputError, match="is a graph index, not a store"):
        adjoin.Store(index.path)


@pytest.mark.filterwarnings("error::adjoin.PromiseWarning")
def test_warns_of_an_unsupported_recall(tmp_path):
    many = numpy.random.default_rng(1).standard_normal((6_000, 8), dtype="float32")
    index = adjoin.build_index(many, tmp_path / "index", degree=8, build_list=10, code_bytes=8)
    with pytest.raises(adjoin.PromiseWarning, match="supports a recall of 0.99999"):
        index.search(many[:3], 10, recall=0.99999)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"k": 0}, adjoin.OptionError, "k=0"),
        ({"k": "many"}, adjoin.OptionTypeError, "k is 'many'"),
        ({"k": 3, "recall": 2}, adjoin.OptionError, "recall is 2"),
        ({"k": 3, "recall": 0.9, "list": 10}, adjoin.OptionError, "at most one of"),
        ({"k": 3, "exact": True, "list": 10}, adjoin.OptionError, "at most one of"),
        ({"k": 3, "exact": "yes"}, adjoin.OptionTypeError, "exact"),
        ({"k": 3, "list": 0}, adjoin.OptionError, "list is 0; give 1 to"),
        ({"k": 3, "memory": "1MB"}, adjoin.BudgetError, "memory"),
    ],
)
def test_refuses_invalid_options_in_one_line(vectors, index, options, kind, words):
    with pytest.raises(kind) as refused:
        index.search(vectors[:3], **options)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_queries_of_other_dimensions_are_refused(index):
    with pytest.raises(adjoin.InputError, match="15 dimensions"):
        index.search(numpy.zeros((2, 15), "float32"), k=1)


def test_another_layout_has_the_same_hits(vectors, tmp_path):
    built = adjoin.build_index(vectors, tmp_path / "index", code_bytes=16)
    wanted = built.search(vectors[:20], 5, list=100).ids
    moved = built.relayout(tmp_path / "moved")
    assert moved.path == tmp_path / "moved" and (moved.search(vectors[:20], 5, list=100).ids == wanted).all()
    with pytest.raises(adjoin.InputError, match="force=True"):
        built.relayout(tmp_path / "moved")
    assert built.relayout() is built and (built.search(vectors[:20], 5, list=100).ids == wanted).all()
    assert built.verify() == {"leftovers": [], "strangers": []}
