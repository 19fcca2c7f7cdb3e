"""Annotations list the values of options that the engine knows."""

import typing
from typing import Any

import pytest

import adjoin
from adjoin import _engine

ANNOTATIONS = {
    "column type": adjoin.ColumnType,
    "durability": adjoin.Durability,
    "element": adjoin.Element,
    "ids": adjoin.IdKind,
    "keep rule": adjoin.KeepRule,
    "metric": adjoin.Metric,
    "on_bad": adjoin.OnBad,
    "on_duplicate_id": adjoin.OnDuplicateId,
    "on_missing": adjoin.OnMissing,
    "recall_of": adjoin.RecallOf,
    "result": adjoin.ResultKind,
    "search metric": adjoin.SearchMetric,
    "shingles": adjoin.ShingleUnit,
}


@pytest.mark.parametrize("option", _engine.CHOICES)
def test_an_annotation_lists_the_values_of_the_engine(option: str) -> None:
    annotation: Any = ANNOTATIONS[option]
    assert typing.get_args(annotation) == _engine.CHOICES[option]
