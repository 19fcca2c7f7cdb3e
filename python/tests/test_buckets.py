"""Data sets in a bucket, of a small server with the interface of S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import adjoin
import pyarrow
import pyarrow.parquet
import pytest


class Handler(BaseHTTPRequestHandler):
    """Lists, reads, writes and deletes whole objects of one bucket."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes] = {}

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _key(self) -> str:
        return urlsplit(self.path).path.split("/", 2)[2]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            prefix = query.get("prefix", [""])[0]
            entry = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag><Size>{}</Size></Contents>"
            entries = [entry.format(key, len(self.objects[key])) for key in sorted(self.objects) if key.startswith(prefix)]
            return self._answer(200, f"<ListBucketResult>{''.join(entries)}</ListBucketResult>".encode())
        body = self.objects.get(self._key())
        if body is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        facts = {"ETag": f'"{hash(body)}"', "Last_Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if self.command == "HEAD" or "Range" not in self.headers:
            return self._answer(200, body, **facts)
        start, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = body[int(start) : int(last) + 1]
        return self._answer(206, part, Content_Range=f"bytes {start}-{last}/{len(body)}", **facts)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.objects[self._key()] = body
        self._answer(200, ETag=f'"{hash(body)}"')

    def do_DELETE(self) -> None:
        self.objects.pop(self._key(), None)
        self._answer(204)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Objects of a bucket that the environment names, with two shards. A row of each shard is near one of the other."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.objects = {}
    variables = {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    for name, value in {**variables, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name, rows in {"a.parquet": [[0.0, 0.0], [5.0, 5.0]], "b.parquet": [[9.0, 9.0], [5.0, 5.5]]}.items():
        out = pyarrow.BufferOutputStream()
        ids = [f"{name[0]}{row}" for row in range(2)]
        vectors = pyarrow.array(rows, pyarrow.list_(pyarrow.float32(), 2))
        pyarrow.parquet.write_table(pyarrow.table({"id": ids, "vector": vectors}), out)
        Handler.objects[f"set/{name}"] = out.getvalue().to_pybytes()
    yield Handler.objects
    server.shutdown()
    server.server_close()


def test_dedupe_writes_to_a_bucket(bucket):
    with adjoin.dedupe("s3://bucket/set", "s3://bucket/clean", eps=1.0, memory="1GB") as deduped:
        assert deduped.output == "s3://bucket/clean" and len(deduped) == 3
        assert pyarrow.table(deduped.removed())["id"].to_pylist() == ["b1"]
        with pytest.raises(adjoin.InputError, match="s3://bucket/clean is in an object store; read the rows from there"):
            deduped.kept()
        assert "3 of 4 rows" in repr(deduped)
    assert sorted(key for key in bucket if key.startswith("clean")) == ["clean/_SUCCESS", "clean/a.parquet", "clean/b.parquet"]
    kept = pyarrow.parquet.read_table(pyarrow.BufferReader(bucket["clean/b.parquet"]))
    assert kept["id"].to_pylist() == ["b0"]
    with pytest.raises(adjoin.InputError, match="clean exists already"):
        adjoin.dedupe("s3://bucket/set", "s3://bucket/clean", eps=1.0)


@pytest.mark.parametrize("source", ["s3://bucket/set", "s3://bucket/set/b.parquet"])
def test_rows_of_a_bucket_are_kept_on_this_machine_without_an_output(bucket, source):
    with adjoin.dedupe(source, eps=1.0, memory="1GB") as deduped:
        ids = pyarrow.table(deduped.kept())["id"].to_pylist()
    assert ids == (["a0", "a1", "b0"] if source.endswith("set") else ["b0", "b1"])
