"""Models that embed texts: static models of model2vec, models of sentence-transformers, and ONNX files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ._errors import AdjoinError, InputError
from ._options import path, refused
from ._work import package

#: Most tokens of a text, if a tokenizer does not set the number.
TOKENS_MAX = 512
#: Files of a model to download. Its weights in other formats are left out.
DOWNLOADED = ["*.json", "*.txt", "*.model", "*.safetensors"]
#: Weights of older models, which have no safetensors.
OLDER_WEIGHTS = ["pytorch_model.bin", "*/pytorch_model.bin"]
#: Places of an ONNX file in the folder of a model.
ONNX_FILES = ("model.onnx", "onnx/model.onnx")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Model(NamedTuple):
    """A loaded model."""

    name: str
    #: Returns an array with one vector per text.
    encode: Callable[[list[str]], Any]
    #: Returns a hash of the model's files. None if they are unknown.
    digest: Optional[Callable[[], str]]


def load(model: Any) -> Model:
    """Loads a model: a folder, an ONNX file, the name of a model on the hub, or an object with ``encode``."""
    if not isinstance(model, (str, bytes, os.PathLike)):
        if not callable(getattr(model, "encode", None)):
            raise refused("model", model, "the folder of a model, its name on the hub, or an object with the method encode")
        return Model(type(model).__name__, model.encode, None)
    name = path("model", model)
    place = Path(name)
    if place.exists():
        return _loaded(name, place)
    if not isinstance(model, str) or not HUB_NAME.fullmatch(name):
        raise InputError(f"model {name}: there is no such file or folder; check the path")
    return _loaded(name, _downloaded(name))


def _downloaded(name: str) -> Path:
    """Returns the folder of a model of the hub, which the cache of the hub keeps."""
    hub = package("huggingface_hub", f"model {name}", '"adjoin[text]"')
    try:
        folder = Path(hub.snapshot_download(name, allow_patterns=DOWNLOADED))
        if not any(folder.rglob("*.safetensors")):
            hub.snapshot_download(name, allow_patterns=OLDER_WEIGHTS)
    except Exception as error:  # the hub raises errors of several libraries
        reason = " ".join(str(error).split())
        raise InputError(f"model {name} is no folder, and cannot be downloaded from the hub: {reason}") from error
    return folder


def _loaded(name: str, place: Path) -> Model:
    """Loads the model in a folder or an ONNX file."""
    files = [place] if place.is_file() else [place / file for file in ONNX_FILES if (place / file).is_file()]
    modules = _json(place / "modules.json")
    if "StaticEmbedding" in str(modules) or _json(place / "config.json").get("model_type") == "model2vec":
        library = package("model2vec", f"model {name}", '"adjoin[text]"')
        load_folder = library.StaticModel.from_pretrained
    elif modules and any(_weights(place)):
        library = package("sentence_transformers", f"model {name}", "sentence-transformers")
        load_folder = library.SentenceTransformer
    elif files:
        return _onnx(name, files[0])
    else:
        known = "model of model2vec or sentence-transformers, and no model.onnx"
        raise InputError(f"model {name} has no {known}; give the folder of such a model")
    with _errors_of(name):
        encode = load_folder(os.fspath(place)).encode
    words = [library.__name__, library.__version__]
    return Model(name, encode, lambda: _digest(words, [file for file in place.rglob("*") if file.is_file()]))


def _weights(folder: Path) -> Iterable[Path]:
    """Returns the files of weights that sentence-transformers reads."""
    return (file for pattern in ("*.safetensors", "*.bin") for file in folder.rglob(pattern))


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Converts the errors of a library that loads the model ``name``."""
    try:
        yield
    except (AdjoinError, ImportError):
        raise
    except Exception as error:
        raise InputError(f"model {name} cannot be loaded: {' '.join(str(error).split())}") from error


def _json(file: Path) -> dict[str, Any]:
    """Returns the object in a file of JSON; an empty one if there is no such file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} is no JSON: {error}; load the model again") from error
    return content if isinstance(content, dict) else {"modules": content}


def _digest(words: list[str], files: Iterable[Path]) -> str:
    """Returns a hash of words and of the contents of files."""
    digest = hashlib.blake2b(digest_size=16)
    for word in words:
        digest.update(f"{word}\0".encode())
    for file in sorted(files):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "blake2b").digest())
    return digest.hexdigest()


def _onnx(name: str, file: Path) -> Model:
    """Loads an ONNX file, with the tokenizer in its folder or in the folder above."""
    folder = next((place for place in (file.parent, file.parent.parent) if (place / "tokenizer.json").is_file()), None)
    if folder is None:
        raise InputError(f"model {name} has no tokenizer.json; copy it next to {file.name}")
    runtime = package("onnxruntime", f"model {name}", "onnxruntime tokenizers")
    tokenizers = package("tokenizers", f"model {name}", "onnxruntime tokenizers")
    pooling, modules = folder / "1_Pooling" / "config.json", folder / "modules.json"
    with _errors_of(name):
        tokenizer = tokenizers.Tokenizer.from_file(os.fspath(folder / "tokenizer.json"))
        session = runtime.InferenceSession(os.fspath(file), providers=runtime.get_available_providers())
    read = [file, folder / "tokenizer.json", *(one for one in (pooling, modules) if one.is_file())]
    encoder = _Onnx(name, tokenizer, session, _json(pooling), "Normalize" in str(_json(modules)))
    return Model(name, encoder.encode, lambda: _digest([runtime.__name__, runtime.__version__], read))


class _Onnx:
    """Embeds texts one by one.

    In a batch, the scales of quantized models and the padding would make the vector of a text depend on the others.
    """

    def __init__(self, name: str, tokenizer: Any, session: Any, pooling: dict[str, Any], is_normalized: bool) -> None:
        self._tokenizer, self._session, self._is_normalized = tokenizer, session, is_normalized
        self._takes_first = bool(pooling.get("pooling_mode_cls_token")) or pooling.get("pooling_mode") == "cls"
        is_mean = pooling.get("pooling_mode_mean_tokens") or pooling.get("pooling_mode") == "mean"
        if pooling and not self._takes_first and not is_mean:
            raise InputError(f"model {name} has another pooling than mean or cls; load it with sentence-transformers")
        self._inputs = [given.name for given in session.get_inputs()]
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if not {"input_ids"} <= {*self._inputs} <= known:
            raise InputError(f"model {name} has the inputs {', '.join(self._inputs)}; give one with {', '.join(sorted(known))}")
        tokenizer.no_padding()
        if tokenizer.truncation is None:
            tokenizer.enable_truncation(TOKENS_MAX)

    def encode(self, texts: list[str]) -> Any:
        """Returns an array with one vector per text."""
        import numpy

        return numpy.stack([self._encoded(encoding.ids) for encoding in self._tokenizer.encode_batch(texts)])

    def _encoded(self, ids: list[int]) -> Any:
        import numpy

        tokens = numpy.array([ids], dtype=numpy.int64)
        values = {"input_ids": tokens, "attention_mask": numpy.ones_like(tokens), "token_type_ids": numpy.zeros_like(tokens)}
        output = self._session.run(None, {name: values[name] for name in self._inputs})[0][0]
        if output.ndim == 2:  # a vector per token
            output = output[0] if self._takes_first else output.mean(axis=0)
        return output / max(numpy.linalg.norm(output), 1e-12) if self._is_normalized else output
