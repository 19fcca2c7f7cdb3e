"""adjoin's graph index as an algorithm of ann-benchmarks."""

import shutil
import tempfile

import adjoin
import numpy

from ..base.module import BaseANN

#: Metrics by the harness's names.
METRICS = {"angular": "cosine", "euclidean": "l2"}


class Adjoin(BaseANN):
    """An index in a temporary folder. ``build`` holds options of :func:`adjoin.build_index`, such as memory and
    degree."""

    def __init__(self, metric, build):
        self._metric = METRICS[metric]
        self._build = build
        self._folder = tempfile.mkdtemp(prefix="adjoin-")
        self._index = None
        self.set_query_arguments(0.95)

    def fit(self, X):
        place = f"{self._folder}/index"
        self._index = adjoin.build_index(numpy.asarray(X), place, metric=self._metric, progress=False, **self._build)

    def set_query_arguments(self, effort):
        """Sets the effort. A number below 1 is a target recall, a larger one the number of candidates of a search."""
        self._effort = {"recall": effort} if effort < 1 else {"list": effort}
        self._queries, self._reads = 0, 0.0
        self.name = f"adjoin ({self._build}, {self._effort})"

    def query(self, q, n):
        self.batch_query(numpy.asarray(q)[numpy.newaxis], n)
        return self.res[0]

    def batch_query(self, X, n):
        with self._index.search(numpy.asarray(X), n, progress=False, **self._effort) as hits:
            stats = hits.stats["search"]
            self._queries += stats["queries"]
            self._reads += stats["queries"] * stats["reads_per_query"]
            self.res = numpy.split(hits.ids.reshape(-1), hits.offsets[1:-1])

    def get_additional(self):
        """Returns the mean reads from disk per query since the last query arguments."""
        return {"mean_ssd_ios": self._reads / max(1, self._queries)}

    def done(self):
        self._index = None
        shutil.rmtree(self._folder, ignore_errors=True)
