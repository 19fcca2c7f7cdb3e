"""Texts with metadata as rows of a folder, for adapters of other packages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ._conditions import VALUES, Columns, fits
from ._errors import InputError, OptionError, OptionTypeError
from ._folders import Collection, ColumnType, OpenFolder
from ._options import shown
from ._results import Rows

#: Elements that vectors of an embedding model can have.
ELEMENTS = {"f32": "float32", "f16": "float16"}
#: Options of a search that set its effort.
EFFORT = ("recall", "exact", "list")
#: Names that the engine gives to other values of a row.
RESERVED = ("id", "vector")


class Row(NamedTuple):
    """A document of a folder."""

    id: str
    text: str
    metadata: dict[str, Any]
    #: Similarity or distance to the query of a search, otherwise 0.
    value: float = 0.0


def check_effort(name: str, options: Iterable[str]) -> None:
    """Refuses options of a search that are not its effort: without an effect, they would hide a mistake."""
    for option in options:
        if option not in EFFORT:
            raise OptionTypeError(f"there is no argument {option}; {name} take k, a filter, and recall, exact or list")


def declared(columns: Optional[Mapping[str, ColumnType]], own: Sequence[str]) -> dict[str, ColumnType]:
    """Returns the columns of a new collection: the adapter's ``own``, which hold texts, and ``columns`` for filters."""
    wanted: dict[str, ColumnType] = dict(columns or {})
    for column in (*own, *RESERVED):
        if column in wanted:
            raise OptionError(f"columns: {column} is the name of a column that the adapter needs; rename that metadata")
    return {**{column: "text" for column in own}, **wanted}


