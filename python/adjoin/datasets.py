"""Removes near-duplicates from data sets of Hugging Face. Needs ``pip install "adjoin[datasets]"``.

The rows of the result are selected by their numbers, so features, formats and files of the data set are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Optional, TypeVar, Union

import numpy
import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]
from datasets import Dataset, DatasetDict, concatenate_datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]

from . import OnBad, dedupe
from ._errors import InputError, OptionError
from ._options import PathLike, flag, refused, shown, texts

__all__ = ["Deduplicated", "deduplicate"]

Data = TypeVar("Data")


class Deduplicated(Generic[Data]):
    """A data set without its near-duplicates."""

    def __init__(self, dataset: Data, removed: Dataset, stats: dict[str, Any]) -> None:
        #: The kept rows, in their order.
        self.dataset: Data = dataset
        #: The removed rows, a ``datasets.Dataset``: ``row`` and ``kept_row`` (row numbers in the data set), their
        #: ``similarity`` or ``distance``, the ``reason`` (``similar`` or ``equal text``), and the columns of both
        #: rows that were asked for, such as ``text`` and ``kept_text``. With several splits, ``split`` and
        #: ``kept_split`` are the splits of the row numbers.
        self.removed: Dataset = removed
        #: Statistics of the run, as written by ``--stats`` of the command; by split if splits were deduplicated one by
        #: one.
        self.stats: dict[str, Any] = stats

    def __repr__(self) -> str:
        return f"<adjoin.datasets.Deduplicated: {len(self.removed)} rows removed from {self.dataset!r}>"


def deduplicate(
    dataset: Data,
    column: str = "embedding",
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    keep_by: Optional[str] = None,
    exact_text: Optional[str] = None,
    columns: Sequence[str] = (),
    across_splits: bool = False,
    on_bad: OnBad = "error",
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Deduplicated[Data]:
    """Returns a ``datasets.Dataset`` or a ``datasets.DatasetDict`` without its near-duplicates, and the removed rows.

    Args:
        column: Column of the vectors. Only this column and the columns that other arguments name are read.
        eps: Distance (L2) within which rows are near-duplicates; or ``min_similarity``, a cosine similarity.
        columns: Columns of both rows to add to the removed rows.
        across_splits: By default each split of a ``DatasetDict`` is deduplicated alone. If True, a row is also removed
            if a row of an earlier split is near, such as a row of ``test`` near one of ``train``.

    The other arguments are options of :func:`adjoin.dedupe`.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    options = {
        "eps": eps,
        "min_similarity": min_similarity,
        "recall": recall,
        "exact": exact,
        "keep_by": keep_by,
        "exact_text": exact_text,
        "columns": texts("columns", columns),
        "on_bad": on_bad,
        "memory": memory,
        "threads": threads,
        "seed": seed,
        "temporary": temporary,
        "progress": progress,
    }
    flag("across_splits", across_splits)
    if isinstance(dataset, Dataset):
        if across_splits:
            raise OptionError("across_splits needs a DatasetDict; this data set has no splits")
        found, stats = _removed_rows(dataset, column, options)
        return Deduplicated(_kept(dataset, found["row"].to_numpy()), _dataset(found), stats)
    if not isinstance(dataset, DatasetDict):
        raise refused(
            "dataset", dataset, "a datasets.Dataset or DatasetDict; adjoin.dedupe also reads streams and files"
        )
    if not dataset:
        raise InputError("the data set given has no splits; give one with rows")
    if across_splits:
        return _across_splits(dataset, column, options)
    return _by_split(dataset, column, options)


def _by_split(dataset: Any, column: str, options: dict[str, Any]) -> Deduplicated[Any]:
    """Deduplicates each split alone."""
    kept, tables, stats = DatasetDict(), [], {}
    for name, split in dataset.items():
        if not len(split):
            kept[name] = split
            continue
        found, stats[name] = _removed_rows(split, column, options)
        kept[name] = _kept(split, found["row"].to_numpy())
        tables.append(_with_splits(found, [name] * len(found), [name] * len(found)))
    if not tables:
        raise InputError("the data set given has no rows; give one that has some")
    return Deduplicated(kept, _dataset(pyarrow.concat_tables(tables)), stats)


def _across_splits(dataset: Any, column: str, options: dict[str, Any]) -> Deduplicated[Any]:
    """Deduplicates all splits as one data set, in their order."""
    names = list(dataset)
    parts = [_needed(split, column, options) for split in dataset.values()]
    try:
        joined = concatenate_datasets(parts)
    except ValueError as error:
        raise InputError(f"the splits differ in their columns: {' '.join(str(error).split())}") from error
    found, stats = _removed_rows(joined, column, options)
    starts = numpy.cumsum([0, *(len(part) for part in parts)])
    rows, kept_rows = found["row"].to_numpy(), found["kept_row"].to_numpy()
    # An empty split starts with the next one, so the last split that starts at or before a row has it.
    splits, kept_splits = (numpy.searchsorted(starts, one, side="right") - 1 for one in (rows, kept_rows))
    kept = DatasetDict()
    for place, name in enumerate(names):
        kept[name] = _kept(dataset[name], rows[splits == place] - starts[place])
    found = _with_rows(found, rows - starts[splits], kept_rows - starts[kept_splits])
    found = _with_splits(found, [names[place] for place in splits], [names[place] for place in kept_splits])
    return Deduplicated(kept, _dataset(found), stats)


def _removed_rows(dataset: Any, column: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the rows to remove as a pyarrow table, and the statistics of the run."""
    with dedupe(_needed(dataset, column, options), ids=False, vector_column=column, **options) as result:
        found = result.removed().to_arrow()
        names = ["row", "kept_row", *found.column_names[2:]]
        rows = (found.column(place).to_numpy().astype("int64") for place in range(2))
        return _with_rows(found.rename_columns(names), *rows), result.stats


def _needed(dataset: Any, column: str, options: dict[str, Any]) -> Any:
    """Returns the data set with only the columns that are read."""
    wanted = [column, *options["columns"]]
    for name in wanted:
        if name not in dataset.column_names:
            there = ", ".join(dataset.column_names) or "none"
            raise InputError(f"the data set given has no column {shown(name)}, only {there}; give one of these")
    # Names in expressions may differ in case. A column too many does no harm.
    expressions = f"{options['keep_by'] or ''} {options['exact_text'] or ''}".lower()
    return dataset.select_columns(
        [name for name in dataset.column_names if name in wanted or name.lower() in expressions]
    )


def _kept(dataset: Any, removed: Any) -> Any:
    """Returns the data set without the rows with some numbers."""
    is_kept = numpy.ones(len(dataset), dtype=bool)
    is_kept[removed] = False
    return dataset.select(numpy.flatnonzero(is_kept))


def _dataset(table: Any) -> Dataset:
    """Converts a table. ``datasets`` cannot save tables whose columns have no chunk, as streams without rows have."""
    return Dataset(table if len(table) else table.schema.empty_table())


def _with_rows(table: Any, rows: Any, kept_rows: Any) -> Any:
    """Returns the table of removed rows with other row numbers."""
    return table.set_column(0, "row", pyarrow.array(rows)).set_column(1, "kept_row", pyarrow.array(kept_rows))


def _with_splits(table: Any, splits: list[str], kept_splits: list[str]) -> Any:
    """Returns the table of removed rows with the split of each row number before it."""
    texts_of = pyarrow.string()
    table = table.add_column(1, "kept_split", pyarrow.array(kept_splits, texts_of))
    return table.add_column(0, "split", pyarrow.array(splits, texts_of))
