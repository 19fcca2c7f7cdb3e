"""Temporary folders of killed processes: the next process removes them, and keeps folders of running ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import adjoin

PROGRAM = Path(sys.executable).parent / "adjoin"
JOIN = """
import adjoin, numpy, os, sys
result = adjoin.join(numpy.ones((10, 4), "f4"), eps=1.0, temporary=sys.argv[1])
if sys.argv[2] == "fork" and os.fork() == 0:
    result.close()
    del result
    os._exit(0)
print("open", flush=True)
sys.stdin.read()
"""


def started(place: Path, how: str = "alone") -> "subprocess.Popen[str]":
    """Starts a process, and returns it once its result is open."""
    command = [sys.executable, "-c", JOIN, os.fspath(place), how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process


def ended(process: "subprocess.Popen[str]") -> int:
    process.communicate()
    return process.returncode


def join(place: Path) -> None:
    adjoin.join(numpy.ones((10, 4), "f4"), eps=1.0, temporary=place).close()


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    killed, running = started(tmp_path), started(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    killed.kill()
    assert ended(killed) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2, "nobody removes them before the next run"
    join(tmp_path)
    (kept,) = tmp_path.iterdir()
    assert f"-{running.pid}-" in kept.name and (kept / "pairs.arrows").exists()
    assert ended(running) == 0 and not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_leaves_the_folder_to_its_parent(tmp_path: Path) -> None:
    parent = started(tmp_path, "fork")
    join(tmp_path)
    (kept,) = tmp_path.iterdir()
    assert (kept / "pairs.arrows").exists()
    assert ended(parent) == 0 and not list(tmp_path.iterdir())


def test_empty_and_renamed_leftovers_are_removed_and_other_names_are_kept(tmp_path: Path) -> None:
    for name in (".adjoin-python-1-0.partial", ".adjoin-python-1-1.removed"):
        (tmp_path / name).mkdir()
    (tmp_path / ".adjoin-python-1-1.removed" / "pairs.arrows").write_text("left")
    own = {"adjoin-python-1-0.partial", ".adjoin-python-1-x.partial", ".adjoin-python-1-0.partial.txt", ".adjoin-python-2-0.partial"}
    for name in own:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("dear")
    join(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == own


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    dear, place = tmp_path / "dear", tmp_path / "place"
    dear.mkdir()
    place.mkdir()
    (dear / "owner.lock").write_text("")
    (place / ".adjoin-python-1-0.removed").symlink_to(dear)
    linked = place / ".adjoin-python-1-1.partial"
    linked.mkdir()
    (linked / "owner.lock").symlink_to(dear / "owner.lock")
    join(place)
    assert (dear / "owner.lock").exists() and linked.exists()


def test_the_command_removes_leftovers_of_python_too(tmp_path: Path) -> None:
    numpy.save(tmp_path / "rows.npy", numpy.ones((10, 4), "f4"))
    killed = started(tmp_path)
    killed.kill()
    ended(killed)
    assert len(list(tmp_path.iterdir())) == 2
    words = ["join", "rows.npy", "--eps", "1", "-o", "pairs.csv"]
    subprocess.run([PROGRAM, *words], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.csv", "rows.npy"]
