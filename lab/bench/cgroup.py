"""Limits the memory of a process, page cache included, if the system permits it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[tuple[Path | None, str]]:
    """Creates a child of the memory cgroup that PEERS_CGROUP names, of either version, without swap.

    Returns None and the reason if that fails. A process joins the cgroup by writing its process id into the file
    `cgroup.procs`. From then on, the limit applies to the memory that it takes.
    """
    parent = os.environ.get("PEERS_CGROUP")
    if not parent:
        yield None, "PEERS_CGROUP is not set"
        return
    child, refused = Path(parent) / f"adjoin-bench-{os.getpid()}", ""
    try:
        child.mkdir()
        bound(child, limit_bytes)
    except OSError as reason:
        refused = str(reason)
    try:
        yield None if refused else child, refused
    finally:
        if child.exists():
            child.rmdir()


def bound(child: Path, limit_bytes: int) -> None:
    """Sets the limits. Version 2 has a separate limit for swap. Version 1, if it counts swap, has a limit for memory
    and swap together, which must be set after the limit for memory."""
    if (child / "memory.limit_in_bytes").exists():
        limits = {"memory.limit_in_bytes": limit_bytes, "memory.memsw.limit_in_bytes": limit_bytes}
    else:
        limits = {"memory.max": limit_bytes, "memory.swap.max": 0}
    for name, limit in limits.items():
        if "sw" not in name or (child / name).exists():
            with (child / name).open("r+") as file:  # never creates it, so a folder that is no cgroup is refused
                file.write(str(limit))


def peak_bytes(child: Path) -> int | None:
    """Returns the largest memory that the processes of a cgroup used at once, page cache included; None if the system
    does not report it."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (child / name).exists():
            return int((child / name).read_text())
    return None
