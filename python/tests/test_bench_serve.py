"""The load generator of `lab/bench/`, and the lines and efforts of its comparison of servers. No peer is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "lab/bench"
sys.path.insert(0, str(BENCH))

import cgroup  # noqa: E402
import measure  # noqa: E402
import serve_load  # noqa: E402
import serve_peers  # noqa: E402

ANSWER = b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n{}"


def job(path: Path, port: int, **more: object) -> dict[str, object]:
    """Returns a job of a closed loop that ends independently of time."""
    serve_load.write_requests(path / "requests", "/", "application/json", [b"[1]", b"[2]", b"[3]"])
    common = {"port": port, "requests": str(path / "requests"), "answers": str(path / "answers"), "connections": 2}
    return common | {"rate": None, "requests_max": 7, "seconds": 600.0, "warm": 0.0, "seed": 1} | more


def test_each_connection_of_a_closed_loop_sends_again_after_an_answer(tmp_path):
    server = subprocess.Popen([sys.executable, BENCH / "serve_load.py", "empty"], stdout=subprocess.PIPE, text=True)
    try:
        done = serve_load.Generator(job(tmp_path, int(server.stdout.readline()))).run()
    finally:
        server.kill()
        server.communicate()
    assert done.statuses == [200] * 7
    assert serve_load.read_answers(tmp_path / "answers") == [{}, {}, {}]
    with (tmp_path / "requests").open("rb") as file:
        assert file.read()[4:].startswith(b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\n")


def test_arrivals_are_random_and_equal_for_equal_seeds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        of = [job(tmp_path, port, rate=100.0, seconds=99.0, warm=1.0, seed=seed) for seed in (1, 1, 2)]
        first, again, other = (serve_load.Generator(one).moments() for one in of)
    assert first == again != other
    assert 9_500 < len(first) < 10_500 and first == sorted(first) and first[-1] < 100.0


def test_refusals_and_closed_connections_are_counted_and_replaced(tmp_path):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answers in ([200, 503], [200] * 4):
            accepted, _ = listener.accept()
            for status in answers:
                assert accepted.recv(1 << 16)
                answer = ANSWER % status
                accepted.sendall(answer[:20])
                accepted.sendall(answer[20:])
            if status == 503:
                assert accepted.recv(1 << 16)
            accepted.close()

    thread = threading.Thread(target=serve)
    thread.start()
    done = serve_load.Generator(job(tmp_path, listener.getsockname()[1], connections=1)).run()
    thread.join()
    listener.close()
    assert done.statuses == [200, 503, 0, 200, 200, 200, 200]
    told = serve_load.summary(done, 0.0, 600.0)
    assert {name: told[name] for name in ("planned", "answered", "refused", "failed", "unanswered")} == {
        "planned": 7, "answered": 5, "refused": 1, "failed": 1, "unanswered": 0,
    }  # fmt: skip


def test_latency_counts_from_the_arrival_and_includes_requests_without_an_answer():
    moments, ends = [0.5, 1.0, 1.5, 2.0, 2.5], [0.6, 1.25, 3.5, 2.1, 6.0]
    done = serve_load.Outcome(moments, [200, 200, 200, 429, -1], ends, [0.0, 0.0, 0.001, 0.0, 0.0], {})
    told = serve_load.summary(done, 1.0, 2.0)
    assert told["planned"] == 4 and told["answered"] == 2 and told["refused"] == 1 and told["unanswered"] == 1
    # Only one answer arrived in the two seconds that are measured.
    assert told["rate"] == 0.5
    assert told["latency_ms"] == {"p50": 2000.0, "p99": 3500.0, "p999": 3500.0, "max": 3500.0}
    assert told["late_ms_p99"] == 1.0


def test_a_quantile_is_at_least_as_large_as_that_fraction():
    assert [serve_load.quantile(range(1, 1001), at) for at in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert serve_load.quantile([7.0], 0.5) == 7.0


def test_an_answer_without_a_length_is_refused():
    assert serve_load.parse(ANSWER % 200 + b"") == (200, b"{}")
    for part in (ANSWER[:10], (ANSWER % 200)[:-1]):
        with pytest.raises(serve_load.Truncated):
            serve_load.parse(part)
    with pytest.raises(ValueError, match="without Content-Length"):
        serve_load.parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")


@pytest.mark.parametrize(("recall", "effort"), [(lambda effort: effort / 40, 40), (lambda effort: 1.0, 10), (lambda effort: 0.0, 256)])
def test_the_least_effort_with_enough_recall_is_chosen(recall, effort, monkeypatch):
    monkeypatch.setattr(serve_peers.Peers, "recall_at", lambda self, of, effort: recall(effort))
    monkeypatch.setattr(serve_peers, "RECALL", 1.0)
    assert serve_peers.Peers.effort(object.__new__(serve_peers.Peers), serve_peers.CONTENDERS[0]) == effort


def test_a_line_has_the_rates_and_the_latencies_of_a_load():
    latency = {"p50": 1.234, "p99": 12.34, "p999": 3456.7, "max": 4000.0}
    counts = {"planned": 200, "answered": 150, "refused": 30, "failed": 0, "unanswered": 20}
    load = {"fraction": 0.5, "offered": 1234.5, "rate": 900.4, "latency_ms": latency} | counts
    told = {"capacity": 2469.0, "recall": 0.9512, "peak_bytes": 80_000_000, "cgroup_bytes": None, "version": "1.2"}
    of = serve_peers.CONTENDERS[0]
    [own, equal] = serve_peers.lines(of, told | {"loads": [load, load | {"fraction": None, "unanswered": 0}]})
    assert own == [f"{of.words} 1.2", "50% of 2,469", "1,234", "900", "25.0", "1.23", "12", "> 3,457", "80 / ", "0.951"]
    assert equal[1] == "equal rate" and equal[4] == "15.0" and equal[7] == "3,457"


def test_ids_are_those_of_each_server():
    ids = {of.name: of.ids for of in serve_peers.CONTENDERS}
    assert ids["index"]({"hits": [[{"id": 7, "distance": 1.0}, {"id": 9, "distance": 2.0}]]}) == [7, 9]
    assert ids["chroma"]({"ids": [["7", "9"]]}) == [7, 9]
    assert ids["lancedb"]([7, 9]) == ids["qdrant"]([7, 9]) == [7, 9]


def test_the_peak_of_a_cgroup_is_read_in_either_version(tmp_path):
    assert cgroup.peak_bytes(tmp_path) is None
    (tmp_path / "memory.peak").write_text("12\n")
    assert cgroup.peak_bytes(tmp_path) == 12
    (tmp_path / "memory.max_usage_in_bytes").write_text("34\n")
    assert cgroup.peak_bytes(tmp_path) == 34


def test_a_part_of_one_set_is_copied_if_another_set_has_a_part_of_that_name(capsys):
    page = "# Serving\n\n## one\n\n### Batches\n\n1\n\n## two\n\n### Batches\n\n2\n\n### Plans\n\n3\n"
    for name in ("one", "two"):
        measure.print_parts(3, {"Batches": [], "Plans": [lambda: "4"]}, "Plans", measure.kept(page, 2, name))
    assert capsys.readouterr().out == "### Batches\n\n1\n\n### Plans\n\n4\n### Batches\n\n2\n\n### Plans\n\n4\n"
