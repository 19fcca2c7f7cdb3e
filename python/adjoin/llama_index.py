"""A vector store of LlamaIndex in a collection. Needs ``pip install "adjoin[llama-index]"``.

Nodes are rows of a :class:`adjoin.Collection`, so the command line, the server and other Python code can search them
too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from llama_index.core.bridge.pydantic import PrivateAttr  # type: ignore[import-not-found, unused-ignore]
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings  # type: ignore[import-not-found, unused-ignore]
from llama_index.core.schema import BaseNode, MetadataMode  # type: ignore[import-not-found, unused-ignore]
from llama_index.core.vector_stores.types import (  # type: ignore[import-not-found, unused-ignore]
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict  # type: ignore[import-not-found, unused-ignore]

from ._conditions import all_of, any_of, in_chunks, none_of
from ._documents import Documents, Row, declared
from ._errors import InputError, OptionError
from ._folders import Collection, ColumnType, OpenFolder
from ._folders import open as open_folder
from ._options import PathLike, shown
from ._types import SearchMetric

__all__ = ["AdjoinVectorStore"]

#: Columns of a collection of nodes. LlamaIndex calls the document of a node by each of the names in ``DOCUMENT``.
TEXT, NODE, NODE_ID, DOC_ID = "text", "node", "node_id", "doc_id"
OWN = (NODE_ID, DOC_ID)
DOCUMENT = ("doc_id", "ref_doc_id", "document_id")

#: Operators of filters, by their names in :mod:`adjoin._conditions`.
OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.TEXT_MATCH: "$like",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$ilike",
}


class AdjoinVectorStore(BasePydanticVectorStore):  # type: ignore[misc, unused-ignore]
    """A vector store of LlamaIndex in a collection of adjoin. :meth:`create` and :meth:`open` return one.

    - A node with the id of a stored one replaces it. Nodes return with all their fields and relationships.
    - Filters use keys of metadata that the collection was created with, ``columns={"year": "int64"}``, the document
      (``doc_id``, ``ref_doc_id`` or ``document_id``), ``node_id`` and ``text``. The results are the nearest of the
      nodes that pass. A key without a column is an error.
    - The operators are ``==``, ``!=``, ``>``, ``>=``, ``<``, ``<=``, ``in``, ``nin``, ``text_match``,
      ``text_match_insensitive`` and ``is_empty``, combined by ``and``, ``or`` and ``not`` in any depth. A node without
      the key passes ``!=``, ``nin`` and ``is_empty`` only.
    - The modes are ``default`` and ``mmr``. Similarities are cosine similarities, ``1 / (1 + distance)`` if the
      collection was created with ``metric="l2"``, or inner products with ``metric="ip"``.
    - :meth:`query` takes the options ``recall``, ``exact`` and ``list`` of :meth:`adjoin.Collection.search`.
    """

    stores_text: bool = True
    flat_metadata: bool = False
    #: Folder of the nodes.
    path: str

    _documents: Documents = PrivateAttr()

    def __init__(self, folder: OpenFolder, *, effort: Optional[Mapping[str, Any]] = None, **options: Any) -> None:
        """Searches the nodes of an open ``folder`` that :meth:`create` created, or of a copy of it.

        Args:
            effort: Options of queries that name none of ``recall``, ``exact`` and ``list``, such as ``{"list": 128}``.
                By default a query finds 95 % of the nearest nodes on average. To promise that, the first query after a
                merge measures the recall, which takes long for large embeddings that form no groups.
        """
        fields: dict[str, Any] = {"path": str(folder.path), **options}
        super().__init__(**fields)
        self._documents = Documents(folder, TEXT, NODE, effort, OWN)

    @classmethod
    def create(
        cls,
        path: PathLike,
        dimensions: int,
        *,
        columns: Optional[Mapping[str, ColumnType]] = None,
        metric: SearchMetric = "cosine",
        effort: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> AdjoinVectorStore:
        """Creates an empty collection in the folder ``path``, and opens it to write and search.

        Args:
            dimensions: Number of dimensions of the embeddings.
            columns: Keys of metadata that filters can use, with their types, such as ``{"lang": "text"}``.
            options: Options of :meth:`adjoin.Collection.create`, such as ``memory``.
        """
        all_columns = declared(columns, (TEXT, NODE, *OWN))
        folder = Collection.create(path, dimensions, metric=metric, ids="text", columns=all_columns, **options)
        return cls(folder, effort=effort)

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        read_only: bool = False,
        effort: Optional[Mapping[str, Any]] = None,
        memory: Union[str, int, None] = None,
        threads: Optional[int] = None,
    ) -> AdjoinVectorStore:
        """Opens the collection in the folder ``path``.

        One process writes to it. Others open it with ``read_only``, and search the nodes that exist then.
        """
        return cls(open_folder(path, read_only=read_only, memory=memory, threads=threads), effort=effort)

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class in LlamaIndex."""
        return "AdjoinVectorStore"

    @property
    def client(self) -> OpenFolder:
        """The open folder, for everything that LlamaIndex has no name for: ``stats``, ``merge()``, ``backup()``."""
        return self._documents.folder

    def close(self) -> None:
        """Makes all writes durable and lets another process write."""
        if isinstance(self.client, Collection):
            self.client.close()

    def __enter__(self) -> AdjoinVectorStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Stores nodes with their embeddings in one write, which is durable when this returns. Returns their ids."""
        ids = [node.node_id for node in nodes]
        own: dict[str, list[Optional[str]]] = {NODE_ID: [*ids], DOC_ID: [node.ref_doc_id for node in nodes]}
        texts = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        vectors = [node.get_embedding() for node in nodes]
        self._documents.write(
            ids, texts, [node.metadata for node in nodes], vectors, own, [_encoded(node) for node in nodes]
        )
        return ids

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Deletes all nodes of a document."""
        self._documents.delete_where(self._documents.columns.compare(DOC_ID, "$eq", ref_doc_id))

    def delete_nodes(
        self, node_ids: Optional[list[str]] = None, filters: Optional[MetadataFilters] = None, **_: Any
    ) -> None:
        """Deletes the nodes that have one of ``node_ids`` and pass ``filters``. Either may be None.

        Raises :class:`OptionError` without both: :meth:`clear` deletes all nodes.
        """
        where = self._where(filters)
        if node_ids is None and where is None:
            raise OptionError("delete_nodes has neither node_ids nor filters; use clear() to delete all nodes")
        if where is None:
            self._documents.delete(node_ids or [])
            return
        for condition in self._in_ids(NODE_ID, node_ids):
            self._documents.delete_where(all_of([condition, where]))

    def clear(self) -> None:
        """Deletes all nodes."""
        self._documents.delete_where(None)

    def get_nodes(
        self, node_ids: Optional[list[str]] = None, filters: Optional[MetadataFilters] = None
    ) -> list[BaseNode]:
        """Returns the nodes that have one of ``node_ids`` and pass ``filters``. Either may be None."""
        where = self._where(filters)
        if node_ids is not None and where is None:
            return [_node(row) for row in self._documents.fetch(node_ids)]
        found = (self._documents.scan(all_of([condition, where])) for condition in self._in_ids(NODE_ID, node_ids))
        return [_node(row) for rows in found for row in rows]

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Returns the nodes nearest to an embedding that pass the filters and have the ids of the query."""
        if query.query_embedding is None:
            raise InputError("the query has no embedding; set query_embedding, or an embedding model of the index")
        if query.mode == VectorStoreQueryMode.MMR:
            return self._varied(query, **options)
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise OptionError(f"mode is {query.mode.value}; use default or mmr, which this store has")
        options.pop("mmr_threshold", None)
        return self._result(self._nearest(query, query.similarity_top_k, options))

    async def async_add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Does as :meth:`add` in another thread."""
        return await asyncio.to_thread(self.add, nodes, **options)

    async def adelete(self, ref_doc_id: str, **options: Any) -> None:
        """Does as :meth:`delete` in another thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **options)

    async def adelete_nodes(
        self, node_ids: Optional[list[str]] = None, filters: Optional[MetadataFilters] = None, **options: Any
    ) -> None:
        """Does as :meth:`delete_nodes` in another thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **options)

    async def aclear(self) -> None:
        """Does as :meth:`clear` in another thread."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: Optional[list[str]] = None, filters: Optional[MetadataFilters] = None
    ) -> list[BaseNode]:
        """Does as :meth:`get_nodes` in another thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Does as :meth:`query` in another thread."""
        return await asyncio.to_thread(self.query, query, **options)

    def _varied(
        self, query: VectorStoreQuery, mmr_threshold: Optional[float] = None, **options: Any
    ) -> VectorStoreQueryResult:
        """Returns nodes that are near to the query and differ from each other, of four times as many."""
        near = self._nearest(query, 4 * query.similarity_top_k, options)
        vectors = self._documents.vectors([row.id for row in near])
        # A node may have been deleted since it was found.
        by_id = {row.id: row for row in near if row.id in vectors}
        threshold = mmr_threshold if query.mmr_threshold is None else query.mmr_threshold
        _, ids = get_top_k_mmr_embeddings(
            query.query_embedding or [],
            [vectors[id].astype("float64").tolist() for id in by_id],
            similarity_top_k=query.similarity_top_k,
            embedding_ids=list(by_id),
            mmr_threshold=threshold,
        )
        return self._result([by_id[id] for id in ids])

    def _nearest(self, query: VectorStoreQuery, k: int, options: dict[str, Any]) -> list[Row]:
        where = self._where(query.filters)
        near: list[Row] = []
        # LlamaIndex passes an empty list of ids if it restricts none.
        for in_nodes in self._in_ids(NODE_ID, query.node_ids or None):
            for in_documents in self._in_ids(DOC_ID, query.doc_ids or None):
                condition = all_of([in_nodes, in_documents, where])
                near += self._documents.nearest(query.query_embedding or [], k, condition, options)
        # Long lists of ids are searched part by part.
        return sorted(near, key=lambda row: -self._similarity(row))[:k]

    def _in_ids(self, column: str, ids: Optional[Sequence[str]]) -> list[Optional[str]]:
        """Returns conditions of which each row with one of ``ids`` in ``column`` passes one; no condition for None."""
        if ids is None:
            return [None]
        return [self._documents.columns.compare(column, "$in", chunk) for chunk in in_chunks(dict.fromkeys(ids))]

    def _similarity(self, row: Row) -> float:
        return self._documents.similarity(row.value) if self._documents.metric == "l2" else row.value

    def _result(self, rows: Sequence[Row]) -> VectorStoreQueryResult:
        similarities = [self._similarity(row) for row in rows]
        return VectorStoreQueryResult([_node(row) for row in rows], similarities, [row.id for row in rows])

    def _where(self, filters: Optional[MetadataFilters]) -> Optional[str]:
        """Returns the condition of filters; None if there are none."""
        if filters is None or not filters.filters:
            return None
        parts = [
            (self._where(part) or "true") if isinstance(part, MetadataFilters) else self._compared(part)
            for part in filters.filters
        ]
        if filters.condition == FilterCondition.OR:
            return any_of(parts)
        return none_of(parts) if filters.condition == FilterCondition.NOT else all_of(parts)

    def _compared(self, filter: MetadataFilter) -> str:
        columns = self._documents.columns
        column = DOC_ID if filter.key in DOCUMENT else filter.key
        value, operator = filter.value, filter.operator
        if operator == FilterOperator.IS_EMPTY:
            name = columns.name(column)
            return f"coalesce({name} = '', true)" if columns.types[column] == "text" else f"{name} is null"
        if operator not in OPERATORS:
            there = ", ".join(one.value for one in (*OPERATORS, FilterOperator.IS_EMPTY))
            raise OptionError(
                f"filter {filter.key}: there is no operator {operator.value}; columns hold no lists; use one of {there}"
            )
        if operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE):
            if not isinstance(value, str):
                raise OptionError(f"filter {filter.key}: {operator.value} has {shown(value)}; give a text")
            escaped = "".join("\\" + one if one in "\\%_" else one for one in value)
            value = f"%{escaped}%"
        return columns.compare(column, OPERATORS[operator], value)


def _encoded(node: BaseNode) -> str:
    """Returns a node as JSON, without its text and its embedding."""
    fields = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    return json.dumps({name: fields[name] for name in ("_node_type", "_node_content")}, ensure_ascii=False)


def _node(row: Row) -> BaseNode:
    return metadata_dict_to_node(row.metadata, text=row.text)
