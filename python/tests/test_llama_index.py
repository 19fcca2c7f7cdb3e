"""The vector store of LlamaIndex: nodes, filters and queries, with the types and the mock models of its core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("llama_index.core")

from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import ImageNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import adjoin
from adjoin.llama_index import AdjoinVectorStore

COLUMNS: Any = {"lang": "text", "year": "int64", "score": "float64"}
ROWS = 90


def node_of(row: int) -> TextNode:
    metadata = {
        "lang": ["en", "de", "100% it's", "", None][row % 5],
        "year": 2000 + row % 30,
        "score": row / 8,
        "tags": ["a"],
    }
    metadata = {key: value for key, value in metadata.items() if (row + len(key)) % 7}
    parent = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document {row // 10}")} if row >= 10 else {}
    vector = numpy.random.default_rng(row).standard_normal(8).tolist()
    return TextNode(id_=f"node {row}", text=f"text {row}", metadata=metadata, relationships=parent, embedding=vector)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AdjoinVectorStore]:
    with AdjoinVectorStore.create(tmp_path / "nodes", 8, columns=COLUMNS) as made:
        assert made.add([node_of(row) for row in range(ROWS)]) == [f"node {row}" for row in range(ROWS)]
        yield made


def query_of(**options: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=[1.0] * 8, **{"similarity_top_k": ROWS, **options})


def where(*filters: Any, condition: Any = "and") -> MetadataFilters:
    made = [
        MetadataFilter(key=one[0], operator=one[1], value=one[2]) if isinstance(one, tuple) else one for one in filters
    ]
    return MetadataFilters(filters=made, condition=condition)


FILTERS = [
    where(("lang", "==", "en")),
    where(("lang", "==", "100% it's")),
    where(("year", ">=", 2010), ("year", "<", 2020)),
    where(("year", ">", 2025), ("lang", "==", "de"), condition="or"),
    where(("year", ">", 2005), ("lang", "==", "de"), condition="not"),
    where(("year", "!=", 2003)),
    where(("score", "<=", 3)),
    where(("year", "in", [2001, 2002])),
    where(("lang", "nin", ["en", "de"])),
    where(("lang", "text_match", "0%")),
    where(("lang", "text_match", "_")),
    where(("lang", "text_match_insensitive", "IT")),
    where(("lang", "is_empty", None)),
    where(("year", "is_empty", None)),
    where(("ref_doc_id", "==", "document 3")),
    where(("doc_id", "in", ["document 3", "document 4"])),
    where(("year", "in", [])),
]


@pytest.mark.parametrize("filters", FILTERS, ids=[str(one.filters) + str(one.condition) for one in FILTERS])
def test_filters_admit_the_nodes_that_the_simple_store_admits(
    store: AdjoinVectorStore, filters: MetadataFilters
) -> None:
    simple = SimpleVectorStore()
    simple.add([node_of(row) for row in range(ROWS)])
    passes = build_metadata_filter_fn(lambda id: simple.data.metadata_dict[id], filters)
    wanted = {f"node {row}" for row in range(ROWS) if passes(f"node {row}")}
    found, theirs = store.query(query_of(filters=filters)), simple.query(query_of(filters=filters))
    assert set(found.ids or []) == wanted and found.ids == theirs.ids
    assert numpy.allclose(found.similarities or [], theirs.similarities or [], atol=1e-5)
    assert store.query(query_of(filters=filters, similarity_top_k=3)).ids == (theirs.ids or [])[:3]
    assert {node.node_id for node in store.get_nodes(filters=filters)} == wanted
    some = [f"node {row}" for row in range(0, 400, 2)]
    assert {node.node_id for node in store.get_nodes(some, filters)} == wanted & set(some)
    store.delete_nodes(some, filters)
    assert {node.node_id for node in store.get_nodes()} == {f"node {row}" for row in range(ROWS)} - (wanted & set(some))
    store.delete_nodes(filters=filters)
    assert len(store.client) == ROWS - len(wanted)


def test_filters_are_nested(store: AdjoinVectorStore) -> None:
    either = where(("lang", "==", "en"), ("lang", "==", "de"), condition="or")
    nested = where(either, where(("year", ">", 2010), ("doc_id", "==", "document 2"), condition="not"))
    found = {node.node_id for node in store.query(query_of(filters=nested)).nodes or []}
    nodes = [node_of(row) for row in range(ROWS)]
    assert found == {
        node.node_id
        for node in nodes
        if node.metadata.get("lang") in ("en", "de")
        and not (node.metadata.get("year", 0) > 2010 or node.ref_doc_id == "document 2")
    }
    assert 0 < len(found) < ROWS and len(store.query(query_of(filters=where())).ids or []) == ROWS


def test_nodes_return_as_they_were(store: AdjoinVectorStore) -> None:
    before = [node_of(row) for row in range(ROWS)]
    found = {node.node_id: node for node in store.query(query_of()).nodes or []}
    for node in before:
        node.embedding = None
        assert found[node.node_id] == node
    special = [
        ImageNode(id_="image", image_url="http://a/b.png", text="caption", embedding=[1.0] * 8),
        IndexNode(id_="index", index_id="other", text="see other", embedding=[1.0] * 8),
        TextNode(
            id_="hidden",
            text="ü {metadata}",
            metadata={"year": 3},
            excluded_embed_metadata_keys=["year"],
            embedding=[1.0] * 8,
        ),
    ]
    store.add(special)
    for node in special:
        [again] = store.get_nodes([node.node_id])
        assert type(again) is type(node)
        assert again.model_dump(exclude={"embedding"}) == node.model_dump(exclude={"embedding"})
    store.add([TextNode(id_="image", text="now a text", embedding=[1.0] * 8)])
    assert len(store.client) == ROWS + 3 and store.get_nodes(["image", "unknown"])[0].get_content() == "now a text"


def test_queries_are_restricted_to_ids(store: AdjoinVectorStore) -> None:
    every = store.query(query_of()).ids or []
    many = [f"node {row}" for row in range(5, 2_000)]
    assert store.query(query_of(node_ids=many)).ids == [id for id in every if int(id.split()[1]) >= 5]
    assert (
        store.query(query_of(node_ids=many, similarity_top_k=4, filters=where(("year", ">", 2004)))).ids
        == [
            id for id in every if int(id.split()[1]) >= 5 and node_of(int(id.split()[1])).metadata.get("year", 0) > 2004
        ][:4]
    )
    chosen = store.query(query_of(doc_ids=["document 2", "document 3"], node_ids=["node 25", "node 60"]))
    assert chosen.ids == ["node 25"]
    assert store.query(query_of(node_ids=[], doc_ids=[])).ids == every, "empty lists restrict nothing"
    assert store.get_nodes([]) == []


def test_modes(store: AdjoinVectorStore) -> None:
    simple = SimpleVectorStore()
    simple.add([node_of(row) for row in range(ROWS)])
    for threshold in (0.1, 0.5, 1.0):
        query = query_of(mode=VectorStoreQueryMode.MMR, similarity_top_k=ROWS // 4 + 1)
        ours, theirs = store.query(query, mmr_threshold=threshold), simple.query(query, mmr_threshold=threshold)
        assert ours.ids == theirs.ids and len(ours.nodes or []) == len(ours.similarities or []) == ROWS // 4 + 1
    with pytest.raises(adjoin.OptionError, match="mode is hybrid; use default or mmr"):
        store.query(query_of(mode=VectorStoreQueryMode.HYBRID))


def test_documents_and_nodes_are_deleted(store: AdjoinVectorStore) -> None:
    store.delete("document 3")
    assert len(store.client) == ROWS - 10 and store.get_nodes(["node 30", "node 40"])[0].node_id == "node 40"
    store.delete("it's unknown")
    store.delete_nodes(["node 40", "unknown"])
    assert len(store.client) == ROWS - 11
    with pytest.raises(adjoin.OptionError, match="use clear.. to delete all nodes"):
        store.delete_nodes()
    asyncio.run(store.aclear())
    assert store.get_nodes() == [] and store.query(query_of()).ids == []


def test_calls_of_asyncio_do_not_block_the_loop(store: AdjoinVectorStore) -> None:
    thread = threading.get_ident()

    async def run() -> None:
        for sync, call in [
            ("add", lambda: store.async_add([node_of(500)])),
            ("query", lambda: store.aquery(query_of())),
            ("get_nodes", lambda: store.aget_nodes(["node 500"])),
            ("delete_nodes", lambda: store.adelete_nodes(["node 500"])),
            ("delete", lambda: store.adelete("document 3")),
            ("clear", lambda: store.aclear()),
        ]:
            threads = []
            called = getattr(AdjoinVectorStore, sync)

            def watched(*arguments: Any, **options: Any) -> Any:
                threads.append(threading.get_ident())
                return called(*arguments, **options)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(AdjoinVectorStore, sync, watched)
                await call()
            assert threads and thread not in threads

    asyncio.run(run())
    assert len(store.client) == 0


class Letters(BaseEmbedding):
    """Embeds a text as the counts of its letters."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [1e-3 + text.lower().count(chr(97 + letter)) for letter in range(26)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def test_an_index_of_documents_persists(tmp_path: Path) -> None:
    documents = [
        Document(id_=name, text=f"{name} {name}. " * 30, metadata={"lang": lang})
        for name, lang in [("apple", "en"), ("zebra", "en"), ("birne", "de")]
    ]
    with AdjoinVectorStore.create(tmp_path / "nodes", 26, columns={"lang": "text"}) as store:
        index = VectorStoreIndex.from_documents(
            documents,
            StorageContext.from_defaults(vector_store=store),
            embed_model=Letters(),
            transformations=[SentenceSplitter(chunk_size=60, chunk_overlap=0)],
        )
        assert len(store.client) > 3
        index.delete_ref_doc("zebra")
    with AdjoinVectorStore.open(tmp_path / "nodes", read_only=True) as store:
        index = VectorStoreIndex.from_vector_store(store, embed_model=Letters())
        assert {node.node.ref_doc_id for node in index.as_retriever(similarity_top_k=99).retrieve("zebra")} == {
            "apple",
            "birne",
        }
        german = index.as_retriever(similarity_top_k=2, filters=where(("lang", "==", "de")))
        for found in (german.retrieve("apple"), asyncio.run(german.aretrieve("apple"))):
            assert [node.node.ref_doc_id for node in found] == ["birne"] * 2
        best = index.as_retriever(similarity_top_k=1).retrieve("apple")[0]
        assert best.node.ref_doc_id == "apple" and best.score is not None and best.score > 0.9
        with pytest.raises(adjoin.InputError, match="read-only"):
            store.clear()


