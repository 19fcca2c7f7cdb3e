"""Estimators with the interface of scikit-learn, for vectors that do not fit in memory. Needs ``pip install
"adjoin[sklearn]"``.

The transformers return graphs of neighbors, which estimators with ``metric="precomputed"`` take, such as ``DBSCAN``,
``HDBSCAN``, ``Isomap`` and ``KNeighborsClassifier``. The vectors with which they are fitted are in a store in a
temporary folder. Distances are computed in float32.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Optional, Union

import numpy
from scipy import sparse  # type: ignore[import-untyped, import-not-found, unused-ignore]
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin  # type: ignore[import-untyped, import-not-found, unused-ignore]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped, import-not-found, unused-ignore]

from . import build, join
from ._errors import InputError
from ._folders import Store
from ._results import Hits
from ._temporary import Folder

__all__ = ["KNeighborsTransformer", "NearDuplicates", "RadiusNeighborsTransformer"]

#: Content of a graph: the distances, or ones.
Mode = Literal["distance", "connectivity"]
#: Metrics. The distance of cosine is 1 minus the similarity, as in scikit-learn.
GraphMetric = Literal["euclidean", "cosine"]

#: Names of the metrics in the engine.
METRICS: dict[str, Literal["l2", "cosine"]] = {"euclidean": "l2", "cosine": "cosine"}


def _metric(estimator: Any) -> Literal["l2", "cosine"]:
    """Returns the name that the engine has for the metric of an estimator."""
    if estimator.metric not in METRICS:
        raise ValueError(f"metric is {estimator.metric!r}; give 'euclidean' or 'cosine'")
    return METRICS[estimator.metric]


def _effort(estimator: Any) -> dict[str, Any]:
    return {"exact": True} if estimator.recall is None else {"recall": estimator.recall}


def _resources(estimator: Any) -> dict[str, Any]:
    return {"memory": estimator.memory, "threads": estimator.threads, "temporary": estimator.temporary}


@contextmanager
def _own_arguments() -> Iterator[None]:
    """Removes an argument that estimators do not have from messages about rows without a usable vector."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(', or give on_bad="skip" to leave them out', ", or leave them out")) from None


class _StoredRows:
    """A store in a temporary folder, removed with this object. A pickle holds its files."""

    def __init__(self, rows: Any, metric: Literal["l2", "cosine"], options: dict[str, Any]) -> None:
        self._folder = Folder(options.pop("temporary"))
        with _own_arguments():
            self.store: Store = build(rows, self._path(), metric=metric, progress=False, **options)

    def _path(self) -> Path:
        return Path(self._folder.name) / "rows.store"

    def __getstate__(self) -> dict[str, bytes]:
        return {str(file.relative_to(self._path())): file.read_bytes() for file in self._path().rglob("*") if file.is_file()}

    def __setstate__(self, files: dict[str, bytes]) -> None:
        self._folder = Folder(None)
        try:
            for name, content in files.items():
                file = self._path() / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            self.store = Store(self._path())
        except BaseException:
            self._folder.cleanup()
            raise

    def __deepcopy__(self, _: Any) -> _StoredRows:
        copy = object.__new__(type(self))
        copy._folder = Folder(None)
        shutil.copytree(self._path(), copy._path())
        copy.store = Store(copy._path())
        return copy


