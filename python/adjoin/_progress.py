"""How far the work is: a bar in a terminal or a notebook."""

from __future__ import annotations

import sys
from typing import Any, Optional


class Bar:
    """A bar for one phase after another."""

    def __init__(self) -> None:
        from tqdm.auto import tqdm

        self._tqdm = tqdm
        self._bar: Optional[Any] = None
        self._phase = ""

    def __call__(self, phase: str, unit: str, total: int, done: int) -> None:
        if phase != self._phase or self._bar is None:
            self.close()
            self._bar = self._tqdm(total=total, desc=phase, unit=" " + unit, leave=False)
            self._phase = phase
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def bar(wanted: Optional[bool]) -> Optional[Bar]:
    """A bar, where that is wanted, or where nothing is said and somebody looks."""
    if wanted is None:
        wanted = sys.stderr.isatty() or "ipykernel" in sys.modules
    return Bar() if wanted else None
