"""One part of a join or a build, as a worker runs it. Workers get a :class:`Task` and return an :class:`Outcome`, both small."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Optional, TypedDict

from .. import _engine, _options
from .._errors import AdjoinError, DeviceError, InputError

#: Number of calls of the progress callback between two checks whether to stop. The engine calls it 10 times a second.
CALLS_A_CHECK = 5


class Task(TypedDict):
    """A part to run."""

    plan: str
    #: The store of a join.
    store: Optional[str]
    folder: str
    part: int
    parts: int
    #: Memory budget in bytes.
    memory: int
    threads: int
    temporary: Optional[str]
    #: The part stops when this file exists.
    stop: str
    #: The part stops when this process of the machine has ended.
    parent: Optional[int]


class Outcome(TypedDict):
    """Result of a task."""

    part: int
    host: str
    #: Statistics; None if the part had been finished before, or failed.
    stats: Optional[dict[str, Any]]
    #: Message of the error, if the part failed.
    error: Optional[str]
    #: Name of the class of the error.
    kind: str
    #: Whether another attempt may succeed.
    is_transient: bool


class Stopped(Exception):
    """The run was cancelled."""


def outcome_of(task: Task, host: str, stats: Optional[dict[str, Any]] = None) -> Outcome:
    """Returns the outcome of a part that is done."""
    return Outcome(part=task["part"], host=host, stats=stats, error=None, kind="", is_transient=False)


def failure_of(task: Task, host: str, error: str, *, kind: str = "AdjoinError", is_transient: bool = False) -> Outcome:
    """Returns the outcome of a part that failed."""
    return Outcome(part=task["part"], host=host, stats=None, error=error, kind=kind, is_transient=is_transient)


def run(task: Task) -> Outcome:
    """Runs a part. Errors are returned, since each runner would wrap a raised one differently."""
    host = socket.gethostname()
    try:
        return outcome_of(task, host, _run(task))
    except Stopped:
        return failure_of(task, host, "stopped", kind="Stopped")
    except AdjoinError as error:
        # Errors of a shared file system or of a full disk may not occur again. All other errors are caused by the
        # arguments or the data.
        return failure_of(task, host, str(error), kind=type(error).__name__, is_transient=isinstance(error, DeviceError))


def _run(task: Task) -> Optional[dict[str, Any]]:
    check_seen("plan", task["plan"])
    check_seen("folder of parts", task["folder"])
    if task["store"] is not None:
        check_seen("store", task["store"])
    watch = _Watch(task)
    watch.check()
    resources = _options.resources(task["memory"], task["threads"])
    resources["temporary"] = task["temporary"]
    request = {
        "plan": task["plan"],
        "part": f"{task['part']}/{task['parts']}",
        "folder": task["folder"],
        "store": task["store"],
        "force": False,
    }
    stats = _engine.run_part(request, resources, watch)
    return None if stats is None else dict(json.loads(stats))


def check_seen(name: str, path: str) -> None:
    """Raises an error that names this machine, if it does not see a path of the driver."""
    if not is_url(path) and not os.path.exists(path):
        host = socket.gethostname()
        raise InputError(f"{host} does not see the {name} {path}; put it on a file system that all machines share")


def is_url(path: str) -> bool:
    """Returns whether a path is the URL of an object store."""
    return "://" in path


class _Watch:
    """Progress callback that ends the engine's run if the driver has stopped."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._calls = 0

    def __call__(self, phase: str, unit: str, total: int, done: int) -> None:
        self._calls += 1
        if self._calls % CALLS_A_CHECK == 0:
            self.check()

    def check(self) -> None:
        parent = self._task["parent"]
        if os.path.exists(self._task["stop"]) or (parent is not None and os.getppid() != parent):
            raise Stopped
