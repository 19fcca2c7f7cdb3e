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
    assert f"{len(other)} of {len(result)} pairs within {threshold}" in repr(taken)


def test_a_farther_threshold_is_refused(vectors: numpy.ndarray) -> None:
    with adjoin.join(vectors, eps=0.5, exact=True) as result:
        with pytest.raises(adjoin.OptionError, match=r"threshold is 0.6; this join allows at most 0.5; join again"):
            result.at(0.6)
        for wrong in (float("nan"), -0.1):
            with pytest.raises(adjoin.OptionError, match="eps"):
                result.at(wrong)
        for wrong in ("near", None):
            with pytest.raises(adjoin.OptionTypeError, match=f"threshold is {wrong!r} .*; give a number"):
                result.at(wrong)  # type: ignore[arg-type]
        taken = result.at(0.4)
    for use in (lambda: result.at(0.4), taken.pairs, taken.removed):
        with pytest.raises(adjoin.OptionError, match="closed"):
            use()
    with adjoin.join(vectors, min_similarity=0.9, exact=True) as result:
        with pytest.raises(adjoin.OptionError, match="threshold is 0.8; this join allows at least 0.9"):
            result.at(0.8)


def test_results_of_two_sets_and_of_new_rows_equal_those_of_another_join(vectors: numpy.ndarray, tmp_path: Path) -> None:
    few = vectors[:9].copy()
    for sets in ({"other": few}, {"new": few}):
        with adjoin.join(vectors, **sets, eps=0.5, exact=True) as result, adjoin.join(vectors, **sets, eps=0.4, exact=True) as other:
            taken = result.at(0.4)
            assert 0 < len(taken) == len(other) < len(result)
            for name in ("counts", "removed"):
                assert rows_of(getattr(taken, name)()) == rows_of(getattr(other, name)()), (sets.keys(), name)
            taken.write(tmp_path / "taken.csv", "removed", force=True)
            other.write(tmp_path / "other.csv", "removed", force=True)
            assert (tmp_path / "taken.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_rows_with_equal_ids_are_told_apart(vectors: numpy.ndarray) -> None:
    table = pyarrow.table({"id": ["a"] * len(vectors), "vector": vectors.tolist()})
    options = {"exact": True, "on_duplicate_id": "keep"}
    with adjoin.join(table, eps=0.5, **options) as result, adjoin.join(table, eps=0.4, **options) as other:  # type: ignore[arg-type]
        assert 0 < len(result.at(0.4)) < len(result)
        assert rows_of(result.at(0.4).counts()) == rows_of(other.counts())
