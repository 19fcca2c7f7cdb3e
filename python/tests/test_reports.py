"""HTML pages about results of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import polars
import pyarrow
import pytest

import adjoin

EPS = 0.5


def page_data(page: Path) -> dict[str, Any]:
    """Returns the data of a page."""
    text = page.read_text()
    data: dict[str, Any] = json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    return data


@pytest.fixture
def table(vectors: numpy.ndarray) -> pyarrow.Table:
    return pyarrow.table({"id": [f"v{row}" for row in range(len(vectors))], "vector": vectors.tolist(), "text": TEXTS})


TEXTS = [f"text of row {row}" for row in range(600)]


def test_pairs_clusters_and_removed_rows_of_a_join_have_pages(table: pyarrow.Table, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with adjoin.join(table, eps=EPS, exact=True, columns=["text"]) as result:
        for kind, count in (("pairs", len(result)), ("removed", len(result.removed().to_arrow()))):
            result.report(page, kind, force=True)  # type: ignore[arg-type]
            data = page_data(page)
            assert (data["kind"], data["total"], data["stats"]["command"]) == (kind, count, "join")
            assert "text of row 1" in page.read_text(), "the columns of the join"
        result.report(page, "clusters", force=True)
        assert page_data(page)["kind"] == "clusters"
        with pytest.raises(adjoin.OptionError, match="result is 'counts', which a page cannot show; give 'pairs'"):
            result.report(page, "counts", force=True)  # type: ignore[arg-type]
    with pytest.raises(adjoin.OptionError, match="closed"):
        result.report(page, force=True)


def test_results_at_a_nearer_threshold_have_pages(table: pyarrow.Table, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for options in ({}, {"other": table.slice(0, 300)}):
        with adjoin.join(table, eps=EPS, exact=True, columns=["text"], **options) as result:
            nearer = result.at(0.4)
            assert 0 < len(nearer) < len(result)
            for kind, rows in (("pairs", nearer.pairs()), ("removed", nearer.removed()), ("clusters", nearer.clusters())):
                nearer.report(page, kind, force=True)  # type: ignore[arg-type]
                data = page_data(page)
                counted = data["clustered_rows"] if kind == "clusters" else data["total"]
                assert (data["kind"], counted) == (kind, len(rows.to_arrow())), options.keys()
                assert (data["stats"]["join"]["eps"], data["stats"]["join"]["pairs"]) == (0.4, len(nearer))
                assert data["stats"]["join"]["with_rows"] == (300 if options else None)
                assert data["stats"]["recall"]["pair"]["low"] == 1 and "text of row 1" in page.read_text()
            if not options:
                nearer.report(page, "removed", rule="cluster", force=True)
                assert page_data(page)["total"] == len(nearer.removed("cluster").to_arrow())
            with pytest.raises(adjoin.AdjoinError, match="force=True"):
                nearer.report(page)
    with pytest.raises(adjoin.OptionError, match="closed"):
        nearer.report(page, force=True)
    with adjoin.join(table, eps=EPS, exact=True) as result:
        result.stats["recall"]["pair"]["low"] = 0.9  # as if pairs may have been missed, which small sets cannot show
        result.at(0.4).report(page, force=True)
        assert page_data(page)["stats"]["recall"] is None


def test_removed_rows_of_dedupe_have_a_page(table: pyarrow.Table, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with adjoin.dedupe(table, eps=EPS, columns=["text"]) as deduped:
        deduped.report(page)
        data = page_data(page)
        assert (data["kind"], data["stats"]["command"]) == ("removed", "dedupe")
        assert data["total"] == deduped.near_rows > 0 and "text of row" in page.read_text()
        with pytest.raises(adjoin.AdjoinError, match="force=True"):
            deduped.report(page)
        names = tmp_path / "names.parquet"
        polars.from_arrow(table).write_parquet(names)  # type: ignore[union-attr]
        deduped.report(page, names=names, name_column="text", force=True)
        assert page_data(page)["total"] == deduped.near_rows
        with pytest.raises(adjoin.InputError, match="no column nothing"):
            deduped.report(page, names=names, name_column="nothing", force=True)
    with adjoin.dedupe([*TEXTS, TEXTS[7]]) as texts:
        texts.report(page, force=True)
    assert page_data(page)["total"] == 1 and "text of row 7" in page.read_text()


def test_hits_and_neighbors_have_pages(table: pyarrow.Table, vectors: numpy.ndarray, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    store = adjoin.build(table, tmp_path / "store", columns=["text"])
    for queries, temporary in ((vectors[:5], None), (vectors[:5], tmp_path)):  # hits in memory, and in a file
        with store.search(queries, k=3, columns=["text"], temporary=temporary) as hits:
            hits.report(page, force=True)
            data = page_data(page)
            assert (data["kind"], data["total"], data["stats"]["command"]) == ("hits", 15, "search")
            assert "text of row" in page.read_text()
    with adjoin.nearest(store, k=2) as neighbors:
        neighbors.report(page, force=True)
        assert page_data(page)["total"] == 2 * len(vectors)


def test_files_and_tables_of_results_have_pages(table: pyarrow.Table, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with adjoin.join(table, eps=EPS, exact=True) as result:
        result.write(tmp_path / "pairs.csv")
        (tmp_path / "stats.json").write_text(json.dumps(result.stats))
        adjoin.report(tmp_path / "pairs.csv", page, stats=tmp_path / "stats.json")
        assert page_data(page)["total"] == len(result) and page_data(page)["stats"]["command"] == "join"
        for clusters in (result.clusters(), result.clusters().to_polars()):
            adjoin.report(clusters, page, force=True)
            assert page_data(page)["kind"] == "clusters" and page_data(page)["stats"] is None
        with pytest.raises(adjoin.InputError, match="^the result has counts of neighbors, which a page cannot show"):
            adjoin.report(result.counts(), page, force=True)
    with pytest.raises(adjoin.InputError, match="not a file of statistics"):
        adjoin.report(tmp_path / "pairs.csv", page, stats=tmp_path / "pairs.csv", force=True)
    with pytest.raises(adjoin.DeviceError, match="missing.parquet"):
        adjoin.report(tmp_path / "missing.parquet", page, force=True)
    with pytest.raises(adjoin.OptionTypeError, match="call the method report of the result"):
        adjoin.report(3, page, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "pairs.csv", "stats.json"]


@pytest.mark.parametrize("value", ["distance", "similarity"])
def test_the_curve_counts_values_that_are_equal_to_a_threshold(value: str, tmp_path: Path) -> None:
    values = [k % 21 / 20 for k in range(420)]
    pairs = pyarrow.table({"left_id": range(420), "right_id": range(420, 840), value: values})
    adjoin.report(pairs, tmp_path / "page.html")
    curve = page_data(tmp_path / "page.html")["curve"]
    within = {at: sum(one >= at if value == "similarity" else one <= at for one in values) for at in curve["thresholds"]}
    assert list(within.values()) == curve["pairs"] and len(set(curve["pairs"])) == 21
