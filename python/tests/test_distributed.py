"""A join or a build on many machines gives the result of one machine, with every runner, and whatever process is
killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

import adjoin
from adjoin import distributed
from adjoin.distributed import _dask, _local, _ray, _runners, _spark, _task
from conftest import SAMPLE

ADJOIN = Path(sys.executable).with_name("adjoin")
EPS = {"eps": 0.3, "exact": True}


def rows_of(path):
    table = pyarrow.parquet.read_table(path)
    return sorted(zip(*(column.to_pylist() for column in table.columns)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder that all machines see, with a store and the results of one machine."""
    folder = tmp_path_factory.mktemp("shared")
    draw = numpy.random.default_rng(1)
    centers = draw.standard_normal((40, 8))
    vectors = centers[draw.integers(0, 40, 600)] + 0.1 * draw.standard_normal((600, 8))
    numpy.save(folder / "vectors.npy", vectors.astype("float32"))
    adjoin.build(folder / "vectors.npy", folder / "store")
    with adjoin.join(folder / "store", **EPS) as result:
        assert len(result) > 100
        for kind in ("pairs", "counts", "clusters", "removed", "kept"):
            result.write(folder / f"{kind}.parquet", kind)
    # Every runner and number of parts must give these bytes.
    distributed.join(folder / "store", folder / "bytes.parquet", parts=1, **EPS)
    assert rows_of(folder / "bytes.parquet") == rows_of(folder / "pairs.parquet")
    return folder


def check(shared, folder, runner, parts, **options):
    """Checks pairs, clusters and removed rows. Returns the statistics."""
    path = folder / f"{runner}-{parts}.parquet"
    stats = distributed.join(shared / "store", path, parts=parts, runner=runner, folder=folder / "work", **EPS, **options)
    assert path.read_bytes() == (shared / "bytes.parquet").read_bytes()
    assert [part["part"] for part in stats["parts"]] == list(range(1, parts + 1))
    for kind in ("clusters", "removed"):
        adjoin.merge(folder / "work/plan", folder / "work/parts", folder / f"{kind}.parquet", result=kind)
        assert rows_of(folder / f"{kind}.parquet") == rows_of(shared / f"{kind}.parquet")
    return stats


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_build(shared, folder, runner, parts, **options):
    """Checks the bytes of a store. Returns the statistics."""
    options = {"parts": parts, "runner": runner, "folder": folder / "build", **options}
    stats = distributed.build(shared / "vectors.npy", folder / "built", **options)
    assert files_of(folder / "built") == files_of(shared / "store")
    assert [part["part"] for part in stats["parts"]] == list(range(1, 2 * parts + 1))
    assert stats["build_part"]["rows"] == 600
    return stats


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_processes_give_the_result_of_one_machine(shared, tmp_path, parts):
    stats = check(shared, tmp_path, "local", parts)
    assert sum(part["stats"]["join"]["pairs"] for part in stats["parts"]) == stats["join"]["pairs"]
    assert stats["plan"]["parts"][0]["memory_bytes"] == stats["parts"][0]["stats"]["memory"]["budget_bytes"]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_processes_build_the_store_of_one_machine(shared, tmp_path, parts):
    stats = check_build(shared, tmp_path, "local", parts)
    done = [part["stats"]["build_part"] for part in stats["parts"]]
    for phase, some in (("read", done[:parts]), ("write", done[parts:])):
        assert all(part["phase"] == phase for part in some) and sum(part["rows"] for part in some) == 600
    assert stats["plan"]["parts"][-1]["memory_bytes"] == stats["parts"][-1]["stats"]["memory"]["budget_bytes"]


def test_a_build_takes_the_options_of_one_machine(shared, tmp_path):
    table = pyarrow.table({"name": [f"row {row}" for row in range(300)], "year": [row % 7 for row in range(300)]})
    vectors = pyarrow.array(numpy.load(shared / "vectors.npy")[:300].tolist(), pyarrow.list_(pyarrow.float32(), 8))
    table = table.append_column("vector", vectors)
    for file in range(2):
        pyarrow.parquet.write_table(table.slice(150 * file, 150), tmp_path / f"{file}.parquet")
    sources = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    options = {"metric": "cosine", "seed": 3, "buckets": 9, "id_column": "name", "columns": ["year"]}
    adjoin.build(sources, tmp_path / "one", **options)
    distributed.build(sources, tmp_path / "many", parts=2, **options)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.parquet", "1.parquet", "many", "one"]


