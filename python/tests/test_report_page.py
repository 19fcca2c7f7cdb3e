"""The page of `adjoin report` in a real browser: thresholds, decisions, clusters, images, hostile texts, narrow screens."""

from __future__ import annotations

import csv
import json
import re
import shlex
import struct
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import adjoin
from conftest import PROGRAM, SAMPLE

Visit = Callable[..., Any]
# No similarity of two rows is so near to the threshold that rounding decides.
THRESHOLD = 0.9
WIDTHS = [390, 1440]
RUN = "window.hostile = true"
HOSTILE = [
    f"</script><script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f"\"><svg onload=\"{RUN}\">",
    f"<!--<script>{RUN}",
    "it's \"quoted\", `ticked` and \\escaped\\u003c {{data}} {{script}} $& ${1}",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467, flag \U0001f1e9\U0001f1ea, accents e\u0301\u0301",
    "line\u2028separator, null \x00, bell \x07, right\u202eto left",
    "__proto__",
    "x" * 399 + "\U0001f600 cut within an emoji",
    "null",
]


class Sample:
    """Rows of the sample, with the similarities of all pairs by brute force."""

    def __init__(self, folder: Path) -> None:
        table = pyarrow.parquet.read_table(SAMPLE).slice(12_000, 1_500)
        self.folder = folder
        self.path = folder / "rows.parquet"
        self.names: list[str] = table["name"].to_pylist()
        self.sources = [f"letter {name[3:4]}" for name in self.names]
        texts = [f"the package {name}" for name in self.names]
        table = table.append_column("source", [self.sources]).append_column("text", [texts])
        pyarrow.parquet.write_table(table, self.path)
        vectors = numpy.stack(table["embedding"].to_numpy()).astype("float64")
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        self.similarities = vectors @ vectors.T
        assert abs(self.similarities - THRESHOLD).min() > 1e-5

    def pairs(self) -> dict[frozenset[str], float]:
        near = numpy.argwhere(numpy.triu(self.similarities >= THRESHOLD, 1))
        return {frozenset((self.names[a], self.names[b])): float(self.similarities[a, b]) for a, b in near}

    def removed(self, decisions: dict[str, str]) -> set[str]:
        """Returns the rows that `dedupe` removes, by the rule that its documentation states."""
        order = sorted(range(len(self.names)), key=lambda row: decisions.get(self.names[row]) != "keep")
        kept: list[int] = []
        for row in order:
            decision = decisions.get(self.names[row])
            if decision == "keep" or (decision is None and not (self.similarities[row, kept] >= THRESHOLD).any()):
                kept.append(row)
        return set(self.names) - {self.names[row] for row in kept}

    def clusters(self) -> list[set[str]]:
        """Returns the clusters of two and more rows, the largest first."""
        near = self.similarities >= THRESHOLD
        left = set(range(len(self.names)))
        found = []
        while left:
            members, reached = set(), {left.pop()}
            while reached:
                row = reached.pop()
                members.add(self.names[row])
                more = left & set(numpy.nonzero(near[row])[0].tolist())
                left -= more
                reached |= more
            found.append(members)
        return sorted((members for members in found if len(members) > 1), key=len, reverse=True)


