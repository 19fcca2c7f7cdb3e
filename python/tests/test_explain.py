"""Estimates before a build."""

import numpy
import pyarrow
import pytest

import adjoin


def vectors(rows, seed=1):
    random = numpy.random.default_rng(seed)
    made = random.standard_normal((rows, 8)).astype("float32")
    made[rows // 2 :: 3] = made[: len(made[rows // 2 :: 3])] + 0.01
    return made


def test_estimates_of_a_small_set_are_exact():
    made = vectors(1500)
    at = adjoin.explain(made, eps=0.9).asked
    with adjoin.join(made, eps=0.9, exact=True) as result:
        removed = pyarrow.table(result.removed()).num_rows
        assert at.pairs == (len(result),) * 3
        assert at.removed_rows == (removed,) * 3


def test_estimates_of_a_larger_set_are_close():
    made = vectors(9000)
    table = pyarrow.table({"name": [f"row {k}" for k in range(len(made))], "vector": list(made)})
    told = adjoin.explain(table, min_similarity=0.95, id_column="name", memory="200MB")
    assert len(told) == 9000 and told.stats["explain"]["compared_rows"] == 4096
    with adjoin.join(table, min_similarity=0.95, id_column="name", exact=True) as result:
        assert 1 / 1.5 < told.asked.pairs.estimate / len(result) < 1.5
        removed = pyarrow.table(result.removed()).num_rows
        assert 1 / 1.5 < told.asked.removed_rows.estimate / removed < 1.5
    neighbors = [at.neighbors for at in told.thresholds]
    assert neighbors == sorted(neighbors) and len(told.thresholds) >= 4
    assert "9000 rows, cosine" in repr(told)
    html = told._repr_html_()
    assert "<th>similarity</th>" in html and html.count("<tr>") == 1 + len(told.thresholds)
    assert f"<td>{told.asked.threshold:g}</td>" in html and f"{told.asked.pairs.high:,.0f})" in html


def test_explain_without_a_threshold_uses_the_metric():
    made = vectors(500)
    assert adjoin.explain(made).stats["metric"] == "l2"
    told = adjoin.explain(made, metric="cosine")
    assert told.stats["metric"] == "cosine" and told.asked is None
    with pytest.raises(adjoin.OptionError, match="min_similarity"):
        adjoin.explain(made, metric="cosine", eps=1.0)
    with pytest.raises(adjoin.OptionError, match="l2 or cosine"):
        adjoin.explain(made, metric="dot")


def test_explain_refuses_invalid_sources(tmp_path):
    with pytest.raises(adjoin.InputError, match="one row"):
        adjoin.explain(vectors(2)[:1], eps=1.0)
    store = adjoin.build(vectors(100), tmp_path / "store")
    with pytest.raises(adjoin.InputError, match="is a store"):
        adjoin.explain(store, eps=1.0)
    with pytest.raises(adjoin.BudgetError, match="this estimate needs"):
        adjoin.explain(vectors(5000), eps=1.0, memory="20MB")