@pytest.mark.parametrize("result", ["counts", "clusters", "removed", "kept"])
def test_every_result_can_be_asked_for(shared, tmp_path, result):
    distributed.join(shared / "store", tmp_path / "rows.parquet", parts=2, result=result, **EPS)
    assert rows_of(tmp_path / "rows.parquet") == rows_of(shared / f"{result}.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_shell_runs_parts_twice_and_in_any_order(shared, tmp_path):
    adjoin.plan(shared / "store", tmp_path / "plan", parts=4, **EPS)
    order = [part for part in range(1, 5) for _ in range(2)]
    random.Random(3).shuffle(order)
    loop = f"for part in {' '.join(map(str, order))}; do {ADJOIN} run-part plan --part $part/4 -o parts --force; done"
    subprocess.run(["bash", "-ec", loop], cwd=tmp_path, check=True)
    adjoin.merge(tmp_path / "plan", tmp_path / "parts", tmp_path / "pairs.parquet")
    assert (tmp_path / "pairs.parquet").read_bytes() == (shared / "bytes.parquet").read_bytes()


def test_a_slurm_array_runs_the_script_of_the_how_to(shared, tmp_path):
    page = (Path(__file__).parents[2] / "docs/how-to/run-on-many-machines.md").read_text()
    script = page.partition("```text\n#!/bin/bash")[2].partition("```")[0]
    assert "#SBATCH --array=1-256" in script and "--threads" in script
    script = script.replace("/shared/", f"{tmp_path}/").replace("256", "2")
    adjoin.plan(shared / "store", tmp_path / "docs.plan", parts=2, **EPS)
    for task in ("2", "1"):
        variables = {"SLURM_ARRAY_TASK_ID": task, "SLURM_CPUS_PER_TASK": "1", "PATH": f"{ADJOIN.parent}:{os.environ['PATH']}"}
        subprocess.run(["bash", "-ec", script], env={**os.environ, **variables}, check=True)
    adjoin.merge(tmp_path / "docs.plan", tmp_path / "parts", tmp_path / "pairs.parquet")
    assert (tmp_path / "pairs.parquet").read_bytes() == (shared / "bytes.parquet").read_bytes()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("job", ["join", "build"])
def test_killed_processes_are_run_again(shared, tmp_path, monkeypatch, job, seed):
    draw, kills = random.Random(seed), []

    class Killing(_local.Local):
        def start(self, task):
            super().start(task)
            if len(kills) < 3 and draw.random() < 0.5:
                running = draw.choice([key.data for key in self._running.get_map().values()])
                if draw.random() < 0.5:  # while it writes its result, if it does not end before
                    while running.process.poll() is None and not list(Path(task["folder"]).glob("*.partial*")):
                        time.sleep(0.002)
                running.process.kill()
                kills.append(running.task["part"])

    monkeypatch.setattr(_local, "Local", Killing)
    if job == "join":
        stats = check(shared, tmp_path, "local", 4, concurrency=2)
    else:
        stats = check_build(shared, tmp_path, "local", 2, concurrency=2)
    assert kills and sum(part["attempts"] for part in stats["parts"]) >= 4


DRIVER = """\
import os, sys
from adjoin import distributed
if os.environ.get("RAY_ADDRESS"):
    import ray
    ray.init(log_to_driver=False)
store, path, folder, runner = sys.argv[1:]
options = {"runner": runner, "folder": folder, "concurrency": 1}
if path.endswith(".parquet"):
    distributed.join(store, path, parts=8, eps=0.3, exact=True, **options)
else:
    distributed.build(store, path, parts=4, **options)
"""


def killed_driver(paths, runner, how, done, **variables):
    """Runs a driver, and sends it a signal once a number of parts are done. Returns its messages.

    ``paths`` are the store of a join or the source of a build, the result, and the folder of parts."""
    command = [sys.executable, "-c", DRIVER, *paths, runner]
    driver = subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)
    while driver.poll() is None and len(list((paths[2] / "parts").glob("part-*-of-00008"))) < done:
        time.sleep(0.002)
    driver.send_signal(how)
    text = driver.communicate()[1]
    assert driver.returncode != 0, text
    return text


