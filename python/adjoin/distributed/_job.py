"""The folder of a join or a build in parts: its plan, its arguments, and the results of parts."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Optional
from uuid import uuid4

from .. import _options
from .._errors import DeviceError, InputError, OptionError
from .._progress import bar
from .._work import check_memory
from ._runners import Workers, run_tasks
from ._task import Outcome, Task, is_url

#: Version of the file ``job.json``.
VERSION = 1
PART = re.compile(r"part-(\d+)-of-\d+")


class Job:
    """A join or a build in parts that may have been started before.

    The file ``job.json`` is written after the plan. If it is missing, no part was started, and the plan is rewritten.
    If it exists, its plan is reused, since parts of different plans cannot be merged.
    """

    def __init__(
        self,
        kind: Literal["join", "build"],
        folder: Path,
        request: dict[str, Any],
        write_plan: Callable[[Path], dict[str, Any]],
        store: Optional[str] = None,
    ) -> None:
        """``request`` has all arguments on which the plan depends. ``write_plan`` writes it to a file, and returns its
        statistics. ``store`` is the store of a join."""
        self._kind = kind
        self._folder = folder
        self._store = store
        self._request = {"version": VERSION, "job": kind, "store": store, **request}
        self._write_plan = write_plan
        self.plan_file = folder / "plan"
        self.parts_folder = folder / "parts"
        self._job_file = folder / "job.json"
        #: Statistics of the plan.
        self.planned: dict[str, Any] = {}

    def plan(self) -> None:
        """Plans the parts, unless that was done before."""
        try:
            self.parts_folder.mkdir(parents=True, exist_ok=True)
            known = self._known()
        except OSError as error:
            raise DeviceError(f"{self._folder} cannot be used as the folder of parts ({error.strerror}); name another") from error
        if known is not None:
            self.planned = known
            return
        self.planned = self._write_plan(self.plan_file)["plan"]
        draft = self._job_file.with_suffix(f".{uuid4().hex}")
        draft.write_text(json.dumps({"request": self._request, "plan": self.planned}))
        draft.replace(self._job_file)

    def _known(self) -> Optional[dict[str, Any]]:
        """Returns the statistics of a plan that exists."""
        try:
            job = json.loads(self._job_file.read_text())
            request, planned = job["request"], dict(job["plan"])
        except FileNotFoundError:
            if self.plan_file.exists() and any(self.parts_folder.iterdir()):
                raise InputError(f"{self._folder} has parts of another run; name another folder") from None
            return None
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._job_file} is damaged; remove {self._folder} to start again") from None
        differing = sorted(name for name in {*request, *self._request} if request.get(name) != self._request.get(name))
        if differing:
            listed = ", ".join(f"{name} was {_options.shown(request.get(name))}" for name in differing)
            raise OptionError(
                f"{self._folder} has the parts of another run ({listed}); give the same arguments, another folder, or "
                "remove it"
            )
        return planned

    def tasks(self, threads: int, temporary: Optional[str], stop: Path) -> list[list[Task]]:
        """Returns a task per part, in rounds: each round needs the parts of the rounds before. A build has two, its
        phases.

        Parts that are done end at once, after a check of their bytes.
        """
        facts = self.planned["parts"]
        shared = {"plan": str(self.plan_file), "store": self._store, "folder": str(self.parts_folder), "stop": str(stop)}
        tasks = [
            Task(
                **shared,  # type: ignore[typeddict-item]
                part=fact["part"],
                parts=len(facts),
                memory=fact["memory_bytes"],
                threads=threads,
                temporary=temporary,
                parent=None,
            )
            for fact in facts
        ]
        phases = groupby(zip(facts, tasks), key=lambda pair: pair[0].get("phase"))
        return [[task for _, task in pairs] for _, pairs in phases]

    def run(
        self, workers: Workers, threads: int, retries: int, temporary: Optional[str], progress: Optional[bool]
    ) -> list[dict[str, Any]]:
        """Runs all parts. Returns a dictionary per part, in their order."""
        stop = self._folder / f"stopped-{uuid4().hex}"
        rounds = self.tasks(threads, temporary, stop)
        parts = sum(map(len, rounds))
        done: dict[int, dict[str, Any]] = {}
        shown = bar(progress)

        def ended(outcome: Outcome, attempts: int) -> None:
            done[outcome["part"]] = {name: outcome[name] for name in ("part", "host", "stats")} | {"attempts": attempts}
            if shown is not None:
                shown(self._kind, "parts", parts, len(done))

        try:
            if shown is not None:
                shown(self._kind, "parts", parts, 0)
            for tasks in rounds:
                run_tasks(workers, tasks, retries, stop, ended)
                self._check_seen(done)
        finally:
            if shown is not None:
                shown.close()
        for part in done.values():
            if part["stats"] is not None:
                check_memory(part["stats"]["memory"])
        return [done[part] for part in sorted(done)]

    def _check_seen(self, done: dict[int, dict[str, Any]]) -> None:
        """Checks that the parts were written where this machine reads them."""
        matches = (PART.fullmatch(name) for name in os.listdir(self.parts_folder))
        seen = {int(match[1]) for match in matches if match is not None}
        unseen = sorted(part for part in done if part not in seen)
        if unseen:
            hosts = ", ".join(sorted({done[part]["host"] for part in unseen})[:4])
            raise InputError(
                f"{self.parts_folder} has no part {unseen[0]}, which ran on {hosts}; name a folder on a file system that "
                "all machines share"
            )

    def clean(self, keep: bool) -> None:
        """Removes the folder after a merge, or only leftovers of stopped runs if it is to be kept."""
        if not keep:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for leftover in self._folder.glob("stopped-*"):
            leftover.unlink(missing_ok=True)
