#!/usr/bin/env python3
"""Compares the model of `adjoin flash` with MQSim (github.com/CMU-SAFARI/MQSim). Both programs
get equal reads, and the model gets MQSim's configuration.

usage: flash_mqsim.py ADJOIN [TRACE...] [--work DIR]

The variable MQSIM names the program of MQSim, which is built outside of this repository; `ssdconfig.xml` must be next
to it. Prints Markdown: for each workload, the rate and the mean latency of both. Workloads are random and sequential
reads at several depths and arrival intervals, and the reads of each TRACE that `adjoin --trace` wrote, in their order.

A trace of MQSim cannot set a depth. For a workload with a depth, all reads therefore arrive at once, and MQSim's
`Queue_Fetch_Size` is set to the depth. The latency is then the depth divided by the rate, in both programs. For a
workload in which each read arrives at its own time, the latency is what MQSim calls the end-to-end delay.

MQSim's address table is empty at first, and a read of a page without an entry takes one more read of flash. The model
has no address table, as if all of it were in memory. So MQSim runs with `Ideal_Mapping_Table`; at a depth of 32, it
also runs without it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from at_recall import shown, table
from measure import Failed, run

SECTOR = 512
PAGE = 8_192
#: Size in bytes of the part of the device that random reads cover.
SPAN = 1 << 30
#: Number of reads of each workload.
READS = 20_000
#: Depth at which MQSim also runs with an empty address table.
COLD_DEPTH = 32
#: Files of a trace are placed on the device at multiples of this number of bytes.
FILE_SPACING = 4 << 30
#: Bytes of the largest piece of a read: MQSim has 16 bits for the number of sectors of a request.
PIECE = 1 << 20


@dataclass(frozen=True)
class Read:
    """A read, and the time of its arrival in nanoseconds."""

    offset: int
    bytes: int
    at: int = 0


@dataclass(frozen=True)
class Workload:
    """Reads of which at most `depth` are in flight. If `depth` is 0, each read is issued at the time of its arrival."""

    name: str
    depth: int
    reads: list[Read]


def random_reads(size: int, gap_ns: int = 0) -> list[Read]:
    """Returns reads at random places, which arrive at a mean interval of `gap_ns`."""
    draw, now, reads = random.Random(size + gap_ns), 0.0, []
    for _ in range(READS):
        reads.append(Read(draw.randrange(SPAN // size) * size, size, int(now)))
        now += draw.expovariate(1 / gap_ns) if gap_ns else 0
    return reads


def sequential_reads(size: int) -> list[Read]:
    """Returns sequential reads."""
    return [Read(number * size, size) for number in range(min(READS, SPAN // size))]


def traced_reads(trace: Path) -> Iterator[Read]:
    """Returns the reads of a trace in their order, without their dependencies. They are extended to whole sectors, and
    divided into pieces that MQSim accepts."""
    with trace.open() as lines:
        for line in lines:
            if line.startswith("read "):
                _, file, offset, size, *_ = line.split()
                begin, end = int(offset) // SECTOR * SECTOR, -(-(int(offset) + int(size)) // SECTOR) * SECTOR
                for at in range(begin, end, PIECE):
                    yield Read(int(file) * FILE_SPACING + at, min(PIECE, end - at))


def workloads(traces: list[Path]) -> Iterator[Workload]:
    """Returns all workloads."""
    for size in (4_096, 16_384):
        for depth in (1, 8, 32, 128):
            yield Workload(f"random, {size} B", depth, random_reads(size)[: READS if depth > 1 else READS // 10])
    for gap_ns in (50_000, 20_000, 10_000):
        yield Workload(f"random, 4096 B, one each {gap_ns // 1000} us", 0, random_reads(4_096, gap_ns))
    for size in (8_192, 131_072):
        for depth in (1, 32):
            yield Workload(f"sequential, {size} B", depth, sequential_reads(size)[: READS if depth > 1 else READS // 10])
    for trace in traces:
        reads = list(islice(traced_reads(trace), READS))
        for depth in (1, 32):
            yield Workload(trace.stem, depth, reads[: READS if depth > 1 else READS // 10])


def by_mqsim(program: Path, folder: Path, load: Workload, has_all_addresses: bool) -> tuple[float, float]:
    """Runs MQSim. Returns the seconds that all reads take together, and their mean latency in microseconds."""
    trace, scenario, config = folder / "reads.trace", folder / "workload.xml", folder / "ssdconfig.xml"
    trace.write_text("".join(f"{read.at} 0 {read.offset // SECTOR} {read.bytes // SECTOR} 1\n" for read in load.reads))
    settings = xml.parse(program.parent / "ssdconfig.xml")
    fetched = next(settings.iter("Queue_Fetch_Size"))
    fetched.text = str(load.depth) if load.depth else fetched.text
    next(settings.iter("Ideal_Mapping_Table")).text = str(has_all_addresses).lower()
    settings.write(config)
    flow = {
        "Priority_Class": "HIGH",
        "Device_Level_Data_Caching_Mode": "WRITE_CACHE",
        "Channel_IDs": "0,1,2,3,4,5,6,7",
        "Chip_IDs": "0,1,2,3",
        "Die_IDs": "0,1",
        "Plane_IDs": "0,1",
        "Initial_Occupancy_Percentage": "70",
        "File_Path": str(trace),
        "Percentage_To_Be_Executed": "100",
        "Relay_Count": "1",
        "Time_Unit": "NANOSECOND",
    }
    of_flow = "".join(f"<{name}>{value}</{name}>" for name, value in flow.items())
    kind = "IO_Flow_Parameter_Set_Trace_Based"
    scenario.write_text(
        '<?xml version="1.0" encoding="us-ascii"?>\n'
        f"<MQSim_IO_Scenarios><IO_Scenario><{kind}>{of_flow}</{kind}></IO_Scenario></MQSim_IO_Scenarios>\n"
    )
    run([program, "-i", config, "-w", scenario])
    flow_report = next(xml.parse(folder / "workload_scenario_1.xml").iter("Host.IO_Flow"))
    value = {field.tag: field.text for field in flow_report}
    if int(value["Request_Count"]) != len(load.reads):
        raise Failed(f"MQSim carried out {value['Request_Count']} of {len(load.reads)} reads")
    if not load.depth:
        latency = float(value["End_to_End_Request_Delay"])
        return load.reads[-1].at / 1e9 + latency / 1e6, latency
    seconds = float(value["Max_End_to_End_Request_Delay"]) / 1e6
    return seconds, load.depth * seconds / len(load.reads) * 1e6


def by_adjoin(program: Path, folder: Path, load: Workload) -> tuple[float, float]:
    """Runs the model. Returns the seconds that all reads take together, and their mean latency in microseconds."""
    trace, result = folder / "adjoin.trace", folder / "result.csv"
    with trace.open("w") as out:
        out.write("adjoin-trace 2\nfile 0 device\n")
        out.writelines(f"read 0 {read.offset} {read.bytes} {read.at} 1 ok - - -\n" for read in load.reads)
    depth = str(load.depth or 65_536)
    timed = [] if load.depth else ["--as-timed"]
    how = ("--model", "mqsim", "--depth", depth, *timed, "-o", result, "--force", "--quiet")
    run([program, "flash", "run", "--trace", trace, *how])
    names, figures = (line.split(",") for line in result.read_text().splitlines())
    value = dict(zip(names, figures))
    seconds = float(value["seconds"])
    latency = load.depth * seconds / len(load.reads) * 1e6 if load.depth else float(value["latency_us.mean"])
    return seconds, latency


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoin", type=Path)
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--work", type=Path, default=Path("target/flash-mqsim"))
    given = parser.parse_args()
    if "MQSIM" not in os.environ:
        sys.exit("flash_mqsim.py: MQSIM names no program; build MQSim outside of this repository and give its path")
    mqsim, folder = Path(os.environ["MQSIM"]).resolve(), given.work.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows, off = [], []
    for load in workloads(given.traces):
        cold = by_mqsim(mqsim, folder, load, False)[0] if load.depth == COLD_DEPTH else None
        (theirs, their_latency), (ours, our_latency) = by_mqsim(mqsim, folder, load, True), by_adjoin(given.adjoin, folder, load)
        count, difference = len(load.reads), our_latency / their_latency - 1
        off.append(abs(difference))
        rows.append([
            load.name,
            str(load.depth) if load.depth else "",
            shown(count / cold, 0) if cold else "",
            shown(count / theirs, 0),
            shown(count / ours, 0),
            shown(their_latency),
            shown(our_latency),
            f"{100 * difference:+.1f} %",
        ])
    head = ["reads", "depth", "MQSim by default, reads/s", "addresses in memory", "model", "MQSim, us", "model", "difference"]
    print(table(head, rows))
    print(f"Within 10 %: {sum(one <= 0.1 for one in off)} of {len(off)}; the largest difference is {100 * max(off):.1f} %.")


if __name__ == "__main__":
    try:
        main()
    except Failed as reason:
        sys.exit(f"flash_mqsim.py: {reason}")
