"""Converts sources of Python programs to files that the engine reads.

The engine scans its input several times, and within any memory. So data that is not in a file is first written to a
file in a temporary folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

from . import _engine
from ._errors import AdjoinError, DeviceError, InputError, OptionError
from ._options import path, refused, shown
from ._streams import original_errors, split_of, streamed

#: Number of rows that are copied at once if the rows of an array are not contiguous.
ROWS_AT_ONCE = 4096

#: Size up to which an array is passed in memory.
SMALL_BYTES = 1 << 20
#: Element types of arrays that are passed in memory, by the types of NumPy.
SMALL_ELEMENTS = {"<f2": "f16", "<f4": "f32", "|u1": "u8", "|i1": "i8"}
#: Options that name parts of a table or a data set, which an array does not have.
NAMING = ("vector_column", "id_column", "split")

#: Vectors in memory, their element type, and the number of dimensions.
SmallArray = tuple[bytes, str, int]

#: Name of the column of texts that are given without a table.
TEXTS = "text"
#: Length from which a text is no path.
PATH_MAX = 4096

#: Names of the arrays of a tuple of ids and vectors in a file.
NAMED_ARRAYS = ("id", "vectors")
ARRAY = "the array given"
COLUMNS = "the columns given"
#: Element types by their NumPy names.
ELEMENTS = ("f2", "f4", "f8", "u1", "i1")
WANTED = (
    "a path, a list of paths, an array (numpy, torch, JAX), ids and an array as a tuple, columns as a dictionary, or a table or data set with the Arrow interface (pyarrow, Polars, DuckDB, "
    "pandas, Hugging Face)"
)


@contextmanager
def files_of(
    source: Any, folder: Path, options: dict[str, Any], whole: bool = False, name: str = "source"
) -> Iterator[list[str]]:
    """Yields the files that hold ``source``.

    Data that is not in a file is written to ``folder``: the columns that ``options`` name, or all columns if the
    ``whole`` table is needed. Error messages name the argument or its type, not the temporary file.
    """
    if isinstance(source, (str, bytes, os.PathLike)):
        yield [path(name, source)]
    elif _is_paths(source, name):
        yield [path(name, part) for part in source]
    else:
        source = split_of(source, options)
        file, shown_as = _written(source, folder, options, whole, name)
        try:
            yield [os.fspath(file)]
        except AdjoinError as error:
            if os.fspath(file) not in str(error):
                raise
            raise type(error)(str(error).replace(os.fspath(file), shown_as)) from None


def paths_of(source: Any, name: str = "source") -> list[str]:
    """Returns the paths and URLs of ``source``, such that they are valid in other processes. Refuses data that is not in
    files."""
    if isinstance(source, (str, bytes, os.PathLike)):
        source = [source]
    elif not _is_paths(source, name):
        raise refused(name, source, "a path or a list of paths that all machines can read")
    paths = [path(name, part) for part in source]
    return [part if "://" in part else os.path.abspath(part) for part in paths]


def check_files(source: Any, name: str) -> None:
    """Refuses a source that is not in files, which another run could not recognize."""
    if not isinstance(source, (str, bytes, os.PathLike)) and not _is_paths(source, name):
        raise OptionError(f"resume continues only with files, and {name} is in memory; write it to a file first")


def texts_of(source: Any, otherwise: str) -> list[Optional[str]]:
    """Returns the texts of a list or of a column. Refuses paths and tables, whose column of texts must be named; the
    error names what to give ``otherwise``."""
    if not hasattr(source, "columns") and not hasattr(source, "column_names"):  # tables have these
        as_list = next((name for name in ("to_pylist", "to_list", "tolist") if hasattr(source, name)), None)
        # Series of pandas have NaN in place of missing texts.
        source = source if as_list is None else [None if part != part else part for part in getattr(source, as_list)()]
    if isinstance(source, (str, bytes, os.PathLike)) or not isinstance(source, Sequence):
        raise OptionError(f"source is {shown(source)}; give {otherwise}")
    for part in source:
        if part is not None and not isinstance(part, str):
            raise refused("a text of source", part, f"texts or None, or {otherwise}")
    if not source:
        raise OptionError("source has no texts; give at least one")
    if all(part is not None and "\0" not in part and len(part) < PATH_MAX and os.path.isfile(part) for part in source):
        raise OptionError(f"source is {shown(source)}, which are files; give {otherwise}")
    return list(source)


def small_array(source: Any, options: dict[str, Any]) -> Optional[SmallArray]:
    """Returns the vectors of a small array.

    Returns None for all that needs a file: other sources, large arrays, types that the engine converts, and arrays that
    it refuses.
    """
    numpy = sys.modules.get("numpy")  # it is imported if there is an array
    if numpy is None or type(source) is not numpy.ndarray or any(options[name] is not None for name in NAMING):
        return None
    element = SMALL_ELEMENTS.get(source.dtype.str)
    if element is None or source.ndim != 2 or source.size == 0 or source.nbytes > SMALL_BYTES:
        return None
    return source.tobytes(), element, source.shape[1]


def _is_paths(source: Any, name: str) -> bool:
    if not isinstance(source, Sequence) or hasattr(source, "__array__"):
        return False
    if not source:
        raise OptionError(f"{name} is {shown(source)}; give at least one path")
    return all(isinstance(part, (str, bytes, os.PathLike)) for part in source)


def _written(source: Any, folder: Path, options: dict[str, Any], whole: bool, name: str) -> tuple[Path, str]:
    """Writes ``source`` to a file. Returns the file and the name of the source in messages."""
    if type(source) is dict:
        _write_columns(source, folder / "vectors.arrow")
        return folder / "vectors.arrow", COLUMNS
    stream = streamed(source, lambda empty: None if whole else _engine.columns(empty, options))
    source = source if stream is None else stream
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        file = folder / "vectors.arrow"
        with original_errors(stream, "the table given"):
            return file, _engine.spool(source, os.fspath(file), options, whole)
    if isinstance(source, tuple) and len(source) == 2:
        _write_named(*source, folder / "vectors.npz")
        return folder / "vectors.npz", ARRAY
    if any(hasattr(source, interface) for interface in ("__array_interface__", "__array__", "__dlpack__")):
        _write_array(source, folder / "vectors.npy")
        return folder / "vectors.npy", ARRAY
    raise refused(name, source, WANTED)


def _write_array(source: Any, file: Path) -> None:
    import numpy

    if numpy.ma.isMaskedArray(source):
        if not numpy.issubdtype(source.dtype, numpy.floating) and numpy.ma.is_masked(source):
            raise InputError(f"{ARRAY} has masked values, which integers cannot express; leave out their rows")
        source = numpy.ma.filled(source, numpy.nan if numpy.issubdtype(source.dtype, numpy.floating) else 0)
    try:
        array = _array(source)
    except Exception as error:  # objects may raise anything, for example a tensor on another device
        raise InputError(f"{ARRAY} cannot be read as a numpy array: {' '.join(str(error).split())}") from error
    _check_array(array)
    element = numpy.dtype("<f4") if _is_bfloat16(array) else array.dtype.newbyteorder("<")
    header = {"descr": numpy.lib.format.dtype_to_descr(element), "fortran_order": False, "shape": array.shape}
    try:
        with file.open("wb") as out:
            numpy.lib.format.write_array_header_2_0(out, header)
            if array.flags.c_contiguous and array.dtype == element:
                array.tofile(out)
                return
            for start in range(0, len(array), ROWS_AT_ONCE):
                rows = _floats(array[start : start + ROWS_AT_ONCE])
                numpy.ascontiguousarray(rows, dtype=element).tofile(out)
    except OSError as error:
        raise DeviceError(f"cannot write {file}: {error}; name a folder with room as temporary") from error


def _write_named(ids: Any, source: Any, file: Path) -> None:
    """Writes an array with an id for each row."""
    import numpy

    names, array = numpy.asarray(ids), _array(source)
    _check_array(array)
    if names.ndim != 1 or names.dtype.kind not in "iuU" or len(names) != len(array):
        raise InputError(f"the ids of {ARRAY} are {shown(ids)}; give as many integers or texts as there are rows, {len(array)}")
    try:
        numpy.savez(file, **dict(zip(NAMED_ARRAYS, (names, _floats(array)))))
    except OSError as error:
        raise DeviceError(f"cannot write {file}: {error}; name a folder with room as temporary") from error


def _write_columns(columns: dict[Any, Any], file: Path) -> None:
    """Writes named columns: vectors as a two-dimensional array, all others as values, with None for missing ones."""
    all_columns = [(str(name), _vectors(values) or _values(name, values)) for name, values in columns.items()]
    _engine.write_columns(all_columns, os.fspath(file))


def _vectors(values: Any) -> Optional[tuple[bytes, str, int]]:
    """Returns vectors as bytes, their element type, and the number of dimensions; None if the values are not vectors."""
    import numpy

    if isinstance(values, list) and isinstance(next((value for value in values if value is not None), None), str):
        return None  # NumPy would give each text the size of the longest one
    try:
        array = _array(values)
    except ValueError:  # lists of different lengths
        return None
    if array.ndim < 2:
        return None
    _check_array(array)
    array = _floats(array)
    array = numpy.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return array.tobytes(), array.dtype.str[1:], array.shape[1]


def _values(name: Any, values: Any) -> list[Any]:
    """Returns values as Python objects. Times are converted to texts."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"column {name} given is {shown(values)}; give a value for each row")
    if getattr(getattr(values, "dtype", None), "kind", "") == "M":  # NumPy converts nanoseconds to integers
        values = values.astype("datetime64[us]")
    return [_value(name, value) for value in (values.tolist() if hasattr(values, "tolist") else values)]


