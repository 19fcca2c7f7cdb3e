"""Runs programs and keeps their measurements, so that an interrupted benchmark resumes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

Record = dict[str, Any]
#: Flags of processors by the levels of kernels that need them, the newest one first.
LEVELS = {"avx512_vnni": " with AVX-512 VNNI", "avx_vnni": " with AVX-VNNI", "avx2": " with AVX2"}


class Failed(Exception):
    """A program ended with an error. The message is the last line of its standard error."""


def run(command: list[str | Path]) -> Record:
    """Runs a program to its end.

    Returns its duration in `seconds`, the `cpu_seconds` of all its threads, the `peak_bytes` of its resident memory and the
    `written_bytes` as reported by the system, its `output`, and the `words` that it wrote to standard error.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as cost:
        launcher = [sys.executable, Path(__file__).with_name("launch.py"), str(cost.fileno())]
        subprocess.run([*launcher, *map(str, command)], stdout=output, stderr=words, pass_fds=[cost.fileno()], check=True)
        cost.seek(0), output.seek(0), words.seek(0)
        told, heard = json.load(cost), words.read().decode(errors="replace")
        if "missing" in told:
            raise Failed(f"{command[0]}: {told['missing']}")
        if told["code"]:
            raise Failed(why(told["code"], heard.strip().splitlines(), told["took"]["seconds"]))
        return {**told["took"], "output": output.read().decode(), "words": heard}


def why(code: int, words: list[str], seconds: float) -> str:
    """Returns why a program failed: its last words, or if it wrote none, the signal that ended it."""
    if code == -signal.SIGKILL:
        return f"killed after {seconds:.0f} s, as the system does where memory does not suffice"
    return words[-1] if words else f"exit code {code}"


def machine() -> str:
    """Returns a sentence that names the processor, the newest instructions that kernels use on it, and its cores."""
    facts = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    values = lambda key: [value.strip() for name, value in facts if name.strip() == key]  # noqa: E731
    name, flags = (values("model name") or ["An unknown processor"])[0], (values("flags") or [""])[0].split()
    level = next((words for flag, words in LEVELS.items() if flag in flags), "")
    threads, cores = os.cpu_count() or 1, len(set(zip(values("physical id"), values("core id"))))
    counted = f"{threads} cores" if cores in (0, threads) else f"{threads} threads of {cores} core{'s' if cores > 1 else ''}"
    return f"{name}{level}, {counted}."


def arguments(description: str, program: str = "adjoin", copies: bool = False) -> argparse.Namespace:
    """Parses the arguments of a script that prints a page: the program to measure, the parts to print, the folder for
    measurements, and if `copies`, the page from which other parts are copied."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(program, type=Path)
    parser.add_argument("--only", default="")
    if copies:
        parser.add_argument("--page", type=Path)
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    return parser.parse_args()


def read_page(page: Path | None) -> str:
    """Returns the text of a page; empty if there is none."""
    return page.read_text() if page and page.exists() else ""


def kept(page: str, level: int, heading: str) -> str:
    """Returns the part of a page below a heading of `level`, without the heading; empty if there is none."""
    mark = "#" * level
    _, found, below = f"\n{page}".partition(f"\n{mark} {heading}\n")
    return below.split(f"\n{mark} ", 1)[0].strip() + "\n" if found else ""


def print_parts(level: int, parts: Mapping[str, Iterable[Callable[[], str]]], only: str = "", page: str = "") -> None:
    """Prints each part below its heading of `level`. Parts without the word `only` in their heading are copied from `page`, or
    skipped if the page has no such part. If a part cannot be measured, prints the reason."""
    for heading, tables in parts.items():
        if only not in heading:
            if part := kept(page, level, heading):
                print(f"{'#' * level} {heading}\n\n{part}", flush=True)
            continue
        print(f"{'#' * level} {heading}\n", flush=True)
        for part in tables:
            try:
                print(part(), flush=True)
            except Failed as reason:
                print(f"Not measured: {reason}.\n", flush=True)


class Ledger:
    """A file of JSON lines with records, each under a key. What has a record is not measured again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: dict[str, Record] = {}
        for line in lines:
            record = json.loads(line)
            self.records[record["key"]] = record

    def measured(self, key: str, measure: Callable[[], Record]) -> Record:
        """Returns the record of a key; measures it if it is missing. A failure is also recorded, with its reason under
        `failed`."""
        if key not in self.records:
            try:
                record = measure()
            except Failed as reason:
                record = {"failed": str(reason)}
            self.records[key] = {"key": key} | record
            with self.path.open("a") as file:
                file.write(json.dumps(self.records[key]) + "\n")
        return self.records[key]

    def succeeded(self, key: str, measure: Callable[[], Record]) -> Record:
        """Returns the record of a key as `measured` does. Raises Failed if it is a failure."""
        record = self.measured(key, measure)
        if "failed" in record:
            raise Failed(record["failed"])
        return record


def measured_on() -> str:
    """Returns a line with the machine and the date."""
    return f"{machine()} {date.today()}.\n"


def median(records: list[Record]) -> Record:
    """Returns the record with the median of the seconds, or a failure if all records are failures."""
    whole = sorted((one for one in records if "failed" not in one), key=lambda one: one["seconds"])
    if not whole:
        return records[0]
    return whole[(len(whole) - 1) // 2]


def spread(records: list[Record]) -> float:
    """Returns the longest duration divided by the shortest."""
    seconds = [one["seconds"] for one in records if "failed" not in one]
    return max(seconds) / min(seconds) if seconds else 1.0
