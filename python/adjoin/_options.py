"""Converts arguments to the types of the engine. If a value has the wrong type, the error names the expected type in
one line."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from . import _engine
from ._errors import InputError, OptionError, OptionTypeError

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: Maximum number of characters of a value in a message.
SHOWN = 60
#: The largest integers that the engine accepts.
U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1


def refused(name: str, value: object, wanted: str) -> OptionTypeError:
    """Returns the error for an argument of the wrong type."""
    return OptionTypeError(f"{name} is {shown(value)} ({type(value).__name__}); give {wanted}")


def shown(value: object) -> str:
    """Returns a value as one line for a message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # objects may raise anything, and so do integers with thousands of digits
        return "a value that cannot be shown"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def required_number(name: str, value: Any) -> float:
    """Calls :func:`number`, and refuses None."""
    given = number(name, value)
    if given is None:
        raise refused(name, value, "a number")
    return given


def number(name: str, value: Any) -> Optional[float]:
    """Returns a number of any kind, including NumPy's, as a float, or None."""
    if value is None:
        return None
    is_number = hasattr(value, "__float__") or hasattr(value, "__index__")
    if _is_bool(value) or not is_number:
        raise refused(name, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise OptionError(f"{name} is {shown(value)}; give a number that a float can hold") from None
    except Exception:  # arrays of several numbers, and the like
        raise refused(name, value, "a number") from None


def integer(name: str, value: Any, most: int) -> int:
    """Returns an integer of any type from 0 to ``most``."""
    try:
        if _is_bool(value):
            raise TypeError
        whole = operator.index(value)
    except Exception:
        raise refused(name, value, "a whole number") from None
    if whole < 0:
        raise OptionError(f"{name} is {shown(whole)}; it must not be negative")
    if whole > most:
        raise OptionError(f"{name} is {shown(whole)}; give at most {most}")
    return whole


def optional_integer(name: str, value: Any, most: int) -> Optional[int]:
    """Calls :func:`integer`, unless the value is None."""
    return None if value is None else integer(name, value, most)


def flag(name: str, value: Any) -> bool:
    """Returns True or False, also from NumPy's types."""
    if not _is_bool(value):
        raise refused(name, value, "True or False")
    return bool(value)


def optional_flag(name: str, value: Any) -> Optional[bool]:
    """Calls :func:`flag`, unless the value is None."""
    return None if value is None else flag(name, value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool") and hasattr(value, "dtype")


def text(name: str, value: Any) -> Optional[str]:
    """Returns a text or None."""
    if value is not None and not isinstance(value, str):
        raise refused(name, value, "a text")
    return value


def texts(name: str, value: Any) -> list[str]:
    """Returns a list of texts. Refuses a single text, which would be split into letters."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise refused(name, value, "a list of texts")
    return list(value)


def typed_names(name: str, value: Any) -> list[str]:
    """Returns the names and types of a dictionary, each as ``name:type``; an empty list for None."""
    if value is None:
        return []
    if not isinstance(value, Mapping) or not all(isinstance(column, str) for column in value):
        raise refused(name, value, "a dictionary of names and types, such as {'lang': 'text', 'year': 'int64'}")
    return [f"{column}:{choice(f'{name}[{column!r}]', kind, 'column type')}" for column, kind in value.items()]


def choice(name: str, value: Any, option: str) -> str:
    """Returns a text that is one of the values of an ``option`` of the engine."""
    choices = _engine.CHOICES[option]
    wanted = " or ".join(choices)
    if not isinstance(value, str):
        raise refused(name, value, wanted)
    if value not in choices:
        raise OptionError(f"{name} is {shown(value)}; give {wanted}")
    return str(value)


def path(name: str, value: Any) -> str:
    """Returns a path, given as text or bytes, as text."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise refused(name, value, "a path")
    decoded = os.fsdecode(value)
    try:
        decoded.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name} is {shown(value)}; give a path in UTF-8") from None
    return decoded


def optional_path(name: str, value: Any) -> Optional[str]:
    """Calls :func:`path`, unless the value is None."""
    return None if value is None else path(name, value)


def refuse_inputs(output: Optional[str], inputs: Sequence[str]) -> None:
    """Refuses an output that is an input, even if the names are spelled differently."""

    def identity(name: str) -> Any:
        local = name.removeprefix("file://")
        return local if "://" in local or not os.path.exists(local) else os.stat(local)[1:3]

    for name in inputs:
        if output is not None and identity(name) == identity(output):
            raise OptionError(f"{name} is an input, so the result cannot replace it; choose another name")


def resources(memory: Any, threads: Any) -> dict[str, Any]:
    """Returns the resources of a run. Memory is counted from this call on."""
    if memory is not None and not isinstance(memory, str):
        try:
            memory = str(integer("memory", memory, U64_MAX))
        except OptionTypeError:
            raise refused("memory", memory, "a size such as '2GiB', a fraction such as '80%', or a whole number of bytes") from None
    threads = optional_integer("threads", threads, U64_MAX)
    return {"memory": memory, "threads": threads, "before_bytes": _engine.resident_from_now_on()}


def threshold(eps: Any, min_similarity: Any, recall: Any, exact: Any, recall_of: Any = "pairs-and-vectors") -> dict[str, Any]:
    """Returns the threshold and the recall of a join."""
    numbers = {"eps": eps, "min_similarity": min_similarity, "recall": recall}
    return {
        **{name: number(name, value) for name, value in numbers.items()},
        "exact": flag("exact", exact),
        "recall_of": choice("recall_of", recall_of, "recall_of"),
    }


def compared_texts(
    column: Any, min_jaccard: Any, shingles: Any, shingle_size: Any, threshold: dict[str, Any], store: dict[str, Any]
) -> Optional[dict[str, Any]]:
    """Returns how texts are compared, or None if vectors are. Refuses options of the other kind."""
    column, unit = text("text", column), choice("shingles", shingles, "shingles")
    if column is None:
        for name, value in (("min_jaccard", min_jaccard), ("shingle_size", shingle_size), ("shingles", unit != "words" or None)):
            if value is not None:
                raise OptionError(f"{name} is for texts, but vectors are compared; leave it out, or give text instead of a threshold")
        return None
    if threshold["eps"] is not None or threshold["min_similarity"] is not None:
        raise OptionError("text compares texts, but eps and min_similarity compare vectors; give only one of them")
    if store["on_bad"] != "error":
        raise OptionError("on_bad is for vectors, but texts are compared, and empty ones are kept; leave it out")
    return {
        "column": column,
        "min_jaccard": number("min_jaccard", min_jaccard),
        "shingles": unit,
        "shingle_size": optional_integer("shingle_size", shingle_size, U32_MAX),
    }


def store_options(
    seed: Any,
    buckets: Any,
    vector_column: Any,
    id_column: Any,
    ids: Any,
    split: Any,
    on_bad: Any,
    on_duplicate_id: Any,
    columns: Any = (),
    sort_by: Any = None,
) -> dict[str, Any]:
    """Returns the build options of a store."""
    return {
        "seed": integer("seed", seed, U64_MAX),
        "buckets": optional_integer("buckets", buckets, U32_MAX),
        "vector_column": text("vector_column", vector_column),
        "id_column": text("id_column", id_column),
        "ids": flag("ids", ids),
        "split": text("split", split),
        "on_bad": choice("on_bad", on_bad, "on_bad"),
        "on_duplicate_id": choice("on_duplicate_id", on_duplicate_id, "on_duplicate_id"),
        "columns": texts("columns", columns),
        "sort_by": text("sort_by", sort_by),
    }


def id_list(name: str, ids: Any) -> list[Any]:
    """Returns ids, NumPy arrays included, as a list of integers or texts."""
    wanted = "a list of integers or of texts"
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
        raise refused(name, ids, wanted)
    listed = list(listed)
    if all(isinstance(id, str) for id in listed):
        return listed
    for id in listed:
        if isinstance(id, bool) or not hasattr(id, "__index__"):
            raise refused(f"an id of {name}", id, wanted)
        if not -(2**63) <= int(id) < 2**63:
            raise InputError(f"an id of {name} is {shown(id)}; give integers of 64 bits")
    return [int(id) for id in listed]


def index_options(degree: Any, build_list: Any, code_bytes: Any, page: Any) -> dict[str, Any]:
    """Returns the build options of an index."""
    return {
        "degree": optional_integer("degree", degree, U32_MAX),
        "build_list": integer("build_list", build_list, U32_MAX),
        "code_bytes": optional_integer("code_bytes", code_bytes, U32_MAX),
        "page": page if isinstance(page, str) else str(integer("page", page, U64_MAX)),
    }
