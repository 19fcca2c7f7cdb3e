"""The examples of the README and of the how-tos run, and pass the type checker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import adjoin
import model2vec
import numpy
import pytest
import tokenizers

from conftest import SAMPLE

PACKAGE = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)


DOCS = PACKAGE.parent / "docs"
HOW_TO = DOCS / "how-to"
# In the order of the list of pages: later pages use stores that earlier ones build.
PAGES = re.findall(r"\]\(([a-z-]+\.md)\)", (HOW_TO / "README.md").read_text())


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)


def run_blocks(text: str, folder: Path) -> int:
    """Runs the shell and Python blocks of a page in a folder, and returns their number."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    hub = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder.parent / "hub")}
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    for language, block in blocks:
        command = ["bash", "-ec", block] if language == "sh" else [sys.executable, "-c", block]
        subprocess.run(command, cwd=folder, env={**os.environ, **hub, "PATH": path}, check=True)
    return len(blocks)


def write_hub(folder: Path, name: str, text: str) -> None:
    """Writes a cache of the hub that has one static model, with a random vector for each word of a text."""
    vocabulary = {word: row for row, word in enumerate(["[UNK]", *sorted({*re.findall(r"\w+", text)})])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = numpy.random.default_rng(1).standard_normal((len(vocabulary), 64), dtype="float32")
    model = folder / f"models--{name.replace('/', '--')}"
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(model / "snapshots" / "a1")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("a1")


def test_the_start_page_runs(tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(SAMPLE.parent)
    after_the_installation = (DOCS / "index.md").read_text().split("The repository has a sample")[1]
    assert run_blocks(after_the_installation, tmp_path) == 3


def test_the_how_tos_run_one_after_the_other(tmp_path: Path) -> None:
    folder = tmp_path / "how-to"
    folder.mkdir()
    (folder / "fixtures").symlink_to(SAMPLE.parent)
    pages = ["README.md", *PAGES]
    assert {*pages} == {page.name for page in HOW_TO.iterdir()}
    text = "\n".join((HOW_TO / page).read_text() for page in pages)
    write_hub(tmp_path / "hub", "minishlab/potion-base-8M", text)
    assert run_blocks(text, folder) >= 40


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    assert {*re.findall(r"^::: adjoin\.([A-Za-z_]+)\n    options", page, re.MULTILINE)} == {*adjoin.__all__} - {"__version__"}


def test_examples_and_package_are_well_typed(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text("\n".join(EXAMPLES))
    for checked in (["-p", "adjoin"], ["example.py"]):
        subprocess.run([sys.executable, "-m", "mypy", "--strict", *checked], cwd=tmp_path, check=True)


def test_the_stubs_match_the_extension(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "mypy.stubtest", "adjoin._engine"], cwd=tmp_path, check=True)
