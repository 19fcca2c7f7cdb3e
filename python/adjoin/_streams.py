"""Sources that their libraries stream batch by batch: data sets of pyarrow and Hugging Face, lazy frames of Polars.

Only the columns that the engine reads are requested, and only a few batches are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from typing import Any, Optional

from ._errors import AdjoinError, InputError
from ._options import refused

#: Rows per batch.
ROWS_AT_ONCE = 1024

#: Returns the names of the columns to read from a table like the empty one given, or None for all columns.
Select = Callable[[Any], Optional[list[str]]]


class Stream:
    """Tables of pyarrow, one after the other, with the Arrow C stream interface.

    The interface reduces an error of Python to a text, so the error is kept here.
    """

    def __init__(self, schema: Any, tables: Iterable[Any]) -> None:
        pyarrow = import_module("pyarrow")  # imported by name, since it has no type stubs
        #: Error that ended the stream, if any.
        self.failure: Optional[BaseException] = None
        self.reader = pyarrow.RecordBatchReader.from_batches(schema, self._batches(schema, tables))

    def _batches(self, schema: Any, tables: Iterable[Any]) -> Iterator[Any]:
        try:
            for table in tables:
                yield from table.cast(schema).to_batches()
        except (Exception, KeyboardInterrupt) as error:
            self.failure = error
            raise

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)


def split_of(source: Any, options: dict[str, Any]) -> Any:
    """If ``source`` is a dictionary of splits, returns the split that ``options`` name, and removes the name from
    ``options``."""
    if not (_is(source, "datasets", "DatasetDict") or _is(source, "datasets", "IterableDatasetDict")):
        return source
    split, options["split"] = options["split"], None
    there = ", ".join(map(str, source))
    if split is None and len(source) == 1:
        return next(iter(source.values()))
    if split is None:
        raise InputError(f"the data set given has several splits, {there}; give one of these to split")
    if split not in source:
        raise InputError(f"the data set given has no split {split}; give one of these to split: {there or 'none'}")
    return source[split]


def streamed(source: Any, select: Select) -> Optional[Any]:
    """Returns an object that streams the selected columns of ``source`` through the Arrow interface. Returns None if the
    type of ``source`` is unknown."""
    for library, kind, stream in (
        ("pyarrow", "Dataset", _of_pyarrow),
        ("polars", "LazyFrame", _of_polars),
        ("datasets", "Dataset", _of_datasets),
        ("datasets", "IterableDataset", _of_datasets),
        ("adjoin", "Embedded", _of_embedded),
    ):
        if _is(source, library, kind):
            with _errors_of(f"the {library}.{kind} given"):
                return stream(source, select)
    return None


def _is(source: Any, library: str, kind: str) -> bool:
    kinds = ((one.__module__.partition(".")[0], one.__name__) for one in type(source).__mro__)
    return (library, kind) in kinds


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Converts errors of a library to errors of this package."""
    try:
        yield
    except AdjoinError:
        raise
    except Exception as error:
        raise InputError(f"{name} cannot be read: {' '.join(str(error).split())}") from error


@contextmanager
def original_errors(stream: Any, name: str) -> Iterator[None]:
    """Raises the error that ended a :class:`Stream` in place of the engine's, which has only its text."""
    try:
        yield
    except Exception:
        failure = getattr(stream, "failure", None)
        if failure is None:
            raise
        with _errors_of(name):
            raise failure


def _of_pyarrow(source: Any, select: Select) -> Any:
    names = select(source.schema.empty_table())
    settings: dict[str, Any] = {"batch_size": ROWS_AT_ONCE, "batch_readahead": 1, "fragment_readahead": 1}
    if type(getattr(source, "format", None)).__name__ == "ParquetFileFormat":  # otherwise whole files are read ahead
        parquet = import_module("pyarrow.dataset").ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        settings["fragment_scan_options"] = parquet
    return source.scanner(columns=names, **settings).to_reader()


def _of_polars(source: Any, select: Select) -> Any:
    if not hasattr(source, "collect_batches"):
        raise refused("source", source, "a LazyFrame of a newer Polars, or its collect()")
    names = select(source.clear().collect())
    wanted = source if names is None else source.select(names)
    batches = wanted.collect_batches(chunk_size=ROWS_AT_ONCE, maintain_order=True)
    if hasattr(batches, "__arrow_c_stream__"):
        return batches
    return Stream(wanted.clear().collect().to_arrow().schema, (frame.to_arrow() for frame in batches))


def _of_datasets(source: Any, select: Select) -> Any:
    source = source.with_format("arrow")
    if source.features is None:  # computed data sets have no schema: take it from the first rows
        tables = source.iter(batch_size=ROWS_AT_ONCE)
        first = next(tables, None)
        if first is None:
            raise InputError("the data set given has no rows; give one that has some")
        names = select(first.schema.empty_table()) or first.column_names
        tables = (table.select(names) for table in chain([first], tables))
        return Stream(first.select(names).schema, tables)
    schema = source.features.arrow_schema
    names = select(schema.empty_table()) or schema.names
    source = source.select_columns(names)
    return Stream(source.features.arrow_schema, source.iter(batch_size=ROWS_AT_ONCE))


def _of_embedded(source: Any, select: Select) -> Any:
    return source.stream(select)
