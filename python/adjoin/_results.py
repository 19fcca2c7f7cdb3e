"""Results of searches, and rows fetched by id."""

from __future__ import annotations

import json
from typing import Any, Optional

from . import _engine
from ._work import ArrowStream, Folder, Table, Temporary


def _ids(column: Any) -> Any:
    """Returns a column of ids of the engine as a NumPy array."""
    import numpy

    ids, kind = column
    return numpy.array(ids, dtype=object) if kind == "text" else numpy.frombuffer(ids, "<" + kind)


class Rows(Table):
    """Rows fetched by id, in memory, in the order of the ids."""

    _has_preview = True

    def __init__(self, rows: _engine.Rows, info: dict[str, Any]) -> None:
        self._fetched = rows
        self._element = {"f32": "<f4", "f16": "<f2", "u8": "u1", "i8": "i1"}[info["element"]]
        self._dimensions = int(info["dimensions"])

    def rows(self) -> ArrowStream:
        """Returns every row: ``id`` (or the row number), ``vector`` and the other columns. Of these, a column called
        ``id`` or ``vector`` is called ``columns.id`` or ``columns.vector``."""
        return ArrowStream(self._fetched.rows())

    @property
    def ids(self) -> Any:
        """Ids of the rows, or row numbers, as a NumPy array."""
        return _ids(self._fetched.ids())

    @property
    def vectors(self) -> Any:
        """Vectors as stored, as a NumPy array with one row per id."""
        import numpy

        return numpy.frombuffer(self._fetched.vectors(), self._element).reshape(len(self), self._dimensions)

    def _rows(self) -> ArrowStream:
        return self.rows()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._fetched)

    def __repr__(self) -> str:
        return f"<adjoin.Rows: {len(self)} rows>"


class Hits(Table, Temporary):
    """Result of a search. The hits are in a temporary folder until :meth:`close` or the end of a ``with`` block."""

    _has_preview = True

    def __init__(self, found: _engine.Found, folder: Folder) -> None:
        super().__init__(folder)
        self._found = found
        #: Statistics of the run, as written by ``--stats`` of the command.
        self.stats: dict[str, Any] = json.loads(found.stats)
        self._arrays: Optional[tuple[Any, Any]] = None

    def hits(self) -> ArrowStream:
        """Returns every hit: ``query`` and ``id`` (ids, or row numbers), ``rank`` from 1, ``distance``, ``similarity``
        or ``score``, and the columns that the search was asked for."""
        return ArrowStream(self._found.hits())

    @property
    def offsets(self) -> Any:
        """Start of each query's hits, followed by the total number of hits, as a NumPy array."""
        import numpy

        counts = numpy.frombuffer(self._found.counts(), "<u8").astype(numpy.int64)
        return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts)])

    @property
    def ids(self) -> Any:
        """Ids of the hits, or row numbers, as a NumPy array.

        If all queries have the same number of hits, it has one row per query, nearest first. Otherwise it is
        one-dimensional, and :attr:`offsets` delimits the queries.
        """
        return self._both()[0]

    @property
    def values(self) -> Any:
        """Distances, similarities or scores of the hits, in the shape of :attr:`ids`."""
        return self._both()[1]

    def _both(self) -> tuple[Any, Any]:
        import numpy

        if self._arrays is None:
            raw_ids, raw_values = self._found.columns()
            ids, values, counts = _ids(raw_ids), numpy.frombuffer(raw_values, "<f4"), numpy.diff(self.offsets)
            shape = (len(counts), int(counts[0])) if len(counts) and (counts == counts[0]).all() else (-1,)
            self._arrays = ids.reshape(shape), values.reshape(shape)
        return self._arrays

    def _rows(self) -> ArrowStream:
        return self.hits()

    def __len__(self) -> int:
        """Number of queries."""
        return int(self.stats["search"]["queries"])

    def __repr__(self) -> str:
        return f"<adjoin.Hits: {self.stats['search']['hits']} hits of {len(self)} queries>"


class Neighbors(Hits):
    """Result of :func:`nearest`. The hits are in a temporary folder until :meth:`close` or the end of a ``with`` block.

    Arrays are in the order of row numbers, tables in the order of the rows in the store.
    """

    def __init__(self, found: _engine.Found, folder: Folder) -> None:
        super().__init__(found, folder)
        self._order: Optional[tuple[Any, Any]] = None

    def hits(self) -> ArrowStream:
        """Returns every neighbor: ``id`` and ``neighbor`` (ids, or row numbers), ``rank`` from 1, and ``distance``,
        ``similarity`` or ``score``."""
        return ArrowStream(self._found.hits())

    @property
    def rows(self) -> Any:
        """Row numbers, ascending, as a NumPy array. Skipped rows are missing."""
        return self._ordered()[0]

    @property
    def offsets(self) -> Any:
        """Start of each row's neighbors in the order of :attr:`rows`, followed by their total number, as a NumPy array."""
        import numpy

        counts = numpy.diff(super().offsets)[self._ordered()[1]]
        return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts)])

    def _ordered(self) -> tuple[Any, Any]:
        """Returns the row numbers in ascending order, and the position of each in the file."""
        import numpy

        if self._order is None:
            rows = numpy.frombuffer(self._found.rows(), "<u8").astype(numpy.int64)
            places = numpy.argsort(rows)
            self._order = rows[places], places
        return self._order

    def _both(self) -> tuple[Any, Any]:
        import numpy

        if self._arrays is None:
            ids, values = super()._both()
            places = self._ordered()[1]
            if ids.ndim == 1:
                # All hits of a row move by the distance of its first one.
                to, moved = self.offsets, super().offsets[:-1][places] - self.offsets[:-1]
                places = numpy.arange(len(ids)) + numpy.repeat(moved, numpy.diff(to))
            self._arrays = ids[places], values[places]
        return self._arrays

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.stats["rows"])

    def __repr__(self) -> str:
        return f"<adjoin.Neighbors: {self.stats['nearest']['neighbors']} neighbors of {len(self)} rows>"
