"""The vector store of LangChain: its standard tests, filters, and errors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_tests")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import adjoin
from adjoin.langchain import AdjoinVectorStore

EMBEDDING = DeterministicFakeEmbedding(size=16)
COLUMNS: Any = {"lang": "text", "year": "int64", "score": "float64", "open": "bool", "day": "date"}


class TestStandard(VectorStoreIntegrationTests):
    @pytest.fixture()
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:  # type: ignore[override]
        with AdjoinVectorStore.create(tmp_path / "documents", self.get_embeddings()) as store:
            yield store


class TestStandardWithL2(VectorStoreIntegrationTests):
    @pytest.fixture()
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:  # type: ignore[override]
        with AdjoinVectorStore.create(
            tmp_path / "documents", self.get_embeddings(), metric="l2", element="f16"
        ) as store:
            yield store


@pytest.fixture
def documents() -> list[Document]:
    """Documents of which some lack some metadata."""
    random = numpy.random.default_rng(1)
    made = []
    for row in range(120):
        metadata = {
            "lang": ["en", "de", "it's", "100%", None][row % 5],
            "year": 2000 + row % 30,
            "score": float(random.random()),
            "open": bool(row % 2),
            "day": f"2026-01-{1 + row % 28:02}",
            "tags": ["a", {"nested": row}],
        }
        made.append(
            Document(page_content=f"text {row}", metadata={k: v for k, v in metadata.items() if (row + len(k)) % 7})
        )
    return made


@pytest.fixture
def store(documents: list[Document], tmp_path: Path) -> Iterator[AdjoinVectorStore]:
    with AdjoinVectorStore.from_documents(documents, EMBEDDING, path=tmp_path / "documents", columns=COLUMNS) as made:
        yield made


FILTERS: list[tuple[Any, Any]] = [
    ({"lang": "en"}, lambda m: m.get("lang") == "en"),
    ({"lang": "it's", "open": True}, lambda m: m.get("lang") == "it's" and m.get("open") is True),
    ({"year": {"$gte": 2010, "$lt": 2020}}, lambda m: "year" in m and 2010 <= m["year"] < 2020),
    ({"year": {"$ne": 2010}}, lambda m: m.get("year") != 2010),
    ({"year": [2001, 2002]}, lambda m: m.get("year") in (2001, 2002)),
    ({"year": {"$in": []}}, lambda m: False),
    ({"year": {"$nin": [2001, 2002]}}, lambda m: m.get("year") not in (2001, 2002)),
    ({"score": {"$between": [0.25, 0.75]}}, lambda m: 0.25 <= m.get("score", -1) <= 0.75),
    ({"score": {"$gt": numpy.float32(0.5)}}, lambda m: m.get("score", -1) > 0.5),
    ({"lang": {"$exists": False}}, lambda m: m.get("lang") is None),
    ({"lang": None}, lambda m: m.get("lang") is None),
    ({"day": {"$lte": "2026-01-09"}}, lambda m: m.get("day", "9") <= "2026-01-09"),
    ({"lang": {"$ilike": "E%"}}, lambda m: m.get("lang") == "en"),
    ({"text": {"$like": "text 1_"}}, lambda m: None),
    ({"$or": [{"lang": "de"}, {"year": 2004}]}, lambda m: m.get("lang") == "de" or m.get("year") == 2004),
    (
        {"$and": [{"lang": "de"}, {"$not": {"year": {"$gt": 2010}}}]},
        lambda m: m.get("lang") == "de" and not m.get("year", 0) > 2010,
    ),
    ({"$not": [{"lang": "de"}, {"open": True}]}, lambda m: not (m.get("lang") == "de" or m.get("open") is True)),
    ({"year": {"$not": {"$gt": 2010}}}, lambda m: not m.get("year", 0) > 2010),
    ("lang = 'en' and year >= 2020", lambda m: m.get("lang") == "en" and m.get("year", 0) >= 2020),
    ({}, lambda m: True),
]


@pytest.mark.parametrize(("filter", "passes"), FILTERS, ids=[str(filter) for filter, _ in FILTERS])
def test_filters_select_before_the_search(
    store: AdjoinVectorStore, documents: list[Document], filter: Any, passes: Any
) -> None:
    wanted = {d.page_content for d in documents if passes(d.metadata)}
    if isinstance(filter, dict) and "text" in filter:
        wanted = {f"text {row}" for row in range(10, 20)}
    found = store.similarity_search("query", 1_000, filter=filter)
    assert {document.page_content for document in found} == wanted
    nearest = store.similarity_search("query", 3, filter=filter)
    assert nearest == found[:3], "the nearest of all that pass"
    scored = store.similarity_search_with_relevance_scores("query", 3, filter=filter, score_threshold=0.0)
    assert [document for document, _ in scored] == nearest


def test_scores_are_those_of_numpy(store: AdjoinVectorStore, documents: list[Document], tmp_path: Path) -> None:
    texts = [document.page_content for document in documents]
    vectors, query = numpy.array(EMBEDDING.embed_documents(texts)), numpy.array(EMBEDDING.embed_query("query"))
    similarities = vectors @ query / numpy.linalg.norm(vectors, axis=1) / numpy.linalg.norm(query)
    order = numpy.argsort(-similarities)
    for found in (
        store.similarity_search_with_score("query", 120),
        asyncio.run(store.asimilarity_search_with_score("query", 120)),
    ):
        assert [document.page_content for document, _ in found] == [texts[row] for row in order]
        assert numpy.allclose([score for _, score in found], similarities[order], atol=1e-5)
    relevance = [score for _, score in store.similarity_search_with_relevance_scores("query", 120)]
    assert numpy.allclose(relevance, numpy.maximum(similarities[order], 0), atol=1e-5)

    with AdjoinVectorStore.from_texts(texts, EMBEDDING, path=tmp_path / "l2", metric="l2") as l2:
        found = l2.similarity_search_with_score("query", 120)
        distances = numpy.linalg.norm(vectors - query, axis=1)
        assert numpy.allclose([score for _, score in found], numpy.sort(distances), atol=1e-4)
        relevance = [score for _, score in l2.similarity_search_with_relevance_scores("query", 120)]
        assert all(0 < score <= 1 for score in relevance) and relevance == sorted(relevance, reverse=True)


def test_metadata_returns_as_it_was(store: AdjoinVectorStore, documents: list[Document], tmp_path: Path) -> None:
    found = {document.page_content: document.metadata for document in store.similarity_search("query", 1_000)}
    assert found == {document.page_content: document.metadata for document in documents}
    [id] = store.add_texts(["ü"], [{"array": numpy.arange(2), "path": Path("a"), "none": None, "": {"set": {1}}}])
    assert store.get_by_ids([id])[0].metadata == {"array": [0, 1], "path": "a", "none": None, "": {"set": [1]}}


def test_adding_a_document_twice_stores_it_once(store: AdjoinVectorStore, documents: list[Document]) -> None:
    again = store.add_documents(documents)
    assert len(store) == len(documents) == len(set(again))
    assert store.add_texts(["same", "same"]) == store.add_texts(["same"]) * 2 and len(store) == len(documents) + 1
    assert store.add_texts(["same"], [{"lang": "en"}]) != store.add_texts(["same"]) and len(store) == len(documents) + 2
    texts, before = [f"batch {row}" for row in range(7)], store.folder.stats["sequence"]  # type: ignore[attr-defined]
    ids = store.add_texts(texts, batch_size=3)
    assert [document.page_content for document in store.get_by_ids(ids)] == texts
    assert store.folder.stats["sequence"] == before + 3  # type: ignore[attr-defined]
    assert asyncio.run(store.aadd_texts(texts, batch_size=2)) == ids and len(store) == len(documents) + 9
    assert store.add_documents([]) == store.add_texts([]) == asyncio.run(store.aadd_documents([])) == []


def test_documents_are_deleted_by_id_and_filter(store: AdjoinVectorStore) -> None:
    ids = [document.id or "" for document in store.similarity_search("query", 2)]
    store.delete([*ids, "unknown"])
    assert store.get_by_ids(ids) == [] and len(store) == 118
    store.delete([])
    assert len(store) == 118
    store.delete(filter={"year": {"$lt": 2015}})
    years = [document.metadata.get("year") for document in store.similarity_search("query", 200)]
    assert len(years) == len(store) > 0 and all(year is None or year >= 2015 for year in years)
    with pytest.raises(adjoin.OptionError, match="both ids and a filter"):
        store.delete(["a"], filter={"year": 1})
    asyncio.run(store.adelete())
    assert len(store) == 0 and store.similarity_search("query") == [] and store


def test_retrievers_pass_their_options_on(store: AdjoinVectorStore, documents: list[Document]) -> None:
    plain = store.as_retriever(search_kwargs={"k": 5, "filter": {"lang": "en"}, "exact": True})
    assert len(plain.invoke("query")) == 5 and len(asyncio.run(plain.ainvoke("query"))) == 5
    threshold = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.2, "k": 200}
    )
    scores = store.similarity_search_with_relevance_scores("query", 200)
    assert len(threshold.invoke("query")) == sum(score >= 0.2 for _, score in scores) > 0
    varied = store.as_retriever(search_type="mmr", search_kwargs={"k": 4, "fetch_k": 60, "lambda_mult": 0.1})
    found = varied.invoke("query")
    assert found[0] == store.similarity_search("query", 1)[0] and found != store.similarity_search("query", 4)
    assert found == asyncio.run(varied.ainvoke("query")) and len({document.id for document in found}) == 4
    same = store.max_marginal_relevance_search("query", 4, lambda_mult=1.0)
    assert same == store.similarity_search("query", 4)
    assert same == asyncio.run(
        store.amax_marginal_relevance_search_by_vector(EMBEDDING.embed_query("query"), 4, lambda_mult=1.0)
    )
    assert store.max_marginal_relevance_search("query", filter={"year": {"$in": []}}) == []


def test_the_indexing_api_replaces_changed_documents(store: AdjoinVectorStore) -> None:
    store.delete()
    records = InMemoryRecordManager("test")
    records.create_schema()

    def run(*texts: str) -> Any:
        made = [Document(page_content=text, metadata={"source": "page"}) for text in texts]
        return index(made, records, store, cleanup="full", source_id_key="source", key_encoder="sha256")

    assert run("a", "b")["num_added"] == 2 and run("a", "b")["num_skipped"] == 2
    assert run("a", "c") == {"num_added": 1, "num_updated": 0, "num_skipped": 1, "num_deleted": 1}
    assert sorted(document.page_content for document in store.similarity_search("query", 9)) == ["a", "c"]


def test_documents_stay_after_close_and_merge(store: AdjoinVectorStore, documents: list[Document]) -> None:
    before, path = store.similarity_search("query", 10), store.folder.path
    store.folder.merge()  # type: ignore[attr-defined]
    assert store.similarity_search("query", 10, exact=True) == before
    opening = f"from adjoin import langchain; langchain.AdjoinVectorStore.open({str(path)!r}, None"
    refused = subprocess.run([sys.executable, "-c", f"{opening})"], capture_output=True, text=True)
    assert "is being written by" in refused.stderr
    subprocess.run(
        [sys.executable, "-c", f"{opening}, read_only=True).similarity_search_by_vector([1] * 16)"], check=True
    )
    store.close()
    with AdjoinVectorStore.from_texts(["one more"], EMBEDDING, path=path, columns={"lang": "text"}) as again:
        assert len(again) == len(documents) + 1 and "121 documents" in repr(again)
    with AdjoinVectorStore.open(path, EMBEDDING, read_only=True) as reader:
        assert len(reader.similarity_search("query", 200)) == 121
        with pytest.raises(adjoin.InputError, match="read-only"):
            reader.add_texts(["a"])
    for wrong in ({"columns": {"lang": "int64"}}, {"columns": {"other": "text"}}, {"metric": "l2"}):
        with pytest.raises(adjoin.OptionError, match="exists, with the"):
            AdjoinVectorStore.from_texts(["a"], EMBEDDING, path=path, **wrong)


def test_an_index_of_other_texts_is_searched(tmp_path: Path) -> None:
    texts = [f"text {row}" for row in range(50)]
    vectors = numpy.array(EMBEDDING.embed_documents(texts), "float32")
    collection = adjoin.Collection.create(
        tmp_path / "plain", 16, columns={"body": "text", "rank": "int64", "year": "int64"}
    )
    with collection:
        rows = {"key": range(50), "vector": vectors, "body": texts, "rank": [7] * 50, "year": [*range(49), None]}
        collection.write(insert=rows, id_column="key", vector_column="vector")
        store = AdjoinVectorStore(collection, EMBEDDING, text_column="body")
        [found] = store.similarity_search("text 3", 1)
        assert found == Document(id="3", page_content="text 3", metadata={"rank": 7, "year": 3})
        assert store.get_by_ids(["49", "x", "77"]) == [Document(id="49", page_content="text 49", metadata={"rank": 7})]
        with pytest.raises(adjoin.InputError, match="has integers as ids"):
            store.add_texts(["a"])
    columns = {"id": texts, "vector": vectors, "text": texts}
    import pyarrow

    table = pyarrow.table({**columns, "vector": pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), 16)})
    adjoin.build_index(adjoin.build(table, tmp_path / "store", metric="cosine", columns=["text"]), tmp_path / "index")
    for name in ("store", "index"):
        opened = AdjoinVectorStore.open(tmp_path / name, EMBEDDING)
        assert opened.similarity_search("text 3", 1, filter={"text": {"$ne": "text 4"}})[0].id == "text 3"
        with pytest.raises(adjoin.InputError, match="accepts no writes"):
            opened.add_texts(["a"])


class Broken(Embeddings):
    """A model that fails, or returns vectors of other shapes."""

    def __init__(self, *vectors: Any) -> None:
        self.vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if not self.vectors:
            raise RuntimeError("no quota")
        return list(self.vectors)

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def test_the_effort_of_searches_has_a_default(store: AdjoinVectorStore) -> None:
    store.folder.merge()  # type: ignore[attr-defined]
    searched: list[dict[str, Any]] = []
    folder_search = store.folder.search

    def watched(*arguments: Any, **options: Any) -> Any:
        searched.append({name: value for name, value in options.items() if name in ("recall", "exact", "list")})
        return folder_search(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.folder, "search", watched)
        quick = AdjoinVectorStore(store.folder, EMBEDDING, effort={"list": 128})
        for made, options in ((quick, {}), (quick, {"recall": 0.9}), (store, {}), (store, {"exact": True})):
            assert len(made.similarity_search("query", 3, **options)) == 3
    assert searched == [{"list": 128}, {"recall": 0.9}, {}, {"exact": True}]
    with pytest.raises(adjoin.OptionError, match="there is no argument nprobe; effort"):
        AdjoinVectorStore(store.folder, EMBEDDING, effort={"nprobe": 3})


def test_mistakes_are_refused(store: AdjoinVectorStore, tmp_path: Path) -> None:
    searches: list[tuple[Any, str]] = [
        ({"source": "a"}, "there is no column 'source', only text, lang, year, score, open, day; filters use columns"),
        ({"year": {"$near": 1}}, "there is no operator '.near'; use one of .eq"),
        ({"year": "2020"}, "'2020' is compared with the column year; give an integer"),
        ({"lang": 1}, "1 is compared with the column lang; give a text"),
        ({"open": 1}, "compared with the column open; give True or False"),
        ({"year": {"$in": "2020"}}, "has '2020'; give a list of values"),
        ({"year": {"$between": [1]}}, "has 1 values; give the least and the greatest"),
        ({"$or": []}, "give a list of filters"),
        ({"$nor": []}, "is not the name of a column"),
        (lambda document: True, "filter is <function"),
        ("no sql", 'cannot read "no sql"'),
        ({"year": {"$in": list(range(9_999))}}, "write at most 4096"),
    ]
    for filter, words in searches:
        with pytest.raises(adjoin.OptionError, match=words):
            store.similarity_search("query", filter=filter)
    with pytest.raises(TypeError, match="there is no argument where"):
        store.similarity_search("query", where="year = 1")
    with pytest.raises(TypeError, match="there is no argument bulk_size"):
        store.add_texts(["a"], bulk_size=3)
    writes: list[tuple[dict[str, Any], str]] = [
        (
            dict(texts=["a"], metadatas=[{"year": "soon"}]),
            "year is 'soon' in its metadata, and the column is int64; give an integer",
        ),
        (dict(texts=["a"], metadatas=[{"year": True}]), "year is True"),
        (
            dict(texts=["a"], metadatas=[{"x": object()}], ids=["a"]),
            "document 'a': its metadata cannot be written as JSON",
        ),
        (dict(texts=["a", "b"], metadatas=[{}]), "1 metadatas for 2 texts"),
        (dict(texts=["a"], ids=["a", "b"]), "2 ids for 1 texts"),
    ]
    for arguments, words in writes:
        with pytest.raises(ValueError, match=words):
            store.add_texts(**arguments)
    assert len(store) == 120
    path = tmp_path / "refused"
    with pytest.raises(RuntimeError, match="no quota"):
        AdjoinVectorStore.create(path, Broken())
    assert not path.exists()
    for columns in ({"text": "text"}, {"metadata": "text"}, {"id": "int64"}, {"vector": "text"}):
        with pytest.raises(adjoin.OptionError, match="the name of a column that the adapter needs"):
            AdjoinVectorStore.create(path, EMBEDDING, columns=columns)  # type: ignore[arg-type]
    with pytest.raises(adjoin.OptionError, match="path is missing"):
        AdjoinVectorStore.from_texts(["a"], EMBEDDING)
    for embedding, words in [
        (Broken([1.0, 2.0]), "the embedding has 2 dimensions, and the vectors of .* have 16"),
        (Broken([1.0], [1.0, 2.0]), "differ in their number of dimensions"),
        (Broken([0.0] * 16), "all zeros"),
    ]:
        with pytest.raises(adjoin.InputError, match=words):
            AdjoinVectorStore(store.folder, embedding).add_texts(["a"] * len(embedding.vectors))
    with adjoin.Collection.create(path, 16, columns={"body": "text"}) as collection:
        with pytest.raises(adjoin.OptionError, match="no column text with the texts of documents, only body"):
            AdjoinVectorStore(collection, EMBEDDING)


def test_metadata_can_be_in_columns_only(tmp_path: Path) -> None:
    with adjoin.Collection.create(
        tmp_path / "plain", 16, ids="text", columns={"text": "text", "year": "int64"}
    ) as collection:
        store = AdjoinVectorStore(collection, EMBEDDING)
        store.add_texts(["a", "b"], [{"year": 1}, {}], ids=["a", "b"])
        assert [document.metadata for document in store.get_by_ids(["a", "b"])] == [{"year": 1}, {}]
        with pytest.raises(adjoin.InputError, match="has no column source for its metadata"):
            store.add_texts(["c"], [{"source": "s"}])


def test_the_command_finds_the_documents(store: AdjoinVectorStore, tmp_path: Path) -> None:
    numpy.save(tmp_path / "queries.npy", numpy.array([EMBEDDING.embed_query("query")], "float32"))
    wanted = store.similarity_search("query", 3, filter={"lang": "en"})
    store.close()
    command = [
        Path(sys.executable).parent / "adjoin",
        "search",
        store.folder.path,
        "--queries",
        tmp_path / "queries.npy",
    ]
    options = ["-k", "3", "--where", "lang = 'en'", "--columns", "text", "-o", tmp_path / "hits.jsonl"]
    subprocess.run([*command, *options], check=True)
    hits = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert [(hit["id"], hit["text"]) for hit in hits] == [(document.id, document.page_content) for document in wanted]
