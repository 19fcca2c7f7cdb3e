"""Parts as tasks of Ray."""

from __future__ import annotations

import logging
from typing import Any, Optional

from . import _task
from ._runners import PROCESS_BYTES, package
from ._task import Outcome, Task, failure_of

#: Maximum number of tasks in flight. More tasks would slow down Ray's scheduler.
IN_FLIGHT = 1000


class Ray:
    """The cluster that this process is connected to, or Ray's default."""

    def __init__(self, concurrency: Optional[int]) -> None:
        self._ray = package("ray", "ray")
        self.limit = min(concurrency or IN_FLIGHT, IN_FLIGHT)
        if not self._ray.is_initialized():
            self._ray.init()
        # Ray itself does not retry, since the driver counts the retries for all causes together.
        self._run = self._ray.remote(max_retries=0)(_task.run)
        self._tasks: dict[Any, Task] = {}
        self._warned = False

    def start(self, task: Task) -> None:
        self._warn_if_too_large(task)
        options = {"num_cpus": task["threads"], "memory": task["memory"] + PROCESS_BYTES}
        name = f"adjoin part {task['part']}/{task['parts']}"
        self._tasks[self._run.options(name=name, **options).remote(task)] = task

    def _warn_if_too_large(self, task: Task) -> None:
        """Warns if no node of today can run a part. Ray waits for such a node without end."""
        if self._warned:
            return
        needed = {"CPU": float(task["threads"]), "memory": float(task["memory"] + PROCESS_BYTES)}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0.0) >= amount for name, amount in needed.items()) for node in nodes):
            self._warned = True
            logging.getLogger("adjoin").warning(
                "part %d/%d needs %d CPUs and %.1f GB of memory, and no node of the Ray cluster has them; it waits for one. "
                "Give less memory or threads, or more parts",
                task["part"], task["parts"], task["threads"], needed["memory"] / 1e9,
            )  # fmt: skip

    def wait(self) -> list[Outcome]:
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=1)
        if done:
            done, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._outcome(reference) for reference in done]

    def _outcome(self, reference: Any) -> Outcome:
        task = self._tasks.pop(reference)
        try:
            outcome: Outcome = self._ray.get(reference)
            return outcome
        except self._ray.exceptions.RayTaskError as error:
            # The task returns its own errors. So this error arose before the task, for example because the worker lacks
            # adjoin.
            return failure_of(task, "a worker of Ray", _last_line(error))
        except self._ray.exceptions.RayError as error:
            return failure_of(task, "a worker of Ray", _first_line(error), is_transient=True)

    def stop(self) -> None:
        for reference in self._tasks:
            self._ray.cancel(reference, force=False)
        self._tasks.clear()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2] or type(error).__name__
