"""Pages that `lab/bench/` writes: parts that fail, rows and parts that are replaced or copied, claims of NDSearch, and simulated arrivals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "lab/bench"
sys.path.insert(0, str(BENCH))

import at_recall  # noqa: E402
import flash  # noqa: E402
import measure  # noqa: E402
import serve_simulated  # noqa: E402


def test_a_part_that_fails_leaves_its_reason(capsys):
    def fails() -> str:
        raise measure.Failed("no data")

    measure.print_parts(3, {"One": [fails, lambda: "table"], "Two": [lambda: "other"]}, only="One")
    assert capsys.readouterr().out == "### One\n\nNot measured: no data.\n\ntable\n"


def test_rows_replace_those_of_the_same_name_in_the_table_below_the_title():
    table = at_recall.table(["order", "reads"], [["bnf", "1.0"], ["bnf2", "2.0"]])
    page = f"bnf\n\nOther:\n\n{table}\nOrders:\n\n{table}\nafter\n"
    new = at_recall.table(["order", "reads"], [["bnf", "7.0"]])
    assert at_recall.with_rows(page, f"Orders:\n\n{new}") == f"bnf\n\nOther:\n\n{table}\nOrders:\n\n{table.replace('1.0', '7.0')}\nafter\n"
    missing = at_recall.table(["order", "reads"], [["gp3", "7.0"]])
    with pytest.raises(ValueError, match="no row '| gp3 | '"):
        at_recall.with_rows(page, f"Orders:\n\n{missing}")


def test_a_part_of_a_page_is_copied_with_a_note_that_is_not_repeated(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Devices\n\n# Disk\n\ntable\n\n## Deeper\n\n# Last\n\nend\n")
    once = flash.copied(page, "Disk")
    assert once == f"\n# Disk\n\n{flash.KEPT}\n\ntable\n\n## Deeper\n"
    page.write_text(f"# Devices\n{once}\n# Last\n")
    assert flash.copied(page, "Disk") == once
    assert flash.copied(page, "Missing") == flash.copied(None, "Disk") == ""


def test_claims_name_each_figure_at_which_they_hold():
    text = (
        "## Claims over the time\n\n|  | paper | 5 us | 20 us | holds at, us |\n| --- |\n"
        "| over cpu | 31.7 | 9 | 3 | nowhere |\n| over chip | 2.9 | 5 | 1 | 12.9 |\n"
        "\n## What makes each claim true\n\n|  | paper | model | figure | from | to | model from | model to | holds at |\n| --- |\n"
        "| over cpu | 31.7 | 4 | link.host, MB/s | 1 | 2 | 3 | 4 | nowhere |\n"
        "| over chip | 2.9 | 2 | timing.channel, MB/s | 1 | 2 | 3 | 4 | 1.5 |\n"
        "| over chip | 2.9 | 2 | batch | 1 | 2 | 3 | 4 | 64.0 |\n"
        "| over chip | 2.9 | 2 | size | 5 | 9 | 3 | 4 | more everywhere |\n"
    )
    assert flash.holding(text, "over cpu") == ("4", "none of the figures tried")
    assert flash.holding(text, "over chip") == ("2", "timing.read: 12.9; timing.channel: 1.5; batch: 64.0; size: from 5 to 9 and more")


def test_simulated_arrivals_have_a_row_for_each_contender_and_a_column_for_each_load(monkeypatch):
    monkeypatch.setenv("CHARTS_PYTHON", "/no/such/python")
    latency = {"p50": 1.0, "p95": 2.0, "p99": 3.0}
    common = {"full_rate": 1000.0, "rate": 800.0, "latency_ms": latency, "own_ms": latency, "hit_rate": 0.5, "hit_rates": [0.25, None, 0.75]}
    common |= {"bytes_per_query": 2e6, "per_batch": 4.0, "quantiles_ms": [float(at) for at in range(51)], "theta": 0.3, "gather": 0.0}
    contenders = [("bucket-major", "foreseen"), ("call", "lru"), ("arrival", "wlru-prefetch")]
    replays = [("own rates", 0.2), ("own rates", 0.8), ("equal rates", 0.2), ("equal rates", 0.8)]
    records = [common | {"what": what, "load": load, "order": order, "cache": cache} for order, cache in contenders for what, load in replays]
    records += [common | {"what": "thetas", "order": "call", "load": 0.8}, common | {"what": "gathering", "order": "call", "load": 0.8, "gather": 3.0}]
    text = serve_simulated.simulated("set", "100 buckets", records)
    assert text.count("|  | capacity, queries per second | 20% | 80% |") == 2
    assert text.count("| WLRU | 1,000.0 | 1.0 / 2.0 / 3.0 | 1.0 / 2.0 / 3.0 |") == 2
    assert "| ours | 4.0 | 5.0 / 25.0 / 45.0 / 49.0 | 1.0 / 2.0 / 3.0 | 2.00 | 50.0 | 25.0 | 25.0 | 25.0 |" in text
    assert "| 0.3, collects for 3 s | 1,000.0 |" in text
    assert "No chart: /no/such/python" in text