@pytest.mark.parametrize("done", [1, 5])
def test_a_killed_driver_goes_on_with_the_parts_that_are_done(shared, tmp_path, done):
    killed_driver((shared / "store", tmp_path / "local-8.parquet", tmp_path / "work"), "local", signal.SIGKILL, done)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "work/parts").glob("part-*-of-00008")}
    assert done <= len(before) < 8
    stats = check(shared, tmp_path, "local", 8)
    assert sum(part["stats"] is None for part in stats["parts"]) >= len(before)
    assert all((tmp_path / "work/parts" / name).stat().st_ino == number for name, number in before.items())


@pytest.mark.parametrize("how, done", [(signal.SIGKILL, 2), (signal.SIGINT, 5), (signal.SIGKILL, 7)])
def test_a_stopped_build_goes_on_with_the_parts_that_are_done(shared, tmp_path, how, done):
    killed_driver((shared / "vectors.npy", tmp_path / "built", tmp_path / "build"), "local", how, done)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "build/parts").glob("part-*-of-00008")}
    assert done <= len(before) and not (tmp_path / "built").exists()
    stats = check_build(shared, tmp_path, "local", 4)
    assert sum(part["stats"] is None for part in stats["parts"]) >= len(before)
    assert all((tmp_path / "build/parts" / name).stat().st_ino == number for name, number in before.items())
    assert not list((tmp_path / "build").glob("stopped-*"))


def test_an_interrupt_stops_the_driver_and_its_parts(shared, tmp_path):
    paths = shared / "store", tmp_path / "local-8.parquet", tmp_path / "work"
    text = killed_driver(paths, "local", signal.SIGINT, 1)
    assert text.rstrip().endswith("KeyboardInterrupt")
    check(shared, tmp_path, "local", 8)
    assert not list((tmp_path / "work").glob("stopped-*"))


def task_of(shared, folder, /, **changes):
    adjoin.plan(shared / "store", folder / "plan", parts=2, **EPS)
    (folder / "parts").mkdir()
    paths = {"plan": folder / "plan", "store": shared / "store", "folder": folder / "parts", "stop": folder / "stop"}
    task = {name: str(path) for name, path in paths.items()}
    return {**task, "part": 1, "parts": 2, "memory": 200 << 20, "threads": 1, "temporary": None, "parent": None} | changes


def test_a_stopped_part_ends_by_itself(shared, tmp_path):
    task = task_of(shared, tmp_path)
    (tmp_path / "stop").touch()
    workers = _local.Local(1, None)
    workers.start(task)
    (running,) = (key.data for key in workers._running.get_map().values())
    workers.stop()
    assert running.process.returncode == 0
    assert _task.run(task)["kind"] == "Stopped" and not list((tmp_path / "parts").iterdir())
    (tmp_path / "stop").unlink()
    assert _task.run({**task, "parent": os.getpid()})["kind"] == "Stopped", "another process than its parent"
    assert _task.run(task)["stats"]["join"]["pairs"] > 0


@pytest.mark.parametrize("name", ["plan", "store", "folder"])
def test_a_machine_that_does_not_see_the_files_is_named(shared, tmp_path, name):
    outcome = _task.run(task_of(shared, tmp_path, **{name: str(tmp_path / "elsewhere")}))
    assert outcome["kind"] == "InputError" and not outcome["is_transient"]
    assert outcome["error"].startswith(outcome["host"]) and "on a file system that all machines share" in outcome["error"]


class Fake:
    """Workers that end tasks in a random order, with planned failures."""

    def __init__(self, limit, failures, seed):
        self.limit, self.failures, self.draw = limit, failures, random.Random(seed)
        self.running, self.most, self.stopped = [], 0, False

    def start(self, task):
        self.running.append(task)
        self.most = max(self.most, len(self.running))

    def wait(self):
        if self.draw.random() < 0.2:
            return []
        self.draw.shuffle(self.running)
        task = self.running.pop()
        failures = self.failures.get(task["part"], [])
        if not failures:
            return [_task.outcome_of(task, "there", {})]
        failure = failures.pop(0)
        if isinstance(failure, BaseException):
            raise failure
        return [_task.failure_of(task, "there", "no luck", **failure)]

    def stop(self):
        self.stopped = True


LOST = {"is_transient": True}


def run_fake(tmp_path, failures, limit=3, retries=2, seed=1):
    ended = {}
    fake = Fake(limit, failures, seed)
    tasks = [{"part": part, "parts": 20} for part in range(1, 21)]
    try:
        _runners.run_tasks(fake, tasks, retries, tmp_path / "stop", lambda outcome, n: ended.update({outcome["part"]: n}))
    finally:
        assert fake.most <= limit and fake.stopped == (tmp_path / "stop").exists()
    return ended


