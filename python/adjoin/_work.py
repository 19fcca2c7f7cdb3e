"""Context of a call of the engine (source files, temporary folder, progress bar), and base classes of its results."""

from __future__ import annotations

import html
import importlib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar, Union

from . import _options
from ._errors import AdjoinError, PromiseWarning
from ._progress import bar
from ._source import files_of
from ._temporary import File, Folder, folder_in
from ._types import Batches, Progress

if TYPE_CHECKING:
    import pandas
    import polars

#: Most rows of a table in a notebook.
PREVIEW_ROWS = 10
#: A source without files.
NONE = object()
Self = TypeVar("Self", bound="Temporary")


class Work(NamedTuple):
    """Arguments of a call of the engine."""

    files: list[str]
    folder: Folder
    shown: Optional[Progress]


@contextmanager
def working(
    source: Any, temporary: Any, options: dict[str, Any], progress: Any, whole: bool = False, name: str = "source"
) -> Iterator[Work]:
    """Yields the files of ``source``, which is the argument called ``name``, with a temporary folder and a progress
    callback.

    There are no files if ``source`` is :data:`NONE`. The folder is removed if the work fails.
    """
    folder = folder_in(_options.optional_path("temporary", temporary))
    try:
        with showing(progress) as shown:
            if source is NONE:
                yield Work([], folder, shown)
            else:
                with files_of(source, Path(folder.name), options, whole, name) as files:
                    yield Work(files, folder, shown)
    except BaseException:
        folder.cleanup()
        raise


@contextmanager
def showing(progress: Any) -> Iterator[Optional[Progress]]:
    """Yields a progress callback, if progress is to be shown."""
    shown = bar(_options.optional_flag("progress", progress))
    try:
        yield shown
    finally:
        if shown:
            shown.close()


class Temporary:
    """A result in a temporary folder, kept until :meth:`close` or the end of a ``with`` block."""

    def __init__(self, folder: Union[Folder, File]) -> None:
        self._folder = folder

    def close(self) -> None:
        """Removes temporary files. Streams that were returned before can still be read."""
        self._folder.cleanup()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def html_table(title: str, names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Returns a table for notebooks."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = ("".join(f"<td>{html.escape(_shown(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Table:
    """Rows that can be converted to tables of other packages."""

    def _rows(self) -> Batches:
        raise NotImplementedError

    #: Whether the first rows are cheap to read, again and again.
    _has_preview = False

    def _repr_html_(self) -> Optional[str]:
        """Returns the first rows as a table, for notebooks; None without pyarrow or without cheap rows."""
        try:
            pyarrow: Any = importlib.import_module("pyarrow") if self._has_preview else None
        except ImportError:
            pyarrow = None
        if pyarrow is None:
            return None
        try:
            first = next((batch for batch in pyarrow.RecordBatchReader.from_stream(self._rows()) if len(batch)), None)
        except AdjoinError:  # a closed result, or one without a table
            return None
        names = [] if first is None else first.schema.names
        rows = [] if first is None else zip(*(column.to_pylist() for column in first[:PREVIEW_ROWS].columns))
        return html_table(repr(self), names, rows)

    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a Polars data frame, in memory."""
        frame: polars.DataFrame = package("polars", "to_polars()").DataFrame(self._rows())
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas data frame, in memory. Needs pyarrow too."""
        package("pandas", "to_pandas()")
        frame: pandas.DataFrame = package("pyarrow", "to_pandas()").table(self._rows()).to_pandas()
        return frame

    def to_arrow(self) -> Any:
        """Returns the rows as a pyarrow table, in memory."""
        return package("pyarrow", "to_arrow()").table(self._rows())


class ArrowStream(Table):
    """Batches of rows with the Arrow C stream interface, which pyarrow, Polars and DuckDB read. Can be read once."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __repr__(self) -> str:
        return "<adjoin.ArrowStream: rows to read once, with to_polars(), to_pandas() or to_arrow()>"

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self._batches.__arrow_c_stream__(requested_schema)

    def _rows(self) -> Batches:
        return self


def _shown(value: object) -> str:
    """Returns a value for a cell of a table, cut if it is long."""
    return _options.shown(value) if not isinstance(value, str) or len(value) > _options.SHOWN else value


def package(name: str, user: str, install: Optional[str] = None) -> Any:
    """Imports a package that ``user`` needs. The error names what to ``install``, by default the package itself."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        command = f"pip install {name if install is None else install}"
        raise ImportError(f"{user} needs the package {name}; install it with: {command}", name=name) from error


def check_memory(memory: dict[str, Any], result: Optional[Temporary] = None) -> None:
    """Warns the caller of the public function if the budget was exceeded. If warnings are errors, removes the result
    and raises the warning."""
    if memory["kept"] is False:  # None if the system does not report the peak
        grown = memory["peak_bytes"] - memory["before_bytes"]
        _warn(f"the memory budget was exceeded: the process grew by {grown} bytes, the budget is {memory['budget_bytes']}", result)


def check_recall(recall: Optional[dict[str, Any]], result: Optional[Temporary] = None) -> None:
    """Warns like :func:`check_memory` if no reasonable search or sample supports the requested recall."""
    if recall is not None and not recall["kept"]:
        reached = (recall["at_k"] or recall["pair"])["estimate"]
        what = "reasonable search" if recall["at_k"] else "sample of this join"
        _warn(f"no {what} supports a recall of {recall['target']}; about {reached:.4f} is reached", result)


def check_rows(wanted: Optional[int], left: Optional[int], result: Optional[Temporary] = None) -> None:
    """Warns if there is no threshold at which about the requested number of rows is kept."""
    if left is not None:
        _warn(f"target_rows {wanted}: no threshold leaves that number of rows; the nearest number is about {left}", result)


def _warn(said: str, result: Optional[Temporary]) -> None:
    try:
        warnings.warn(said, PromiseWarning, stacklevel=4)
    except PromiseWarning:
        if result is not None:
            result.close()
        raise
