"""Tables of queries that arrive in simulated time, at rates that all orders and caches sustain (`serve.py`).

The disk and the processor have given speeds, so that the tables do not depend on the machine. The chart needs
matplotlib in CHARTS_PYTHON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from at_recall import shown, table
from measure import Failed, Record, run

CHARTS = Path("docs/charts")
#: Steps of the printed distributions of latencies, of which a record has 51, in percent.
STEPS = (10, 50, 90, 98)
#: Load at which distributions and hit rates over time are shown.
SHOWN_LOAD = 0.8
WORDS = """Simulated time: 8 loaders read at 1,300 MB/s in all, each read begins 50 us before its first byte (the disk of \
[devices](benchmarks-flash.md#comparison-with-the-disk-of-this-machine)), and one thread compares 10,000 MB/s. Arrivals have \
bursts of three times the rate in a tenth of the seconds, as in the paper. Loads include them. 60 seconds after 61 of warm-up, \
or 20,000 queries if these take less time, \
with at most one prefetch of WLRU and CLRU then. Queries that arrive during a batch form the next one. Capacity is the rate of batches \
of 1,000 queries, which follow one another. Queries that share a bucket are \
compared one after another; the engine is faster, so the capacity of ours is a lower bound.
"""


def name(record: Record) -> str:
    """Returns the name of a contender."""
    if record["order"] == "bucket-major":
        return "ours"
    if record["order"] == "arrival":
        return record["cache"].removesuffix("-prefetch").upper()
    return {"call": "CALL", "call-distance": "CALL, by distance"}[record["order"]]


def cell(latency: Record) -> str:
    """Returns the percentiles 50, 95 and 99."""
    return " / ".join(shown(latency[key]) for key in ("p50", "p95", "p99"))


def of(records: Iterable[Record], what: str) -> list[Record]:
    return [record for record in records if record["what"] == what]


def rates(records: Sequence[Record], what: str, words: str) -> str:
    """Returns latencies from arrival to answer, at each load."""
    some = of(records, what)
    loads = sorted({record["load"] for record in some})
    rows: dict[str, list[str]] = {}
    for record in some:
        row = rows.setdefault(name(record), [name(record), shown(record["full_rate"])])
        row.append(cell(record["latency_ms"]))
    return words + table(["", "capacity, queries per second", *(f"{load:.0%}" for load in loads)], list(rows.values()))


def over_time(records: Sequence[Record]) -> str:
    """Returns Figures 4, 10 and 11: the paper's latency, its distribution, and hit rates over time."""
    body = []
    for record in (record for record in of(records, "equal rates") if record["load"] == SHOWN_LOAD):
        seconds = sorted(rate for rate in record["hit_rates"] if rate is not None)
        at = [seconds[int(share * (len(seconds) - 1))] for share in (0, 0.05, 0.5)]
        steps = [shown(record["quantiles_ms"][step // 2]) for step in STEPS]
        hits = [shown(100 * rate) for rate in (record["hit_rate"], *at)]
        mb = shown(record["bytes_per_query"] / 1e6, 2)
        body.append([name(record), shown(record["per_batch"]), " / ".join(steps), cell(record["own_ms"]), mb, *hits])
    head = ["", "queries in a batch", f"{' / '.join(map(str, STEPS))} % of the latencies, ms", "from the cache lookup: p50 / p95 / p99, ms"]
    head += ["MB per query", "hit rate, %", "worst second", "5 % of the seconds", "median second"]
    words = f"[Figures 4, 10, 11] All at {SHOWN_LOAD:.0%} of the lowest capacity. The paper measures from the cache lookup. A prefetched bucket is a hit.\n\n"
    return words + table(head, body)


def thetas(records: Sequence[Record]) -> str:
    """Returns Table III."""
    body = []
    for record in [*of(records, "thetas"), *of(records, "gathering")]:
        label = f"{record['theta']}" + (f", collects for {record['gather']:.0f} s" if record["gather"] else "")
        figures = [shown(record["full_rate"]), shown(record["rate"]), cell(record["latency_ms"]), cell(record["own_ms"])]
        body.append([label, *figures, shown(100 * record["hit_rate"]), shown(record["bytes_per_query"] / 1e6, 2)])
    head = ["theta", "capacity, queries per second", "rate", "p50 / p95 / p99, ms", "from the cache lookup", "hit rate, %", "MB per query"]
    words = (
        "[Table III] `CALL` by theta, all at 80 % of the lowest of their capacities. By distance, theta is 1 minus that. The last row "
        "collects queries as in Table II, at 80 % of the lowest capacity above.\n\n"
    )
    return words + table(head, body)


def chart(title: str, records: Sequence[Record]) -> str:
    """Draws the distributions of latencies, and hit rates over time."""
    some = [record for record in of(records, "equal rates") if record["load"] == SHOWN_LOAD]
    steps = range(len(some[0]["quantiles_ms"]))
    latencies = [(name(one), list(zip(one["quantiles_ms"], (2 * step for step in steps)))) for one in some]
    rates = [(name(one), [(at, 100 * rate) for at, rate in enumerate(one["hit_rates"]) if rate is not None]) for one in some]
    panels = [
        {"x": "latency, ms", "y": "queries, %", "lines": latencies, "logarithmic": "x", "from_zero": True},
        {"x": "second", "y": "hit rate, %", "lines": rates, "logarithmic": "", "from_zero": True},
    ]
    path = CHARTS / f"{title}-arrivals.svg"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"path": str(path), "panels": panels}], file)
        file.flush()
        try:
            run([os.environ.get("CHARTS_PYTHON", sys.executable), Path(__file__).with_name("draw.py"), file.name])
        except Failed as reason:
            return f"No chart: {reason}.\n"
    return f"![Latencies and hit rates](charts/{path.name})\n"


def simulated(title: str, setting: str, records: Sequence[Record]) -> str:
    """Returns the tables of a setting. `title` is the name of its chart."""
    own = f"Latency from arrival to answer, p50 / p95 / p99 in ms, {setting}, at a part of the *own* capacity.\n\n"
    equal = f"The same, {setting}, all at a part of the *lowest* capacity.\n\n"
    parts = [rates(records, "own rates", own), rates(records, "equal rates", equal), over_time(records), chart(title, records), thetas(records)]
    return "\n".join(parts)
