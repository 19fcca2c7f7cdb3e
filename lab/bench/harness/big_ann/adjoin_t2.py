"""adjoin's graph index as an algorithm of big-ann-benchmarks (track T2, whose indexes are on disk)."""

import math
import os

import adjoin
import numpy

from benchmark.algorithms.base import BaseANN
from benchmark.datasets import DATASETS

#: Metrics by the harness's names.
METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
#: File endings by which adjoin recognizes the harness's formats.
ENDINGS = {"float32": ".fbin", "uint8": ".u8bin", "int8": ".i8bin"}


class Adjoin(BaseANN):
    """An index in ``data/indices``. ``build`` holds options of :func:`adjoin.build_index`, such as memory and
    degree."""

    def __init__(self, metric, build):
        self._metric = METRICS[metric]
        self._build = build
        self._index = None
        self.set_query_arguments({"recall": 0.95})

    def track(self):
        return "T2"

    def _place(self, dataset):
        options = "_".join(f"{name}-{self._build[name]}" for name in sorted(self._build))
        return os.path.join("data", "indices", "T2", "adjoin", DATASETS[dataset]().short_name(), options or "default")

    def fit(self, dataset):
        data, place = DATASETS[dataset](), self._place(dataset)
        os.makedirs(place, exist_ok=True)
        vectors = os.path.join(place, "vectors" + ENDINGS[data.dtype])
        if not os.path.lexists(vectors):
            os.symlink(os.path.abspath(data.get_dataset_fn()), vectors)
        index = os.path.join(place, "index")
        self._index = adjoin.build_index(vectors, index, metric=self._metric, force=True, progress=False, **self._build)

    def load_index(self, dataset):
        index = os.path.join(self._place(dataset), "index")
        if not os.path.exists(index):
            return False
        self._index = adjoin.Index(index)
        return True

    def index_files_to_store(self, dataset):
        index = os.path.join(self._place(dataset), "index")
        return [index, "", sorted(os.listdir(index))]

    def set_query_arguments(self, search):
        """Sets the options of :meth:`adjoin.Index.search`, such as recall, list and memory."""
        self._search = search
        self._additional = {}
        self.name = f"adjoin ({self._build}, {search})"

    def query(self, X, k):
        with self._found(X, k=k) as hits:
            self.res = numpy.full((len(hits), k), -1, dtype=numpy.int64)
            counts = numpy.diff(hits.offsets)
            self.res[numpy.arange(k) < counts[:, numpy.newaxis]] = hits.ids.reshape(-1)

    def range_query(self, X, radius):
        """Searches within a radius. The harness passes the square of an L2 radius, and expects squared distances."""
        if self._metric != "l2":
            raise NotImplementedError("range searches are of distances, so of L2")
        with self._found(X, radius=math.sqrt(radius)) as hits:
            distances = numpy.square(hits.values.reshape(-1))
            self.res = hits.offsets, distances, hits.ids.reshape(-1)

    def _found(self, X, **sought):
        hits = self._index.search(numpy.ascontiguousarray(X), progress=False, **sought, **self._search)
        stats = hits.stats["search"]
        self._additional = {"mean_ssd_ios": stats["reads_per_query"]}
        if stats["latency_ms"] is not None:
            self._additional["mean_latency"] = 1000 * stats["latency_ms"]["mean"]
        return hits

    def get_additional(self):
        """Returns the mean reads from disk per query, and its mean duration in microseconds."""
        return self._additional
