"""Searches of a store with Python data."""

from __future__ import annotations

import numpy
import pytest

import adjoin


@pytest.fixture(scope="module")
def vectors():
    return numpy.random.default_rng(1).standard_normal((3_000, 16), dtype="float32")


@pytest.fixture(scope="module")
def store(vectors, tmp_path_factory):
    return adjoin.build(vectors, tmp_path_factory.mktemp("search") / "store")


def nearest(vectors, queries, k):
    distances = numpy.linalg.norm(queries[:, None].astype("float64") - vectors[None].astype("float64"), axis=2)
    ids = numpy.argsort(distances, axis=1, kind="stable")[:, :k]
    return ids, numpy.take_along_axis(distances, ids, axis=1)


def test_the_nearest_rows_equal_numpy(vectors, store):
    queries = vectors[:50] + 0.01
    wanted, distances = nearest(vectors, queries, 7)
    with store.search(queries, k=7) as hits:
        assert (hits.ids == wanted).all() and hits.ids.shape == (50, 7)
        assert numpy.allclose(hits.values, distances, rtol=1e-6)
        assert len(hits) == 50 and hits.stats["recall"]["at_k"]["estimate"] == 1
        table = hits.to_arrow()
    assert table.column_names == ["query", "rank", "id", "distance"]
    assert table["id"].to_pylist() == wanted.ravel().tolist()
    assert hits.offsets.tolist() == list(range(0, 351, 7))


def test_range_search_returns_all_rows_within_a_radius(vectors, store):
    queries = vectors[:20]
    wanted, distances = nearest(vectors, queries, len(vectors))
    with store.search(queries, radius=3.5, exact=True) as hits:
        counts = (distances <= 3.5).sum(axis=1)
        assert numpy.diff(hits.offsets).tolist() == counts.tolist() and len(set(counts)) > 1
        first = hits.ids[: counts[0]]
        assert first.tolist() == wanted[0, : counts[0]].tolist() and first[0] == 0


def test_text_ids_are_returned_as_texts(vectors, tmp_path):
    polars = pytest.importorskip("polars")
    names = [f"name {row}" for row in range(len(vectors))]
    table = polars.DataFrame({"id": names, "vector": vectors})
    with adjoin.build(table, tmp_path / "named", metric="cosine").search(table[:5], k=2) as hits:
        assert hits.ids[:, 0].tolist() == names[:5]
        assert hits.to_polars().columns == ["query", "rank", "id", "similarity"]
        assert hits.to_polars()["query"].to_list()[::2] == names[:5]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, adjoin.OptionError, "either k, radius or min_similarity"),
        ({"k": 0}, adjoin.OptionError, "k=0"),
        ({"k": 3, "radius": 1.0}, adjoin.OptionError, "either k"),
        ({"k": "many"}, adjoin.OptionTypeError, "k is 'many'"),
        ({"min_similarity": 0.5}, adjoin.OptionError, "metric l2"),
        ({"k": 3, "recall": 2}, adjoin.OptionError, "recall is 2"),
        ({"k": 3, "recall": 0.9, "exact": True}, adjoin.OptionError, "at most one of"),
        ({"k": 3, "nprobe": -1}, adjoin.OptionError, "nprobe is -1"),
        ({"k": 3, "memory": "1MB"}, adjoin.BudgetError, "memory"),
    ],
)
def test_refuses_invalid_options_in_one_line(vectors, store, options, kind, words):
    with pytest.raises(kind) as refused:
        store.search(vectors[:3], **options)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_queries_of_other_dimensions_are_refused(store):
    with pytest.raises(adjoin.InputError, match="15 dimensions"):
        store.search(numpy.zeros((2, 15), "float32"), k=1)


def test_filters_restrict_the_hits(vectors, tmp_path):
    polars = pytest.importorskip("polars")
    rows = len(vectors)
    table = polars.DataFrame(
        {
            "vector": vectors,
            "lang": [("en", "de", None)[row % 3] for row in range(rows)],
            "year": [2000 + row % 25 for row in range(rows)],
        }
    )
    for source in (table, table.lazy(), table.to_arrow()):
        force = source is not table
        store = adjoin.build(source, tmp_path / "store", columns=["year", "lang"], force=force)
        queries = vectors[:20] + 0.01
        passing = numpy.array([row for row in range(rows) if row % 3 == 0 and row % 25 >= 20])
        wanted, distances = nearest(vectors[passing], queries, 5)
        with store.search(queries, k=5, where="lang = 'en' and year >= 2020") as hits:
            assert (hits.ids == passing[wanted]).all() and numpy.allclose(hits.values, distances, rtol=1e-6)
            assert hits.stats["search"]["passing_rows"] == len(passing)
        with store.search(queries, k=5, where="lang = 'fr'") as hits:
            assert hits.stats["search"]["hits"] == 0 and hits.offsets.tolist() == [0] * 21
    index = adjoin.build_index(table, tmp_path / "index", columns=("lang",))
    assert "attributes" in index.info["files"]
    with pytest.raises(adjoin.OptionError, match="there is no column language; choose from year, lang"):
        store.search(vectors[:1], k=1, where="language = 'en'")
    with pytest.raises(adjoin.OptionTypeError, match="columns is 'lang'"):
        adjoin.build(table, tmp_path / "other", columns="lang")
    with pytest.raises(adjoin.InputError, match="no column language"):
        adjoin.build(table, tmp_path / "other", columns=["language"])
    with pytest.raises(adjoin.OptionTypeError, match="where is 3"):
        store.search(vectors[:1], k=1, where=3)


def test_inner_products_have_scores(vectors, tmp_path):
    lengths = numpy.random.default_rng(2).lognormal(0, 1.2, len(vectors))
    stretched = (vectors * lengths[:, None]).astype("float32")
    stretched[5] = 0
    store = adjoin.build(stretched, tmp_path / "scores", metric="ip")
    assert store.info["metric"] == "ip"
    scores = stretched[:40].astype("float64") @ stretched.astype("float64").T
    wanted = numpy.argsort(-scores, axis=1, kind="stable")[:, :4]
    with store.search(stretched[:40], k=4, exact=True) as hits:
        assert (hits.ids == wanted).all() and hits.to_arrow().column_names[-1] == "score"
        assert numpy.allclose(hits.values, numpy.take_along_axis(scores, wanted, axis=1), rtol=1e-6)
    with adjoin.build_index(store, tmp_path / "walked").search(stretched[:40], k=4, recall=0.9) as hits:
        assert (hits.ids[:, :1] == wanted[:, :1]).mean() >= 0.8
    with pytest.raises(adjoin.OptionError, match="a join needs a distance"):
        adjoin.join(store, eps=1.0)
    with pytest.raises(adjoin.OptionError, match="metric ip; give k"):
        store.search(stretched[:2], radius=1.0)