@pytest.mark.parametrize("seed", range(20))
def test_lost_tasks_are_started_again_and_few_are_in_flight(tmp_path, seed):
    ended = run_fake(tmp_path, {3: [LOST], 7: [LOST, LOST]}, limit=1 + seed % 5, seed=seed)
    assert ended == {part: {3: 2, 7: 3}.get(part, 1) for part in range(1, 21)}


def test_a_task_that_fails_for_good_stops_all(tmp_path):
    with pytest.raises(adjoin.AdjoinError, match=r"^part 7/20 failed on there 3 times: no luck$"):
        run_fake(tmp_path, {7: [LOST] * 3})
    with pytest.raises(adjoin.BudgetError, match=r"^part 7/20 failed on there: no luck$"):
        run_fake(tmp_path, {7: [{"kind": "BudgetError"}]})
    with pytest.raises(KeyboardInterrupt):
        run_fake(tmp_path, {7: [KeyboardInterrupt()]})


def test_parts_that_this_machine_does_not_see_are_named(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "workers_of", lambda *_: Fake(2, {}, 1))
    with pytest.raises(adjoin.InputError, match="has no part 1, which ran on there; name a folder"):
        distributed.join(shared / "store", tmp_path / "pairs.parquet", parts=2, **EPS)


def test_wrong_arguments_are_refused_before_any_work(shared, tmp_path, monkeypatch):
    def join(**options):
        distributed.join(shared / "store", tmp_path / "pairs.parquet", **{"parts": 2, **EPS, **options})

    with pytest.raises(adjoin.OptionError, match="runner is 'slurm'; give local or ray or dask or spark"):
        join(runner="slurm")
    for name in ("threads", "concurrency"):
        with pytest.raises(adjoin.OptionError, match=f"{name} is 0; give at least 1"):
            join(**{name: 0})
    with pytest.raises(adjoin.OptionError, match="give a file, and copy it to a bucket"):
        distributed.join(shared / "store", "s3://bucket/pairs.parquet", parts=2, **EPS)
    for runner, package in (("ray", "ray"), ("dask", "distributed"), ("spark", "pyspark.sql")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf'needs the package {package}; .* pip install "adjoin\[{runner}\]"'):
            join(runner=runner)
    assert not list(tmp_path.iterdir())
    (tmp_path / "pairs.parquet").touch()
    with pytest.raises(adjoin.InputError, match="exists already; give force=True"):
        join()
    join(force=True)
    assert rows_of(tmp_path / "pairs.parquet") == rows_of(shared / "pairs.parquet")


def test_wrong_arguments_of_a_build_are_refused_before_any_work(shared, tmp_path):
    def build(source=shared / "vectors.npy", store=tmp_path / "store", **options):
        distributed.build(source, store, **{"parts": 2, **options})

    with pytest.raises(adjoin.OptionTypeError, match="give a path or a list of paths that all machines can read"):
        build(numpy.zeros((2, 2), "float32"))
    with pytest.raises(adjoin.OptionError, match="give a folder, and copy it to a bucket afterwards"):
        build(store="s3://bucket/store")
    with pytest.raises(adjoin.InputError, match="exists already; give force=True"):
        build(store=shared / "store")
    with pytest.raises(adjoin.OptionError, match="parts is 0; give 1 to"):
        build(parts=0)
    assert {path.name for path in tmp_path.iterdir()} <= {"store.parts"}
    build()
    before = files_of(tmp_path / "store")
    build(force=True, seed=2)
    assert files_of(tmp_path / "store") != before


def test_a_folder_with_parts_of_another_join_is_refused(shared, tmp_path):
    def join(**options):
        options = {"parts": 2, **EPS, **options}
        distributed.join(shared / "store", tmp_path / "pairs.parquet", folder=tmp_path / "work", force=True, **options)

    join()
    with pytest.raises(adjoin.OptionError, match=r"another run \(eps was 0.3, parts was 2\); give the same"):
        join(eps=0.25, parts=3)
    with pytest.raises(adjoin.OptionError, match=r"another run \(.*job was 'join'"):
        distributed.build(shared / "vectors.npy", tmp_path / "built", parts=2, folder=tmp_path / "work")
    (tmp_path / "work/job.json").write_text("{")
    with pytest.raises(adjoin.InputError, match="job.json is damaged"):
        join()
    (tmp_path / "work/job.json").unlink()
    with pytest.raises(adjoin.InputError, match="has parts of another run"):
        join()
    (tmp_path / "file").touch()
    with pytest.raises(adjoin.DeviceError, match="cannot be used as the folder of parts"):
        distributed.join(shared / "store", tmp_path / "other.parquet", parts=2, folder=tmp_path / "file", **EPS)


