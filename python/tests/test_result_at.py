"""Results of a join at a nearer threshold, compared with joins at that threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

import adjoin

RESULTS = ("pairs", "counts", "clusters", "removed", "kept")


def rows_of(table: Any) -> list[dict[str, Any]]:
    return pyarrow.table(table).to_pylist()


def in_order(pairs: Any) -> list[dict[str, Any]]:
    return sorted(rows_of(pairs), key=lambda pair: (pair["left_id"], pair["right_id"]))


def source_of(kind: str, vectors: numpy.ndarray) -> Any:
    names = [f"v{(7 * row) % len(vectors)}" for row in range(len(vectors))]
    if kind == "numbers":
        return vectors
    if kind == "bytes":  # with many equal distances
        return numpy.clip(vectors * 4 + 8, 0, 16).astype("u1")
    return pyarrow.table({"id": names, "vector": vectors.tolist(), "text": names, "kept_id": range(len(names))})


@pytest.mark.parametrize(
    ("kind", "wide", "near"),
    [
        ("numbers", {"eps": 0.5}, {"eps": 0.35}),
        ("numbers", {"eps": 0.5}, {"eps": 0.5}),
        ("numbers", {"eps": 0.5}, {"eps": 0.0}),
        ("bytes", {"eps": 4.0}, {"eps": 2.0}),
        ("texts", {"min_similarity": 0.95}, {"min_similarity": 0.99}),
    ],
)
def test_every_result_equals_that_of_another_join(
    kind: str, wide: dict[str, float], near: dict[str, float], vectors: numpy.ndarray
) -> None:
    source, columns = source_of(kind, vectors), ["text", "kept_id"] if kind == "texts" else []
    (threshold,) = near.values()
    with adjoin.join(source, **wide, exact=True, columns=columns) as result:  # type: ignore[arg-type]
        with adjoin.join(source, **near, exact=True, columns=columns) as other:  # type: ignore[arg-type]
            taken = result.at(threshold)
            assert len(taken) == len(other) and (len(taken) > 0 or threshold == 0) and len(taken) <= len(result)
            for name in RESULTS:
                own, wanted = (pyarrow.table(getattr(one, name)()) for one in (taken, other))
                listed = in_order if name == "pairs" else rows_of
                assert own.schema == wanted.schema and listed(own) == listed(wanted), name
            assert rows_of(taken.to_arrow()) == rows_of(taken.pairs())
    assert f"{len(other)} of {len(result)} pairs" in repr(taken)


def test_a_farther_threshold_is_refused(vectors: numpy.ndarray) -> None:
    with adjoin.join(vectors, eps=0.5, exact=True) as result:
        with pytest.raises(adjoin.OptionError, match=r"threshold is 0.6; this join allows from 0 to 0.5; run another join"):
            result.at(0.6)
        with pytest.raises(adjoin.OptionError, match="threshold is nan"):
            result.at(float("nan"))
        with pytest.raises(adjoin.OptionTypeError, match="threshold is 'near' .*; give a number"):
            result.at("near")  # type: ignore[arg-type]
    with pytest.raises(adjoin.OptionError, match="closed"):
        result.at(0.4)
    with adjoin.join(vectors, min_similarity=0.9, exact=True) as result:
        with pytest.raises(adjoin.OptionError, match="allows at least 0.9"):
            result.at(0.8)


@pytest.mark.parametrize("name", RESULTS[1:])
def test_rows_are_refused_unless_all_pairs_are_known(name: str, vectors: numpy.ndarray) -> None:
    with adjoin.join(vectors, other=vectors[:9].copy(), eps=0.5, exact=True) as result:
        taken = result.at(0.4)
        assert 0 < len(pyarrow.table(taken.pairs())) == len(taken) < len(result)
        with pytest.raises(adjoin.OptionError, match="rows of two sets need another run"):
            getattr(taken, name)()
    with adjoin.join(vectors, eps=0.5, exact=True) as result:
        taken = result.at(0.4)
        result.stats["recall"]["pair"]["low"] = 0.97
        with pytest.raises(adjoin.OptionError, match=r"may lack pairs \(its recall is 0.9700 or more\)"):
            getattr(taken, name)()
        result.stats["recall"]["pair"]["low"] = 1.0
        result.stats["memory"]["budget_bytes"] = 60_000
        with pytest.raises(adjoin.BudgetError, match="the budget of the join is 60000; run another join"):
            getattr(taken, name)()


def test_equal_ids_are_refused(vectors: numpy.ndarray, tmp_path: Path) -> None:
    table = pyarrow.table({"id": ["a"] * len(vectors), "vector": vectors.tolist()})
    with adjoin.join(table, eps=0.5, exact=True, on_duplicate_id="keep") as result:
        assert 0 < len(result.at(0.4)) < len(result)
        with pytest.raises(adjoin.OptionError, match="several rows have one id"):
            result.at(0.4).removed()
