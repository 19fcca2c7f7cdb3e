"""Runbooks of `lab/bench/`, the engine that follows them, and the adapter for the streaming track of big-ann-benchmarks."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import numpy
import pytest

BENCH = Path(__file__).parents[2] / "lab/bench"
sys.path.insert(0, str(BENCH))

import runbook  # noqa: E402
import runbook_engines  # noqa: E402

ADJOIN = Path(sys.executable).with_name("adjoin")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A set of bytes and queries for it."""
    draw, folder = numpy.random.default_rng(1), tmp_path_factory.mktemp("set")
    base, queries = folder / "base.u8bin", folder / "queries.u8bin"
    runbook.write_vectors(base, draw.integers(0, 256, (1_200, 16), dtype="u1"))
    runbook.write_vectors(queries, draw.integers(0, 256, (20, 16), dtype="u1"))
    return base, queries


def shapes() -> dict[str, list[runbook.Step]]:
    return {
        "window": list(runbook.window(1_200, 12)),
        "expiry": list(runbook.expiry(1_200, 20, 7)),
        "renewal": list(runbook.expiry(1_200, 20, 7, "renewal")),
        "rounds": list(runbook.rounds([0, 300, 310, 310, 1_200], 7)),
    }


def test_reproduces_published_runbooks():
    wikipedia = list(runbook.expiry(1_000_000, 100, 1232))
    assert Counter(step["operation"] for step in wikipedia) == {"insert": 100, "delete": 60, "search": 100}
    assert runbook.most_alive(wikipedia) == 410_000
    assert wikipedia[257:] == [
        {"operation": "insert", "start": 990_000, "end": 1_000_000},
        {"operation": "delete", "start": 790_000, "end": 800_000},
        runbook.SEARCH,
    ]
    turing = list(runbook.window(10_000_000, 200))
    assert len(turing) == 401 and runbook.most_alive(turing) == 5_000_000
    assert turing[396] == {"operation": "insert", "start": 9_900_000, "end": 9_950_000}
    renewed = list(runbook.expiry(1_000_000, 100, 56, "renewal"))
    assert runbook.most_alive(renewed) == 415_355


@pytest.mark.parametrize("shape", shapes())
def test_a_runbook_deletes_only_existing_rows(shape):
    rows: dict[int, int] = {}
    used: set[int] = set()
    for number, step, row_of in runbook.alive(shapes()[shape], 1_200):
        match step["operation"]:
            case "insert":
                come = range(step["start"], step["end"])
                assert come and not used & set(come)
                used.update(come), rows.update(zip(come, come))
            case "delete":
                [rows.pop(tag) for tag in range(step["start"], step["end"])]
            case "replace":
                tags, ids = range(step["tags_start"], step["tags_end"]), range(step["ids_start"], step["ids_end"])
                assert len(tags) == len(ids) and set(tags) <= set(rows) and not used & set(ids)
                used.update(ids), rows.update(zip(tags, ids))
        assert rows == {int(tag): int(row_of[tag]) for tag in numpy.flatnonzero(row_of >= 0)}, number
    assert any(step["operation"] == "delete" for step in shapes()[shape])


def test_runbooks_round_trip(tmp_path):
    for name, steps in shapes().items():
        runbook.write(tmp_path / "runbook.yaml", name, steps)
        assert runbook.read(tmp_path / "runbook.yaml", name) == steps
    (tmp_path / "two.yaml").write_text(
        "a:\n  max_pts: 5\n  # a comment: of theirs\n  1:\n    operation: 'insert'\n    start: 0\n    end: 5\n"
        'b:\n  1: \n    - operation: "search"\n  gt_url: "https://there/is"\n'
    )
    assert runbook.read(tmp_path / "two.yaml", "a") == [{"operation": "insert", "start": 0, "end": 5}]
    assert runbook.read(tmp_path / "two.yaml", "b") == [runbook.SEARCH]
    with pytest.raises(SystemExit, match="no steps of c"):
        runbook.read(tmp_path / "two.yaml", "c")
    (tmp_path / "bad.yaml").write_text("a:\n  1:\n    operation: delete\n    start: 3\n")
    with pytest.raises(SystemExit, match="step 1 of a has no end"):
        runbook.read(tmp_path / "bad.yaml", "a")


