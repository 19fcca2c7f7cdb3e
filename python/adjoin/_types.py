"""Types that the package and its extension share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Protocol


class ArrowStream(Protocol):
    """Batches of rows with the Arrow C stream interface; they can be read once."""

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...


#: Is told how far the work is: phase, unit, how much there is of it, how much is done.
Progress = Callable[[str, str, int, int], None]