def test_distances_become_similarities(tmp_path: Path) -> None:
    with AdjoinVectorStore.create(tmp_path / "nodes", 8, metric="l2", element="f16") as store:
        store.add([node_of(row) for row in range(ROWS)])
        found = store.query(query_of(similarity_top_k=5))
        distances = sorted(numpy.linalg.norm(numpy.array(node_of(row).embedding) - 1) for row in range(ROWS))
        assert numpy.allclose(found.similarities or [], [1 / (1 + distance) for distance in distances[:5]], atol=1e-2)
        assert store.to_dict()["path"] == str(tmp_path / "nodes") and store.class_name() == "AdjoinVectorStore"


def test_mistakes_are_refused(store: AdjoinVectorStore, tmp_path: Path) -> None:
    for filters, words in [
        (where(("source", "==", "a")), "there is no column 'source', only text, node_id, doc_id, lang, year, score"),
        (where(("year", "==", "2020")), "'2020' is compared with the column year; give an integer"),
        (where(("lang", "any", ["a"])), "there is no operator any; columns hold no lists; use one of ==, !="),
        (where(("lang", "text_match", 3)), "text_match has 3; give a text"),
    ]:
        with pytest.raises(adjoin.OptionError, match=words):
            store.query(query_of(filters=filters))
    with pytest.raises(adjoin.OptionError, match="there is no argument fetch_k"):
        store.query(query_of(), fetch_k=3)
    with pytest.raises(adjoin.InputError, match="the query has no embedding"):
        store.query(VectorStoreQuery(query_str="a"))
    with pytest.raises(adjoin.InputError, match="document 'a': year is 'soon' in its metadata"):
        store.add([TextNode(id_="a", text="a", metadata={"year": "soon"}, embedding=[1.0] * 8)])
    with pytest.raises(adjoin.InputError, match="the embedding has 5 dimensions, and the vectors of .* have 8"):
        store.add([TextNode(text="a", embedding=MockEmbedding(embed_dim=5).get_text_embedding("a"))])
    with pytest.raises(adjoin.OptionError, match="node is the name of a column that the adapter needs"):
        AdjoinVectorStore.create(tmp_path / "refused", 8, columns={"node": "text"})
    with adjoin.Collection.create(tmp_path / "other", 8, ids="text", columns={"text": "text"}) as other:
        with pytest.raises(adjoin.OptionError, match="has no column node_id; create the collection with create"):
            AdjoinVectorStore(other)
    assert store.add([]) == [] and len(store.client) == ROWS
