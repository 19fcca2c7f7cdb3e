"""HTML pages about results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional, Union

from . import _engine, _options
from ._errors import AdjoinError, OptionError
from ._options import PathLike
from ._types import Batches
from ._work import Folder


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
    resources = {**_options.resources(memory, None), "temporary": None}
    with Folder(None) as folder:
        file = os.path.join(folder, "result.parquet")
        _engine.write_parquet(rows, file)
        try:
            _engine.report(file, stats, page, resources)
        except AdjoinError as error:
            raise type(error)(str(error).replace(file, "the result")) from None
