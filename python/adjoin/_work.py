"""What every call of the engine needs: its source as files, a folder for what is temporary, a progress bar; and what its
results share."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar

from . import _options
from ._errors import DeviceError, PromiseWarning
from ._progress import bar
from ._source import files_of
from ._types import ArrowStream, Progress

if TYPE_CHECKING:
    import pandas
    import polars

#: A source that is no file.
NONE = object()
Self = TypeVar("Self", bound="Temporary")


class Folder:
    """A new folder for temporary files. It is removed by :meth:`cleanup`, at the latest when nothing refers to it any more, by
    the process that made it: a forked child has a copy of this object, and leaves the folder to its parent."""

    def __init__(self, at: Optional[str]) -> None:
        self.name = tempfile.mkdtemp(prefix="adjoin-", dir=at)
        self._remove = weakref.finalize(self, _remove_folder, self.name, os.getpid())

    def cleanup(self) -> None:
        """Removes the folder with what is in it."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove_folder(name: str, creator: int) -> None:
    if os.getpid() == creator:
        shutil.rmtree(name, ignore_errors=True)


class Work(NamedTuple):
    """What the engine is called with."""

    files: list[str]
    folder: Folder
    shown: Optional[Progress]


@contextmanager
def working(
    source: Any, temporary: Any, options: dict[str, Any], progress: Any, whole: bool = False, name: str = "source"
) -> Iterator[Work]:
    """The files of ``source``, which is the argument of that name, none where it is :data:`NONE`, beside a folder that is removed
    where the work fails."""
    at, shown = _options.optional_path("temporary", temporary), bar(_options.optional_flag("progress", progress))
    folder = _folder_in(at)
    try:
        if source is NONE:
            yield Work([], folder, shown)
        else:
            with files_of(source, Path(folder.name), options, whole, name) as files:
                yield Work(files, folder, shown)
    except BaseException:
        folder.cleanup()
        raise
    finally:
        if shown:
            shown.close()


class Temporary:
    """What lies in a temporary folder until :meth:`close`, or the end of a ``with`` block."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def close(self) -> None:
        """Removes what is temporary. Streams that were taken before can still be read."""
        self._folder.cleanup()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class Table(Temporary):
    """Rows that can be had as a table of other packages."""

    def _rows(self) -> ArrowStream:
        raise NotImplementedError

    def to_polars(self) -> polars.DataFrame:
        """The rows as a table of Polars, in memory."""
        frame: polars.DataFrame = _package("polars", "to_polars").DataFrame(self._rows())
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table of pandas, in memory; pyarrow is needed too."""
        _package("pandas", "to_pandas")
        frame: pandas.DataFrame = _package("pyarrow", "to_pandas").table(self._rows()).to_pandas()
        return frame

    def to_arrow(self) -> Any:
        """The rows as a table of pyarrow, in memory."""
        return _package("pyarrow", "to_arrow").table(self._rows())


def _package(name: str, method: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{method}() needs the package {name}; install it with: pip install {name}", name=name) from error


def check_memory(memory: dict[str, Any], result: Optional[Temporary] = None) -> None:
    """Warns the caller of the caller where the budget was not kept; removes the result where the warning is an error."""
    if not memory["kept"]:
        grown = memory["peak_bytes"] - memory["before_bytes"]
        _warn(f"the memory budget was exceeded: {grown} bytes came on top, memory is {memory['budget_bytes']}", result)


def check_recall(recall: Optional[dict[str, Any]], result: Temporary) -> None:
    """The same where nothing that makes sense supports the recall that was asked for."""
    if recall is not None and not recall["kept"]:
        reached = (recall["at_k"] or recall["pair"])["estimate"]
        what = "search that makes sense" if recall["at_k"] else "sample of this join"
        _warn(f"no {what} supports a recall of {recall['target']}; about {reached:.4f} is reached", result)


def check_rows(wanted: Optional[int], left: Optional[int], result: Optional[Temporary] = None) -> None:
    """Warns if no threshold leaves as many rows as were wanted."""
    if left is not None:
        _warn(f"target_rows {wanted}: no threshold leaves so many rows; the nearest number is about {left}", result)


def _warn(said: str, result: Optional[Temporary]) -> None:
    try:
        warnings.warn(said, PromiseWarning, stacklevel=4)
    except PromiseWarning:
        if result is not None:
            result.close()
        raise


def _folder_in(temporary: Optional[str]) -> Folder:
    try:
        return Folder(temporary)
    except OSError as error:
        place = tempfile.gettempdir() if temporary is None else temporary
        raise DeviceError(f"temporary {place} cannot be written; name another folder ({error.strerror})") from error
