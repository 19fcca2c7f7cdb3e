"""Parts as tasks of Spark: ``mapInArrow`` over one row a part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._runners import package
from ._task import Outcome, Task, failure_of, run


class Spark:
    """The cluster of the active session of Spark, or a new session's."""

    def __init__(self) -> None:
        sql = package("pyspark.sql", "spark")
        package("pyarrow", "spark")
        self._session = sql.SparkSession.getActiveSession() or sql.SparkSession.builder.getOrCreate()
        # Spark itself limits the number of running tasks of a job.
        self.limit = 2**32
        self._tasks: list[Task] = []

    def start(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self) -> list[Outcome]:
        """Runs a job with all tasks that were started. Ctrl-C cancels it."""
        tasks, self._tasks = self._tasks, []
        rows = self._session.range(0, len(tasks), 1, len(tasks))
        try:
            outcomes = rows.mapInArrow(_map_of(tasks), "outcome string").collect()
        except Exception as error:
            # The tasks return their own errors. So a Python exception arose before a task, for example because the
            # worker lacks adjoin. Any other exception means that workers died more often than Spark retries. A later
            # run does not repeat finished parts.
            is_of_python = type(error).__name__ == "PythonException"
            lines = str(error).strip().splitlines() or [type(error).__name__]
            said = f"its job failed: {lines[-1 if is_of_python else 0]}"
            return [failure_of(task, "Spark", said, is_transient=not is_of_python) for task in tasks]
        return [json.loads(row.outcome) for row in outcomes]

    def stop(self) -> None:
        self._tasks.clear()


def _map_of(tasks: list[Task]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run_rows(batches: Iterable[Any]) -> Iterator[Any]:
        arrow = package("pyarrow", "spark")
        for batch in batches:
            outcomes = [json.dumps(run(tasks[row])) for row in batch.column(0).to_pylist()]
            yield arrow.RecordBatch.from_pydict({"outcome": outcomes}, arrow.schema([("outcome", arrow.string())]))

    return run_rows