def test_clustering_reorders_the_rows(files, tmp_path):
    base, _ = files
    runbook.in_clusters(base, tmp_path / "ordered.u8bin", 5, 1)
    before, after = (numpy.array(runbook.vectors(path)) for path in (base, tmp_path / "ordered.u8bin"))
    assert sorted(map(bytes, before)) == sorted(map(bytes, after)) and (before != after).any()
    starts = json.loads((tmp_path / "ordered.json").read_text())
    assert starts[0] == 0 and starts[-1] == len(before) and sorted(starts) == starts and len(starts) == 6
    clusters = [after[start:end].astype("f8") for start, end in zip(starts, starts[1:])]
    middle = numpy.array([rows.mean(axis=0) for rows in clusters])
    near = [runbook.nearest(rows, middle) for rows in clusters]
    assert numpy.mean([(of == cluster).mean() for cluster, of in enumerate(near)]) > 0.7


def far(queries, rows):
    return ((queries[:, None].astype("f8") - rows[None].astype("f8")) ** 2).sum(axis=2)


@pytest.fixture(scope="module")
def truth(files):
    folder = files[0].parent / "truth"
    runbook.truth(ADJOIN, *files, shapes()["renewal"], folder)
    return folder


def test_the_ground_truth_equals_brute_force(files, truth):
    base, queries = files
    steps = shapes()["renewal"]
    rows, asked = numpy.array(runbook.vectors(base)), numpy.array(runbook.vectors(queries))
    searches = 0
    for number, step, row_of in runbook.alive(steps, len(rows)):
        if step["operation"] != "search":
            continue
        tags = numpy.flatnonzero(row_of >= 0)
        told = truth / f"step{number}.gt100"
        count, known = numpy.fromfile(told, "<i4", 2)
        assert (count, known) == (len(asked), min(100, len(tags)))
        ids = numpy.fromfile(told, "<u4", count * known, offset=8).reshape(count, known)
        distances = numpy.fromfile(told, "<f4", offset=8 + 4 * ids.size).reshape(count, known)
        true = far(asked, rows[row_of[tags]])
        assert (numpy.sort(true, axis=1)[:, :known] == distances).all()
        assert (distances == far(asked, rows)[numpy.arange(count)[:, None], row_of[ids]]).all()
        searches += 1
    assert searches == 20 and [path.suffix for path in truth.iterdir()] == [".gt100"] * 20


def test_ties_with_the_last_neighbor_count_as_hits(tmp_path):
    with (tmp_path / "truth").open("wb") as file:
        for part in (numpy.array([1, 4], "<i4"), numpy.array([5, 6, 7, 8], "<u4"), numpy.array([1, 2, 2, 3], "<f4")):
            part.tofile(file)
    for found, recall in (([5, 6], 1), ([7, 5], 1), ([6, 7], 1), ([8, 5], 0.5), ([5, 5], 0.5), ([-1, -1], 0)):
        assert runbook_engines.right(numpy.array([found]), tmp_path / "truth") == recall


@pytest.fixture
def job(files, truth, tmp_path):
    base, queries = files
    runbook.write(tmp_path / "runbook.yaml", "set", shapes()["renewal"])
    paths = {"base": base, "queries": queries, "runbook": tmp_path / "runbook.yaml", "truth": truth}
    paths |= {"folder": tmp_path / "live", "log": tmp_path / "log"}
    told = {"name": "set", "k": 10, "threads": 2, "memory_bytes": 128_000_000, "cgroup": None, "settled": 300}
    return {key: str(path) for key, path in paths.items()} | told | {"efforts": [200], "build": {"code_bytes": 16}}


