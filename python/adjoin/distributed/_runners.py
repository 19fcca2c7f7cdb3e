"""Runs tasks on the workers of a runner: a bounded number at a time, failed ones again, all of them stopped together."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional, Protocol

from .. import _errors, _work
from .._errors import AdjoinError
from ._task import Outcome, Task

#: Memory of a worker process in addition to the budget of its part: for the interpreter, its packages and the runner.
PROCESS_BYTES = 160 << 20


class Workers(Protocol):
    """Workers that run tasks."""

    #: Maximum number of tasks in flight.
    limit: int

    def start(self, task: Task) -> None:
        """Starts a task, and returns at once."""

    def wait(self) -> Sequence[Outcome]:
        """Waits until a task ends, or for about a second. Returns the outcomes of the tasks that have ended."""

    def stop(self) -> None:
        """Stops all tasks. Those on other machines may run on for a second."""


def run_tasks(
    workers: Workers, tasks: Sequence[Task], retries: int, stop: Path, ended: Callable[[Outcome, int], None]
) -> None:
    """Runs all tasks. Calls ``ended`` with the outcome of each that succeeded, and its number of attempts.

    A task that was lost with its worker, or whose disk failed, is started again up to ``retries`` times. After any
    error, and on Ctrl-C, all other tasks are stopped, by the file ``stop`` too.
    """
    by_part = {task["part"]: task for task in tasks}
    waiting, attempts = deque(tasks), Counter[int]()
    running = 0
    try:
        while waiting or running:
            while waiting and running < workers.limit:
                task = waiting.popleft()
                attempts[task["part"]] += 1
                workers.start(task)
                running += 1
            for outcome in workers.wait():
                running -= 1
                part = outcome["part"]
                if outcome["error"] is None:
                    ended(outcome, attempts[part])
                elif outcome["is_transient"] and attempts[part] <= retries:
                    waiting.append(by_part[part])
                else:
                    raise _error_of(outcome, by_part[part]["parts"], attempts[part])
    except BaseException:
        stop.touch()
        workers.stop()
        raise


def _error_of(outcome: Outcome, parts: int, attempts: int) -> AdjoinError:
    kind = getattr(_errors, outcome["kind"], AdjoinError)
    tried = f" {attempts} times" if attempts > 1 else ""
    error: AdjoinError = kind(f"part {outcome['part']}/{parts} failed on {outcome['host']}{tried}: {outcome['error']}")
    return error


def package(name: str, runner: str) -> Any:
    """Imports the package of a runner."""
    return _work.package(name, f'runner="{runner}"', f'"adjoin[{runner}]"')


def workers_of(runner: str, threads: int, concurrency: Optional[int]) -> Workers:
    """Connects to the workers of a runner. Only the package of that runner is imported."""
    if runner == "local":
        from ._local import Local

        return Local(threads, concurrency)
    if runner == "ray":
        from ._ray import Ray

        return Ray(concurrency)
    if runner == "dask":
        from ._dask import Dask

        return Dask(concurrency)
    from ._spark import Spark

    return Spark()