class Documents:
    """Documents in a folder: a column of texts, a column of metadata as JSON, and columns that filters can use.

    Without the column of JSON, the metadata of a document is the values of the other columns that are not null.
    """

    def __init__(
        self,
        folder: OpenFolder,
        text_column: str,
        metadata_column: str,
        effort: Optional[Mapping[str, Any]] = None,
        own: Sequence[str] = (),
    ) -> None:
        """Takes an open folder, and the ``effort`` of searches that name none.

        The adapter sets the values of the columns ``own``, which are no metadata."""
        self.folder = folder
        self._effort = dict(effort or {})
        check_effort("effort", self._effort)
        info = folder.info
        names = folder._folder.columns()
        types = {column["name"]: column["type"] for column in info.get("columns", [])}
        if text_column not in names:
            there = ", ".join(names) or "none"
            raise OptionError(
                f"{folder.path} has no column {text_column} with the texts of documents, only {there}; "
                "name it as text_column"
            )
        for name in own:
            if name not in names:
                raise OptionError(
                    f"{folder.path} has no column {name}; create the collection with create() of this class"
                )
        self.metric: str = info["metric"]
        self._element, self._dimensions, self._ids = info["element"], int(info["dimensions"]), info["ids"]
        self._text, self._own = text_column, tuple(own)
        self._metadata = metadata_column if metadata_column in names else None
        self.columns = Columns({name: types.get(name) for name in names if name != self._metadata})
        #: Columns of metadata.
        self._values = [name for name in names if name not in (text_column, self._metadata, *own)]
        self._columns = list(names)

    def __len__(self) -> int:
        return len(self.folder)

    @property
    def collection(self) -> Collection:
        """The folder as one that accepts writes."""
        if not isinstance(self.folder, Collection):
            raise InputError(f"{self.folder.path} accepts no writes; create a collection for documents that change")
        return self.folder

    def write(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
        vectors: Sequence[Sequence[float]],
        own: Optional[Mapping[str, Sequence[Optional[str]]]] = None,
        encoded: Optional[Sequence[str]] = None,
    ) -> None:
        """Inserts documents, or replaces documents with equal ids, in one write.

        ``encoded`` is stored as JSON in place of ``metadatas``.
        """
        collection = self.collection
        if self._ids != "utf8":
            raise InputError(
                f"{collection.path} has integers as ids, and ids of documents are texts; "
                "create a collection with ids='text'"
            )
        if not ids:
            return
        columns: dict[str, Any] = {
            "id": list(ids),
            "vector": self._vectors(vectors),
            self._text: list(texts),
            **(own or {}),
        }
        if self._metadata is not None:
            columns[self._metadata] = (
                list(encoded) if encoded is not None else [self._json(*pair) for pair in zip(ids, metadatas)]
            )
        for name in self._values:
            columns[name] = [self._value(id, name, metadata.get(name)) for id, metadata in zip(ids, metadatas)]
        if self._metadata is None:
            self._check_all_kept(ids, metadatas)
        collection.write(upsert=columns, vector_column="vector", id_column="id", progress=False)

    def _vectors(self, vectors: Sequence[Sequence[float]]) -> Any:
        """Returns embeddings as an array of the folder's elements."""
        import numpy

        if self._element not in ELEMENTS:
            raise InputError(
                f"{self.folder.path} stores {self._element}, which embeddings are not; create it with element='f32'"
            )
        try:
            array = numpy.asarray(vectors, dtype=ELEMENTS[self._element])
        except ValueError:
            raise InputError(
                "the embeddings differ in their number of dimensions; use one model for all texts"
            ) from None
        if array.ndim != 2 or array.shape[1] != self._dimensions:
            shape = array.shape[-1] if array.ndim else 0
            raise InputError(
                f"the embedding has {shape} dimensions, and the vectors of {self.folder.path} have {self._dimensions}; "
                "use the model that its documents were embedded with"
            )
        return array

    def _value(self, id: str, name: str, value: Any) -> Any:
        """Returns the value of a column for a document."""
        kind = self.columns.types[name]
        if hasattr(value, "item"):
            value = value.item()  # a NumPy scalar
        if value is None or fits(value, kind):
            return float(value) if kind == "float64" and value is not None else value
        wanted = VALUES[kind][1] if kind else "another value"
        raise InputError(
            f"document {shown(id)}: {name} is {shown(value)} in its metadata, and the column is {kind}; give {wanted}"
        )

    @staticmethod
    def _json(id: str, metadata: Mapping[str, Any]) -> str:
        try:
            return json.dumps(metadata, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"document {shown(id)}: its metadata cannot be written as JSON ({error}); "
                "give texts, numbers, lists and dictionaries"
            ) from None

    def _check_all_kept(self, ids: Sequence[str], metadatas: Sequence[Mapping[str, Any]]) -> None:
        for id, metadata in zip(ids, metadatas):
            for name in metadata:
                if name not in self._values:
                    raise InputError(
                        f"document {shown(id)}: {self.folder.path} has no column {name} for its metadata; leave it out"
                    )

    def delete(self, ids: Sequence[str]) -> None:
        """Deletes documents. Unknown ids are ignored."""
        if ids:
            self.collection.write(delete=list(ids), progress=False)

    def delete_where(self, condition: Optional[str]) -> None:
        """Deletes the documents that pass a condition, or all documents."""
        self.collection.delete_where("true" if condition is None else condition, progress=False)

    def fetch(self, ids: Sequence[str]) -> list[Row]:
        """Returns the documents with some ids, in this order. Unknown ids are left out."""
        return self._rows(self._fetched(ids).to_arrow(), id_at=0)

    def vectors(self, ids: Sequence[str]) -> dict[str, Any]:
        """Returns the vectors of documents by id."""
        rows = self._fetched(ids)
        return {str(id): vector for id, vector in zip(rows.ids.tolist(), rows.vectors)}

    def _fetched(self, ids: Sequence[str]) -> Rows:
        wanted: list[Any] = list(dict.fromkeys(ids))  # the engine returns a row for each repetition
        if self._ids != "utf8":
            wanted = [int(id) for id in wanted if id.removeprefix("-").isdecimal()]
        return self.folder.get(wanted, on_missing="skip", progress=False)

    def nearest(self, vector: Sequence[float], k: int, where: Optional[str], effort: Mapping[str, Any]) -> list[Row]:
        """Returns the ``k`` documents nearest to ``vector`` that pass the condition ``where``.

        An empty ``effort`` is the effort of the documents.
        """
        check_effort("searches", effort)
        query, options = self._vectors([vector]), effort or self._effort
        with self.folder.search(query, k, where=where, columns=self._columns, progress=False, **options) as hits:
            return self._rows(hits.to_arrow(), id_at=2, value_at=3)

    def _rows(self, table: Any, id_at: int, value_at: Optional[int] = None) -> list[Row]:
        """Returns the rows of a table of the engine. Its last columns are the columns of the folder."""
        # By position, since the engine renames columns that are called like its own.
        first = table.num_columns - len(self._columns)
        ids = table.column(id_at).to_pylist()
        values = [0.0] * len(ids) if value_at is None else table.column(value_at).to_pylist()
        columns = [table.column(first + place).to_pylist() for place in range(len(self._columns))]
        return [self._row(str(ids[row]), values[row], [column[row] for column in columns]) for row in range(len(ids))]

    def _row(self, id: str, value: float, fields: list[Any]) -> Row:
        named = dict(zip(self._columns, fields))
        encoded = named.get(self._metadata) if self._metadata else None
        metadata = (
            json.loads(encoded) if encoded else {name: named[name] for name in self._values if named[name] is not None}
        )
        return Row(id, named[self._text] or "", metadata, value)

    def scan(self, where: Optional[str]) -> list[Row]:
        """Returns all documents that pass the condition ``where``, in arbitrary order."""
        count = len(self)
        if not count:
            return []
        # The nearest documents of any vector, as many as there are, are all of them.
        return self.nearest([1.0, *[0.0] * (self._dimensions - 1)], count, where, {"exact": True})

    def similarity(self, value: float) -> float:
        """Returns a similarity from 0 to 1 for the distance, similarity or score of a hit."""
        if self.metric == "cosine":
            return min(max(value, 0.0), 1.0)
        if self.metric == "l2":
            return 1.0 / (1.0 + value)
        raise OptionError(
            f"{self.folder.path} has scores of inner products, which are not between 0 and 1; "
            "search without a threshold"
        )


def _plain(value: Any) -> Any:
    """Converts a value of metadata for JSON: NumPy scalars and arrays, dates, sets, paths and UUIDs."""
    import datetime
    import uuid
    from pathlib import PurePath

    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (PurePath, uuid.UUID)):
        return str(value)
    raise TypeError(f"it has a {type(value).__name__}")


def ids_of(texts: Iterable[str], metadatas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Computes the ids of documents from their texts and metadata. Equal documents have equal ids."""
    import hashlib

    ids = []
    for text, metadata in zip(texts, metadatas):
        content = json.dumps([text, metadata], sort_keys=True, default=str, ensure_ascii=False)
        ids.append(hashlib.blake2b(content.encode(), digest_size=16).hexdigest())
    return ids