def command(what, job):
    return [sys.executable, BENCH / "runbook_engines.py", "adjoin", what, json.dumps(job)]


def test_a_collection_runs_a_runbook(job):
    told = json.loads(subprocess.run(command("run", job), check=True, capture_output=True).stdout)
    assert told["kept_bytes"] > 1_000
    steps = [json.loads(line) for line in Path(job["log"]).read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, len(shapes()["renewal"]) + 1))
    searches = [step for step in steps if "points" in step]
    assert len(searches) == 20 and min(step["points"][0]["recall"] for step in searches) >= 0.97
    assert 3 <= sum(step["settled"] > 0 for step in searches) <= 5
    checked = json.loads(subprocess.run(command("check", job), check=True, capture_output=True).stdout)
    assert (checked["ended"], checked["lost"], checked["risen"]) == (len(steps), 0, 0) and checked["rows"] > 100


def test_the_check_reports_lost_and_undeleted_rows(job):
    job |= {"settled": 1_000_000, "efforts": [10]}
    subprocess.run(command("run", job), check=True, capture_output=True)
    log = Path(job["log"])
    lines = log.read_text().splitlines(keepends=True)
    last = max(step for step, line in enumerate(lines) if '"delete"' in line)
    log.write_text("".join(lines[: last - 1]))
    told = json.loads(subprocess.run(command("check", job), check=True, capture_output=True).stdout)
    assert told["lost"] > 0
    all_go = [runbook.ranged("insert", 0, 5), runbook.ranged("delete", 0, 1_200), runbook.SEARCH]
    runbook.write(Path(job["runbook"]), "set", all_go)
    log.write_text("".join(lines[:3]))
    told = json.loads(subprocess.run(command("check", job), check=True, capture_output=True).stdout)
    assert told["lost"] == 0 and told["risen"] == told["rows"] > 0


def test_written_rows_survive_a_kill(job):
    process = subprocess.Popen(command("run", job), stdout=subprocess.DEVNULL)
    log = Path(job["log"])
    while process.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 30):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    told = json.loads(subprocess.run(command("check", job), check=True, capture_output=True).stdout)
    assert told["ended"] >= 30 and told["rows"] > 0 and (told["lost"], told["risen"]) == (0, 0)


def test_the_streaming_track_adapter_finds_current_rows(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = types.ModuleType("neurips23.streaming.base")
    base.BaseStreamingANN = object  # type: ignore[attr-defined]
    for name in ("neurips23", "neurips23.streaming"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    path = BENCH / "harness/big_ann/streaming/adjoin/adjoin_live.py"
    spec = importlib.util.spec_from_file_location("adjoin_live", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    rows, asked = (numpy.array(runbook.vectors(path)) for path in files)
    adapter = module.Adjoin("euclidean", {"degree": 16, "code_bytes": 16, "merged": 500})
    adapter.setup("uint8", 1_200, 16)
    for _ in range(2):
        adapter.set_query_arguments({"list": 400})
        for number, step, row_of in runbook.alive(shapes()["renewal"], len(rows)):
            bounds = [step[key] for key in runbook.RANGES[step["operation"]]]
            tags = numpy.arange(*bounds[:2], dtype="u4") if bounds else None
            match step["operation"]:
                case "insert":
                    adapter.insert(rows[bounds[0] : bounds[1]], tags)
                case "replace":
                    adapter.replace(rows[bounds[2] : bounds[3]], tags)
                case "delete":
                    adapter.delete(tags)
                case "search" if number % 7 == 0:
                    adapter.query(asked, 5)
                    there = numpy.flatnonzero(row_of >= 0)
                    true = numpy.sort(far(asked, rows[row_of[there]]), axis=1)[:, :5]
                    found = far(asked, rows)[numpy.arange(len(asked))[:, None], row_of[adapter.res]]
                    assert (row_of[adapter.res] >= 0).all() and (found == true).mean() > 0.97
    adapter.done()
    assert list((tmp_path / "data/indices/stream").iterdir()) == []