def run(folder: Path, line: str) -> None:
    """Runs a command in a folder."""
    done = subprocess.run([PROGRAM, *shlex.split(line), "--quiet"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}: {done.stderr}"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    sample = Sample(tmp_path_factory.mktemp("pages"))
    of = f"rows.parquet --id-column name --min-similarity {THRESHOLD} --exact"
    carried = "--columns text,source --stats"
    run(sample.folder, f"join {of} -o pairs.parquet {carried} pairs.json")
    run(sample.folder, f"join {of} --result clusters -o clusters.parquet {carried} clusters.json")
    run(sample.folder, f"dedupe {of} -o clean.parquet --removed removed.parquet {carried} removed.json")
    for kind in ("pairs", "clusters", "removed"):
        names = "--names rows.parquet --id-column name --name-column text" if kind == "removed" else ""
        run(sample.folder, f"report {kind}.parquet --stats {kind}.json {names} -o {kind}.html")
    return sample


def number(text: str) -> int:
    return int(text.replace(",", ""))


# The lines in the document: the place of each, with its value, if any, and its ids.
LINES = """[...document.querySelectorAll("#space .row")].map(row => [parseFloat(row.style.top),
    [...row.querySelectorAll(".value, .id")].map(part => part.textContent)])"""
TEXTS = LINES.replace(".value, .id", ".text")


def lines(page: Any) -> list[list[str]]:
    """Returns the lines in sight."""
    return [line for _, line in page.evaluate(LINES)]


def all_lines(page: Any, what: str = LINES) -> list[list[str]]:
    """Returns the lines of the whole list, read by scrolling from its top to its end."""
    seen = page.evaluate(
        f"""() => {{
            const list = document.getElementById("list"), seen = [];
            for (let top = 0; top < list.scrollHeight; top += 600) {{
                list.scrollTop = top;
                list.dispatchEvent(new Event("scroll"));
                seen.push(...{what});
            }}
            return seen;
        }}"""
    )
    found = dict(map(tuple, seen))
    return [found[top] for top in sorted(found)]


def test_the_threshold_of_pairs_moves_counts_and_lines(sample: Sample, visit: Visit) -> None:
    pairs = sample.pairs()
    values = sorted(pairs.values())
    page = visit(sample.folder / "pairs.html")
    assert page.title() == f"{len(pairs):,} pairs – adjoin" and page.inner_text("h1") == f"{len(pairs):,} pairs"
    assert "promise kept" in page.inner_text("#cards") and page.locator("#charts canvas").count() >= 2
    assert lines(page)[0][0] == f"{values[-1]:.4f}", "the closest pair is first"
    page.click("#order")
    assert page.inner_text("#order") == "farthest first"
    assert [line[0] for line in lines(page)[:5]] == [f"{value:.4f}" for value in values[:5]], "pairs near the threshold"
    slider = page.locator("#threshold")
    steps = int(slider.get_attribute("max"))
    low, high = values[0], values[-1]
    for step in (0, 20, steps // 2, steps - 1, steps):
        slider.fill(str(step))
        threshold = low + (high - low) * (steps - step) / (steps + 1)
        within = [value for value in values if value >= threshold - 1e-6]
        label, shown = page.inner_text("#within-shown"), page.inner_text("#shown")
        assert label == f"≥ {threshold:.4f}: {len(within):,} pairs"
        assert shown == f"{len(within):,} of {len(values):,} pairs"
        assert lines(page)[0][0] == f"{within[0]:.4f}", "the pair nearest to the threshold"
    slider.fill(str(steps - 20))
    found = all_lines(page)
    assert number(page.inner_text("#shown").split()[0]) == len(found) < len(pairs)
    for value, left, right in found:
        assert f"{pairs[frozenset((left, right))]:.4f}" == value
    assert len({frozenset(line[1:]) for line in found}) == len(found)


@pytest.mark.parametrize("value", ["distance", "similarity"])
def test_counts_and_lines_agree_if_values_are_equal_to_thresholds(value: str, visit: Visit, tmp_path: Path) -> None:
    # 21 values, each of which is a threshold of the slider. So is each middle between two of them.
    values = [k % 21 / 20 for k in range(420)]
    rows = [(f"a{k}", f"b{k}", at) for k, at in enumerate(values)]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("left_id", "right_id", value), *rows])
    run(tmp_path, "report pairs.csv -o page.html")
    page = visit(tmp_path / "page.html")
    steps = int(page.locator("#threshold").get_attribute("max"))
    assert steps == 199
    seen = set()
    for step in range(4, steps + 1, 5):
        page.locator("#threshold").fill(str(step))
        label = page.inner_text("#within-shown").split()
        threshold = float(label[1].rstrip(":"))
        within = sum(at >= threshold if value == "similarity" else at <= threshold for at in values)
        assert (number(label[2]), number(page.inner_text("#shown").split()[0])) == (within, within), label
        seen.add(within)
    assert len(seen) == 21


def test_rows_with_equal_texts_are_within_each_threshold(visit: Visit, tmp_path: Path) -> None:
    rows = ["a,k,0.9,similar", "b,k,0.8,similar", "c,k,,equal text", "d,k,,equal text"]
    (tmp_path / "removed.csv").write_text("\n".join(["id,kept_id,similarity,reason", *rows, ""]))
    run(tmp_path, "report removed.csv -o page.html")
    page = visit(tmp_path / "page.html")
    for step, count in (("0", 3), ("198", 3), ("199", 4)):
        page.locator("#threshold").fill(step)
        shown = [page.inner_text("#within-shown").split(": ")[1], page.inner_text("#shown")]
        assert shown == [f"{count} removed rows", f"{count} of 4 removed rows"]


