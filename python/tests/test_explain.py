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


def test_explain_shows_pairs_near_each_threshold():
    made = vectors(1200)
    texts = [None if row % 7 == 0 else f"text {row}" for row in range(len(made))]
    table = pyarrow.table({"vector": list(made), "text": texts, "year": range(len(made))})
    told = adjoin.explain(table, eps=1.1, columns=["text", "year"])
    with adjoin.join(made, eps=told.thresholds[-1].threshold, exact=True) as result:
        pairs = pyarrow.table(result.pairs()).sort_by([("distance", "descending")]).to_pylist()
    for at in told.thresholds:
        within = [pair for pair in pairs if pair["distance"] <= numpy.float32(at.threshold)]
        nearest = [pair["distance"] for pair in within[:2]]
        assert [example["value"] for example in at.examples] == pytest.approx(nearest, rel=1e-6) and len(nearest) == 2
        for example in at.examples:
            for side in ("left", "right"):
                row = example[f"{side}_row"]
                assert example[side] == {"text": texts[row], "year": str(row)}
            assert example["left_row"] < example["right_row"]
    assert all(at.examples == [] for at in adjoin.explain(table, eps=1.1).thresholds)
    with pytest.raises(adjoin.InputError, match="there is no column body for columns"):
        adjoin.explain(table, eps=1.1, columns=["body"])
    with pytest.raises(adjoin.OptionError, match="columns"):
        adjoin.explain(made, eps=1.1, columns=["text"])


def test_examples_have_row_numbers_if_rows_are_skipped():
    made = list(vectors(900))
    made[::5] = [None] * len(made[::5])
    table = pyarrow.table({"vector": pyarrow.array(made, pyarrow.list_(pyarrow.float32())), "row": range(len(made))})
    examples = [pair for at in adjoin.explain(table, on_bad="skip", columns=["row"]).thresholds for pair in at.examples]
    assert len(examples) >= 6
    assert all(pair[side]["row"] == str(pair[f"{side}_row"]) for pair in examples for side in ("left", "right"))
    assert all(pair["left_row"] % 5 and pair["right_row"] % 5 for pair in examples)


def test_explain_refuses_invalid_sources(tmp_path):
    with pytest.raises(adjoin.InputError, match="one row"):
        adjoin.explain(vectors(2)[:1], eps=1.0)
    store = adjoin.build(vectors(100), tmp_path / "store")
    with pytest.raises(adjoin.InputError, match="is a store"):
        adjoin.explain(store, eps=1.0)
    with pytest.raises(adjoin.BudgetError, match="this estimate needs"):
        adjoin.explain(vectors(5000), eps=1.0, memory="20MB")