def _value(name: Any, value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()  # a NumPy scalar
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        fault = f"column {name} given has {shown(value)}, which does not fit in a 64-bit integer"
        raise InputError(f"{fault}; give a float or a text")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise InputError(f"column {name} given has {shown(value)}; give texts, numbers, dates, True, False or None")


def _array(source: Any) -> Any:
    """Converts an array of any library to a numpy array, without a copy if possible."""
    import numpy

    if str(getattr(source, "dtype", "")) == "torch.bfloat16":  # numpy has no such type, so PyTorch refuses to convert it
        torch = sys.modules["torch"]  # there is a tensor of it
        return source.detach().cpu().view(torch.int16).numpy().view("V2")
    is_dlpack = not hasattr(source, "__array__") and hasattr(source, "__dlpack__")
    return numpy.from_dlpack(source) if is_dlpack and not hasattr(source, "__array_interface__") else numpy.asarray(source)


def _is_bfloat16(array: Any) -> bool:
    """Returns whether elements have the type bfloat16 of ml_dtypes, or the type of two bytes as which NumPy loads
    it."""
    return bool(array.dtype.name == "bfloat16" or array.dtype.str[1:] == "V2")


def _floats(array: Any) -> Any:
    """Converts bfloat16 to float32, without loss. Returns other arrays unchanged."""
    import numpy

    if not _is_bfloat16(array):
        return array
    # A bfloat16 is the upper half of a float32.
    halves = numpy.ascontiguousarray(array).view(numpy.uint16)
    return (halves.astype(numpy.uint32) << 16).view(numpy.float32)


def _check_array(array: Any) -> None:
    """Refuses an array that does not contain vectors."""
    if array.dtype.hasobject and array.ndim == 1:
        raise InputError(f"{ARRAY} has objects as elements; if each is a vector, give numpy.stack(x)")
    if array.dtype.str[1:] not in ELEMENTS and not _is_bfloat16(array):
        kinds = "bfloat16, float16, float32, float64, uint8 or int8"
        raise InputError(f"{ARRAY} has elements of type {array.dtype}; give {kinds}, such as x.astype('float32')")
    if array.ndim != 2:
        shaped = "x.reshape(-1, d), or x.reshape(1, -1) for a single vector" if array.ndim < 2 else "x.reshape(len(x), -1)"
        count = "1 dimension" if array.ndim == 1 else f"{array.ndim} dimensions"
        raise InputError(f"{ARRAY} has {count}; give one vector per row, such as {shaped}")