def test_decisions_are_saved_and_obeyed(sample: Sample, visit: Visit, tmp_path: Path) -> None:
    removed = pyarrow.parquet.read_table(sample.folder / "removed.parquet").to_pylist()
    assert {row["id"] for row in removed} == sample.removed({})
    page = visit(sample.folder / "removed.html")
    assert page.inner_text("h1") == f"{len(removed):,} removed rows"
    assert lines(page)[0][0] == f"{min(row['similarity'] for row in removed):.4f}", "the row near the threshold is first"
    wanted = {removed[0]["id"]: "keep", removed[40]["id"]: "keep", removed[90]["kept_id"]: "remove"}
    for name, decision in wanted.items():
        page.fill("#search", name)
        side = page.locator(f"#space .side:has(.id:text-matches('^(removed|kept) {re.escape(name)}$'))").first
        side.get_by_role("button", name=decision, exact=True).click()
        assert side.locator("[aria-pressed=true]").inner_text() == decision
    with page.expect_download() as download:
        page.get_by_role("button", name="Save 3 decisions").click()
    assert download.value.suggested_filename == "removed.decisions.jsonl"
    saved = tmp_path / "decisions.jsonl"
    download.value.save_as(saved)
    assert {row["id"]: row["decision"] for row in map(json.loads, saved.read_text().splitlines())} == wanted
    of = f"{sample.path} --id-column name --min-similarity {THRESHOLD} --exact --decisions decisions.jsonl"
    run(tmp_path, f"dedupe {of} -o clean.parquet --removed removed.csv")
    kept = set(pyarrow.parquet.read_table(tmp_path / "clean.parquet")["name"].to_pylist())
    expected = sample.removed(wanted)
    assert set(sample.names) - kept == expected != sample.removed({})
    again = visit(sample.folder / "pairs.html")
    with saved.open("a") as file:
        file.write('null\nno JSON\n{"id": "unknown", "decision": "keep"}\n')
    again.set_input_files("#load-file", saved)
    again.wait_for_function("document.getElementById('shown').textContent.includes('3 of the decisions')")
    assert again.inner_text("#save") == "Save 3 decisions"


def test_clusters_have_sizes_members_and_sources(sample: Sample, visit: Visit) -> None:
    clusters = sample.clusters()
    page = visit(sample.folder / "clusters.html")
    rows = sum(map(len, clusters))
    assert page.inner_text("h1") == f"{len(clusters):,} clusters of {rows:,} rows"
    assert page.locator("#within").is_hidden() and page.locator("#order").is_hidden(), "clusters have no values"
    shown: list[set[str]] = []
    for line in all_lines(page):
        if line:
            shown[-1].add(line[0])
        else:
            shown.append(set())
    assert sorted(map(sorted, shown)) == sorted(map(sorted, clusters))
    assert [len(members) for members in shown] == [len(members) for members in clusters], "the largest first"
    source = dict(zip(sample.names, sample.sources))
    counts = Counter(source[name] for members in clusters for name in members)
    bars = page.locator(".panel:has(h2:text-is('Rows of clusters by source')) .bar").all_inner_texts()
    parts = [bar.split("\n") for bar in bars]
    assert {part[0]: number(part[-1].split(":")[0]) for part in parts} == counts
    word = min(clusters[3])
    matching = [members for members in clusters if any(word in name for name in members)]
    page.fill("#search", word)
    page.wait_for_function(f"document.getElementById('shown').textContent.startsWith('{len(matching)} of')")
    assert {line[0] for line in all_lines(page) if line} == set().union(*matching)


def test_clusters_of_pairs_and_of_removed_rows(sample: Sample, visit: Visit) -> None:
    page = visit(sample.folder / "pairs.html")
    page.click("#show-groups")
    heads = [line for line in all_lines(page) if not line]
    assert len(heads) == len(sample.clusters()) and page.inner_text("#shown") == f"{len(heads)} of {len(heads)} clusters"
    page = visit(sample.folder / "removed.html")
    page.click("#show-groups")
    removed = pyarrow.parquet.read_table(sample.folder / "removed.parquet")
    assert page.inner_text("#shown").endswith(f"of {len(set(removed['kept_id'].to_pylist()))} kept rows")
    totals = Counter(sample.sources)
    bars = page.locator(".panel:has(h2:text-is('Removed rows by source')) .bar").all_inner_texts()
    source = dict(zip(sample.names, sample.sources))
    counts = Counter(source[name] for name in removed["id"].to_pylist())
    assert sorted(bar.split("\n")[-1] for bar in bars) == sorted(
        f"{counts[one]:,} of {totals[one]:,}: {100 * counts[one] / totals[one]:.1f} %" for one in counts
    )


