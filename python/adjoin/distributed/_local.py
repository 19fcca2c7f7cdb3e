"""Parts in processes of this machine."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import IO, NamedTuple, Optional

from ._task import Outcome, Task, failure_of, run

#: Program of a process. It gets the import paths of its parent, so that it imports the package of its parent.
PROGRAM = """\
import json, sys
request = json.load(sys.stdin)
sys.path[:] = request["path"]
from adjoin.distributed._local import main
main(request["task"])
"""
#: Seconds that a stopped process has to end by itself, before it is killed.
GRACE_SECONDS = 10


def cores() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Running(NamedTuple):
    task: Task
    process: subprocess.Popen[bytes]
    output: IO[bytes]


class Local:
    """Processes of this machine, one a part."""

    def __init__(self, threads: int, concurrency: Optional[int]) -> None:
        self.limit = concurrency or max(1, cores() // threads)
        self._running = selectors.DefaultSelector()

    def start(self, task: Task) -> None:
        task = {**task, "parent": os.getpid()}
        # Each process has its own group. So Ctrl-C in a terminal reaches only this process, which then stops the
        # others.
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        assert process.stdin is not None and process.stdout is not None
        self._running.register(process.stdout, selectors.EVENT_READ, _Running(task, process, process.stdout))
        try:
            with process.stdin:
                process.stdin.write(json.dumps({"path": sys.path, "task": task}).encode())
        except BrokenPipeError:
            pass  # the process is dead already, which `wait` finds

    def wait(self) -> list[Outcome]:
        return [self._outcome(key.data) for key, _ in self._running.select(1)]

    def _outcome(self, running: _Running) -> Outcome:
        task, process, output = running
        self._running.unregister(output)
        with output:
            lines = output.read().splitlines()
        status = process.wait()
        if status == 0 and lines:
            outcome: Outcome = json.loads(lines[-1])
            return outcome
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return failure_of(task, socket.gethostname(), f"its process ended by {how}", is_transient=status < 0)

    def stop(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        for key in list(self._running.get_map().values()):
            _, process, output = key.data
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._running.unregister(output)
            output.close()


def main(task: Task) -> None:
    """Runs a part in a process of its own."""
    print(json.dumps(run(task)))
