"""Results of a server, with the interface of results of an open folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from . import _engine
from ._results import Hits, Rows
from ._temporary import Folder
from ._work import ArrowStream

#: Element types by their NumPy names.
ELEMENTS = {"f32": "float32", "f16": "float16", "u8": "uint8", "i8": "int8"}
#: Names of the value of a hit, by metric.
VALUES = {"l2": "distance", "cosine": "similarity", "ip": "score"}


def _ids(ids: Sequence[Any]) -> Any:
    """Returns ids as a NumPy array."""
    import numpy

    return numpy.array(ids, dtype=object if ids and isinstance(ids[0], str) else "int64")


def _stream(columns: Mapping[str, Any]) -> ArrowStream:
    """Returns columns as a stream in the Arrow format."""
    vectors = {name: values for name, values in columns.items() if hasattr(values, "tobytes")}
    written = [
        (name, (values.tobytes(), values.dtype.str[1:], values.shape[1]) if name in vectors else values)
        for name, values in columns.items()
    ]
    with Folder(None) as folder:
        file = os.path.join(folder, "rows.arrow")
        _engine.write_columns(written, file)
        # The file is open and needs no name any more.
        return ArrowStream(_engine.rows([file]))


class ServedHits(Hits):
    """Hits of a search by a server, in memory. Dates and timestamps of columns are texts."""

    def __init__(self, answers: Sequence[Mapping[str, Any]], info: Mapping[str, Any], columns: Sequence[str]) -> None:
        """Takes the answers to the parts of a request, in order."""
        self._answers = [hits for answer in answers for hits in answer["hits"]]
        self._value = VALUES[info["metric"]]
        self._columns = list(columns)
        self._arrays: Optional[tuple[Any, Any]] = None
        last = answers[-1] if answers else {}
        found = sum(map(len, self._answers))
        #: Statistics of the last part of the request: ``recall``, ``bytes_per_query``, ``queue_ms`` and others.
        self.stats: dict[str, Any] = {
            "search": {"queries": len(self._answers), "hits": found},
            **{name: value for name, value in last.items() if name != "hits"},
        }

    def _run_stats(self) -> Optional[str]:
        return None  # answers have no statistics of a whole run

    def hits(self) -> ArrowStream:
        """Returns every hit: ``query`` (its number), ``rank`` from 1, ``id``, ``distance``, ``similarity`` or
        ``score``, and the columns that the search was asked for."""
        flat = [(query, rank, hit) for query, hits in enumerate(self._answers) for rank, hit in enumerate(hits, 1)]
        table: dict[str, Any] = {
            "query": [query for query, _, _ in flat],
            "rank": [rank for _, rank, _ in flat],
            "id": [hit["id"] for _, _, hit in flat],
            self._value: [hit[self._value] for _, _, hit in flat],
        }
        for name in self._columns:
            table[f"columns.{name}" if name in table else name] = [hit["columns"][name] for _, _, hit in flat]
        return _stream(table)

    @property
    def offsets(self) -> Any:
        """Start of each query's hits, followed by the total number of hits, as a NumPy array."""
        import numpy

        return numpy.cumsum([0, *map(len, self._answers)])

    def _both(self) -> tuple[Any, Any]:
        import numpy

        if self._arrays is None:
            flat = [hit for hits in self._answers for hit in hits]
            ids, counts = _ids([hit["id"] for hit in flat]), numpy.diff(self.offsets)
            values = numpy.array([hit[self._value] for hit in flat], "float32")
            shape = (len(counts), int(counts[0])) if len(counts) and (counts == counts[0]).all() else (-1,)
            self._arrays = ids.reshape(shape), values.reshape(shape)
        return self._arrays

    def close(self) -> None:
        """Does nothing: the hits are in memory."""


class ServedRows(Rows):
    """Rows fetched from a server, in memory, in the order of the ids. Dates and timestamps of columns are texts."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], info: Mapping[str, Any]) -> None:
        self._served = list(rows)
        self._shape = (len(self._served), int(info["dimensions"]))
        self._dtype = ELEMENTS[info["element"]]

    def rows(self) -> ArrowStream:
        """Returns every row: ``id`` (or the row number), ``vector`` and the other columns."""
        names = self._served[0].get("columns", {}) if self._served else {}
        columns = {name: [row["columns"][name] for row in self._served] for name in names}
        return _stream({"id": [row["id"] for row in self._served], "vector": self.vectors, **columns})

    @property
    def ids(self) -> Any:
        """Ids of the rows, or row numbers, as a NumPy array."""
        return _ids([row["id"] for row in self._served])

    @property
    def vectors(self) -> Any:
        """Vectors as stored, as a NumPy array with one row per id."""
        import numpy

        return numpy.array([row["vector"] for row in self._served], self._dtype).reshape(self._shape)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._served)