def killing(folder, seed, parts):
    """Returns a task that kills its worker at the first attempt of some parts, before or after it has run the part."""
    draw = random.Random(seed)
    moments = {part: draw.choice(["before", "after"]) for part in draw.sample(range(1, parts + 1), 2)}

    def run(task):  # pickled by value, since it is inside of another function
        import os
        import signal
        from pathlib import Path

        from adjoin.distributed import _task

        moment, marker = moments.get(task["part"]), Path(folder) / f"killed-{task['part']}"
        if moment is None or marker.exists():
            return _task.run(task)
        if moment == "after":
            _task.run(task)
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    return run


@pytest.fixture(scope="module")
def ray_cluster():
    """A cluster of a head without processors and two nodes, each in processes of its own."""
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    sizes = {"object_store_memory": 80 << 20, "include_dashboard": False}
    for attempt in range(3):  # Ray gives a node 30 seconds to start, which a busy machine may exceed
        cluster = utils.Cluster()
        try:
            cluster.add_node(num_cpus=0, **sizes)
            for _ in range(2):
                cluster.add_node(num_cpus=1, memory=1 << 30, object_store_memory=80 << 20)
            break
        except Exception:
            cluster.shutdown()
            if attempt == 2:
                raise
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_ray_gives_the_result_of_one_machine(shared, tmp_path, ray_cluster, parts):
    check(shared, tmp_path, "ray", parts)


@pytest.mark.parametrize("parts", [1, 3])
def test_ray_builds_the_store_of_one_machine(shared, tmp_path, ray_cluster, parts):
    check_build(shared, tmp_path, "ray", parts)


@pytest.mark.parametrize("seed", range(2))
def test_killed_workers_of_ray_are_replaced(shared, tmp_path, ray_cluster, monkeypatch, seed):
    monkeypatch.setattr(_ray._task, "run", killing(tmp_path, seed, 4))
    stats = check(shared, tmp_path, "ray", 4)
    assert sum(part["attempts"] for part in stats["parts"]) == 6


@pytest.mark.parametrize("seed", range(3))
def test_killed_workers_of_ray_are_replaced_in_a_build(shared, tmp_path, ray_cluster, monkeypatch, seed):
    monkeypatch.setattr(_ray._task, "run", killing(tmp_path, seed, 4))
    stats = check_build(shared, tmp_path, "ray", 2)
    assert sum(part["attempts"] for part in stats["parts"]) == 6


def test_a_killed_driver_of_ray_goes_on(shared, tmp_path, ray_cluster):
    paths = shared / "store", tmp_path / "ray-8.parquet", tmp_path / "work"
    killed_driver(paths, "ray", signal.SIGKILL, 3, RAY_ADDRESS=ray_cluster.address)
    stats = check(shared, tmp_path, "ray", 8)
    assert sum(part["stats"] is None for part in stats["parts"]) >= 3


def test_the_how_to_deduplicates_a_bucket_on_ray(tmp_path, ray_cluster):
    pytest.importorskip("polars")
    page = (Path(__file__).parents[2] / "docs/how-to/run-on-ray-dask-spark.md").read_text()
    script = "".join(re.findall(r"```py\n(.*?)```", page, re.DOTALL))
    assert 'ray.init(address="auto")' in script  # which finds the cluster that RAY_ADDRESS names
    bucket, shards = tmp_path / "bucket", {}
    (bucket / "embeddings").mkdir(parents=True)
    (bucket / "deduplicated").mkdir()
    table = pyarrow.parquet.read_table(SAMPLE).slice(0, 2_000)
    for shard in range(2):
        shards[f"part-{shard}.parquet"] = table.slice(1_000 * shard, 1_000)
        pyarrow.parquet.write_table(shards[f"part-{shard}.parquet"], bucket / f"embeddings/part-{shard}.parquet")
    changes = {"s3://bucket": f"file://{bucket}", "/shared": str(tmp_path), '"parts": 64': '"parts": 3', '"threads": 4': '"threads": 1'}
    changes |= {'"memory": "8GB"': '"memory": "300MB"', "memory=2_000_000_000": "memory=200_000_000"}
    for name, value in changes.items():
        assert name in script
        script = script.replace(name, value)
    environment = {**os.environ, "RAY_ADDRESS": ray_cluster.address}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    with adjoin.join(bucket / "embeddings", id_column="name", min_similarity=0.95) as result:
        removed = set(pyarrow.table(result.removed())["id"].to_pylist())
    assert 0 < len(removed) < 1_000
    for name, rows in shards.items():
        kept = pyarrow.parquet.read_table(bucket / "deduplicated" / name)
        assert kept.column_names == rows.column_names
        assert kept["name"].to_pylist() == [one for one in rows["name"].to_pylist() if one not in removed]


