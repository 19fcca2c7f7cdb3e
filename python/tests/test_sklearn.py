"""Estimators of scikit-learn: its own checks, and equality with its own estimators."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("sklearn")

from sklearn.cluster import DBSCAN
from sklearn.neighbors import KNeighborsTransformer as Brute
from sklearn.neighbors import RadiusNeighborsTransformer as BruteRadius
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import adjoin
from adjoin.sklearn import KNeighborsTransformer, NearDuplicates, RadiusNeighborsTransformer

EPS = 0.3


@parametrize_with_checks([KNeighborsTransformer(n_neighbors=3), RadiusNeighborsTransformer(), NearDuplicates()])
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_graphs_are_those_of_scikit_learn(vectors: numpy.ndarray, metric: Any, mode: Any) -> None:
    queries = vectors[::3] + numpy.float32(0.01)
    for ours, theirs in [
        (KNeighborsTransformer(mode=mode, n_neighbors=7, metric=metric), Brute(mode=mode, n_neighbors=7, metric=metric)),
        (
            RadiusNeighborsTransformer(mode=mode, radius=0.2, metric=metric),
            BruteRadius(mode=mode, radius=0.2, metric=metric),
        ),
    ]:
        found, wanted = (which.fit(vectors).transform(queries) for which in (ours, theirs))
        assert found.shape == wanted.shape and found.nnz == wanted.nnz > len(queries)
        assert numpy.allclose(found.toarray(), wanted.toarray(), atol=1e-3)
        rows = numpy.split(found.data, found.indptr[1:-1])
        assert all((numpy.diff(row) >= 0).all() for row in rows), "distances of a row are ascending"


def test_a_graph_is_a_step_of_a_pipeline(vectors: numpy.ndarray) -> None:
    ours = make_pipeline(
        RadiusNeighborsTransformer(radius=EPS), DBSCAN(eps=EPS, min_samples=3, metric="precomputed")
    ).fit_predict(vectors)
    assert numpy.array_equal(ours, DBSCAN(eps=EPS, min_samples=3).fit_predict(vectors))


@pytest.mark.parametrize(("metric", "eps"), [("euclidean", EPS), ("cosine", 0.02)])
def test_groups_are_those_of_dbscan(vectors: numpy.ndarray, metric: Any, eps: float) -> None:
    labels = NearDuplicates(eps, metric=metric).fit_predict(vectors)
    assert numpy.array_equal(labels, DBSCAN(eps=eps, min_samples=1, metric=metric).fit_predict(vectors))
    assert 1 < len(set(labels)) < len(vectors)


def test_a_fitted_transformer_is_copied_and_pickled_with_its_rows(vectors: numpy.ndarray, tmp_path: Path) -> None:
    fitted = KNeighborsTransformer(n_neighbors=4, temporary=str(tmp_path)).fit(vectors)
    wanted = fitted.transform(vectors[:9]).toarray()
    assert list(tmp_path.iterdir())
    copies = [copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))]
    del fitted
    assert not list(tmp_path.iterdir()), "the rows are removed with their estimator"
    for other in copies:
        assert numpy.array_equal(other.transform(vectors[:9]).toarray(), wanted)


def test_options_are_checked(vectors: numpy.ndarray) -> None:
    with pytest.raises(ValueError, match="mode is 'all'"):
        KNeighborsTransformer(mode="all").fit(vectors)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric is 'l1'"):
        NearDuplicates(metric="l1").fit(vectors)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_neighbors is 9, so 10 neighbors per row are requested, but 5 rows"):
        KNeighborsTransformer(n_neighbors=9).fit_transform(vectors[:5])


def test_rows_without_a_direction_are_refused_without_an_argument_that_estimators_lack() -> None:
    rows = numpy.ones((10, 4), dtype="float32")
    rows[3] = 0
    for estimator in (NearDuplicates(metric="cosine"), KNeighborsTransformer(metric="cosine")):
        with pytest.raises(adjoin.InputError, match="row 3.*; fix the rows, or leave them out$") as refused:
            estimator.fit(rows)
        assert "on_bad" not in str(refused.value)
