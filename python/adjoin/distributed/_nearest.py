"""Searches of one store by the rows of a data frame of Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from .. import _folders, _options
from .._errors import InputError, OptionError
from .._options import PathLike
from ._runners import package
from ._task import check_seen, is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame  # type: ignore[import-not-found,import-untyped,unused-ignore]

#: Columns of a hit's value, by metric.
VALUES = {"l2": "distance", "cosine": "similarity", "ip": "score"}


def nearest_by_join(
    left: DataFrame,
    store: PathLike,
    vector_column: str,
    num_results: int,
    mode: Literal["approx", "exact"],
    *,
    join_type: Literal["inner", "leftouter"] = "inner",
    recall: Optional[float] = None,
    where: Optional[str] = None,
    memory: Union[str, int] = "1GB",
    threads: int = 1,
) -> DataFrame:
    """Finds the ``num_results`` nearest rows of a store for each row of a data frame of Spark, in the shape of its
    ``nearestByJoin``.

    Spark compares each row with every row of the other data frame. This call searches a store instead, in
    ``mapInArrow``, so a batch of rows reads only the buckets that it probes. Like any data frame, it runs when an action
    needs its rows.

    Args:
        left: Rows with a column of vectors.
        store: A folder that all machines see at this path, or a URL such as ``s3://bucket/vectors.store``. Its metric is
            the ranking.
        vector_column: Column of ``left``, an array of numbers.
        mode: ``"approx"`` finds at least the fraction ``recall`` of the nearest rows, 0.95 by default; ``"exact"`` finds
            all.
        join_type: With ``"leftouter"``, rows of ``left`` without a hit are returned too. Only ``where`` and an empty
            store leave rows without hits.
        where: A SQL condition on the columns that the store keeps.
        memory: Memory budget of a search. Each task of Spark has one search at a time.
        threads: Threads of a search, as in ``spark.task.cpus``.

    Returns the columns of ``left`` with ``rank`` (from 1), ``id`` (an id of the store, or a row number), and ``distance``,
    ``similarity`` or ``score``.

    Raises ImportError if pyspark or pyarrow is not installed, and a subclass of :class:`adjoin.AdjoinError` if the store
    cannot be opened or an option is wrong.
    """
    package("pyspark.sql", "spark")
    package("pyarrow", "spark")
    if mode not in ("approx", "exact"):
        raise OptionError(f"mode is {_options.shown(mode)}; give approx or exact")
    if join_type not in ("inner", "leftouter"):
        raise OptionError(f"join_type is {_options.shown(join_type)}; give inner or leftouter")
    name = _options.path("store", store)
    name = name if is_url(name) else os.path.abspath(name)
    info = _folders.Store(name).info
    added = {"rank": "int", "id": "string" if info["ids"] == "utf8" else "bigint", VALUES[info["metric"]]: "float"}
    _check_columns(left.columns, vector_column, list(added))
    schema = package("pyspark.sql.types", "spark").StructType(list(left.schema.fields))
    for column, kind in added.items():
        schema = schema.add(column, kind, True)
    options = {
        "k": _options.integer("num_results", num_results, _options.U64_MAX),
        "recall": _options.number("recall", recall),
        "exact": mode == "exact",
        "where": _options.text("where", where),
        "memory": _options.resources(memory, None)["memory"],
        "threads": _options.integer("threads", threads, _options.U32_MAX),
    }
    request = {"store": name, "vector_column": vector_column, "added": list(added), "is_outer": join_type == "leftouter"}
    return left.mapInArrow(_search_of(request, options), schema)


def _check_columns(columns: list[str], vector_column: str, added: list[str]) -> None:
    if vector_column not in columns:
        raise InputError(f"left has no column {vector_column}; its columns are {', '.join(columns)}")
    for column in added:
        if column in columns:
            raise InputError(f"left has a column {column}, which the result adds; rename it")


def _search_of(request: dict[str, Any], options: dict[str, Any]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def search(batches: Iterable[Any]) -> Iterator[Any]:
        check_seen("store", request["store"])
        store = _folders.Store(request["store"])
        for batch in batches:
            if batch.num_rows:
                yield from _hits_of(store, batch, request, options)

    return search


def _hits_of(store: _folders.Store, batch: Any, request: dict[str, Any], options: dict[str, Any]) -> Iterator[Any]:
    """Yields the rows of a batch with their hits."""
    arrow = package("pyarrow", "spark")
    rows = arrow.Table.from_batches([batch])
    column = request["vector_column"]
    with store.search(rows.select([column]), vector_column=column, ids=False, **options) as found:
        hits = found.to_arrow()
    # Spark has no unsigned integers.
    for place, kind in (("rank", arrow.int32()), ("id", arrow.int64())):
        if arrow.types.is_unsigned_integer(hits.schema.field(place).type):
            hits = hits.set_column(hits.schema.get_field_index(place), place, hits[place].cast(kind))
    joined = rows.take(hits["query"])
    for name in request["added"]:
        joined = joined.append_column(name, hits[name])
    yield from joined.to_batches()
    if request["is_outer"]:
        compute = package("pyarrow.compute", "spark")
        numbers = arrow.array(range(rows.num_rows), hits["query"].type)
        lonely = rows.filter(compute.invert(compute.is_in(numbers, hits["query"].combine_chunks())))
        for name in request["added"]:
            lonely = lonely.append_column(name, arrow.nulls(lonely.num_rows, hits[name].type))
        yield from lonely.to_batches()
