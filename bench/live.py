#!/usr/bin/env python3
"""What inserts and deletes make of a graph: the experiments of FreshDiskANN made again.

usage: live.py ADJOIN [--only WORD] [--work DIR]

Prints Markdown. What was measured lies in WORK/live.jsonl and is not measured again. Vectors come from ADJOIN_DATA; programs are
those of the examples beside ADJOIN; hnswlib is measured where PEERS_PYTHON, by default this Python, has it and numpy. A part
of the document is a module with a list `ALL` of functions, each of which gives the Markdown of one table (`PARTS`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import live_merges
import live_rules
import live_speed
import runbook_run
from at_recall import THREADS
from measure import Failed, Ledger, Record, machine, run

FILE = "sift-200k.u8bin"
#: Headings, and the tables below them.
PARTS = {
    "Rules of updates, in memory": live_rules.ALL,
    "Merges": live_merges.ALL,
    "Speed": live_speed.ALL,
    "Runbooks": runbook_run.ALL,
}


class Bench:
    """Programs that print records as lines of JSON, and what they printed."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.adjoin, self.work = asked.adjoin.resolve(), asked.work.resolve()
        self.ledger = Ledger(self.work / "live.jsonl")

    def data(self, name: str = FILE) -> Path:
        """A file of ADJOIN_DATA."""
        path = Path(os.environ.get("ADJOIN_DATA", "")) / name
        if "ADJOIN_DATA" not in os.environ or not path.exists():
            raise Failed(f"{name} is not in ADJOIN_DATA")
        return path

    def updates(self, **named: object) -> list[Record]:
        """The records of an update study (`crates/adjoin/examples/updates.rs`), one for each cycle, the first before all."""
        return self.printed([self.adjoin.parent / "examples/updates", self.data()], named)

    def updates_of_hnswlib(self, **named: object) -> list[Record]:
        """The same of hnswlib."""
        python = os.environ.get("PEERS_PYTHON", sys.executable)
        return self.printed([python, Path(__file__).with_name("live_peers.py"), self.data()], named)

    def printed(self, command: list[str | Path], named: dict[str, object]) -> list[Record]:
        """The records that a program prints which is given a file and named values."""
        words = [f"{name}={value}" for name, value in named.items()]

        def measure() -> Record:
            told = run([*command, *words, f"threads={THREADS}"])
            return told | {"output": [json.loads(line) for line in told["output"].splitlines()]}

        told = self.ledger.measured(json.dumps([Path(command[-2]).name, command[-1].name, *words]), measure)
        if "failed" in told:
            raise Failed(told["failed"])
        return told["output"]


INTRODUCTION = f"""Made by `make tables-live`, which goes on where it was interrupted: experiments of FreshDiskANN (Singh et
al., 2021) made again, on {THREADS} threads. Figures and tables in brackets are those of the paper that one here stands for."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--work", type=Path, default=Path("target/bench"))
    asked = parser.parse_args()
    print(f"# Inserts and deletes\n\n{INTRODUCTION}\n\n{machine()}\n")
    for heading, tables in PARTS.items():
        if asked.only not in heading:
            continue
        print(f"## {heading}\n", flush=True)
        for table in tables:
            try:
                print(table(Bench(asked)), flush=True)
            except Failed as reason:
                print(f"Not measured: {reason}.\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
