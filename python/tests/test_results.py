"""Results as files, as tables of other packages, and as an HTML report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy
import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

import adjoin

EPS = 0.5


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pyarrow.table(table).to_pylist())


def ids_of(vectors: numpy.ndarray) -> dict[str, Any]:
    return {
        "none": None,
        "texts": [f"v{row:04}" for row in range(len(vectors))],
        "numbers": [-7 * row for row in range(len(vectors))],
    }


@pytest.mark.parametrize("ids", ["none", "texts", "numbers"])
def test_every_result_is_written_in_every_format(vectors: numpy.ndarray, ids: str, tmp_path: Path) -> None:
    columns: dict[str, Any] = {"vector": list(vectors)}
    names = ids_of(vectors)[ids]
    table = pyarrow.table(columns if names is None else {"id": names, **columns})
    readers = {"parquet": pyarrow.parquet.read_table, "csv": pyarrow.csv.read_csv, "jsonl": pyarrow.json.read_json}
    with adjoin.join(table, eps=EPS, exact=True) as result:
        streams = {name: getattr(result, name) for name in ("pairs", "counts", "clusters", "removed", "kept")}
        for what, stream in streams.items():
            wanted = pyarrow.table(stream())
            for ending, read in readers.items():
                file = tmp_path / f"{what}.{ending}"
                result.write(file, what)  # type: ignore[arg-type]
                written = read(file)
                assert written.column_names == wanted.column_names, (what, ending)
                if ending == "parquet":
                    assert written.schema.equals(wanted.schema) and rows_of(written) == rows_of(wanted), what
                assert len(written) == len(wanted) > 0, (what, ending)
        result.write(str(tmp_path / "rule.parquet"), "removed", rule="cluster")
        assert rows_of(pyarrow.parquet.read_table(tmp_path / "rule.parquet")) == rows_of(result.removed("cluster"))
        result.report(tmp_path / "page.html")
    assert len(list(tmp_path.iterdir())) == len(streams) * len(readers) + 2  # no temporary files


def test_a_result_is_replaced_only_by_force(vectors: numpy.ndarray, tmp_path: Path) -> None:
    file, page = tmp_path / "pairs.parquet", tmp_path / "page.html"
    with adjoin.join(vectors, eps=EPS, exact=True) as result:
        for path, write in ((file, result.write), (page, result.report)):
            path.write_text("of old")
            with pytest.raises(adjoin.AdjoinError, match="force=True"):
                write(path)
            assert path.read_text() == "of old"
            write(path, force=True)
        assert rows_of(pyarrow.parquet.read_table(file)) == rows_of(result.pairs())
        with pytest.raises(adjoin.OptionError, match="result is 'all'; give pairs or"):
            result.write(file, "all")  # type: ignore[arg-type]
        with pytest.raises(adjoin.AdjoinError, match="parquet"):
            result.write(tmp_path / "pairs.xlsx")
        with pytest.raises(adjoin.OptionTypeError, match="path is 3"):
            result.write(3)  # type: ignore[arg-type]
    with pytest.raises(adjoin.OptionError, match="closed"):
        result.write(tmp_path / "late.csv")
    assert sorted(tmp_path.iterdir()) == [page, file]


def test_pairs_convert_to_tables_of_other_packages(vectors: numpy.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    with adjoin.join(vectors, eps=EPS, exact=True) as result:
        wanted = rows_of(result.pairs())
        of_polars, of_pandas, of_arrow = result.to_polars(), result.to_pandas(), result.to_arrow()
        assert isinstance(of_polars, polars.DataFrame) and isinstance(of_pandas, pandas.DataFrame)
        assert wanted == rows_of(of_polars) == rows_of(pyarrow.Table.from_pandas(of_pandas)) == rows_of(of_arrow)
        for name in ("polars", "pandas", "pyarrow"):
            monkeypatch.setitem(sys.modules, name, None)
        for method, package in (("to_polars", "polars"), ("to_pandas", "pandas"), ("to_arrow", "pyarrow")):
            with pytest.raises(ImportError, match=rf"{method}\(\) needs the package {package}; .*pip install {package}"):
                getattr(result, method)()


def test_notebooks_show_the_first_rows(
    vectors: numpy.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"<b>{row}</b>" + "x" * 90 * (row % 2) for row in range(600)]
    table = pyarrow.table({"vector": vectors.tolist(), "text": texts})
    with adjoin.build(table, tmp_path / "store", columns=["text"]).search(vectors[:40], 3, columns=["text"]) as hits:
        html = hits._repr_html_() or ""
        assert html == hits._repr_html_() and html.count("<tr>") == 11, "a header and ten rows"
        assert "<th>rank</th>" in html and "&lt;b&gt;0&lt;/b&gt;<" in html
        assert "<b>" not in html and "x" * 60 not in html
        assert "120 hits of 40 queries" in html
        assert len(hits.to_arrow()) == 120
    rows = adjoin.Store(tmp_path / "store").get([3, 4])._repr_html_() or ""
    assert rows.count("<tr>") == 3 and "<th>vector</th>" in rows
    with adjoin.dedupe(table, eps=EPS) as deduped:
        assert (deduped._repr_html_() or "").count("<tr>") == 11
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert deduped._repr_html_() is None
        monkeypatch.undo()
    assert deduped._repr_html_() is None, "closed"
    with adjoin.dedupe(vectors, eps=EPS) as arrays:
        assert (arrays._repr_html_() or "").count("<tr>") == 11
    with adjoin.join(vectors, eps=EPS, exact=True) as pairs:
        for result in (pairs, pairs.at(0.4)):
            assert (result._repr_html_() or "").count("<tr>") == 11 and "<th>left_id</th>" in (result._repr_html_() or "")
        stream = pairs.pairs()
        assert stream._repr_html_() is None and "rows to read once" in repr(stream), "it can be read only once"
    with adjoin.join(table, eps=EPS, columns=["text"]) as pairs:
        assert pairs._repr_html_() is None, "columns are expensive"


def test_a_report_has_pairs_statistics_and_names(vectors: numpy.ndarray, tmp_path: Path) -> None:
    names = polars.DataFrame({"title": [f"title {row}" for row in range(len(vectors))]})
    (tmp_path / "names").mkdir()
    for shard in range(2):
        names.slice(shard * 300, 300).write_parquet(tmp_path / "names" / f"{shard}.parquet")
    with adjoin.join(vectors, eps=EPS, exact=True) as result:
        result.report(tmp_path / "page.html", names=tmp_path / "names", name_column="title")
        with pytest.raises(adjoin.InputError, match="no column nothing"):
            result.report(tmp_path / "other.html", names=tmp_path / "names", name_column="nothing")
    text = (tmp_path / "page.html").read_text()
    data = json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    assert data["total"] == len(result) and data["stats"]["command"] == "join"
    assert all(text == f"title {row}" for row, text in data["names"])


def test_a_report_of_two_sets_has_names_of_each(vectors: numpy.ndarray, tmp_path: Path) -> None:
    for side in ("left", "right"):
        polars.DataFrame({"title": [f"{side} {row}" for row in range(len(vectors))]}).write_parquet(tmp_path / f"{side}.parquet")
    left, right = tmp_path / "left.parquet", tmp_path / "right.parquet"
    with adjoin.join(vectors, other=vectors[::-1].copy(), eps=EPS, exact=True) as result:
        with pytest.raises(adjoin.OptionError, match="two sets.*give other_names"):
            result.report(tmp_path / "page.html", names=left)
        with pytest.raises(adjoin.OptionError, match="give names"):
            result.report(tmp_path / "page.html", other_names=right)
        result.report(tmp_path / "page.html", names=left, other_names=right)
    text = (tmp_path / "page.html").read_text()
    data = json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    sides = [("left", "right")[side] for side in data["sides"]]
    assert len(sides) == len(data["names"]) == 2 * len(vectors)
    assert all(text == f"{side} {row}" for side, (row, text) in zip(sides, data["names"]))
