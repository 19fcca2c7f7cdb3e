"""Results of searches, and rows fetched by id."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Optional, Union

from . import _engine
from ._options import PathLike
from ._report import page_request, write_page
from ._temporary import File, Folder
from ._work import ArrowStream, Table, Temporary


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
        """Returns every row: ``id`` (or the row number), ``vector`` and the other columns. If one of the other columns
        is called ``id`` or ``vector``, it becomes ``columns.id`` or ``columns.vector``."""
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
    """Result of a search. Many hits are in a temporary file until :meth:`close` or the end of a ``with`` block."""

    _has_preview = True

    def __init__(self, found: _engine.Found, folder: Union[Folder, File]) -> None:
        super().__init__(folder)
        self._found = found
        self._arrays: Optional[tuple[Any, Any]] = None

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Statistics of the run, as written by ``--stats`` of the command."""
        return dict(json.loads(self._found.stats))

    def hits(self) -> ArrowStream:
        """Returns every hit: ``query`` and ``id`` (ids, or row numbers), ``rank`` from 1, ``distance``, ``similarity``
        or ``score``, and the requested columns."""
        return ArrowStream(self._found.hits())

    def report(
        self,
        path: PathLike,
        *,
        names: Optional[PathLike] = None,
        id_column: Optional[str] = None,
        name_column: Optional[str] = None,
        other_names: Optional[PathLike] = None,
        other_id_column: Optional[str] = None,
        other_name_column: Optional[str] = None,
        force: bool = False,
    ) -> None:
        """Writes an HTML page about the hits in one file, as ``adjoin report`` does. The page shows the requested
        ``columns`` of the hits.

        ``names`` is a file, a folder or a glob of tables with ids and texts of the queries. The ids are the column
        ``id_column``, by default ``id``, or row numbers if there is no such column. The texts are the column
        ``name_column``, by default the first text column. The arguments ``other_...`` do this for the hits. An existing
        page is replaced only with ``force``.
        """
        page = page_request(path, names, id_column, name_column, other_names, other_id_column, other_name_column, force)
        write_page(self.hits(), self._run_stats(), page)

    def _run_stats(self) -> Optional[str]:
        """Returns the statistics of the run as JSON."""
        return self._found.stats

    @property
    def offsets(self) -> Any:
        """Start of each query's hits, followed by the total number of hits, as a NumPy array."""
        import numpy

        counts = numpy.frombuffer(self._found.counts(), "<u8").astype(numpy.int64)
        return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts)])

    @property
    def ids(self) -> Any:
        """Ids of the hits, or row numbers, as a NumPy array.

        If all queries have the same number of hits, the array has one row per query, nearest first. Otherwise it is
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
        queries = "1 query" if len(self) == 1 else f"{len(self)} queries"
        return f"<adjoin.Hits: {self.stats['search']['hits']} hits of {queries}>"


class Neighbors(Hits):
    """Result of :func:`nearest`, in the order of row numbers.

    The hits are in a temporary folder until :meth:`close` or the end of a ``with`` block.
    """

    def hits(self) -> ArrowStream:
        """Returns every neighbor: ``query`` and ``id`` (ids, or row numbers), ``rank`` from 1, and ``distance``,
        ``similarity`` or ``score``."""
        return ArrowStream(self._found.hits())

    @property
    def rows(self) -> Any:
        """Row numbers, ascending, as a NumPy array. Skipped rows are missing."""
        import numpy

        return numpy.frombuffer(self._found.rows(), "<u8").astype(numpy.int64)

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.stats["rows"])

    def __repr__(self) -> str:
        return f"<adjoin.Neighbors: {self.stats['nearest']['neighbors']} neighbors of {len(self)} rows>"
