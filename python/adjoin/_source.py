"""Vectors as Python has them, as files that the engine reads.

The engine scans its input twice and in any memory, so what is not a file yet becomes one in a temporary folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

from . import _engine
from ._errors import DeviceError, InputError

PathLike = Union[str, "os.PathLike[str]"]

#: Rows of an array that are copied at once where its rows do not lie one behind the other.
ROWS_AT_ONCE = 4096


def files_of(source: Any, folder: Path, options: dict[str, Any]) -> list[str]:
    """The files that hold ``source``; those that must be written first go to ``folder``. ``options`` name columns."""
    if isinstance(source, (str, os.PathLike)):
        return [os.fspath(source)]
    if isinstance(source, Sequence) and source and all(isinstance(part, (str, os.PathLike)) for part in source):
        return [os.fspath(part) for part in source]
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        path = folder / "vectors.arrow"
        _engine.spool(source, os.fspath(path), options)
        return [os.fspath(path)]
    if hasattr(source, "__array_interface__") or hasattr(source, "__array__"):
        path = folder / "vectors.npy"
        _write_array(source, path)
        return [os.fspath(path)]
    raise InputError(
        f"vectors cannot be read from {type(source).__name__}; give a path, a list of paths, a numpy array, or a "
        "table with the Arrow interface (pyarrow, Polars, DuckDB, pandas)"
    )


def _write_array(source: Any, path: Path) -> None:
    import numpy

    if numpy.ma.isMaskedArray(source):
        if not numpy.issubdtype(source.dtype, numpy.floating) and numpy.ma.is_masked(source):
            raise InputError("the array has masked values, which integers cannot say; leave out their rows")
        source = numpy.ma.filled(source, numpy.nan if numpy.issubdtype(source.dtype, numpy.floating) else 0)
    array = numpy.asarray(source)
    header = {
        "descr": numpy.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    try:
        with path.open("wb") as file:
            numpy.lib.format.write_array_header_2_0(file, header)
            if array.dtype.hasobject or array.ndim != 2:
                return  # the engine says from the header what is wrong
            if array.flags.c_contiguous:
                array.tofile(file)
                return
            for start in range(0, len(array), ROWS_AT_ONCE):
                numpy.ascontiguousarray(array[start : start + ROWS_AT_ONCE]).tofile(file)
    except OSError as error:
        raise DeviceError(f"cannot write {path}: {error}; name a folder with room as temporary") from error
