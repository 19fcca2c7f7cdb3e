"""adjoin's collection as an algorithm of big-ann-benchmarks' streaming track."""

import os
import shutil

import adjoin
import numpy

from neurips23.streaming.base import BaseStreamingANN

METRICS = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
ELEMENTS = {"float32": "f32", "uint8": "u8", "int8": "i8"}


class Adjoin(BaseStreamingANN):
    """A collection in ``data/indices``. In ``build``, ``merged`` is a number of rows: once as many have been inserted
    or deleted, the collection is merged before the next search. The other entries are options of
    :meth:`adjoin.Collection.create`, such as memory and degree."""

    def __init__(self, metric, build):
        self._metric = METRICS[metric]
        self._build = dict(build)
        self._merged = self._build.pop("merged", 20_000)
        self._live = None
        self._search = {"list": 64}
        self.name = f"adjoin ({build})"

    def setup(self, dtype, max_pts, ndims):
        self._made_for = ndims, ELEMENTS[dtype]
        self._begin()

    def set_query_arguments(self, search):
        """Sets the options of :meth:`adjoin.Collection.search`, such as recall, list and memory. The harness runs the
        whole runbook again for each set of options."""
        self._search = search
        self.name = f"adjoin ({self._build}, merged {self._merged}, {search})"
        self._begin()

    def _begin(self):
        self.done()
        folder = os.path.join("data", "indices", "stream", f"adjoin-{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        dimensions, element = self._made_for
        self._live = adjoin.Collection.create(folder, dimensions, element=element, metric=self._metric, **self._build)
        self._changed = 0

    def done(self):
        if self._live is not None:
            self._live.close()
            shutil.rmtree(self._live.path)
            self._live = None

    def insert(self, X, ids):
        self._write(len(ids), insert=(ids.astype("int64"), numpy.ascontiguousarray(X)))

    def delete(self, ids):
        self._write(len(ids), delete=ids)

    def replace(self, X, ids):
        self._write(len(ids), upsert=(ids.astype("int64"), numpy.ascontiguousarray(X)))

    def _write(self, rows, **change):
        self._live.write(progress=False, **change)
        self._changed += rows

    def query(self, X, k):
        if self._changed >= self._merged:
            self._live.merge(progress=False)
            self._changed = 0
        self.res = numpy.full((len(X), k), -1, dtype=numpy.int64)
        with self._live.search(numpy.ascontiguousarray(X), k, progress=False, **self._search) as hits:
            self.res[numpy.arange(k) < numpy.diff(hits.offsets)[:, numpy.newaxis]] = hits.ids.reshape(-1)
