"""Runs a program for `measure.run`: `launch.py DESCRIPTOR COMMAND...` writes its cost as JSON to a descriptor.

If a process starts another one, the system counts the memory that the first one held as memory of the new one. So a
benchmark, which may hold much memory, starts programs by this small process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def launched(command: list[str]) -> dict[str, object]:
    begun = time.monotonic()
    try:
        process = subprocess.Popen(command)
    except OSError as reason:
        return {"missing": reason.strerror}
    _, status, used = os.wait4(process.pid, 0)
    took = {"seconds": time.monotonic() - begun, "cpu_seconds": used.ru_utime + used.ru_stime}
    took |= {"peak_bytes": used.ru_maxrss * 1024, "written_bytes": used.ru_oublock * 512}
    return {"code": os.waitstatus_to_exitcode(status), "took": took}


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w") as told:
        json.dump(launched(sys.argv[2:]), told)
