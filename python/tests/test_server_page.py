"""The page of `adjoin serve` in a real browser: searches, filters, charts, errors, and hostile rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import adjoin
from conftest import SAMPLE, Server, expect

Visit = Callable[..., Any]
ROWS = 1_500
RUN = "window.hostile = true"
HOSTILE = [f"<img src=x onerror='{RUN}'>", f"</script><script>{RUN}</script>", "100 % of a_b\\c", "it's \"here\"", "\U0001f468\u200d\U0001f469"]
# Names of columns that also occur in answers.
COLUMNS = {"text": "text", "source": "text", "year": "int64", "big": "int64", "distance": "int64", "columns": "text", 'a"b': "int64"}


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    table = pyarrow.parquet.read_table(SAMPLE).slice(12_000, ROWS)
    names: list[str] = table["name"].to_pylist()
    texts = [f"the package {name}" for name in names]
    texts[: len(HOSTILE)] = HOSTILE
    return {
        "id": names,
        "vector": numpy.stack(table["embedding"].to_numpy()).astype("float32"),
        "text": texts,
        "source": [None if row % 50 == 0 else f"letter {name[3:4]}" for row, name in enumerate(names)],
        "year": [2000 + row % 25 for row in range(ROWS)],
        "big": [2**60 + row // 2 for row in range(ROWS)],
        "distance": [row % 7 for row in range(ROWS)],
        "columns": [["a", "b", "c"][row % 3] for row in range(ROWS)],
        'a"b': [row % 40 for row in range(ROWS)],
    }


@pytest.fixture(scope="module")
def store(rows: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served") / "rows.store"
    # A store has floats of 32 bits too.
    weights = pyarrow.array([row % 9 / 3 for row in range(ROWS)], pyarrow.float32())
    table = pyarrow.table({**rows, "vector": rows["vector"].tolist(), "weight": weights})
    adjoin.build(table, folder, metric="cosine", columns=[*COLUMNS, "weight"])
    with Server(folder, memory="256MB") as url:
        yield url + "/"


@pytest.fixture(scope="module")
def collection(rows: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served") / "rows.collection"
    with adjoin.Collection.create(folder, rows["vector"].shape[1], metric="cosine", ids="text", columns=COLUMNS) as collection:
        collection.write(insert=rows)
    with Server(folder, memory="256MB") as url:
        yield url + "/"


def nearest(rows: dict[str, Any], row: int, passing: list[bool], k: int = 10) -> set[str]:
    """Returns the ids of the nearest rows among the rows that pass a filter, by brute force."""
    vectors = rows["vector"].astype("float64")
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = numpy.where(passing, vectors @ vectors[row], -2)
    order = numpy.argsort(-similarities, kind="stable")[: min(k, sum(passing))]
    return {rows["id"][at] for at in order}


def ids(page: Any) -> list[str]:
    return page.locator("#answer article > div:first-child button").all_inner_texts()


def answered(page: Any, act: Callable[[], Any]) -> None:
    """Searches, and waits until the page shows the answer in place of the old one."""
    page.evaluate(
        """() => {
            const answer = document.getElementById("answer"), old = document.createElement("span");
            old.id = "old";
            old.append(...answer.childNodes);
            answer.append(old);
        }"""
    )
    act()
    expect(page.locator("#old")).to_have_count(0)


def search(page: Any, by: str, words: str, **fields: str) -> None:
    page.select_option("#by", by)
    page.fill("#like", words)
    for name, value in fields.items():
        page.fill(f"#{name}", value)
    answered(page, lambda: page.get_by_role("button", name="Search", exact=True).click())


@pytest.mark.parametrize("kind", ["store", "collection"])
def test_rows_are_found_by_text_and_narrowed_by_filters(kind: str, rows: dict[str, Any], visit: Visit, request: Any) -> None:
    page = visit(request.getfixturevalue(kind))
    expect(page.locator("#by option[value=text]")).to_be_enabled()
    assert page.inner_text("#served").startswith(f"{kind}: 1,500 rows")
    row = 701
    word = rows["text"][row].split()[-1]
    search(page, "text", word, k="20")
    matching = {name for name, text in zip(rows["id"], rows["text"]) if word in text}
    assert set(ids(page)) == matching and 1 <= len(matching) < 20
    near = page.locator(f"#answer button:text-is('{rows['id'][row]}')")
    card = page.locator("#answer article").filter(has=page.locator(f"button:text-is('{rows['id'][row]}')"))
    shown = card.locator("button.filter").all_inner_texts()
    for name in ("source", "year", "big", "distance", "columns", 'a"b'):
        assert f"{name}: {rows[name][row]}" in shown, "the columns, with all of their digits"
    assert rows["text"][row] in card.inner_text()
    page.fill("#recall", "1")
    page.fill("#k", "10")
    answered(page, near.click)
    passing = [True] * ROWS
    assert set(ids(page)) == nearest(rows, row, passing) and ids(page)[0] == rows["id"][row]
    values = [float(value.split()[1]) for value in page.locator("#answer .value").all_inner_texts()]
    assert values == sorted(values, reverse=True) and values[0] == pytest.approx(1)
    for name in ("source", "year", 'a"b', "columns", "distance", "big"):
        value = rows[name][row]
        passing = [passes and other == value for passes, other in zip(passing, rows[name])]
        answered(page, lambda: page.locator(f"#answer article:first-of-type button.filter:text-is({name + ': ' + str(value)!r})").click())
        assert set(ids(page)) == nearest(rows, row, passing), page.input_value("#where")
    assert sum(passing) < 3 and page.input_value("#where").count(" AND ") == 5


def test_a_filter_by_a_short_number_is_added_to_one_by_a_longer(store: str, rows: dict[str, Any], visit: Visit) -> None:
    page = visit(store)
    row = next(row for row in range(20, ROWS) if rows['a"b'][row] == 2)
    search(page, "like", rows["id"][row], where='"a""b" = 20 OR "a""b" = 2')
    answered(page, lambda: page.locator("#answer article:first-of-type button.filter:text-is('a\"b: 2')").click())
    assert page.input_value("#where") == '"a""b" = 20 OR "a""b" = 2', "it ends with this condition"
    page.fill("#where", '"a""b" = 2 OR "a""b" = 20')
    answered(page, lambda: page.get_by_role("button", name="Search", exact=True).click())
    page.fill("#where", '"a""b" < 3 OR "a""b" = 20')
    answered(page, lambda: page.locator("#answer article:first-of-type button.filter:text-is('a\"b: 2')").click())
    assert page.input_value("#where") == '("a""b" < 3 OR "a""b" = 20) AND "a""b" = 2'
    assert set(ids(page)) <= {name for name, value in zip(rows["id"], rows['a"b']) if value == 2}


def test_floats_of_32_bits_filter(store: str, rows: dict[str, Any], visit: Visit) -> None:
    page = visit(store)
    expect(page.locator("#served")).to_contain_text("weight (Float32)")
    search(page, "like", rows["id"][710], k="3", recall="1")
    weight = page.locator("#answer article:first-of-type button.filter", has_text="weight: ")
    assert weight.inner_text() == "weight: 2.6666667"
    answered(page, weight.click)
    assert set(ids(page)) == nearest(rows, 710, [row % 9 == 8 for row in range(ROWS)], 3)


@pytest.mark.parametrize("kind", ["store", "collection"])
def test_hostile_rows_are_shown_found_and_do_not_run(kind: str, rows: dict[str, Any], visit: Visit, request: Any) -> None:
    page = visit(request.getfixturevalue(kind))
    expect(page.locator("#by option[value=text]")).to_be_enabled()
    for row, text in enumerate(HOSTILE):
        search(page, "text", text)
        assert ids(page) == [rows["id"][row]] and text in page.inner_text("#answer article")
        assert page.locator("#answer img, #answer script").count() == 0
        if len(text) <= 40:
            answered(page, lambda: page.locator("#answer button.filter").first.click())
            assert ids(page) == [rows["id"][row]]
            page.fill("#where", "")


def test_charts_receive_data(store: str, rows: dict[str, Any], visit: Visit) -> None:
    page = visit(store)
    for kind in ("queries", "read", "memory", "waiting", "shed"):
        expect(page.locator(f"#{kind} polyline")).to_have_attribute("points", re.compile(r"\d,\d"))
    assert re.fullmatch(r"\d+(\.\d)? of 256", page.inner_text("#memory-now"))
    search(page, "like", rows["id"][3])
    for kind in ("queries", "latency", "read"):  # a value above 0, which is at the lower end of the chart
        expect(page.locator(f"#{kind} polyline").first).to_have_attribute("points", re.compile(r",\d\d?\.\d"))


def test_errors_are_one_readable_line(store: str, rows: dict[str, Any], visit: Visit) -> None:
    page = visit(store, refused=True)
    name = rows["id"][3]
    long = "nothing" * 60
    for words, where, message in (
        (name, "nothing = 1", "nothing"),
        (name, "year >", "year"),
        (name, f"{long} = 1", long),
        ("unknown", "", "unknown"),
        ("[1, 2]", "", "384"),
        ("[]", "", "vector"),
        ("[null]", "", "null"),
    ):
        search(page, "like", words, where=where)
        shown = page.inner_text("#answer.problem")
        assert message in shown and "\n" not in shown and "{" not in shown, shown
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    search(page, "like", name, where="")
    assert page.locator("#answer.problem").count() == 0 and len(ids(page)) == 10


def test_a_key_is_asked_for_and_a_lost_server_is_reported(rows: dict[str, Any], visit: Visit, tmp_path: Path) -> None:
    table = pyarrow.table({"vector": rows["vector"][:50].tolist()})
    adjoin.build(table, tmp_path / "rows.store", metric="cosine")
    (tmp_path / "key").write_text("secret\n")
    with Server(tmp_path / "rows.store", "--key-file", tmp_path / "key") as url:
        page = visit(url + "/", refused=True)
        expect(page.locator("#keyed")).to_be_visible()
        assert "key" in page.inner_text("#served")
        page.fill("#key", "secret")
        expect(page.locator("#served")).to_contain_text("50 rows")
        search(page, "like", "7", k="3")
        assert ids(page)[0] == "7"
        search(page, "like", "seven")
        assert page.inner_text("#answer.problem") == "give a vector as a list of numbers, or the number of a row"
        page.click("#draw")
        answered(page, lambda: page.get_by_role("button", name="Search", exact=True).click())
        assert len(ids(page)) == 3
    expect(page.locator("#served")).to_have_text("the server does not answer")


def test_huge_texts_and_no_rows(visit: Visit, tmp_path: Path) -> None:
    texts = ["word " * 200_000, "x" * 1_000_000, "short", None]
    table = pyarrow.table({"id": ["i" * 3_000, "b", "c", "d"], "vector": [[0.0, k] for k in range(4)], "text": texts, "n" * 300: range(4)})
    adjoin.build(table, tmp_path / "rows.store", columns=["text", "n" * 300])
    with Server(tmp_path / "rows.store") as url:
        page = visit(url + "/", refused=True)
        search(page, "like", "[0, 0]")
        assert "hits take" in page.inner_text("#answer.problem"), "the budget of the server is too small for them"
    with Server(tmp_path / "rows.store", memory="1GB") as url:
        page = visit(url + "/", refused=True)
        search(page, "like", "[0, 0]")
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert len(ids(page)) == 4 and page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("#answer article p").first.bounding_box()["height"] < 300, "a long text scrolls in its place"
    with adjoin.Collection.create(tmp_path / "empty.collection", 2, ids="text", columns={"text": "text"}):
        pass
    with Server(tmp_path / "empty.collection") as url:
        page = visit(url + "/", refused=True)
        search(page, "like", "[0, 0]")
        assert page.inner_text("#answer").startswith("0 hits")
        search(page, "text", "anything")
        assert page.inner_text("#answer").startswith("0 rows with this text")


OVERLAPS = """() => {
    const found = [], box = one => one.getBoundingClientRect();
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const sections = [...document.querySelectorAll("section")];
    sections.forEach((a, k) => sections.slice(0, k).forEach(b => meet(box(a), box(b)) && found.push([a.textContent, b.textContent])));
    for (const inner of document.querySelectorAll("section *")) {
        const a = box(inner), b = box(inner.closest("section"));
        if (a.width && (a.left < b.left - 1 || a.right > b.right + 1)) found.push([inner.outerHTML.slice(0, 80), a.right, b.right]);
    }
    if (document.documentElement.scrollWidth > innerWidth) found.push(["the page scrolls", document.documentElement.scrollWidth]);
    return found;
}"""


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overlaps_on_narrow_and_wide_screens(width: int, store: str, rows: dict[str, Any], visit: Visit) -> None:
    page = visit(store, width=width)
    expect(page.locator("#memory polyline")).to_be_attached()
    assert page.evaluate(OVERLAPS) == []
    search(page, "like", rows["id"][700])
    assert page.evaluate(OVERLAPS) == []
    page.select_option("#by", "text")
    assert page.evaluate(OVERLAPS) == []
