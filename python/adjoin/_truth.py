"""Pairs found by brute force, and random vectors."""

from __future__ import annotations

import json
import os
from typing import Any, Optional, Union

from . import _engine
from . import _options
from ._folders import Element
from ._options import PathLike
from ._work import NONE, ArrowStream, check_memory, working


def groundtruth(
    source: Any,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    sample: Optional[int] = None,
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> ArrowStream:
    """Finds the pairs within a threshold by brute force, to check the recall of :func:`join`.

    Args:
        source: Anything that :func:`build` accepts.
        eps: Threshold as a true L2 distance.
        min_similarity: Threshold as a cosine.
        sample: Number of random rows to compare with all rows, chosen by ``seed``. By default all rows are compared.

    Returns the pairs as :meth:`Result.pairs` does. All vectors are in memory during the call. For the true neighbors of
    queries, pass ``exact=True`` to :meth:`Store.search`.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    options = _options.store_options(seed, None, vector_column, id_column, ids, split, "error", "keep")
    request: dict[str, Any] = {
        "eps": _options.number("eps", eps),
        "min_similarity": _options.number("min_similarity", min_similarity),
        "sample": _options.optional_integer("sample", sample, _options.U64_MAX),
    }
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress) as (files, folder, shown), folder:
        resources["temporary"] = folder.name
        request["file"] = os.path.join(folder.name, "truth.arrows")
        pairs, held = _engine.groundtruth(files, request, options, resources, shown)
    check_memory(json.loads(held))
    return ArrowStream(pairs)


def generate(
    path: PathLike,
    rows: int,
    dimensions: int,
    *,
    element: Element = "f32",
    hardness: float = 1.0,
    seed: int = 1,
    force: bool = False,
    progress: Optional[bool] = None,
) -> None:
    """Writes random vectors that are about as hard to join as real ones.

    Args:
        path: A ``.npy`` file, or a ``.fbin``, ``.u8bin`` or ``.i8bin`` file if that fits ``element``.
        hardness: With 1, vectors are like SIFT descriptors. With 0, they are copies of a few vectors. Above 1, there are
            fewer groups.
        force: Replaces an existing file.

    Raises a subclass of :class:`AdjoinError` that names the kind of error.
    """
    request = {
        "rows": _options.integer("rows", rows, _options.U64_MAX),
        "dimensions": _options.integer("dimensions", dimensions, _options.U64_MAX),
        "element": _options.choice("element", element, "element"),
        "hardness": _options.required_number("hardness", hardness),
        "seed": _options.integer("seed", seed, _options.U64_MAX),
        "path": _options.path("path", path),
        "force": _options.flag("force", force),
    }
    resources = {**_options.resources(None, None), "temporary": None}
    with working(NONE, None, {}, progress) as (_, folder, shown), folder:
        _engine.generate(request, resources, shown)
