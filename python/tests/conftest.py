"""Shared fixtures: small sets and their pairs by brute force, servers, and a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:  # the tests of pages are skipped
    expect = sync_playwright = None  # type: ignore[assignment]

SAMPLE = Path(__file__).parents[2] / "fixtures" / "sample.parquet"
PROGRAM = Path(sys.executable).parent / "adjoin"
BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


@pytest.fixture
def vectors() -> numpy.ndarray:
    """Vectors that have some neighbors each."""
    random = numpy.random.default_rng(1)
    centers = random.standard_normal((40, 8))
    return (centers[random.integers(0, 40, 600)] + 0.1 * random.standard_normal((600, 8))).astype("float32")


def pairs_within(vectors: numpy.ndarray, eps: float) -> dict[tuple[int, int], float]:
    """Returns the pairs within a distance, in f64."""
    wide = vectors.astype("float64")
    found = {}
    for row in range(len(wide)):
        distances = numpy.sqrt(((wide[row + 1 :] - wide[row]) ** 2).sum(axis=1))
        found.update({(row, row + 1 + int(k)): float(distances[k]) for k in numpy.nonzero(distances <= eps)[0]})
    return found


class Server:
    """A server of a folder in a process of its own."""

    def __init__(self, folder: Path, *options: Any, memory: str = "128MB") -> None:
        command = [PROGRAM, "serve", folder, "--memory", memory, "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.wait() == 0


def skip_browser(reason: str) -> None:
    """Skips the tests of pages, unless ADJOIN_REQUIRE names their requirement."""
    if "chromium" in os.environ.get("ADJOIN_REQUIRE", "").split(","):
        pytest.fail(f"ADJOIN_REQUIRE names chromium, but {reason}")
    pytest.skip(reason)


# Playwright runs an event loop as long as it is open, so tests of coroutines in other modules must not share it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The browser of this machine, which Playwright drives without a window."""
    if sync_playwright is None:
        skip_browser("Playwright, which drives a browser, is not installed: pip install playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        skip_browser(f"no browser is installed: {', '.join(BROWSERS)}")
    expect.set_options(timeout=120_000)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages. At the end of the test, none of them may have had an error, a dialog or a request to another host."""
    contexts, faults = [], []

    def open_page(address: str | Path, width: int = 1440, refused: bool = False) -> Any:
        """Opens an address, or a file without a network. If ``refused``, the server may refuse requests, or end."""
        url = address.as_uri() if isinstance(address, Path) else address
        context = browser.new_context(offline=isinstance(address, Path), viewport={"width": width, "height": 900})
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()

        def note(message: Any) -> None:
            if message.type in ("error", "warning") and not (refused and "Failed to load resource" in message.text):
                faults.append(f"console: {message.text}")

        def request(request: Any) -> None:
            own = ("file:", "data:", "blob:") if isinstance(address, Path) else (url, "data:")
            if not request.url.startswith(own):
                faults.append(f"request: {request.url}")

        def dialog(dialog: Any) -> None:
            faults.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("console", note)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", request)
        page.on("dialog", dialog)
        page.goto(url)
        return page

    yield open_page
    ran = [page.url for context in contexts for page in context.pages if page.evaluate("window.hostile !== undefined")]
    for context in contexts:
        context.close()
    assert not faults and not ran, (faults, ran)
