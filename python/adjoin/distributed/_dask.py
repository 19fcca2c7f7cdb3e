"""Parts as tasks of Dask."""

from __future__ import annotations

from typing import Any, Optional
from uuid import uuid4

from .._errors import OptionError
from . import _task
from ._runners import package
from ._task import Outcome, Task, failure_of

#: Maximum number of tasks in flight: enough to keep all workers busy. Dask sends waiting tasks to workers in advance.
IN_FLIGHT = 1000


class Dask:
    """The cluster of the current client of Dask."""

    def __init__(self, concurrency: Optional[int]) -> None:
        self._distributed = package("distributed", "dask")
        try:
            self._client = self._distributed.get_client()
        except ValueError as error:
            message = 'runner="dask" needs a client; create it first: client = dask.distributed.Client("SCHEDULER:8786")'
            raise OptionError(message) from error
        self.limit = concurrency or IN_FLIGHT
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        declared = [set(worker["resources"]) for worker in workers]
        self._limited = set.intersection({"memory", "cpus"}, *declared) if declared else set()
        self._tasks: dict[Any, Task] = {}

    def start(self, task: Task) -> None:
        needed = {"memory": task["memory"], "cpus": task["threads"]}
        key = f"adjoin-part-{task['part']}-of-{task['parts']}-{uuid4().hex}"
        resources = {name: needed[name] for name in self._limited}
        future = self._client.submit(_task.run, task, key=key, pure=False, retries=0, resources=resources)
        self._tasks[future] = task

    def wait(self) -> list[Outcome]:
        try:
            done = self._distributed.wait(list(self._tasks), timeout=1, return_when="FIRST_COMPLETED").done
        except self._distributed.TimeoutError:
            return []
        return [self._outcome(future) for future in done]

    def _outcome(self, future: Any) -> Outcome:
        task = self._tasks.pop(future)
        if future.status == "finished":
            outcome: Outcome = future.result()
            return outcome
        error = future.exception() if future.status == "error" else None
        is_lost = error is None or isinstance(error, self._distributed.KilledWorker)
        said = f"its worker died, or Dask lost it ({future.status})" if is_lost else f"{type(error).__name__}: {error}"
        return failure_of(task, "a worker of Dask", said, is_transient=is_lost)

    def stop(self) -> None:
        self._client.cancel(list(self._tasks))
        self._tasks.clear()
