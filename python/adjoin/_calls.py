"""Calls of a server as generators of requests, which clients with and without asyncio send.

A call yields requests, receives the content of their answers or the error that they report, and returns its result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional, TypeVar
from urllib.parse import urlencode, urlsplit

from . import _options
from ._errors import BudgetError, InputError, OptionError
from ._results import Hits, Rows
from ._served import ELEMENTS, ServedHits, ServedRows

JSON, RAW = "application/json", "application/octet-stream"
#: Bytes of a request for everything but its rows.
AROUND_ROWS = 256

Item = TypeVar("Item")
Returned = TypeVar("Returned")


class Request(NamedTuple):
    """A request of one call."""

    path: str
    body: Optional[bytes] = None
    content_type: str = JSON
    #: Whether sending it twice has the effect of sending it once.
    is_repeatable: bool = True

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


Call = Generator[Request, Any, Returned]


class Calls:
    """The calls of a client as generators of requests."""

    def __init__(self, url: str, key: Optional[str]) -> None:
        self.url = (_options.text("url", url) or "").rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise OptionError(
                f"url is {_options.shown(url)}; give the address of a server, such as http://127.0.0.1:7700"
            )
        self._parts = parts
        self._headers = {"accept": JSON, "accept-encoding": "identity"}
        if _options.text("key", key):
            self._headers["authorization"] = f"Bearer {key}"
        self._info: Optional[dict[str, Any]] = None

    def __repr__(self) -> str:
        return f"<adjoin.{type(self).__name__} {self.url!r}>"

    def _info_of(self, fresh: bool = False) -> Call[dict[str, Any]]:
        """Returns the metadata, which changes only in the number of rows as long as the server serves one folder."""
        if self._info is None or fresh:
            self._info = dict((yield Request("/v1/info")))
        return self._info

    def _search(self, queries: Any, columns: Any, members: dict[str, Any]) -> Call[Hits]:
        info = yield from self._info_of()
        names = _options.texts("columns", columns)
        if any("," in name for name in names):
            raise OptionError(f"columns is {_options.shown(columns)}; names with a comma cannot be requested over HTTP")
        array = _array("queries", queries, info)
        element = next(name for name, dtype in ELEMENTS.items() if dtype == array.dtype.name)
        wanted = {name: value for name, value in members.items() if value is not None and value is not False}
        wanted |= {"element": element, **({"columns": ",".join(names)} if names else {})}
        path = "/v1/search?" + urlencode({name: "true" if value is True else value for name, value in wanted.items()})
        limits = info["limits"]
        rows = max(1, min(limits["queries"], limits["body_bytes"] // max(array[:1].nbytes, 1)))

        def part(here: slice) -> Request:
            return Request(path, array[here].astype(array.dtype.newbyteorder("<")).tobytes(), RAW)

        answers = yield from _in_parts(len(array), rows, part)
        return ServedHits(answers, info, names)

    def _get(self, ids: Any, on_missing: Any) -> Call[Rows]:
        info = yield from self._info_of()
        listed = _options.id_list("ids", ids)
        skip = _options.choice("on_missing", on_missing, "on_missing")

        def part(here: slice) -> Request:
            return Request("/v1/rows", _encoded({"ids": listed[here], "on_missing": skip}))

        answers = yield from _in_parts(len(listed), info["limits"]["queries"], part)
        return ServedRows([row for answer in answers for row in answer["rows"]], info)

    def _put(self, put: str, ids: Any, vectors: Any, columns: Any, durability: Any) -> Call[int]:
        info = yield from self._info_of()
        listed, array = _options.id_list("ids", ids), _array("vectors", vectors, info)
        named = _columns_of(columns, len(array))
        if len(listed) != len(array):
            raise InputError(f"there are {len(listed)} ids for {len(array)} vectors; give as many")
        kept = _options.choice("durability", durability, "durability")
        # All rows are encoded before the first is sent, so that a value that cannot be sent leaves nothing written.
        rows = [_row(listed[row], array[row], {n: v[row] for n, v in named.items()}) for row in range(len(array))]
        sequence = 0
        for part in _parts(rows, len_of_row, info["limits"]):
            fields = [f'"put":"{put}"', f'"durability":"{kept}"', f'"ids":[{",".join(row[0] for row in part)}]']
            fields.append(f'"vectors":[{",".join(row[1] for row in part)}]')
            if named:
                fields.append(f'"columns":[{",".join(row[2] for row in part)}]')
            body = ("{" + ",".join(fields) + "}").encode()
            sequence = int((yield Request("/v1/vectors", body, is_repeatable=put == "upsert"))["sequence"])
        return sequence

    def _delete(self, ids: Any, where: Any, durability: Any) -> Call[int]:
        kept = _options.choice("durability", durability, "durability")
        condition = _options.text("where", where)
        if (ids is None) == (condition is None):
            raise OptionError("delete needs either ids or where; give one of them")
        options = {"durability": kept}
        # Sent twice, the second answer would report no deleted row.
        if condition is not None:
            request = Request("/v1/vectors/delete", _encoded({"where": condition, **options}), is_repeatable=False)
            return int((yield request)["deleted"])
        info = yield from self._info_of()
        deleted = 0
        for part in _parts(_options.id_list("ids", ids), len_of_id, info["limits"]):
            request = Request("/v1/vectors/delete", _encoded({"ids": part, **options}), is_repeatable=False)
            deleted += int((yield request)["deleted"])
        return deleted


def _in_parts(count: int, most: int, part: Callable[[slice], Request]) -> Call[list[Any]]:
    """Requests ``count`` rows, at most ``most`` at once, or fewer if the server has too little memory for them."""
    answers: list[Any] = []
    first = 0
    while first < count:
        here = slice(first, min(first + most, count))
        try:
            answers.append((yield part(here)))
        except BudgetError:
            if here.stop - first == 1:
                raise
            most = (here.stop - first) // 2
        else:
            first = here.stop
    return answers


def effort(
    k: Any, radius: Any, min_similarity: Any, recall: Any, exact: Any, nprobe: Any, list: Any, where: Any, deadline: Any
) -> dict[str, Any]:
    """Returns the options of a search as members of a request."""
    numbers = {"radius": radius, "min_similarity": min_similarity, "recall": recall}
    counts = {"k": k, "nprobe": nprobe, "list": list, "deadline_ms": deadline}
    return {
        **{name: _options.number(name, value) for name, value in numbers.items()},
        **{name: _options.optional_integer(name, value, _options.U64_MAX) for name, value in counts.items()},
        "exact": _options.flag("exact", exact),
        "where": _options.text("where", where),
    }


def _array(name: str, source: Any, info: Mapping[str, Any]) -> Any:
    """Returns vectors as a two-dimensional array of an element type of the engine."""
    import numpy

    array = numpy.asarray(source)
    if array.dtype.name not in ELEMENTS.values():
        if array.dtype.kind not in "fiu":
            raise InputError(f"{name} has elements of type {array.dtype}; give numbers, such as an array of float32")
        array = array.astype("float32")
    if array.ndim != 2 or array.shape[1] != info["dimensions"]:
        shape = " x ".join(map(str, array.shape))
        raise InputError(f"{name} is an array of {shape}; give one row of {info['dimensions']} dimensions per vector")
    return array


def _columns_of(columns: Any, rows: int) -> dict[str, list[Any]]:
    """Returns the values of each column for each row."""
    if columns is not None and not isinstance(columns, Mapping):
        raise _options.refused("columns", columns, "a dictionary of sequences, such as {'lang': ['en', None]}")
    named = {
        name: values.tolist() if hasattr(values, "tolist") else list(values) for name, values in (columns or {}).items()
    }
    for name, values in named.items():
        if len(values) != rows:
            raise InputError(f"column {name} has {len(values)} values for {rows} vectors; give as many")
    return named


def _row(id: Any, vector: Any, columns: dict[str, Any]) -> tuple[str, str, str]:
    """Returns the id, the vector and the columns of a row as JSON."""
    # Nine digits are enough for every float32.
    numbers = ",".join(f"{number:.9g}" for number in vector.tolist())
    if "n" in numbers:  # nan or inf
        raise InputError(f"the vector of id {_options.shown(id)} has a number that is not finite; leave that row out")
    return json.dumps(id), f"[{numbers}]", _encoded(columns).decode()


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except InputError:
        raise
    except ValueError:  # JSON has no infinite numbers
        raise InputError("a column has a number that is not finite; give None instead") from None


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise InputError(f"a column has {_options.shown(value)}; give texts, numbers, dates, True, False or None")


def len_of_id(id: Any) -> int:
    """Returns the bytes of an id in JSON, with a comma."""
    return len(_encoded(id)) + 1


def len_of_row(row: tuple[str, str, str]) -> int:
    """Returns the bytes of a row in JSON, with commas."""
    return sum(len(text.encode()) + 1 for text in row)


def _parts(rows: Iterable[Item], size_of: Callable[[Item], int], limits: Mapping[str, Any]) -> Iterator[list[Item]]:
    """Splits rows into parts that each fit into a request."""
    part: list[Item] = []
    free = 0
    for row in rows:
        size = size_of(row)
        if part and (size > free or len(part) == limits["queries"]):
            yield part
            part = []
        if not part:
            free = limits["body_bytes"] - AROUND_ROWS
        part.append(row)
        free -= size
    if part:
        yield part
