"""The ``adjoin`` command."""

from __future__ import annotations

import sys

from . import _engine


def main() -> int:
    """Runs the command line and returns its exit code."""
    return _engine.main(sys.argv)
