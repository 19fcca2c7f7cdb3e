"""The examples of the README and of the how-tos run, and pass the type checker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from conftest import SAMPLE

PACKAGE = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)


HOW_TO = PACKAGE.parent / "docs" / "how-to"
# In the order of the list of pages: later pages use stores that earlier ones build.
PAGES = re.findall(r"\]\(([a-z-]+\.md)\)", (HOW_TO / "README.md").read_text())


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)


def test_the_how_tos_run_one_after_the_other(tmp_path: Path) -> None:
    table = pyarrow.parquet.read_table(SAMPLE)
    (tmp_path / "embeddings").mkdir()
    for shard in range(2):
        part = table.slice(shard * 12_000, 12_000)
        pyarrow.parquet.write_table(part, tmp_path / "embeddings" / f"part-{shard}.parquet")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert {*PAGES, "README.md"} == {page.name for page in HOW_TO.iterdir()}
    text = "\n".join((HOW_TO / page).read_text() for page in PAGES)
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 40
    for language, block in blocks:
        command = ["bash", "-ec", block] if language == "sh" else [sys.executable, "-c", block]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)


def test_examples_and_package_are_well_typed(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text("\n".join(EXAMPLES))
    for checked in (["-p", "adjoin"], ["example.py"]):
        subprocess.run([sys.executable, "-m", "mypy", "--strict", *checked], cwd=tmp_path, check=True)


def test_the_stubs_match_the_extension(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "mypy.stubtest", "adjoin._engine"], cwd=tmp_path, check=True)
