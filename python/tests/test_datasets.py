"""Data sets of Hugging Face without near-duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("datasets")

from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_from_disk

import adjoin
from adjoin.datasets import deduplicate

from conftest import pairs_within

EPS = 0.3
FEATURES = Features(
    {
        "text": Value("string"),
        "label": ClassLabel(names=["no", "yes"]),
        "embedding": List(Value("float32"), length=8),
        "rank": Value("int64"),
    }
)


def dataset_of(vectors: Any) -> Dataset:
    rows = range(len(vectors))
    columns = {
        "text": [f"text {row}" for row in rows],
        "label": [row % 2 for row in rows],
        "embedding": list(vectors),
        "rank": [-row for row in rows],
    }
    return Dataset.from_dict(columns, features=FEATURES)


def check(kept: Any, removed: Any, vectors: Any) -> None:
    """Checks that kept rows are no pairs, and each removed row is near its kept row."""
    kept_rows, near = set(kept), pairs_within(vectors, EPS)
    assert not [pair for pair in near if kept_rows.issuperset(pair)]
    assert kept_rows | set(removed["row"]) == set(range(len(vectors)))
    for row, kept_row, distance in zip(removed["row"], removed["kept_row"], removed["distance"]):
        assert kept_row in kept_rows
        assert near[min(row, kept_row), max(row, kept_row)] == pytest.approx(distance, abs=1e-4)


def rows_of(dataset: Any) -> list[int]:
    return [int(text.split()[1]) for text in dataset["text"]]


def test_kept_rows_are_selected_and_survive_the_disk(vectors: numpy.ndarray, tmp_path: Path) -> None:
    before = dataset_of(vectors)
    before.save_to_disk(tmp_path / "before")
    result = deduplicate(load_from_disk(tmp_path / "before"), eps=EPS, exact=True, columns=["text"], memory="200MB")
    kept, removed = result.dataset, result.removed
    assert (
        0 < len(kept) < len(vectors)
        and len(kept) + len(removed) == len(vectors) == result.stats["dedupe"]["source_rows"]
    )
    check(rows_of(kept), removed, vectors)
    assert removed["text"] == [f"text {row}" for row in removed["row"]] and set(removed["reason"]) == {"similar"}
    assert removed["kept_text"] == [f"text {row}" for row in removed["kept_row"]]
    kept.save_to_disk(tmp_path / "after")
    after = load_from_disk(tmp_path / "after")
    assert after.features == FEATURES and after.to_list() == [before[row] for row in rows_of(kept)]
    assert f"{len(removed)} rows removed" in repr(result)
    again = deduplicate(after, eps=EPS, exact=True)
    assert len(again.dataset) == len(after) and len(again.removed) == 0
    again.removed.save_to_disk(tmp_path / "removed")


def test_options_of_dedupe_choose_the_rows(vectors: numpy.ndarray) -> None:
    before = dataset_of(vectors).shuffle(seed=3).with_format("numpy")
    first = deduplicate(before, eps=EPS, exact=True)
    last = deduplicate(before, eps=EPS, exact=True, keep_by="RANK")
    assert first.dataset.format["type"] == "numpy"
    order = numpy.array(before["rank"])
    for result, nearer in ((first, numpy.arange(len(order))), (last, order)):
        rows, kept_rows = (numpy.array(result.removed[name]) for name in ("row", "kept_row"))
        assert (nearer[kept_rows] < nearer[rows]).all()
    same = dataset_of(numpy.eye(8, dtype="float32")).map(lambda row: {"text": "Same  text"})
    equal = deduplicate(same, min_similarity=0.9, exact_text="normalize(text)")
    assert len(equal.dataset) == 1 and set(equal.removed["reason"]) == {"equal text"}
    assert equal.removed["similarity"] == [None] * 7


def test_splits_are_deduplicated_alone_or_in_order(vectors: numpy.ndarray) -> None:
    complete = dataset_of(vectors)
    bounds = {"train": range(350), "empty": range(0), "test": range(350, 600)}
    splits = DatasetDict({name: complete.select(rows) for name, rows in bounds.items()})
    alone = deduplicate(splits, eps=EPS, exact=True)
    assert list(alone.dataset) == list(splits) and alone.removed["split"] == alone.removed["kept_split"]
    for name in ("train", "test"):
        removed = alone.removed.filter(lambda row: row["split"] == name)
        start = bounds[name].start
        check([row - start for row in rows_of(alone.dataset[name])], removed, vectors[start : bounds[name].stop])
    assert set(alone.stats) == {"train", "test"}

    across = deduplicate(splits, eps=EPS, exact=True, across_splits=True, columns=["text"])
    once = deduplicate(complete, eps=EPS, exact=True)
    kept = [row for split in across.dataset.values() for row in rows_of(split)]
    assert kept == rows_of(once.dataset) and len(across.dataset["empty"]) == 0
    assert across.removed["text"] == [f"text {row}" for row in once.removed["row"]]
    for split, row, text in zip(across.removed["kept_split"], across.removed["kept_row"], across.removed["kept_text"]):
        assert splits[split][row]["text"] == text
    moved = {(row["kept_split"], row["split"]) for row in across.removed}
    assert ("train", "test") in moved and ("test", "train") not in moved


def test_mistakes_are_refused(vectors: numpy.ndarray) -> None:
    before = dataset_of(vectors)
    stream = before.to_iterable_dataset()
    other = DatasetDict({"a": before, "b": before.cast_column("embedding", List(Value("float64")))})
    for dataset, options, words in [
        (before, dict(column="vector"), "no column 'vector', only text, label, embedding, rank; give one of these"),
        (before, dict(columns=["url"]), "no column 'url'"),
        (before, dict(columns="text"), "give a list of texts"),
        (before, dict(column="text"), "column text is Utf8, not a list"),
        (before, dict(across_splits=True), "needs a DatasetDict"),
        (before, dict(keep_by="missing"), "missing"),
        (before.select([]), {}, "has no rows; name a source"),
        (DatasetDict(), {}, "has no splits"),
        (DatasetDict({"a": before.select([])}), {}, "has no rows"),
        (other, dict(across_splits=True), "the splits differ in their columns"),
        (stream, {}, "give a datasets.Dataset or DatasetDict"),
    ]:
        with pytest.raises(adjoin.AdjoinError, match=words):
            deduplicate(dataset, eps=EPS, **options)
