"""Clients of the server: equality with an open collection, limits, refusals and lost connections."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import pytest

import adjoin
from conftest import Server

ROWS = 400
COLUMNS: Any = {"lang": "text", "year": "int64", "day": "date", "rank": "float64"}


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    random = numpy.random.default_rng(1)
    return {
        "id": [f"row {row}" for row in range(ROWS)],
        "vector": random.standard_normal((ROWS, 16), dtype="float32"),
        "lang": [["en", "de", None, 'q"ü,'][row % 4] for row in range(ROWS)],
        "year": [2000 + row % 20 for row in range(ROWS)],
        "day": [f"2026-01-{1 + row % 28:02}" for row in range(ROWS)],
        "rank": [row / 3 for row in range(ROWS)],
    }


@pytest.fixture(scope="module")
def folder(rows: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "rows.collection"
    with adjoin.Collection.create(path, 16, metric="cosine", ids="text", columns=COLUMNS) as collection:
        collection.write(insert=rows)
    return path


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with Server(folder) as served:
        yield served


def run(client: Any, call: Any) -> Any:
    """Runs a call of a client of either kind."""
    found = call(client)
    return asyncio.get_event_loop().run_until_complete(found) if inspect.isawaitable(found) else found


@pytest.fixture(params=["Client", "AsyncClient"])
def client(url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "AsyncClient":
        pytest.importorskip("httpx")
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    made = getattr(adjoin, request.param)(url + "/")
    yield made
    run(made, lambda one: one.close())
    if request.param == "AsyncClient":
        loop.close()
        asyncio.set_event_loop(None)


def same_hits(ours: adjoin.Hits, theirs: adjoin.Hits) -> None:
    assert (ours.offsets == theirs.offsets).all() and ours.ids.shape == theirs.ids.shape
    assert ours.ids.tolist() == theirs.ids.tolist() and len(ours) == len(theirs)
    assert ours.values.dtype == theirs.values.dtype and numpy.allclose(ours.values, theirs.values, atol=1e-6)
    assert repr(ours) == repr(theirs)


def test_hits_are_those_of_the_collection(client: Any, folder: Path, rows: dict[str, Any]) -> None:
    queries = rows["vector"][:30] + numpy.float32(0.1)
    searches: list[dict[str, Any]] = [
        dict(k=5),
        dict(k=5, exact=True, where="lang = 'en' and year < 2010", columns=["lang", "year", "day", "rank"]),
        dict(min_similarity=0.4, exact=True, columns=["lang"]),
        dict(k=3, where="lang = 'none'", columns=["day"]),
        dict(k=2, list=200, deadline_ms=20_000),
        dict(k=2, recall=0.8),
    ]
    with adjoin.Collection(folder, read_only=True) as collection:
        for options in searches:
            ours = run(client, lambda one: one.search(queries, **options))
            options.pop("deadline_ms", None)
            with collection.search(queries, **options) as theirs, ours:
                same_hits(ours, theirs)
                table, wanted = ours.to_polars(), theirs.to_polars()
                assert table.columns == wanted.columns
                for name in set(options.get("columns", [])) | {"query"}:
                    assert list(map(str, table[name])) == list(map(str, wanted[name]))
        assert ours.stats["recall"]["target"] == 0.8 and "queue_ms" in ours.stats
        for array in (queries.astype("float64"), queries.tolist(), queries.astype("float16").astype(">f4")):
            ours = run(client, lambda one: one.search(array, k=5, exact=True))
            assert (ours.ids == collection.search(queries, 5, exact=True).ids).mean() > 0.95
        fetched, wanted = run(client, lambda one: one.get(["row 7", "row 3"])), collection.get(["row 7", "row 3"])
        assert fetched.ids.tolist() == ["row 7", "row 3"] and (fetched.vectors == rows["vector"][[7, 3]]).all()
        assert fetched.to_polars().columns == wanted.to_polars().columns and fetched.to_arrow()["year"].to_pylist() == [
            2007,
            2003,
        ]
        assert len(run(client, lambda one: one.get(["none"], on_missing="skip"))) == 0
        info = run(client, lambda one: one.info() if isinstance(one, adjoin.AsyncClient) else one.info)
        assert info["rows"] == ROWS and info["kind"] == "collection" and info["limits"]["queries"] == 4096
    assert "127.0.0.1" in repr(client)


def test_writes_larger_than_a_request_are_split(client: Any, url: str) -> None:
    count, kind = 5_000, type(client).__name__
    ids = [f"{kind} {row}" for row in range(count)]
    vectors = numpy.random.default_rng(2).standard_normal((count, 16), dtype="float32")
    columns = {
        "lang": numpy.array([kind] * count),
        "year": numpy.arange(count),
        "day": ["2026-02-03"] * count,
        "rank": [None] * count,
    }
    first = run(client, lambda one: one.insert(ids, vectors, columns, durability="buffered"))
    assert first > 2, "one write would exceed the limit"
    fetched = run(client, lambda one: one.get(ids))
    assert fetched.ids.tolist() == ids and (fetched.vectors == vectors).all()
    assert fetched.to_arrow()["year"].to_pylist() == list(range(count))
    assert len(run(client, lambda one: one.search(vectors, k=1, where=f"lang = '{kind}'"))) == count
    new = {name: values[:1] for name, values in columns.items()}
    assert run(client, lambda one: one.upsert(ids[:1], -vectors[:1], new)) > first
    assert (run(client, lambda one: one.get(ids[:1])).vectors == -vectors[:1]).all()
    with pytest.raises(adjoin.InputError, match="already exists"):
        run(client, lambda one: one.insert(ids[:1], vectors[:1], new))
    assert run(client, lambda one: one.delete([*ids[:4_500], "none"])) == 4_500
    assert run(client, lambda one: one.delete(where=f"lang = '{kind}'")) == 500
    assert run(client, lambda one: one.delete([])) == 0


def test_threads_and_tasks_share_a_client(url: str, rows: dict[str, Any]) -> None:
    found: list[Any] = []
    with adjoin.Client(url) as client:

        def search(row: int) -> None:
            for _ in range(5):
                found.append((row, client.search(rows["vector"][row : row + 1], k=1).ids.tolist()))

        threads = [threading.Thread(target=search, args=(row,)) for row in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert sorted(found) == sorted((row, [[f"row {row}"]]) for row in range(8) for _ in range(5))
    pytest.importorskip("httpx")

    async def together() -> list[Any]:
        async with adjoin.AsyncClient(url) as client:
            searches = (client.search(rows["vector"][row : row + 1], k=1) for row in range(40))
            return [hits.ids.tolist() for hits in await asyncio.gather(*searches)]

    assert asyncio.run(together()) == [[[f"row {row}"]] for row in range(40)]


def test_mistakes_are_refused(client: Any, rows: dict[str, Any]) -> None:
    query = rows["vector"][:1]
    for kind, words, call in [
        (adjoin.InputError, "give one row of 16 dimensions", lambda one: one.search(query[:, :3], k=1)),
        (adjoin.InputError, "is an array of 16; give one row", lambda one: one.search(query[0], k=1)),
        (adjoin.InputError, "elements of type <U1; give numbers", lambda one: one.search([["a"]], k=1)),
        (adjoin.InputError, "there is no column source", lambda one: one.search(query, k=1, where="source = 'a'")),
        (adjoin.InputError, "exactly one of|k, radius", lambda one: one.search(query)),
        (adjoin.OptionError, "k is 1.5 .float.; give a whole number", lambda one: one.search(query, k=1.5)),
        (adjoin.OptionError, "names with a comma", lambda one: one.search(query, k=1, columns=["a,b"])),
        (adjoin.InputError, "none", lambda one: one.get(["none"])),
        (adjoin.OptionError, "either ids or where", lambda one: one.delete()),
        (adjoin.InputError, "2 ids for 1 vectors", lambda one: one.upsert(["a", "b"], query)),
        (
            adjoin.InputError,
            "column lang has 2 values for 1 vectors",
            lambda one: one.upsert(["a"], query, {"lang": ["a", "b"]}),
        ),
        (adjoin.OptionError, "give a dictionary of sequences", lambda one: one.upsert(["a"], query, [{"lang": "a"}])),
        (adjoin.InputError, "columns are missing", lambda one: one.upsert(["a"], query)),
        (adjoin.InputError, "'a' has a number that is not finite", lambda one: one.upsert(["a"], query * numpy.inf)),
        (
            adjoin.InputError,
            "number that is not finite; give None",
            lambda one: one.upsert(["a"], query, {"rank": [float("nan")]}),
        ),
        (adjoin.InputError, "give texts, numbers, dates", lambda one: one.upsert(["a"], query, {"rank": [{1}]})),
    ]:
        with pytest.raises(kind, match=words):
            run(client, call)


def test_a_key_is_sent(tmp_path: Path, rows: dict[str, Any]) -> None:
    key = "k" * 40
    (tmp_path / "key").write_text(key)
    (tmp_path / "key").chmod(0o600)
    with adjoin.Collection.create(tmp_path / "other", 16, ids="text") as other:
        other.write(insert=(["a"], rows["vector"][:1]))
    with Server(tmp_path / "other", "--key-file", tmp_path / "key") as url:
        assert adjoin.Client(url, key=key).search(rows["vector"][:1], k=1).ids.tolist() == [["a"]]
        for wrong in (None, "x" * 40):
            with pytest.raises(adjoin.ServerError, match="key") as refused:
                adjoin.Client(url, key=wrong).info
            assert refused.value.status == 401 and pickle.loads(pickle.dumps(refused.value)).status == 401
    with pytest.raises(
        adjoin.DeviceError, match="cannot be reached .*check the address and that adjoin serve runs there"
    ):
        adjoin.Client(url).info
    for address in ("127.0.0.1:7700", "ftp://a", 3):
        with pytest.raises(adjoin.OptionError, match="url is"):
            adjoin.Client(address)  # type: ignore[arg-type]


class Scripted(BaseHTTPRequestHandler):
    """Answers each request by the next of ``script``: a status, or None to close the connection without an answer."""

    protocol_version = "HTTP/1.1"
    script: list[Any] = []
    seen: list[str] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._reply()

    def do_GET(self) -> None:
        self._reply()

    def _reply(self) -> None:
        self.seen.append(self.path.partition("?")[0])
        status = self.script.pop(0)
        if status is None:
            self.close_connection = True
            return
        answers: dict[int, Any] = {
            200: {"dimensions": 2, "element": "f32", "metric": "l2", "limits": {"queries": 9, "body_bytes": 9_999}}
            | {"hits": [[{"id": 1, "distance": 0.5}]], "sequence": 4, "deleted": 2},
            404: "no adjoin",
        }
        body = json.dumps(answers.get(status, {"detail": "as the script wants"})).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    Scripted.script, Scripted.seen = [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/prefix"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_refused_and_lost_requests_are_repeated(scripted: str, kind: str) -> None:
    if kind == "AsyncClient":
        pytest.importorskip("httpx")

    def tried(script: list[Any], name: str, *arguments: Any, **options: Any) -> Any:
        Scripted.script[:], Scripted.seen[:] = [200, *script], []
        if kind == "Client":
            with adjoin.Client(scripted, retries=2) as client:
                return getattr(client, name)(*arguments, **options)

        async def call() -> Any:
            async with adjoin.AsyncClient(scripted, retries=2) as client:
                return await getattr(client, name)(*arguments, **options)

        return asyncio.run(call())

    query = numpy.zeros((1, 2), "float32")
    assert tried([429, 503, 200], "search", query, k=1).ids.tolist() == [[1]]
    assert Scripted.seen == ["/prefix/v1/info"] + ["/prefix/v1/search"] * 3
    assert tried([429, 200], "insert", [1], query) == 4
    assert tried([None, 200], "search", query, k=1).values.tolist() == [[0.5]]
    assert tried([None, 200], "upsert", [1], query) == 4
    for name, arguments in (("insert", ([1], query)), ("delete", ([1],))):
        with pytest.raises(adjoin.DeviceError, match="cannot be reached"):
            tried([None, 200], name, *arguments)
        assert len(Scripted.seen) == 2, "such a request may have been carried out"
    assert len(tried([507, 507, 200, 200, 200, 200], "search", numpy.zeros((4, 2), "float32"), k=1)) == 4
    for status, error, words in [
        (503, adjoin.ServerError, "as the script wants"),
        (504, adjoin.ServerError, "as the script wants"),
        (507, adjoin.BudgetError, "as the script wants"),
        (404, adjoin.ServerError, "status 404, which adjoin serve does not; check the address"),
    ]:
        with pytest.raises(error, match=words):
            tried([status] * 3, "search", query, k=1)
        assert Scripted.script == ([] if status == 503 else [status] * 2)
