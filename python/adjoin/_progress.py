"""A progress bar in a terminal or a notebook."""

from __future__ import annotations

import sys
from typing import Any, Optional


class Bar:
    """A progress bar that shows one phase after another."""

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
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def bar(wanted: Optional[bool]) -> Optional[Bar]:
    """Returns a progress bar if ``wanted`` is true. If it is None, returns one only in a terminal or a notebook."""
    if wanted is None:
        wanted = sys.stderr.isatty() or "ipykernel" in sys.modules
    return Bar() if wanted else None
