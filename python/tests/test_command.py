"""The package has the command line, with the server."""

from __future__ import annotations

import subprocess

from conftest import PROGRAM


def test_the_command_has_the_server() -> None:
    help_text = subprocess.run([PROGRAM, "serve", "--help"], check=True, capture_output=True, text=True).stdout
    assert "--key-file" in help_text


def test_the_command_reports_the_version_of_the_package() -> None:
    import adjoin

    version = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
    assert version.split()[-1] == adjoin.__version__
