"""A vector store of LangChain in a collection. Needs ``pip install "adjoin[langchain]"``.

Documents are rows of a :class:`adjoin.Collection`, so the command line, the server and other Python code can search
them too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import numpy
from langchain_core.documents import Document  # type: ignore[import-not-found, unused-ignore]
from langchain_core.embeddings import Embeddings  # type: ignore[import-not-found, unused-ignore]
from langchain_core.runnables.config import run_in_executor  # type: ignore[import-not-found, unused-ignore]
from langchain_core.vectorstores import VectorStore  # type: ignore[import-not-found, unused-ignore]
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # type: ignore[import-not-found, unused-ignore]

from ._documents import Documents, Row, declared, ids_of
from ._errors import OptionError, OptionTypeError
from ._folders import Collection, ColumnType, OpenFolder
from ._folders import open as open_folder
from ._options import U64_MAX, PathLike, optional_integer
from ._options import path as path_of
from ._types import SearchMetric

__all__ = ["AdjoinVectorStore"]

#: A condition, or a dictionary such as ``{"lang": "en", "year": {"$gte": 2020}}``.
Filter = Union[str, Mapping[str, Any], None]

#: Arguments of both ``create`` and ``open``.
OPENING = ("memory", "threads", "text_column", "metadata_column", "effort")

#: Text that is embedded to find out the number of dimensions of a model.
PROBE = "dimensions"


class AdjoinVectorStore(VectorStore):  # type: ignore[misc, unused-ignore]
    """A vector store of LangChain in a folder of adjoin.

    :meth:`create` and :meth:`open` are the usual ways to get one; ``from_documents`` opens or creates the collection at
    ``path`` and adds documents. The end of a ``with`` block or :meth:`close` closes it.

    - A document with the id of a stored one replaces it. The id of a document without one is computed from its text and
      metadata, so adding a document twice stores it once.
    - Metadata is stored as JSON and returned unchanged, with dates as texts. Keys that the collection was created with,
      ``columns={"year": "int64"}``, are columns too: searches filter by these.
    - ``filter`` is a SQL condition such as ``"lang = 'en' and year >= 2020"``, or a dictionary such as ``{"lang": "en",
      "year": {"$gte": 2020}}`` with ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in``, ``$nin``,
      ``$between``, ``$exists``, ``$like``, ``$ilike``, ``$and``, ``$or`` and ``$not``. The ``k`` results are the
      nearest of the documents that pass. A key without a column is an error.
    - Scores are cosine similarities by default (greater is nearer). They are distances if the collection was created
      with ``metric="l2"``, and inner products with ``metric="ip"``. Relevance scores are from 0 to 1: the cosine
      similarity, with 0 for negative ones, or ``1 / (1 + distance)``; inner products have none.
    - Searches take the options ``recall``, ``exact`` and ``list`` of :meth:`adjoin.Collection.search`. Other arguments
      are errors.
    """

    def __init__(
        self,
        folder: OpenFolder,
        embedding: Embeddings,
        *,
        text_column: str = "text",
        metadata_column: str = "metadata",
        effort: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Searches the documents of an open ``folder``: a collection, or a store or an index that is only searched.

        Args:
            effort: Options of searches that name none of ``recall``, ``exact`` and ``list``, such as ``{"list": 128}``.
                By default a search finds 95 % of the nearest documents on average. For large embeddings that form no
                groups, the first search after a merge takes long, since it measures how long its list must be.
            text_column: Column of the texts.
            metadata_column: Column of the metadata as JSON. If the folder lacks it, metadata is the other columns.
        """
        self._documents = Documents(folder, text_column, metadata_column, effort)
        self._embedding = embedding

    @classmethod
    def create(
        cls,
        path: PathLike,
        embedding: Embeddings,
        *,
        columns: Optional[Mapping[str, ColumnType]] = None,
        metric: SearchMetric = "cosine",
        dimensions: Optional[int] = None,
        text_column: str = "text",
        metadata_column: str = "metadata",
        effort: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> AdjoinVectorStore:
        """Creates an empty collection in the folder ``path``, and opens it to write and search.

        Args:
            columns: Keys of metadata that filters can use, with their types, such as ``{"lang": "text"}``.
            dimensions: Number of dimensions of the embeddings. By default a text is embedded to find it out.
            options: Options of :meth:`adjoin.Collection.create`, such as ``memory``.
        """
        if dimensions is None:
            dimensions = len(embedding.embed_query(PROBE))
        all_columns = declared(columns, (text_column, metadata_column))
        folder = Collection.create(path, dimensions, metric=metric, ids="text", columns=all_columns, **options)
        return cls(folder, embedding, text_column=text_column, metadata_column=metadata_column, effort=effort)

    @classmethod
    def open(
        cls,
        path: PathLike,
        embedding: Embeddings,
        *,
        read_only: bool = False,
        text_column: str = "text",
        metadata_column: str = "metadata",
        effort: Optional[Mapping[str, Any]] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> AdjoinVectorStore:
        """Opens the collection, the store or the index in the folder ``path``.

        One process writes to a collection. Others open it with ``read_only``, and search the documents that exist then.
        """
        folder = open_folder(path, read_only=read_only, memory=memory, threads=threads)
        return cls(folder, embedding, text_column=text_column, metadata_column=metadata_column, effort=effort)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: Optional[list[dict[str, Any]]] = None,
        *,
        ids: Optional[list[str]] = None,
        path: Optional[PathLike] = None,
        columns: Optional[Mapping[str, ColumnType]] = None,
        **options: Any,
    ) -> AdjoinVectorStore:
        """Adds texts to the collection in the folder ``path``, which is created with ``columns`` and the ``options`` of
        :meth:`create` if there is none."""
        if path is None:
            raise OptionError("path is missing; give the folder of the collection, such as path='documents.collection'")
        if _is_folder(path):
            store = cls.open(path, embedding, **{name: options[name] for name in OPENING if name in options})
        else:
            store = cls.create(path, embedding, columns=columns, **options)
        try:
            _check_same(store.folder, columns, options)
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def folder(self) -> OpenFolder:
        """The open folder, for everything that LangChain has no name for: ``stats``, ``merge()``, ``backup()``."""
        return self._documents.folder

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def close(self) -> None:
        """Makes all writes durable and lets another process write."""
        if isinstance(self.folder, Collection):
            self.folder.close()

    def __enter__(self) -> AdjoinVectorStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._documents)

    def __bool__(self) -> bool:
        """Returns True, even without documents: a retriever tests whether there is a store."""
        return True

    def __repr__(self) -> str:
        return f"<adjoin.langchain.AdjoinVectorStore {str(self.folder.path)!r}: {len(self)} documents>"

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Optional[list[dict[str, Any]]] = None,
        *,
        ids: Optional[Sequence[Optional[str]]] = None,
        batch_size: Optional[int] = None,
        **unknown: Any,
    ) -> list[str]:
        """Embeds texts, stores them, and returns their ids. The write is durable when this returns.

        The texts are stored in one atomic write, or in writes of ``batch_size`` texts.
        """
        _refuse(unknown, "texts are added with metadatas, ids and batch_size")
        wanted = _Batch(texts, metadatas, ids)
        for part in wanted.parts(batch_size):
            self._write(part, self._embedding.embed_documents(part.texts))
        return wanted.ids

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Optional[list[dict[str, Any]]] = None,
        *,
        ids: Optional[Sequence[Optional[str]]] = None,
        batch_size: Optional[int] = None,
        **unknown: Any,
    ) -> list[str]:
        """Does as :meth:`add_texts`, with the asynchronous method of the embedding model."""
        _refuse(unknown, "texts are added with metadatas, ids and batch_size")
        wanted = _Batch(texts, metadatas, ids)
        for part in wanted.parts(batch_size):
            await run_in_executor(None, self._write, part, await self._embedding.aembed_documents(part.texts))
        return wanted.ids

    def _write(self, batch: _Batch, vectors: Sequence[Sequence[float]]) -> None:
        self._documents.write(batch.ids, batch.texts, batch.metadatas, vectors)

    def delete(self, ids: Optional[list[str]] = None, *, filter: Filter = None, **unknown: Any) -> bool:
        """Deletes the documents with some ids, or the documents that pass a ``filter``. Without both it deletes all.

        Unknown ids are ignored.
        """
        _refuse(unknown, "delete takes ids or filter")
        if ids is not None and filter is not None:
            raise OptionError("delete has both ids and a filter; give one of them")
        if ids is not None:
            self._documents.delete(ids)
        else:
            self._documents.delete_where(self._where(filter))
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Returns the documents with some ids, in this order. Unknown ids are left out."""
        return [_document(row) for row in self._documents.fetch(ids)]

    def similarity_search(self, query: str, k: int = 4, filter: Filter = None, **options: Any) -> list[Document]:
        """Returns the ``k`` documents nearest to ``query`` that pass the ``filter``."""
        return self.similarity_search_by_vector(self._embedding.embed_query(query), k, filter, **options)

    async def asimilarity_search(self, query: str, k: int = 4, filter: Filter = None, **options: Any) -> list[Document]:
        """Does as :meth:`similarity_search`, with the asynchronous method of the embedding model."""
        vector = await self._embedding.aembed_query(query)
        found: list[Document] = await self.asimilarity_search_by_vector(vector, k, filter=filter, **options)
        return found

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **options: Any
    ) -> list[Document]:
        """Returns the ``k`` documents nearest to an ``embedding`` that pass the ``filter``."""
        return [
            document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, filter, **options)
        ]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """Returns the ``k`` documents nearest to ``query`` with their similarities (cosine), distances (L2) or inner products."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, filter, **options)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """Does as :meth:`similarity_search_with_score`, with the asynchronous method of the embedding model."""
        vector = await self._embedding.aembed_query(query)
        found: list[tuple[Document, float]] = await run_in_executor(
            None, self.similarity_search_with_score_by_vector, vector, k, filter, **options
        )
        return found

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """Returns the ``k`` documents nearest to ``embedding`` with their similarities (cosine) or distances (L2)."""
        return [(_document(row), row.value) for row in self._nearest(embedding, k, filter, options)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """Returns ``k`` of the ``fetch_k`` documents nearest to ``query``, similar to it and different from each other.

        ``lambda_mult`` is from 0, as different as possible, to 1, as similar to the query as possible.
        """
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, filter, **options)

    async def amax_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """Does as :meth:`max_marginal_relevance_search`, with the asynchronous method of the embedding model."""
        vector = await self._embedding.aembed_query(query)
        found: list[Document] = await run_in_executor(
            None, self.max_marginal_relevance_search_by_vector, vector, k, fetch_k, lambda_mult, filter, **options
        )
        return found

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """Does as :meth:`max_marginal_relevance_search_by_vector` in another thread."""
        found: list[Document] = await run_in_executor(
            None, self.max_marginal_relevance_search_by_vector, embedding, k, fetch_k, lambda_mult, filter, **options
        )
        return found

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """Returns documents as :meth:`max_marginal_relevance_search`, for an ``embedding``."""
        nearest = self._nearest(embedding, max(k, fetch_k), filter, options)
        vectors = self._documents.vectors([row.id for row in nearest])
        # A document may have been deleted since it was found.
        nearest = [row for row in nearest if row.id in vectors]
        candidates = [vectors[row.id].astype("float32") for row in nearest]
        chosen = maximal_marginal_relevance(numpy.asarray(embedding, "float32"), candidates, lambda_mult, k)
        return [_document(nearest[place]) for place in chosen]

    def _nearest(self, embedding: Sequence[float], k: int, filter: Filter, options: dict[str, Any]) -> list[Row]:
        return self._documents.nearest(embedding, k, self._where(filter), options)

    def _where(self, filter: Filter) -> Optional[str]:
        return self._documents.columns.condition(filter)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._documents.similarity


class _Batch:
    """Documents to write: texts, metadata and ids."""

    def __init__(
        self,
        texts: Iterable[str],
        metadatas: Optional[Iterable[Mapping[str, Any]]],
        ids: Optional[Iterable[Optional[str]]],
    ) -> None:
        self.texts = list(texts)
        self.metadatas: list[Mapping[str, Any]] = list(metadatas or ({} for _ in self.texts))
        given = [None] * len(self.texts) if ids is None else list(ids)
        for name, values in (("metadatas", self.metadatas), ("ids", given)):
            if len(values) != len(self.texts):
                raise OptionError(f"there are {len(values)} {name} for {len(self.texts)} texts; give as many")
        computed = ids_of(self.texts, self.metadatas)
        self.ids: list[str] = [new if id is None else str(id) for id, new in zip(given, computed)]

    def parts(self, size: Optional[int]) -> Iterator[_Batch]:
        """Splits the documents into parts of ``size`` documents; one part for None."""
        step = optional_integer("batch_size", size, U64_MAX) or max(len(self.texts), 1)
        for first in range(0, len(self.texts), step):
            here = slice(first, first + step)
            yield _Batch(self.texts[here], self.metadatas[here], self.ids[here])


def _document(row: Row) -> Document:
    return Document(id=row.id, page_content=row.text, metadata=row.metadata)


def _refuse(unknown: Iterable[str], taken: str) -> None:
    """Refuses arguments without an effect, which would hide a mistake."""
    for name in unknown:
        raise OptionTypeError(f"there is no argument {name}; {taken}")


def _is_folder(path: PathLike) -> bool:
    """Returns whether there is something at ``path`` to open. Collections are also created in empty folders."""
    place = path_of("path", path)
    return os.path.isdir(place) and bool(os.listdir(place))


def _check_same(folder: OpenFolder, columns: Optional[Mapping[str, ColumnType]], options: Mapping[str, Any]) -> None:
    """Refuses options of a new collection that the existing ``folder`` was not created with."""
    there = {column["name"]: column["type"] for column in folder.info.get("columns", [])}
    wanted = dict(columns or {})
    if any(there.get(name) != kind for name, kind in wanted.items()):
        raise OptionError(
            f"{folder.path} exists, with the columns {there}, not {wanted}; leave out columns, or name another folder"
        )
    for name in ("metric", "dimensions", "element"):
        if name in options and options[name] != folder.info[name]:
            raise OptionError(
                f"{folder.path} exists, with the {name} {folder.info[name]}; leave out {name}, or name another folder"
            )
