"""Calls DiskANN's Python package (`peer_diskann.py`) in the Python that DISKANN_PYTHON names, by default PEERS_PYTHON.

The package needs a numpy before 2, other peers a newer one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from measure import Record, run


def called(what: str, job: Record) -> Record:
    """Runs a job (`build`, `search` or `range`). Returns its answer, with the peak memory of the process, and its
    seconds if the answer has none."""
    python = os.environ.get("DISKANN_PYTHON") or os.environ.get("PEERS_PYTHON", sys.executable)
    told = run([python, Path(__file__).with_name("peer_diskann.py"), what, json.dumps(job)])
    return {"peak_bytes": told["peak_bytes"], "seconds": told["seconds"]} | json.loads(told["output"])
