"""Checks ``keep_by`` against a plain implementation of its definition, on random tables."""

from __future__ import annotations

import math
import random
from datetime import date, timedelta
from typing import Any, Callable, NamedTuple

import numpy
import pyarrow
import pytest

import adjoin

#: Part of an order, and its value for a row; None means null.
PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "n": lambda row: row["n"],
    "x": lambda row: row["x"],
    "day": lambda row: row["day"],
    "flag": lambda row: row["flag"],
    "text": lambda row: None if row["text"] is None else row["text"].encode(),
    "length(text)": lambda row: None if row["text"] is None else len(row["text"]),
    "lower(text)": lambda row: None if row["text"] is None else row["text"].lower().encode(),
    "n + 2 * length(text)": lambda row: None if None in (row["n"], row["text"]) else row["n"] + 2 * len(row["text"]),
    "coalesce(n, 4)": lambda row: 4 if row["n"] is None else row["n"],
}


def rows_of(seed: int, count: int = 120) -> list[dict[str, Any]]:
    """Rows with nulls and ties in every column, and with vectors in a few clumps and chains."""
    lot = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if lot.random() < 0.2 else value

    places = [[lot.uniform(0, 9) for _ in range(3)] for _ in range(12)]
    return [
        {
            "id": row,
            "n": maybe(lot.randrange(-3, 4)),
            "x": maybe(lot.choice([0.5, -1.5, math.inf, 1e300, -math.inf, 2.0])),
            "day": maybe(date(2026, 1, 1) + timedelta(days=lot.randrange(5))),
            "flag": maybe(lot.random() < 0.5),
            "text": maybe(lot.choice(["", "a", "B", "b", "aa", "äö", "Zz", "a b"])),
            "embedding": [x + lot.uniform(-0.6, 0.6) for x in lot.choice(places)],
        }
        for row in range(count)
    ]


class By(NamedTuple):
    """A part of an order."""

    part: str
    descending: bool
    nulls_first: bool

    def sql(self) -> str:
        return self.part + " desc" * self.descending + " nulls first" * self.nulls_first


def gone_by_the_sentence(rows: list[dict[str, Any]], order: list[By], eps: float) -> set[int]:
    """Returns the removed rows by the definition. Rows are visited in the requested order, ties in table order; a row
    is removed if it is within ``eps`` of a kept row."""
    for part, descending, nulls_first in reversed(order):
        values = {row["id"]: PARTS[part](row) for row in rows}
        some = sorted((row for row in rows if values[row["id"]] is not None), key=lambda row: values[row["id"]], reverse=descending)
        none = [row for row in rows if values[row["id"]] is None]
        rows = none + some if nulls_first else some + none
    vectors = {row["id"]: numpy.array(row["embedding"], "float32").astype("float64") for row in rows}
    kept: list[int] = []
    for row in rows:
        if not any(((vectors[row["id"]] - vectors[other]) ** 2).sum() <= eps * eps for other in kept):
            kept.append(row["id"])
    return {row["id"] for row in rows} - set(kept)


@pytest.mark.parametrize("seed", range(12))
def test_removed_rows_follow_the_documented_rule(seed: int) -> None:
    rows = rows_of(seed)
    lot = random.Random(-seed)
    parts = lot.sample(sorted(PARTS), lot.randrange(1, 4))
    order = [By(part, lot.random() < 0.5, lot.random() < 0.3) for part in parts]
    types = {"day": pyarrow.date32(), "x": pyarrow.float64(), "embedding": pyarrow.list_(pyarrow.float32(), 3)}
    columns = {name: pyarrow.array([row[name] for row in rows], types.get(name)) for name in rows[0]}
    keep_by = ", ".join(by.sql() for by in order)
    with adjoin.dedupe(pyarrow.table(columns), eps=0.5, exact=True, keep_by=keep_by) as deduped:
        found = set(pyarrow.table(deduped.removed())["id"].to_pylist())
    wanted = gone_by_the_sentence(rows, order, 0.5)
    assert found == wanted, keep_by
    assert 20 < len(wanted) < 110, "a test in which nothing or everything goes shows little"
