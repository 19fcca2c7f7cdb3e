"""Finds all pairs of similar vectors, and searches vectors, in sets that need not fit in memory.

>>> import numpy, adjoin
>>> vectors = numpy.random.default_rng(1).standard_normal((1000, 16), dtype="float32")
>>> with adjoin.join(vectors, eps=2.5, exact=True) as result:
...     result.stats["recall"]["kept"]
True

``memory`` limits the memory that a run uses in addition to the memory that the process already holds. It is a size, or
a fraction such as ``"80%"`` of the memory of the machine or its cgroup; the default is half of it. A run also promises
the requested recall. :attr:`Result.stats` reports the memory and the recall of a run.
"""

from __future__ import annotations

from ._client import AsyncClient, Client
from ._dedupe import Deduped, dedupe
from ._dedupe import ShingleUnit as ShingleUnit
from ._engine import __version__
from ._errors import (
    AdjoinError,
    BudgetError,
    CorruptError,
    DeviceError,
    InputError,
    OptionError,
    OptionTypeError,
    PromiseWarning,
    ServerError,
)
from ._estimate import AtThreshold, Estimate, Interval, explain
from ._folders import Collection, Index, Store, open
from ._folders import ColumnType as ColumnType
from ._folders import Durability as Durability
from ._folders import Element as Element
from ._folders import IdKind as IdKind
from ._folders import OnMissing as OnMissing
from ._joins import Result, ResultAt, join, nearest
from ._parts import merge, plan, plan_build, run_part
from ._report import report
from ._results import Hits, Neighbors, Rows
from ._stores import append, build, build_index, copy
from ._truth import generate, groundtruth
from ._types import KeepRule as KeepRule
from ._types import Metric as Metric
from ._types import OnBad as OnBad
from ._types import OnDuplicateId as OnDuplicateId
from ._types import PageKind as PageKind
from ._types import RecallOf as RecallOf
from ._types import ResultKind as ResultKind
from ._types import SearchMetric as SearchMetric
from ._work import ArrowStream

__all__ = [
    "AdjoinError",
    "ArrowStream",
    "AsyncClient",
    "AtThreshold",
    "BudgetError",
    "Client",
    "Collection",
    "CorruptError",
    "Deduped",
    "DeviceError",
    "Estimate",
    "Hits",
    "Index",
    "InputError",
    "Interval",
    "Neighbors",
    "OptionError",
    "OptionTypeError",
    "PromiseWarning",
    "Result",
    "ResultAt",
    "Rows",
    "ServerError",
    "Store",
    "__version__",
    "append",
    "build",
    "build_index",
    "copy",
    "dedupe",
    "explain",
    "generate",
    "groundtruth",
    "join",
    "merge",
    "nearest",
    "open",
    "plan",
    "plan_build",
    "report",
    "run_part",
]