def test_parts_that_no_node_of_ray_can_run_are_reported(ray_cluster, caplog):
    workers = _ray.Ray(None)
    task = {"part": 1, "parts": 2, "memory": 1 << 40, "threads": 1}
    workers.start(task)
    workers.start(task)
    assert [record.message for record in caplog.records].count(
        "part 1/2 needs 1 CPUs and 1099.7 GB of memory, and no node of the Ray cluster has them; it waits for one. Give "
        "less memory or threads, or more parts"
    ) == 1
    workers.stop()


@pytest.fixture(scope="module")
def dask_client():
    distributed_of_dask = pytest.importorskip("distributed")
    resources = {"memory": 2e9, "cpus": 1}  # reserved by each part, since all workers declare them
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "resources": resources}
    with distributed_of_dask.LocalCluster(**options) as cluster:
        with distributed_of_dask.Client(cluster) as client:
            yield client


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_dask_gives_the_result_of_one_machine(shared, tmp_path, dask_client, parts):
    check(shared, tmp_path, "dask", parts)


@pytest.mark.parametrize("parts", [1, 3])
def test_dask_builds_the_store_of_one_machine(shared, tmp_path, dask_client, parts):
    check_build(shared, tmp_path, "dask", parts)


def test_killed_workers_of_dask_are_replaced(shared, tmp_path, dask_client, monkeypatch):
    monkeypatch.setattr(_dask._task, "run", killing(tmp_path, 1, 4))
    check(shared, tmp_path, "dask", 4)
    assert len(list(tmp_path.glob("killed-*"))) == 2


def test_dask_needs_a_client(shared, tmp_path):
    pytest.importorskip("distributed")
    script = (
        "import sys, adjoin.distributed\n"
        "adjoin.distributed.join(sys.argv[1], 'pairs.parquet', parts=2, eps=0.3, runner='dask')"
    )
    ended = subprocess.run([sys.executable, "-c", script, shared / "store"], cwd=tmp_path, capture_output=True, text=True)
    assert 'OptionError: runner="dask" needs a client; create it first' in ended.stderr


@pytest.fixture(scope="module")
def spark_session():
    sql = pytest.importorskip("pyspark.sql")
    if not (os.environ.get("JAVA_HOME") or any(os.access(f"{folder}/java", os.X_OK) for folder in os.get_exec_path())):
        pytest.skip("Spark needs Java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_spark_gives_the_result_of_one_machine(shared, tmp_path, spark_session, parts):
    check(shared, tmp_path, "spark", parts)


@pytest.mark.parametrize("parts", [1, 3])
def test_spark_builds_the_store_of_one_machine(shared, tmp_path, spark_session, parts):
    check_build(shared, tmp_path, "spark", parts)


def test_killed_workers_of_spark_are_replaced(shared, tmp_path, spark_session, monkeypatch):
    monkeypatch.setattr(_spark, "run", killing(tmp_path, 1, 4))
    stats = check(shared, tmp_path, "spark", 4)
    assert max(part["attempts"] for part in stats["parts"]) > 1


def test_an_error_of_sparks_worker_is_reported_at_once(shared, tmp_path, spark_session, monkeypatch):
    def run(task):
        raise ModuleNotFoundError("No module named 'adjoin'")

    monkeypatch.setattr(_spark, "run", run)
    with pytest.raises(adjoin.AdjoinError, match="failed on Spark: its job failed: ModuleNotFoundError: No module"):
        distributed.join(shared / "store", tmp_path / "pairs.parquet", parts=2, runner="spark", **EPS)


def test_job_files_are_small(shared, tmp_path):
    """Workers get names and numbers only."""
    assert len(json.dumps(task_of(shared, tmp_path))) < 1_000
