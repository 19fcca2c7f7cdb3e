"""Shared fixtures: small sets, and their pairs by brute force."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

SAMPLE = Path(__file__).parents[2] / "fixtures" / "sample.parquet"


@pytest.fixture
def vectors() -> numpy.ndarray:
    """Vectors that have some neighbors each."""
    random = numpy.random.default_rng(1)
    centers = random.standard_normal((40, 8))
    return (centers[random.integers(0, 40, 600)] + 0.1 * random.standard_normal((600, 8))).astype("float32")


def pairs_within(vectors: numpy.ndarray, eps: float) -> dict[tuple[int, int], float]:
    """Returns the pairs within a distance, in f64."""
    wide = vectors.astype("float64")
    found = {}
    for row in range(len(wide)):
        distances = numpy.sqrt(((wide[row + 1 :] - wide[row]) ** 2).sum(axis=1))
        found.update({(row, row + 1 + int(k)): float(distances[k]) for k in numpy.nonzero(distances <= eps)[0]})
    return found
