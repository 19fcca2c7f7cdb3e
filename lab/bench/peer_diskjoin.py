"""DiskJoin's released program, and its recall as measured from outside.

The program counts the neighbors that it finds for one row in 100,000 and writes no pairs. `joined` counts one row in 100
instead, which is the only change of the source, and compares the sum with an exact join by adjoin. The settings are from the
authors' configuration for BigANN100M at recall 0.9, with the memory in proportion to the rows. The environment variable
DISKJOIN may name a clone of the repository. Needs git, cmake and g++.
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

from measure import Failed, Record, run

REPOSITORY = "https://github.com/whateveraname/DiskJoin"
COMMIT = "0b94543f2cde145b45476826072d2ea57a7d12c6"
#: The sample of rows for which the source counts neighbors, and ours.
SAMPLE, OURS = "% 100000 == 0", 100
#: Fraction of the rows that are centers, number of candidate buckets (K), error bound, and bytes of cache per row.
CLUSTERS, CANDIDATES, ERROR_BOUND, CACHE_BYTES = 0.002, 245, 0.1, 2.4 * 2**30 / 100_000_000


def built(folder: Path) -> Path:
    """Fetches and builds the program. Returns its path."""
    source = folder / "source"
    program = source / "build" / "main"
    if program.exists():
        return program
    if not source.exists():
        run(["git", "clone", "--quiet", os.environ.get("DISKJOIN", REPOSITORY), source])
    run(["git", "-C", source, "checkout", "--quiet", "--force", COMMIT])
    join = source / "lib" / "DiskJoin.h"
    text = join.read_text()
    if SAMPLE not in text:
        raise Failed(f"{join} does not count the neighbors of one row in 100,000")
    join.write_text(text.replace(SAMPLE, f"% {OURS} == 0"))
    # The project asks for a version of CMake that current ones no longer imitate.
    run(["cmake", "-S", source, "-B", source / "build", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"])
    run(["cmake", "--build", source / "build"])
    return program


def joined(adjoin: Path, vectors: Path, eps: float, folder: Path, threads: int, clusters: float = CLUSTERS) -> Record:
    """Joins a `.fbin` file of floats. `clusters` is the fraction of the rows that are centers.

    Returns the seconds and the peak memory of the program, its CPU seconds, the seconds of its phases, and the recall of
    pairs for the sampled rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = built(folder)
    with vectors.open("rb") as header:
        rows = int.from_bytes(header.read(4), "little")
    settings = {
        "data_file": vectors,
        "radius": eps * eps,
        "cluster_num": round(rows * clusters),
        **{f"{name}_file": folder / name for name in ("cluster", "metadata", "hnsw")},
        "K": CANDIDATES,
        "mem_budget": rows * CACHE_BYTES / 2**30,
        "error_bound": ERROR_BOUND,
        "gt": 1,
    }
    config = folder / "join.config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    told = run(["env", f"OMP_NUM_THREADS={threads}", program, config])
    found = re.search(r"recall = ([0-9.e+]+)", told["output"])
    phases = re.findall(r"\[([0-9.e+-]+) s\]", told["output"])
    if not found or len(phases) != 2:
        raise Failed(f"{program} printed no count of neighbors")
    of_pairs = float(found[1]) / truth(adjoin, vectors, eps, folder)
    build, whole = map(float, phases)
    setting = f"clusters {settings['cluster_num']:,}, K {CANDIDATES}; build {build:.1f}, join {whole - build:.1f}"
    return {key: told[key] for key in ("seconds", "cpu_seconds", "peak_bytes")} | {"setting": setting, "recall": {"pair": of_pairs}}


def truth(adjoin: Path, vectors: Path, eps: float, folder: Path) -> int:
    """Returns the number of neighbors of the sampled rows."""
    counts = folder / "counts.csv"
    run([adjoin, "join", vectors, "--eps", str(eps), "--exact", "--result", "counts", "-o", counts, "--force", "--quiet"])
    with counts.open() as lines:
        return sum(int(one["count"]) for one in csv.DictReader(lines) if int(one["id"]) % OURS == 0)
