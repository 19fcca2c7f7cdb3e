"""Copies files of bytes as files of floats, for programs that read no other type."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import cycle
from operator import add
from pathlib import Path

#: Codes of the elements of files, by the ends of their names.
CODES = {".u8bin": "B", ".i8bin": "b"}
PIECE = 1 << 20


def as_floats(source: Path, target: Path, added: Sequence[float] = (0.0,)) -> Path:
    """Copies a file if it is missing. Adds numbers to its elements, from the first one again after the last. Returns the
    path of the copy."""
    if not target.exists():
        numbers, draft = cycle(added), target.with_suffix(".draft")
        with source.open("rb") as file, draft.open("wb") as out:
            out.write(file.read(8))
            while piece := file.read(PIECE):
                array("f", map(add, array(CODES[source.suffix], piece), numbers)).tofile(out)
        draft.rename(target)
    return target