def png(path: Path) -> None:
    """Writes an image of one dark pixel."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b""))


def test_images_appear_on_demand(visit: Visit, tmp_path: Path) -> None:
    names = ["plain.png", "with space.png", "50%20 off.png", "part #1.png", "who?.png", "ümlaut.png", "a'b\".png"]
    (tmp_path / "images").mkdir()
    for name in names:
        png(tmp_path / "images" / name)
    paths = [f"images/{name}" for name in names] + [str(tmp_path / "images" / names[3])]
    table = {"id": range(8), "vector": [[k // 2, 0.1 * (k % 2)] for k in range(8)], "text": [f"text {k}" for k in range(8)]}
    pyarrow.parquet.write_table(pyarrow.table({**table, "image": paths}), tmp_path / "rows.parquet")
    run(tmp_path, "join rows.parquet --eps 0.5 --exact -o pairs.parquet --columns text,image")
    run(tmp_path, "report pairs.parquet -o page.html")
    page = visit(tmp_path / "page.html")
    assert page.locator("img").count() == 0
    page.click("#images")
    assert page.locator("#images").get_attribute("aria-pressed") == "true"
    page.wait_for_function("[...document.images].length === 8 && [...document.images].every(image => image.complete)")
    broken = page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.alt)")
    assert not broken
    page.locator("#space .row").first.click()
    page.wait_for_function("[...document.querySelectorAll('dialog img')].filter(image => image.naturalWidth).length === 2")


def test_hostile_texts_are_shown_and_do_not_run(visit: Visit, tmp_path: Path) -> None:
    # Ids and the names of columns are hostile too.
    count = len(HOSTILE)
    texts: list[str | None] = [*HOSTILE, *HOSTILE]
    texts[-1] = None
    table = pyarrow.table(
        {
            "id": [f"{text[:60]} {k}" for k, text in enumerate([*HOSTILE, *HOSTILE])],
            "vector": [[10.0 * (k % count), 0.1 * (k // count)] for k in range(2 * count)],
            "text": texts,
            f"<b onclick='{RUN}'>": [text and text[:50] for text in texts],
        }
    )
    for kind in ("pairs", "removed", "clusters"):
        with adjoin.join(table, eps=0.5, exact=True, columns=table.column_names[2:]) as result:
            result.report(tmp_path / f"{kind}.html", kind)  # type: ignore[arg-type]
        page = visit(tmp_path / f"{kind}.html")
        shown = {text for line in all_lines(page, TEXTS) for text in line}
        assert {text[:400] + "…" * (len(text) >= 400) for text in HOSTILE} <= shown
        assert any(text.startswith(f"{HOSTILE[-1]} ") for text in shown), "the id in place of a missing text"
        page.locator("#space .row:not(.head)").first.click()
        assert page.locator("dialog .text").first.is_visible()
        page.get_by_role("button", name="Close", exact=True).click()
        page.fill("#search", "</script>")
        page.wait_for_function("document.querySelectorAll('#space mark').length >= 2")
        assert page.evaluate("document.scripts.length") == 4 and page.locator("#space script, #space svg, #space b").count() == 0


def test_columns_may_have_the_names_of_a_result(visit: Visit, tmp_path: Path) -> None:
    names = ["distance", "left_id", "kept_id", "reason", "cluster", "query", "rank", "value", "__proto__", "constructor"]
    table = {"id": list("abcd"), "vector": [[k // 2 * 9.0, k % 2 / 10] for k in range(4)], "text": [f"text {k}" for k in range(4)]}
    table |= {name: [f"{name} {k}" for k in range(4)] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet")
    columns = ",".join(["text", *names])
    run(tmp_path, f"build rows.parquet -o rows.store --columns {columns}")
    of = f"--columns {columns} --eps 1 --exact -o"
    for line, title in (
        (f"join rows.parquet {of} pairs.parquet", "2 pairs"),
        (f"join rows.parquet --result clusters {of} clusters.parquet", "2 clusters of 4 rows"),
        (f"dedupe rows.parquet {of} clean.parquet --removed removed.parquet", "2 removed rows"),
        (f"search rows.store --queries rows.parquet -k 2 --columns {columns} -o hits.parquet", "8 hits of 4 queries"),
    ):
        run(tmp_path, line)
        file = next(name for name in ("removed", "pairs", "clusters", "hits") if f"{name}.parquet" in line)
        run(tmp_path, f"report {file}.parquet -o {file}.html")
        page = visit(tmp_path / f"{file}.html")
        assert page.inner_text("h1") == title
        details = page.locator("#space .detail").all_inner_texts()
        shown = [f"{name}: {name} 1" for name in names]
        assert any(detail.split(" · ") == shown for detail in details), details


def test_a_list_of_100_000_lines_keeps_the_document_small(visit: Visit, tmp_path: Path) -> None:
    count = 100_000
    with (tmp_path / "pairs.csv").open("w") as file:
        file.write("left_id,right_id,distance\n")
        file.writelines(f"a{k},b{k},{k / count}\n" for k in range(count))
    run(tmp_path, "report pairs.csv -o page.html")
    page = visit(tmp_path / "page.html")
    seen = page.evaluate(
        """async () => {
            const list = document.getElementById("list"), seen = [];
            for (let step = 0; step <= 60; step += 1) {
                list.scrollTop = (list.scrollHeight - list.clientHeight) * step / 60;
                await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
                const box = list.getBoundingClientRect();
                const rows = [...list.querySelectorAll(".row")].map(row => row.getBoundingClientRect());
                const isFull = Math.min(...rows.map(row => row.top)) <= box.top + 1 && Math.max(...rows.map(row => row.bottom)) >= box.bottom - 3;
                seen.push([document.querySelectorAll("*").length, isFull]);
            }
            return seen;
        }"""
    )
    assert max(nodes for nodes, _ in seen) < 600 and all(full for _, full in seen), seen
    assert lines(page)[-1][1:] == [f"a{count - 1}", f"b{count - 1}"]
    page.fill("#search", "a77777")
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('1 of 100,000')")
    page.click("#show-groups")
    assert page.evaluate("document.querySelectorAll('*').length") < 600


OVERLAPS = """() => {
    const box = one => one.getBoundingClientRect();
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const all = selector => [...document.querySelectorAll(selector)].filter(one => box(one).width && box(one).height);
    const name = one => `${one.className || one.id || one.tagName} ${one.textContent.slice(0, 30)}`;
    const found = [];
    const panels = [...all(".panel"), ...all("#explorer nav"), ...all("#list")];
    panels.forEach((a, k) => panels.slice(0, k).forEach(b => meet(box(a), box(b)) && found.push([name(a), name(b)])));
    const within = (inner, outer) => box(inner).left >= box(outer).left - 1 && box(inner).right <= box(outer).right + 1;
    for (const inner of all(".panel canvas, .panel .track, .panel .note")) {
        const outer = inner.closest(".panel");
        if (!within(inner, outer)) found.push([name(inner), "beyond", name(outer)]);
    }
    for (const inner of all("#explorer nav *")) if (!within(inner, document.body)) found.push([name(inner), "beyond the page"]);
    for (const inner of all("#space .side *")) {
        const outer = inner.closest(".side");
        if (!within(inner, outer)) found.push([name(inner), "beyond", name(outer)]);
    }
    for (const side of all("#space .side")) {
        if (box(side).bottom > box(side.parentElement).bottom) found.push([name(side), "is cut off"]);
    }
    if (document.documentElement.scrollWidth > innerWidth) found.push(["the page scrolls", document.documentElement.scrollWidth]);
    return found;
}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps_on_narrow_and_wide_screens(width: int, sample: Sample, visit: Visit) -> None:
    for kind in ("pairs", "removed", "clusters"):
        page = visit(sample.folder / f"{kind}.html", width=width)
        page.wait_for_function("document.querySelectorAll('canvas').length > 0")
        assert page.evaluate(OVERLAPS) == [], kind
        page.locator("#space .row:not(.head)").first.click()
        assert page.evaluate("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
        page.get_by_role("button", name="Close", exact=True).click()
    other = visit(sample.folder / "pairs.html", width=1440 + 390 - width)
    other.set_viewport_size({"width": width, "height": 900})
    other.wait_for_function(f"({OVERLAPS})().length === 0")
