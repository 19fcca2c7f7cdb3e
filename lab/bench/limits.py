"""Limits of a machine: its measured rates, and the seconds that a join would take at these rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from measure import Record, run


@dataclass(frozen=True)
class Rates:
    """Rates of a disk in bytes per second, and of one core in products of two bytes that it adds up per second."""

    read: float
    write: float
    products: float

    def words(self) -> str:
        disk = f"The disk reads {self.read / 1e6:.0f} and writes {self.write / 1e6:.0f} MB/s"
        return f"{disk}; the best kernel multiplies {self.products / 1e9:.0f} G bytes a second on one core."


def measure_rates(programs: Path) -> Record:
    """Measures rates with the examples that are built next to the program. For kernels, takes the highest rate of the
    native level over all dimensions."""
    disk = run([programs / "examples/read_rates"])["output"]
    kernels = run([programs / "examples/kernel_rates"])["output"]
    write = float(re.search(r"written at (\d+) MB/s", disk)[1]) * 1e6
    read = max(float(line.split()[-1]) for line in disk.splitlines() if " 1048576 " in line) * 1e6
    tiles = re.findall(r"^u8 +(\d+) .*many_to_many +([\d.]+)", kernels, re.MULTILINE)
    products = max(int(dimensions) * float(rate) * 1e9 for dimensions, rate in tiles)
    return {"rates": {"read": read, "write": write, "products": products}}


def store_bytes(stats: Record) -> float:
    """Returns the bytes of the vectors in the store."""
    element = {"u8": 1, "i8": 1, "f16": 2, "f32": 4}[stats["element"]]
    return float(stats["rows"] * stats["dimensions"] * element)


def distance_seconds(stats: Record, distances: float, rates: Rates, threads: int) -> float:
    return distances * stats["dimensions"] / (rates.products * threads)


def roofline_seconds(told: Record, rates: Rates, threads: int) -> float:
    """Takes for each phase the time for its bytes or the time for its distances, whichever is longer, and adds them up.
    Assignment counts with the fewest distances that two levels of centers allow. Training does not count. Distances of
    floats count as if their codes of bytes decided all of them."""
    stats, joined = told["stats"], told["stats"]["join"]
    store, work = store_bytes(stats), lambda distances: distance_seconds(stats, distances, rates, threads)
    build = max(told["source_bytes"] / rates.read + store / rates.write, work(stats["rows"] * 2 * joined["buckets"] ** 0.5))
    sampled = stats["strategy"]["sample_distances"]
    read_beside = max(0.0, stats["io"]["bytes_read"] - store)
    calibrate = max(read_beside / rates.read, work(sampled))
    execute = max(store / rates.read, work(joined["verified_pairs"] + joined["center_distances"]))
    return build + calibrate + execute


def ideal_seconds(told: Record, rates: Rates, threads: int) -> float:
    """Returns the time to read the source once, write the store once, read it once, and compare the pairs that the rule
    admits."""
    stats, store = told["stats"], store_bytes(told["stats"])
    moved = (told["source_bytes"] + store) / rates.read + store / rates.write
    return max(moved, distance_seconds(stats, stats["join"]["candidate_pairs"], rates, threads))
