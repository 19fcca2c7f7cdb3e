"""Embeds texts with a model that the caller names. Needs ``pip install "adjoin[text]"``.

>>> import adjoin
>>> from adjoin.text import embed
>>> texts = ["a first text", "a first text of some words"]
>>> with adjoin.dedupe(embed(texts, "minishlab/potion-base-8M"), min_similarity=0.9) as result:  # doctest: +SKIP
...     print(result.to_polars(), result.removed().to_polars())
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from . import _models, _options
from ._errors import InputError, OptionError
from ._options import PathLike, shown
from ._source import TEXTS, texts_of
from ._streams import ROWS_AT_ONCE, Select, Stream, streamed
from ._work import package

if TYPE_CHECKING:
    from ._vector_cache import VectorCache

__all__ = ["Embedded", "embed"]

#: Name of the column of vectors.
VECTOR = "vector"
#: Formats of pyarrow, by the extensions of files.
FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".csv": "csv", ".jsonl": "json"}
WANTED = "texts, the path of a file, columns as a dictionary, or a table with the Arrow interface (pyarrow, Polars, DuckDB, pandas, Hugging Face)"
#: A text from which the number of dimensions of a model is taken.
PROBE = "text"


def embed(source: Any, model: Any, *, text: str = TEXTS, cache: Optional[PathLike] = None) -> Embedded:
    """Returns texts with their vectors, as a source for every function of adjoin.

    Args:
        source: A list, a Series or an Arrow array of texts. Or a table: the path of a file (Parquet, Arrow, CSV, JSON
            lines), columns as a dictionary, or an object with the Arrow interface (pyarrow, Polars, DuckDB, pandas,
            Hugging Face). Files, lazy frames of Polars and data sets of pyarrow and Hugging Face are read batch by
            batch.
        model: The folder of a model, or its name on the hub of Hugging Face: a static model of model2vec, or a model of
            sentence-transformers. Or an ONNX file, or its folder, with ``tokenizer.json``. Or an object with a method
            ``encode`` that returns a vector for each text of a list.
        text: Column of texts, if the source is a table.
        cache: Folder that keeps the vector of each text, by the hash of the text and of the model. The next call reads it
            from there.

    A missing text (None) has no vector, and a static model returns zeros for an empty text, which has no cosine.
    ``on_bad`` decides about such rows.

    Raises :class:`InputError` if the model cannot be loaded, or, when the source is read, if the model returns a vector
    that is not finite or has another length.
    """
    column = _options.text("text", text) or TEXTS
    folder = _options.optional_path("cache", cache)
    loaded = _models.load(model)
    if folder is not None and loaded.digest is None:
        raise OptionError(f"cache needs the folder of a model or its name on the hub, but model is {shown(model)}; leave it out")
    cached = None if folder is None or loaded.digest is None else (folder, loaded.digest())
    return Embedded(_table(source, column), loaded, column, cached)


class Embedded:
    """Texts with their vectors. The rows have the columns of the source and the column ``vector``.

    Each time that the rows are read, the texts are embedded batch by batch.
    """

    def __init__(self, table: Any, model: _models.Model, text: str, cache: Optional[tuple[str, str]]) -> None:
        self._table, self._model, self._cache, self._creator = table, model, cache, os.getpid()
        #: Column of texts.
        self.text = text
        #: Number of dimensions of the vectors.
        self.dimensions = 0  # unknown
        self.dimensions = len(self._encoded([PROBE])[0])

    def __repr__(self) -> str:
        return f"<adjoin.text.Embedded: column {self.text} in {self.dimensions} dimensions by {self._model.name}>"

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self.stream().__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """Returns the vectors as a NumPy array, in memory."""
        numpy = _package("numpy")
        parts = [batch.column(0) for batch in self.stream(lambda _: [VECTOR]).reader]
        if any(part.null_count for part in parts):
            raise InputError("a text is missing, so it has no vector; leave out its row")
        flat = numpy.concatenate([numpy.empty(0, "<f4"), *(part.flatten().to_numpy() for part in parts)])
        return flat.reshape(-1, self.dimensions).astype(dtype or flat.dtype, copy=False)

    def stream(self, select: Select = lambda _: None) -> Stream:
        """Returns a stream of the selected columns. ``select`` gets an empty table with all columns."""
        pyarrow = _package("pyarrow")
        names: list[str] = []

        def needed(empty: Any) -> list[str]:
            """Returns the columns to read for the selected ones."""
            schema = self._with_vector(pyarrow.table(empty).schema)
            names[:] = select(schema.empty_table()) or schema.names
            return [name for name in schema.names[:-1] if name in {*names, self.text}]

        known = streamed(self._table, needed)
        try:
            rows = pyarrow.RecordBatchReader.from_stream(self._table if known is None else known)
        except TypeError:
            raise _options.refused("source", self._table, WANTED) from None
        if known is None:
            needed(rows.schema.empty_table())
        schema = self._with_vector(rows.schema)
        return Stream(pyarrow.schema([schema.field(name) for name in names]), self._tables(rows, names))

    def _with_vector(self, schema: Any) -> Any:
        """Adds the column of vectors to the schema of the source."""
        pyarrow = _package("pyarrow")
        if schema.get_field_index(self.text) < 0:
            raise InputError(f"source has no column {self.text}, only {', '.join(schema.names)}; give one of these to text")
        if schema.get_field_index(VECTOR) >= 0:
            raise InputError(f"source has a column {VECTOR} already; rename it, or leave it out")
        return schema.append(pyarrow.field(VECTOR, pyarrow.list_(pyarrow.float32(), self.dimensions)))

    def _tables(self, rows: Any, names: list[str]) -> Iterator[Any]:
        """Yields the selected columns of the rows, batch by batch."""
        pyarrow = _package("pyarrow")
        cache = None if self._cache is None else _cache_in(*self._cache)
        try:
            first = 0
            for batch in rows:
                for start in range(0, len(batch), ROWS_AT_ONCE):
                    part = pyarrow.table(batch.slice(start, ROWS_AT_ONCE))
                    yield part.append_column(VECTOR, self._vectors(part[self.text], first, cache)).select(names)
                    first += len(part)
        finally:
            if cache is not None:
                cache.close()
            pyarrow.default_memory_pool().release_unused()  # the engine needs the memory next

    def _vectors(self, column: Any, first: int, cache: Optional[VectorCache]) -> Any:
        """Returns the vectors of a column of texts that starts with row ``first``. The vector of a missing text is
        null."""
        numpy, pyarrow = _package("numpy"), _package("pyarrow")
        texts = self._texts(column)
        rows: dict[str, int] = {}  # equal texts are embedded once
        for row, text in enumerate(texts):
            if text is not None:
                rows.setdefault(text, first + row)

        def encode(missing: list[str]) -> Any:
            return self._encoded(missing, rows)

        vectors = numpy.zeros((len(texts), self.dimensions), "<f4")
        if rows:
            distinct = encode(list(rows)) if cache is None else cache.vectors(list(rows), self.dimensions, encode)
            places = {text: place for place, text in enumerate(rows)}
            for row, text in enumerate(texts):
                if text is not None:
                    vectors[row] = distinct[places[text]]
        valid = pyarrow.array([text is not None for text in texts]).buffers()[1]
        kind = pyarrow.list_(pyarrow.float32(), self.dimensions)
        return pyarrow.Array.from_buffers(kind, len(texts), [valid], children=[pyarrow.array(vectors.ravel())])

    def _texts(self, column: Any) -> list[Optional[str]]:
        pyarrow = _package("pyarrow")
        kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
        if not str(kind).endswith(("string", "string_view", "null")):
            raise InputError(f"column {self.text} of source has the type {column.type}; give a column of texts to text")
        texts: list[Optional[str]] = column.to_pylist()
        return texts

    def _encoded(self, texts: list[str], rows: Mapping[str, int] = {}) -> Any:
        """Returns the vectors that the model returns for texts. Messages name the ``rows`` of texts."""
        if os.getpid() != self._creator:  # the threads of a model do not exist in a forked child, which would wait for them
            processes = f"process {self._creator}, and cannot be used in its forked child {os.getpid()}"
            raise OptionError(f"these embedded texts belong to {processes}; call embed() in the child")
        numpy, name = _package("numpy"), self._model.name
        try:
            vectors = numpy.asarray(self._model.encode(texts), dtype="<f4")
        except Exception as error:  # a model may raise anything
            raise InputError(f"model {name} cannot embed {shown(texts)}: {' '.join(str(error).split())}") from error
        wanted = (len(texts), self.dimensions or vectors.size // len(texts))
        if vectors.shape != wanted or not vectors.size:
            shapes = f"an array of shape {vectors.shape} for {len(texts)} texts"
            raise InputError(f"model {name} returned {shapes}; use one that returns a vector of one length for each text")
        bad = numpy.flatnonzero(~numpy.isfinite(vectors).all(axis=1))
        if len(bad):
            text = texts[int(bad[0])]
            place = f"row {rows[text]}" if text in rows else "a probe"
            fault = f"model {name} returned a vector with nan or inf for {place}, {shown(text)}"
            raise InputError(f"{fault}; leave out this row, or use another model")
        return vectors


def _table(source: Any, text: str) -> Any:
    """Returns a table with the texts of the source."""
    if isinstance(source, (str, bytes, os.PathLike)):
        return _file(_options.path("source", source))
    if type(source) is dict:
        try:
            return _package("pyarrow").table(source)
        except Exception as error:  # pyarrow has its own errors
            raise InputError(f"the columns given cannot be read: {' '.join(str(error).split())}") from error
    # Only the type is asked, since the columns of a lazy frame are expensive.
    if any(hasattr(type(source), name) for name in ("columns", "column_names", "schema", "features")):
        return source
    pyarrow = _package("pyarrow")
    texts = texts_of(source, "the path of one file, or the files as pyarrow.dataset.dataset([...])")
    return pyarrow.table({text: pyarrow.array(texts, pyarrow.string())})


def _file(file: str) -> Any:
    """Returns a data set of pyarrow with the rows of one file, which it reads on demand."""
    kind = FORMATS.get(Path(file).suffix.lower())
    if kind is None or not os.path.isfile(file):
        known = ", ".join(FORMATS)
        raise InputError(f"source {shown(file)} is no file ({known}); give texts as a list, and a folder as pyarrow.dataset.dataset(...)")
    form: Any = kind
    if kind == "csv":  # texts may have line breaks
        options = _package("pyarrow.csv").ParseOptions(newlines_in_values=True)
        form = _package("pyarrow.dataset").CsvFileFormat(parse_options=options)
    try:
        return _package("pyarrow.dataset").dataset(file, format=form)
    except Exception as error:  # pyarrow has its own errors
        raise InputError(f"{file} cannot be read: {' '.join(str(error).split())}") from error


def without_csv(source: Any, output: Optional[str]) -> Any:
    """Returns a data set of pyarrow for the path of a CSV file, which the engine does not read, and other sources
    unchanged. Refuses an ``output`` that cannot hold its rows."""
    is_csv = isinstance(source, (str, bytes, os.PathLike)) and os.fsdecode(source).lower().endswith(".csv")
    if not is_csv:
        return source
    if output is not None and not output.endswith(".arrow"):
        other = "for another format, leave output out and write the rows of to_pandas() or to_polars()"
        raise OptionError(f"output {output} of a CSV file must end in .arrow; name it so, or, {other}")
    return _file(_options.path("source", source))


def _cache_in(folder: str, digest: str) -> VectorCache:
    from ._vector_cache import VectorCache  # SQLite is imported if it is needed

    return VectorCache(folder, digest)


def _package(name: str) -> Any:
    return package(name, "adjoin.text", '"adjoin[text]"')
