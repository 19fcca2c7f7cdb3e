"""The examples of the README run, and are well typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)


def test_examples_and_package_are_well_typed(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text("\n".join(EXAMPLES))
    for checked in (["-p", "adjoin"], ["example.py"]):
        subprocess.run([sys.executable, "-m", "mypy", "--strict", *checked], cwd=tmp_path, check=True)


def test_the_stubs_say_what_the_extension_has(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "mypy.stubtest", "adjoin._engine"], cwd=tmp_path, check=True)
