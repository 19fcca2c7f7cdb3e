"""Types shared by the package and its extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Optional, Protocol

#: Metrics of joins.
Metric = Literal["l2", "cosine"]
#: Metrics of searches. Inner products (``"ip"``) cannot be joined.
SearchMetric = Literal["l2", "cosine", "ip"]
OnBad = Literal["error", "skip"]
OnDuplicateId = Literal["error", "keep"]
KeepRule = Literal["greedy", "cluster"]
RecallOf = Literal["pairs-and-vectors", "pairs"]
ResultKind = Literal["pairs", "counts", "clusters", "removed", "kept"]
#: Results that a page can show.
PageKind = Literal["pairs", "clusters", "removed"]


class Batches(Protocol):
    """Batches of rows with the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...


#: Callback for progress: phase, unit, total, done.
Progress = Callable[[str, str, int, int], None]
