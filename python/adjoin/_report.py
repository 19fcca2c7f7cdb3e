"""HTML pages about results."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

from . import _engine
from . import _options
from ._errors import AdjoinError, OptionError
from ._options import PathLike, refused
from ._temporary import Folder
from ._types import Batches


def page_request(
    path: PathLike,
    names: Optional[PathLike],
    id_column: Optional[str],
    name_column: Optional[str],
    other_names: Optional[PathLike],
    other_id_column: Optional[str],
    other_name_column: Optional[str],
    force: bool,
) -> dict[str, Any]:
    """Returns a page to write, with tables of names for the rows on the left and on the right."""
    target, named = _options.path("path", path), []
    sides = {"": (names, id_column, name_column), "other_": (other_names, other_id_column, other_name_column)}
    for side, (table, ids, texts) in sides.items():
        files = _options.optional_path(f"{side}names", table)
        columns = {"id_column": _options.text(f"{side}id_column", ids), "name_column": _options.text(f"{side}name_column", texts)}
        named.append(None if files is None else {"files": files, **columns})
    if named[0] is None and named[1] is not None:
        raise OptionError("other_names is for the rows on the right; give names for the rows on the left, too")
    return {"path": target, "names": named, "force": _options.flag("force", force)}


def write_page(rows: Batches, stats: Union[str, Path, None], page: dict[str, Any], memory: Any = None) -> None:
    """Writes a page about the rows of a result. ``stats`` are the statistics of its run as JSON, or a file of them."""
    write_page_of(lambda file: _engine.write_parquet(rows, file), stats, page, memory)


def write_page_of(
    write: Callable[[str], None], stats: Union[str, Path, None], page: dict[str, Any], memory: Any = None
) -> None:
    """Writes a page about the result that ``write`` writes to a Parquet file."""
    resources = {**_options.resources(memory, None), "temporary": None}
    with Folder(None) as folder:
        file = os.path.join(folder, "result.parquet")
        write(file)
        try:
            _engine.report(file, stats, page, resources)
        except AdjoinError as error:
            raise type(error)(str(error).replace(file, "the result")) from None


def report(
    result: Any,
    path: PathLike,
    *,
    stats: Optional[PathLike] = None,
    names: Optional[PathLike] = None,
    id_column: Optional[str] = None,
    name_column: Optional[str] = None,
    other_names: Optional[PathLike] = None,
    other_id_column: Optional[str] = None,
    other_name_column: Optional[str] = None,
    memory: Union[str, int, None] = None,
    force: bool = False,
) -> None:
    """Writes an HTML page about a result in one file, as ``adjoin report`` does.

    Args:
        result: A file of pairs, removed rows, clusters, neighbors or hits, as adjoin writes it (Parquet, CSV or JSON
            lines), or a table with the same columns (pyarrow, Polars, pandas, or a stream such as
            :meth:`Result.clusters`). :class:`Result`, :class:`Deduped`, :class:`Hits` and :class:`Neighbors` have a
            method ``report`` too, which adds their statistics.
        path: The page. An existing page is replaced only with ``force``.
        stats: File of the statistics of the run, from ``--stats`` of the command.
        names: A file, a folder or a glob of tables with ids and texts of the rows, for a result without columns. With
            hits, those of the queries.
        id_column: Column of the ids in ``names``, by default ``id``, or row numbers if there is no such column.
        name_column: Column of the texts in ``names``, by default the first text column.
        other_names: Table for the rows on the right of a join of two sets, or for the hits. ``other_id_column`` and
            ``other_name_column`` are its columns.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    page = page_request(path, names, id_column, name_column, other_names, other_id_column, other_name_column, force)
    statistics = None if stats is None else Path(_options.path("stats", stats))
    if isinstance(result, (str, bytes, os.PathLike)):
        resources = {**_options.resources(memory, None), "temporary": None}
        _engine.report(_options.path("result", result), statistics, page, resources)
    elif hasattr(result, "__arrow_c_stream__"):
        write_page(result, statistics, page, memory)
    else:
        raise refused("result", result, "a file or a table, or call the method report of the result")
