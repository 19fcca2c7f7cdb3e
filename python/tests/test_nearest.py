"""Nearest neighbors of each row of Python data."""

from __future__ import annotations

import numpy
import pytest

import adjoin


def neighbors(vectors, k):
    wide = vectors.astype("float64")
    distances = numpy.linalg.norm(wide[:, None] - wide[None], axis=2)
    numpy.fill_diagonal(distances, numpy.inf)
    ids = numpy.argsort(distances, axis=1, kind="stable")[:, :k]
    return ids, numpy.take_along_axis(distances, ids, axis=1)


def test_neighbors_are_ordered_by_row(vectors, tmp_path):
    wanted, distances = neighbors(vectors, 5)
    with adjoin.nearest(vectors, 5, exact=True) as found:
        assert (found.ids == wanted).all() and found.ids.shape == (600, 5)
        assert numpy.allclose(found.values, distances, rtol=1e-6)
        assert (found.rows == numpy.arange(600)).all() and len(found) == 600
        assert found.stats["nearest"]["neighbors"] == 3_000 and found.stats["recall"]["kept"]
        table = found.to_arrow()
    assert table.column_names == ["query", "rank", "id", "distance"]
    assert (table["query"].to_numpy().reshape(-1, 5) == numpy.arange(600)[:, None]).all()
    assert (table["id"].to_numpy().reshape(-1, 5) == wanted).all()
    store = adjoin.build(vectors, tmp_path / "store")
    with adjoin.nearest(store, numpy.int64(5), exact=True) as again:
        assert (again.ids == found.ids).all() and again.stats["seconds"]["build"] is None


def test_neighbors_within_a_threshold_vary_in_number(vectors):
    wanted, distances = neighbors(vectors, 8)
    with adjoin.nearest(vectors, k=8, within=0.3, exact=True) as found:
        counts = (distances <= 0.3).sum(axis=1)
        assert len(set(counts)) > 2 and numpy.diff(found.offsets).tolist() == counts.tolist()
        parts = numpy.split(found.ids, found.offsets[1:-1])
        assert all((part == row[: len(part)]).all() for part, row in zip(parts, wanted))
        assert numpy.allclose(found.values, distances[distances <= 0.3], rtol=1e-6)


def test_neighbors_omit_skipped_rows_and_have_ids(vectors):
    vectors[[0, 7]] = numpy.nan
    ids = numpy.arange(600) * 3
    with adjoin.nearest((ids, vectors), 2, exact=True, on_bad="skip") as found:
        rows = numpy.delete(numpy.arange(600), [0, 7])
        wanted, _ = neighbors(vectors[rows], 2)
        assert (found.rows == rows).all() and (found.ids == rows[wanted] * 3).all()


def test_inner_products_have_neighbors(vectors):
    wide = vectors.astype("float64")
    scores = wide @ wide.T
    numpy.fill_diagonal(scores, -numpy.inf)
    with adjoin.nearest(vectors, 1, metric="ip", exact=True) as found:
        assert (found.ids[:, 0] == scores.argmax(axis=1)).mean() > 0.99, "but for equal ones"
        assert numpy.allclose(found.values[:, 0], scores.max(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"k": 0}, adjoin.OptionError, "k=0"),
        ({"k": "many"}, adjoin.OptionTypeError, "k is 'many'"),
        ({"k": 1, "within": "far"}, adjoin.OptionTypeError, "within is 'far'"),
        ({"k": 1, "within": -1}, adjoin.OptionError, 'within=-1 is not a distance'),
        ({"k": 1, "metric": "dot"}, adjoin.OptionError, "l2 or cosine or ip"),
        ({"k": 1, "metric": "ip", "within": 1}, adjoin.OptionError, "inner products have no threshold"),
        ({"k": 1, "recall": 2}, adjoin.OptionError, "recall is 2"),
        ({"k": 1, "recall": 0.9, "exact": True}, adjoin.OptionError, "at most one of"),
        ({"k": 1, "memory": "1MB"}, adjoin.BudgetError, "memory"),
    ],
)
def test_refuses_invalid_options_in_one_line(vectors, options, kind, words):
    with pytest.raises(kind) as refused:
        adjoin.nearest(vectors, **options)
    assert words in str(refused.value) and "\n" not in str(refused.value)
