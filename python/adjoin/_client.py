"""Clients of ``adjoin serve``, for programs with and without asyncio."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _options
from ._calls import Call, Calls, Request, Returned, effort
from ._errors import AdjoinError, BudgetError, DeviceError, InputError, ServerError
from ._folders import Durability, OnMissing
from ._results import Hits, Rows

#: Answers after which a request is sent again: no part of it was carried out.
AGAIN = (429, 503)
#: Seconds to wait before that, at most.
WAIT_MAX = 60.0
#: A member of a request with a text, as errors of the server name it.
MEMBER = re.compile(r'"([a-z_]+)": ("[a-z-]+")')


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    retry_after: Optional[str]
    body: bytes


class Client(Calls):
    """A client of ``adjoin serve``. Any number of threads may use it at once; each request in flight has a connection,
    which later requests use again.

    >>> client = adjoin.Client("http://127.0.0.1:7700")  # doctest: +SKIP
    >>> client.search(queries, k=10).ids  # doctest: +SKIP

    A request that the server refuses because of its load (429, 503) is sent again after the wait that the server asks
    for, up to ``retries`` times. Arrays and answers that exceed the limits of the server are split into several
    requests.

    Raises :class:`InputError` for requests that the server does not understand, :class:`BudgetError` if it has too
    little memory, :class:`DeviceError` if it cannot be reached, and otherwise :class:`ServerError`.
    """

    def __init__(self, url: str, *, key: Optional[str] = None, timeout: float = 60.0, retries: int = 3) -> None:
        """Takes the address of a server.

        ``key`` is the key that it was started with, ``timeout`` the seconds to wait for an answer."""
        super().__init__(url, key)
        self._timeout = _options.number("timeout", timeout)
        self._retries = _options.integer("retries", retries, _options.U32_MAX)
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. The next request opens a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @property
    def info(self) -> dict[str, Any]:
        """Metadata of the served folder: ``kind``, ``rows``, ``dimensions``, ``metric``, ``columns``, and the
        ``limits`` of requests."""
        return dict(self._run(self._info_of(fresh=True)))

    def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        nprobe: Optional[int] = None,
        list: Optional[int] = None,
        where: Optional[str] = None,
        columns: Sequence[str] = (),
        deadline_ms: Optional[int] = None,
    ) -> Hits:
        """Finds the nearest rows of each query, an array with one row per query, as :meth:`Collection.search` does.

        The server refuses a request that it cannot answer within ``deadline_ms``, 30 seconds by default.
        """
        members = effort(k, radius, min_similarity, recall, exact, nprobe, list, where, deadline_ms)
        return self._run(self._search(queries, columns, members))

    def get(self, ids: Union[Sequence[int], Sequence[str]], *, on_missing: OnMissing = "error") -> Rows:
        """Fetches the rows with some ids, or row numbers if rows have no ids, as :meth:`Collection.get` does."""
        return self._run(self._get(ids, on_missing))

    def insert(
        self,
        ids: Union[Sequence[int], Sequence[str]],
        vectors: Any,
        columns: Optional[Mapping[str, Sequence[Any]]] = None,
        *,
        durability: Durability = "group",
    ) -> int:
        """Inserts rows with new ids into the served collection, and returns the number of the write.

        ``columns`` has a sequence of values for each column. The rows are one atomic write, or several if they exceed
        the limits of a request, ``info["limits"]``.
        """
        return self._run(self._put("insert", ids, vectors, columns, durability))

    def upsert(
        self,
        ids: Union[Sequence[int], Sequence[str]],
        vectors: Any,
        columns: Optional[Mapping[str, Sequence[Any]]] = None,
        *,
        durability: Durability = "group",
    ) -> int:
        """Inserts rows as :meth:`insert` does, and replaces rows that have their ids."""
        return self._run(self._put("upsert", ids, vectors, columns, durability))

    def delete(
        self,
        ids: Union[Sequence[int], Sequence[str], None] = None,
        *,
        where: Optional[str] = None,
        durability: Durability = "group",
    ) -> int:
        """Deletes the rows with some ids, or the rows that pass a condition, and returns their number."""
        return self._run(self._delete(ids, where, durability))

    def _run(self, call: Call[Returned]) -> Returned:
        """Sends the requests of a call."""
        try:
            request = next(call)
            while True:
                try:
                    answer = self._answer(request)
                except AdjoinError as error:
                    request = call.throw(error)
                else:
                    request = call.send(answer)
        except StopIteration as end:
            returned: Returned = end.value
            return returned

    def _answer(self, request: Request) -> Any:
        for attempt in range(self._retries + 1):
            answer = self._send(request)
            if answer.status not in AGAIN or attempt == self._retries:
                break
            time.sleep(_wait(answer, attempt))
        return _read(answer, self.url)

    def _send(self, request: Request) -> Answer:
        with self._lock:
            connection = self._idle.pop() if self._idle and request.is_repeatable else None
        try:
            if connection is not None:
                try:
                    return self._exchange(connection, request)
                except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                    pass  # the server has closed a connection that was idle
            return self._exchange(self._connect(), request)
        except (OSError, http.client.HTTPException) as error:
            raise _unreached(self.url, error) from error

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.netloc, timeout=self._timeout)

    def _exchange(self, connection: http.client.HTTPConnection, request: Request) -> Answer:
        try:
            headers = {**self._headers, "content-type": request.content_type}
            connection.request(request.method, self._parts.path + request.path, request.body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.headers["retry-after"], response.read())
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return answer


class AsyncClient(Calls):
    """A client of ``adjoin serve`` for asyncio, with the methods of :class:`Client`. Needs
    ``pip install "adjoin[async]"``.

    >>> async with adjoin.AsyncClient("http://127.0.0.1:7700") as client:  # doctest: +SKIP
    ...     hits = await client.search(queries, k=10)
    """

    def __init__(self, url: str, *, key: Optional[str] = None, timeout: float = 60.0, retries: int = 3) -> None:
        """Takes the arguments of :class:`Client`."""
        super().__init__(url, key)
        try:
            import httpx  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            words = 'AsyncClient needs the package httpx; install it with: pip install "adjoin[async]"'
            raise ImportError(words, name="httpx") from error
        self._retries = _options.integer("retries", retries, _options.U32_MAX)
        self._httpx = httpx
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(timeout=_options.number("timeout", timeout), limits=limits)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def info(self) -> dict[str, Any]:
        """Returns the metadata of the served folder, as :attr:`Client.info`."""
        return dict(await self._run(self._info_of(fresh=True)))

    async def search(
        self,
        queries: Any,
        k: Optional[int] = None,
        *,
        radius: Optional[float] = None,
        min_similarity: Optional[float] = None,
        recall: Optional[float] = None,
        exact: bool = False,
        nprobe: Optional[int] = None,
        list: Optional[int] = None,
        where: Optional[str] = None,
        columns: Sequence[str] = (),
        deadline_ms: Optional[int] = None,
    ) -> Hits:
        """Finds the nearest rows of each query, as :meth:`Client.search` does."""
        members = effort(k, radius, min_similarity, recall, exact, nprobe, list, where, deadline_ms)
        return await self._run(self._search(queries, columns, members))

    async def get(self, ids: Union[Sequence[int], Sequence[str]], *, on_missing: OnMissing = "error") -> Rows:
        """Fetches the rows with some ids, as :meth:`Client.get` does."""
        return await self._run(self._get(ids, on_missing))

    async def insert(
        self,
        ids: Union[Sequence[int], Sequence[str]],
        vectors: Any,
        columns: Optional[Mapping[str, Sequence[Any]]] = None,
        *,
        durability: Durability = "group",
    ) -> int:
        """Inserts rows with new ids, as :meth:`Client.insert` does."""
        return await self._run(self._put("insert", ids, vectors, columns, durability))

    async def upsert(
        self,
        ids: Union[Sequence[int], Sequence[str]],
        vectors: Any,
        columns: Optional[Mapping[str, Sequence[Any]]] = None,
        *,
        durability: Durability = "group",
    ) -> int:
        """Inserts or replaces rows, as :meth:`Client.upsert` does."""
        return await self._run(self._put("upsert", ids, vectors, columns, durability))

    async def delete(
        self,
        ids: Union[Sequence[int], Sequence[str], None] = None,
        *,
        where: Optional[str] = None,
        durability: Durability = "group",
    ) -> int:
        """Deletes rows by id or condition, as :meth:`Client.delete` does."""
        return await self._run(self._delete(ids, where, durability))

    async def _run(self, call: Call[Returned]) -> Returned:
        try:
            request = next(call)
            while True:
                try:
                    answer = await self._answer(request)
                except AdjoinError as error:
                    request = call.throw(error)
                else:
                    request = call.send(answer)
        except StopIteration as end:
            returned: Returned = end.value
            return returned

    async def _answer(self, request: Request) -> Any:
        import asyncio

        for attempt in range(self._retries + 1):
            answer = await self._send(request)
            if answer.status not in AGAIN or attempt == self._retries:
                break
            await asyncio.sleep(_wait(answer, attempt))
        return _read(answer, self.url)

    async def _send(self, request: Request) -> Answer:
        headers = {**self._headers, "content-type": request.content_type}
        for is_last in (not request.is_repeatable, True):
            try:
                url = self.url + request.path
                response = await self._client.request(request.method, url, content=request.body, headers=headers)
                break
            except self._httpx.RemoteProtocolError as error:
                # The server may have closed a connection that was idle.
                if is_last:
                    raise _unreached(self.url, error) from error
            except (self._httpx.HTTPError, OSError) as error:
                raise _unreached(self.url, error) from error
        return Answer(response.status_code, response.headers.get("retry-after"), response.content)


def _wait(answer: Answer, attempt: int) -> float:
    """Returns the seconds to wait before a request is sent again."""
    asked = answer.retry_after or ""
    return min(float(asked) if asked.isdecimal() else 0.5 * 2**attempt, WAIT_MAX)


def _read(answer: Answer, url: str) -> Any:
    """Returns the content of an answer, or raises the error that it reports."""
    try:
        content = json.loads(answer.body)
    except ValueError:
        content = None
    if answer.status == 200 and isinstance(content, dict):
        return content
    detail = content.get("detail") if isinstance(content, dict) else None
    detail = detail and MEMBER.sub(r"\1=\2", detail)
    words = detail or f"it answered with the status {answer.status}, which adjoin serve does not; check the address"
    if answer.status in (400, 413, 415):
        raise InputError(words if detail else f"{url}: {words}")
    if answer.status == 507:
        raise BudgetError(f"{url}: {words}")
    raise ServerError(f"{url}: {words}", answer.status)


def _unreached(url: str, error: Exception) -> DeviceError:
    words = " ".join(str(error).split()) or type(error).__name__
    return DeviceError(f"{url} cannot be reached ({words}); check the address and that adjoin serve runs there")