class _NeighborsTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Base of both transformers."""

    mode: Mode
    metric: GraphMetric
    recall: Optional[float]
    memory: Union[str, int, None]
    threads: Optional[int]
    temporary: Optional[str]

    def fit(self, X: Any, y: Any = None) -> Any:
        """Stores the rows of ``X``, an array of numbers with a row for each vector. ``y`` is ignored."""
        if self.mode not in ("distance", "connectivity"):
            raise ValueError(f"mode is {self.mode!r}; give 'distance' or 'connectivity'")
        metric = _metric(self)
        rows = validate_data(self, X, dtype=numpy.float32)
        self._rows = _StoredRows(rows, metric, _resources(self))
        self.n_samples_fit_ = len(rows)
        return self

    def _graph(self, X: Any, target: dict[str, Any]) -> sparse.csr_matrix:
        """Returns the graph from the rows of ``X`` to stored rows, each row in ascending order of distances."""
        check_is_fitted(self)
        queries = validate_data(self, X, dtype=numpy.float32, reset=False)
        with self._rows.store.search(queries, progress=False, **target, **_effort(self), **_resources(self)) as hits:
            ids, offsets = hits.ids.ravel().astype(numpy.int64), hits.offsets
            data = self._distances(hits) if self.mode == "distance" else numpy.ones(len(ids))
        return sparse.csr_matrix((data, ids, offsets), shape=(len(queries), self.n_samples_fit_))

    def _distances(self, hits: Hits) -> Any:
        values = hits.values.ravel().astype(numpy.float64)
        # A similarity may be above 1 by a rounding error.
        return numpy.maximum(1.0 - values, 0.0) if self.metric == "cosine" else values

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Returns a name for each column of a graph."""
        check_is_fitted(self)
        prefix = type(self).__name__.lower()
        return numpy.array([f"{prefix}{column}" for column in range(self.n_samples_fit_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


class KNeighborsTransformer(_NeighborsTransformer):
    """Computes the graph of the nearest stored rows of each row.

    Like ``sklearn.neighbors.KNeighborsTransformer``: with ``mode="distance"`` each row has ``n_neighbors + 1`` entries,
    since a row of the fitted set finds itself, and with ``mode="connectivity"`` it has ``n_neighbors``.

    Args:
        recall: Mean fraction of the neighbors to find. By default all are found.
        memory: Limit for the memory that a build or a search uses in addition, such as ``"1GB"``.
        temporary: Folder for the store and for temporary files.
    """

    def __init__(
        self,
        *,
        mode: Mode = "distance",
        n_neighbors: int = 5,
        metric: GraphMetric = "euclidean",
        recall: Optional[float] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        temporary: Optional[str] = None,
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.recall = recall
        self.memory = memory
        self.threads = threads
        self.temporary = temporary

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Returns a matrix with a row for each row of ``X`` and a column for each row of the fitted set."""
        check_is_fitted(self)
        k = self.n_neighbors + int(self.mode == "distance")
        if not 1 <= k <= self.n_samples_fit_:
            raise ValueError(
                f"n_neighbors is {self.n_neighbors}, so {k} neighbors per row are requested, but "
                f"{self.n_samples_fit_} rows were fitted"
            )
        return self._graph(X, {"k": k})


class RadiusNeighborsTransformer(_NeighborsTransformer):
    """Computes the graph of the stored rows within a radius of each row, like
    ``sklearn.neighbors.RadiusNeighborsTransformer``.

    Args:
        radius: Largest distance, inclusive.
        recall: Mean fraction of the neighbors to find. By default all are found.
        memory: Limit for the memory that a build or a search uses in addition, such as ``"1GB"``.
        temporary: Folder for the store and for temporary files.
    """

    def __init__(
        self,
        *,
        mode: Mode = "distance",
        radius: float = 1.0,
        metric: GraphMetric = "euclidean",
        recall: Optional[float] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        temporary: Optional[str] = None,
    ) -> None:
        self.mode = mode
        self.radius = radius
        self.metric = metric
        self.recall = recall
        self.memory = memory
        self.threads = threads
        self.temporary = temporary

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Returns a matrix with a row for each row of ``X`` and a column for each row of the fitted set."""
        if self.metric == "cosine":
            return self._graph(X, {"min_similarity": 1.0 - self.radius})
        return self._graph(X, {"radius": self.radius})


class NearDuplicates(ClusterMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """Groups rows that chains of near pairs connect: the connected components of the graph of all pairs within a
    distance. This is ``DBSCAN`` with ``min_samples=1``, with its parameters ``eps`` and ``metric``.

    Attributes:
        labels_: Group of each row. Groups are numbered in the order of their first rows; a row without a near one is a
            group of its own.

    Args:
        eps: Largest distance of a pair, inclusive.
        recall: Mean fraction of a row's near rows to find. By default all are found.
        memory: Limit for the memory that the join uses in addition, such as ``"1GB"``.
        temporary: Folder for temporary files.
    """

    def __init__(
        self,
        eps: float = 0.5,
        *,
        metric: GraphMetric = "euclidean",
        recall: Optional[float] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
        temporary: Optional[str] = None,
    ) -> None:
        self.eps = eps
        self.metric = metric
        self.recall = recall
        self.memory = memory
        self.threads = threads
        self.temporary = temporary

    def fit(self, X: Any, y: Any = None) -> NearDuplicates:
        """Groups the rows of ``X``, an array of numbers with a row for each vector. ``y`` is ignored."""
        metric = _metric(self)
        rows = validate_data(self, X, dtype=numpy.float32)
        within: dict[str, Any] = {"min_similarity": 1.0 - self.eps} if metric == "cosine" else {"eps": self.eps}
        first = numpy.arange(len(rows))
        with _own_arguments(), join(rows, progress=False, **within, **_effort(self), **_resources(self)) as result:
            grouped = result.clusters().to_arrow()
        first[grouped["id"].to_numpy()] = grouped["cluster"].to_numpy()
        self.labels_ = numpy.unique(first, return_inverse=True)[1]
        return self
