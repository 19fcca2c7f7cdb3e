"""Collections: writes, searches and merges from Python data."""

from __future__ import annotations

import datetime
import threading
import time

import numpy
import pytest

import adjoin


@pytest.fixture
def vectors():
    return numpy.random.default_rng(1).standard_normal((2_000, 16), dtype="float32")


def test_written_rows_are_found_before_and_after_a_merge(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16, code_bytes=16) as live:
        assert len(live) == 0 and live.info["metric"] == "l2" and "16 f32" in repr(live)
        first = live.write(insert=vectors)
        assert live.write(delete=[3, 5, 99_999], upsert=([7, 5_000], vectors[:2])) > first
        there = {**{row: vectors[row] for row in range(len(vectors)) if row not in (3, 5)}, 7: vectors[0], 5_000: vectors[1]}
        for _ in range(2):
            assert len(live) == len(there) == live.stats["rows"]
            ids, rows = numpy.array(list(there)), numpy.stack(list(there.values())).astype("float64")
            queries = vectors[:20] + 0.01
            distances = numpy.linalg.norm(queries[:, None].astype("float64") - rows[None], axis=2)
            with live.search(queries, 5, list=len(there)) as hits:
                assert numpy.allclose(hits.values, numpy.sort(distances)[:, :5], atol=1e-4)
                assert all(set(found) <= set(ids.tolist()) for found in hits.ids.tolist())
            found = live.get([7, 3, 5_000], on_missing="skip")
            assert found.ids.tolist() == [7, 5_000] and (found.vectors == vectors[:2]).all()
            merged = live.merge()
            assert merged["rows"] == len(there) and live.stats["unmerged"] == 0
    with adjoin.Collection(tmp_path / "live", read_only=True) as live:
        assert len(live) == len(there)
        with pytest.raises(adjoin.InputError, match="read-only"):
            live.write(delete=[1])


def test_inner_products_of_rows_that_become_longer_and_longer(vectors, tmp_path):
    stretched = vectors * numpy.geomspace(1, 1_000, len(vectors), dtype="float32")[:, None]
    queries = vectors[:20]
    with adjoin.Collection.create(tmp_path / "live", 16, metric="ip") as live:
        for begin in range(0, len(stretched), 500):
            live.write(insert=(numpy.arange(begin, begin + 500), stretched[begin : begin + 500]))
            if begin == 500:
                live.merge()
            there = stretched[: begin + 500].astype("float64")
            with live.search(queries, 5, list=len(there)) as hits:
                scores = numpy.sort(queries.astype("float64") @ there.T)[:, ::-1][:, :5]
                assert numpy.allclose(hits.values, scores, rtol=1e-6)
                assert hits.to_arrow().column_names == ["query", "rank", "id", "score"]
        live.merge()
        with live.search(queries, 5, recall=0.9) as hits:
            assert hits.stats["recall"]["kept"]


def test_text_ids_identify_rows(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16, ids="text", metric="cosine") as live:
        live.write(insert=(["a", "b", "c"], vectors[:3]), durability="buffered")
        assert live.flush() == live.stats["sequence"]
        with live.search(vectors[:3], 1) as hits:
            assert hits.ids.tolist() == [["a"], ["b"], ["c"]] and hits.stats["recall"]["kept"]
        live.write(delete=["b"])
        assert live.get(["c", "b", "a"], on_missing="skip").ids.tolist() == ["c", "a"]
        with pytest.raises(adjoin.InputError, match="no row has the id \"b\"; leave these out, or give on_missing=\"skip\""):
            live.get(["b"])


def test_refuses_invalid_arguments(vectors, tmp_path):
    live = adjoin.Collection.create(tmp_path / "live", 16)
    live.write(insert=vectors[:10])
    refused = [
        (dict(insert=vectors[:1]), adjoin.InputError, "id 0 of row 0 already exists"),
        (dict(insert=([50, 50], vectors[:2])), adjoin.InputError, "occurs twice in one write"),
        (dict(insert=vectors[:, :8]), adjoin.InputError, "vectors of 8 x f32"),
        (dict(insert=vectors.astype("float16")), adjoin.InputError, "f16"),
        (dict(insert=([1], vectors[:2])), adjoin.InputError, "as many integers or texts"),
        (dict(delete=["a"]), adjoin.InputError, "the ids are texts"),
        (dict(delete="abc"), adjoin.OptionError, "a list of integers or of texts"),
        (dict(delete=3), adjoin.OptionError, "delete is 3 .int.; give a list of integers or of texts"),
        (dict(delete=[1, 1.5]), adjoin.OptionError, "an id of delete is 1.5 .float."),
        (dict(delete=[1, "a"]), adjoin.OptionError, "an id of delete is 'a'"),
        (dict(delete=[2**63]), adjoin.InputError, "give integers of 64 bits"),
        (dict(durability="never"), adjoin.OptionError, "group or buffered"),
    ]
    for arguments, kind, words in refused:
        with pytest.raises(kind, match=words):
            live.write(**arguments)
    with pytest.raises(adjoin.InputError, match="is being written by"):
        adjoin.Collection(tmp_path / "live")
    with pytest.raises(adjoin.InputError, match="is already a collection"):
        adjoin.Collection.create(tmp_path / "live", 16)
    assert len(live.get(numpy.array([3, 99]), on_missing="skip")) == len(live.get([numpy.int64(3)])) == 1
    live.close()
    with pytest.raises(adjoin.InputError, match="was closed"):
        live.write(delete=[1])
    assert len(adjoin.Collection(tmp_path / "live")) == 10


def test_threads_write_and_search_while_it_merges(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16) as live:
        failed = []

        def write(start):
            try:
                for row in range(start, start + 50):
                    live.write(insert=([row], vectors[row : row + 1]))
                    with live.search(vectors[row : row + 1], 1, list=200) as hits:
                        assert hits.ids.tolist() == [[row]]
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
        [thread.start() for thread in threads]
        while any(thread.is_alive() for thread in threads):
            live.merge()
        assert not failed and len(live) == 100


def test_merges_start_automatically(vectors, tmp_path):
    def wait_until(is_so):
        begun = time.monotonic()
        while not is_so():
            assert time.monotonic() - begun < 1_800  # only guards against hanging
            time.sleep(0.01)

    with adjoin.Collection.create(tmp_path / "live", 16, degree=8, build_list=16, merge_at="100kB") as live:
        for first in range(0, 2_000, 100):
            live.write(insert=(numpy.arange(first, first + 100), vectors[first : first + 100]), durability="buffered")
            assert live.stats["unmerged_bytes"] <= 200_000
        wait_until(lambda: live.stats["unmerged_bytes"] < 100_000)
        stats = live.stats
        assert stats["rows"] == 2_000 and stats["last_merge"]["rows"] > 0 and stats["merge_failure"] is None
        assert stats["waits"] >= 0 and stats["waited_seconds"] >= 0
        with live.search(vectors[:20], k=1, list=100) as hits:
            assert hits.ids.tolist() == [[row] for row in range(20)]
    with adjoin.Collection(tmp_path / "live", merge_at=None) as live:
        assert live.stats["rows"] == 2_000
        live.write(upsert=vectors, durability="buffered")
        assert live.stats["unmerged"] == 2_000 and live.stats["last_merge"] is None
    with pytest.raises(adjoin.OptionError, match="is too frequent; give"):
        adjoin.Collection(tmp_path / "live", merge_at=5)
    with pytest.raises(adjoin.OptionError, match="merge_at"):
        adjoin.Collection(tmp_path / "live", merge_at=0.5)


def test_a_collection_is_a_source(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16) as live:
        live.write(insert=vectors[:500])
        live.merge()
        live.write(delete=[3], upsert=([600, 601], vectors[[7, 8]]))
        ids = numpy.array([*(id for id in range(500) if id != 3), 600, 601])
        there = numpy.concatenate([numpy.delete(vectors[:500], 3, axis=0), vectors[[7, 8]]]).astype("float64")
        distances = numpy.linalg.norm(there[:, None] - there[None], axis=2)
        near = [(min(ids[i], ids[j]), max(ids[i], ids[j])) for i, j in zip(*numpy.nonzero(numpy.triu(distances < 2.5, 1)))]
        assert (7, 600) in near and len(near) > 5
        with adjoin.join(live, eps=2.5, exact=True) as result:
            pairs = result.to_polars()
            assert sorted((min(pair), max(pair)) for pair in zip(pairs["left_id"], pairs["right_id"])) == sorted(near)
        index = adjoin.build_index(live, tmp_path / "index")
        assert len(index) == len(ids)
        with pytest.raises(adjoin.OptionError, match="id_column applies only to files"):
            adjoin.build(live, tmp_path / "store", id_column="id")


def test_range_search_finds_rows_in_memory_and_on_disk(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16) as live:
        live.write(insert=vectors[:1_000])
        live.merge()
        live.write(delete=range(0, 300, 3), upsert=([1, 2_000], vectors[[1_500, 1_501]] + 0.1))
        there = {id: vectors[id] for id in range(1_000) if id >= 300 or id % 3}
        there |= {1: vectors[1_500] + 0.1, 2_000: vectors[1_501] + 0.1}
        ids, rows = numpy.array(list(there)), numpy.stack(list(there.values())).astype("float64")
        queries = vectors[[0, 3, 7, 1_500, 1_501]]
        distances = numpy.linalg.norm(queries[:, None].astype("float64") - rows[None], axis=2)
        with live.search(queries, radius=3.0, list=len(there)) as hits:
            found = numpy.split(hits.ids.ravel(), hits.offsets[1:-1])
            assert [set(of_query.tolist()) for of_query in found] == [set(ids[far < 3.0].tolist()) for far in distances]
            assert len(hits.ids) > 10 and 1 in found[3] and 2_000 in found[4] and not set(found[0]) & {0, 3}


def test_snapshots_and_backups_have_the_current_rows(vectors, tmp_path):
    import polars

    with adjoin.Collection.create(tmp_path / "live", 16) as live:
        live.write(insert=vectors[:1_000])
        live.merge()
        last = live.write(delete=range(500), upsert=([700, 5_000], vectors[:2]))
        assert live.snapshot(tmp_path / "rows.parquet") == 501
        frame = polars.read_parquet(tmp_path / "rows.parquet").sort("id")
        assert frame["id"].to_list() == [*range(500, 1_000), 5_000]
        wanted = numpy.concatenate([vectors[500:1_000], vectors[1:2]])
        wanted[200] = vectors[0]
        assert (frame["vector"].to_numpy() == wanted).all()
        with pytest.raises(adjoin.InputError, match="exists already; give force"):
            live.snapshot(tmp_path / "rows.parquet")
        done = live.backup(tmp_path / "copy")
        assert done["rows"] == 501 and done["sequence"] >= last and done["bytes"] > 501 * 64
        live.write(delete=[700])
        with adjoin.Collection(tmp_path / "copy") as copy:
            assert len(copy) == 501 and (copy.get([700]).vectors == vectors[:1]).all()
            copy.write(delete=[701])
        assert live.get([700, 701], on_missing="skip").ids.tolist() == [701]
        with pytest.raises(adjoin.InputError, match="is already a collection; give force"):
            live.backup(tmp_path / "copy")
        assert live.backup(tmp_path / "copy", force=True)["rows"] == 500


def test_stats_report_bytes_and_write_amplification(vectors, tmp_path):
    with adjoin.Collection.create(tmp_path / "live", 16) as live:
        assert live.stats["last_merge"] is None and live.stats["write_amplification"] is None
        live.write(insert=vectors)
        stats = live.stats
        assert stats["ingested_bytes"] == len(vectors) * (64 + 8) and stats["index_bytes"] == stats["dead_bytes"] == 0
        assert stats["written_bytes"] == stats["log_bytes"] and 1 < stats["write_amplification"] < 1.1
        merged = live.merge()
        assert live.stats["last_merge"] == merged and merged["bytes_written"] > live.stats["index_bytes"] > len(vectors) * 64
        live.write(delete=range(0, 2_000, 2))
        stats = live.stats
        assert stats["deleted"] == 1_000 and stats["dead_bytes"] == stats["index_bytes"] // 2 and stats["write_amplification"] > 2


COLUMNS = {"lang": "text", "year": "int64", "score": "float64", "is_new": "bool", "day": "date", "at": "timestamp"}


def columns(vectors, start=0):
    """Returns rows as a dictionary of columns."""
    ids = range(start, start + len(vectors))
    return {
        "id": list(ids),
        "vector": vectors,
        "lang": [["en", "de", None][id % 3] for id in ids],
        "year": [2000 + id % 30 if id % 7 else None for id in ids],
        "score": [id / 4 for id in ids],
        "is_new": [id % 2 == 0 for id in ids],
        "day": [datetime.date(2020, 1, 1) + datetime.timedelta(days=id) for id in ids],
        "at": [datetime.datetime(2020, 1, 1, microsecond=id) for id in ids],
    }


def test_columns_filter_searches_and_deletes(vectors, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    rows = columns(vectors[:600])
    with adjoin.Collection.create(tmp_path / "live", 16, code_bytes=16, columns=COLUMNS) as live:
        assert [column["name"] for column in live.info["columns"]] == list(COLUMNS)
        live.write(insert=rows)
        for _ in range(2):
            found = live.get([5, 7, 5_000], on_missing="skip")
            assert (found.vectors == vectors[[5, 7]]).all()
            first, second = pyarrow.table(found.rows()).to_pylist()
            assert [second[name] for name in ("lang", "year", "score", "is_new")] == ["de", None, 1.75, False]
            assert first["lang"] is None and first["day"] == datetime.date(2020, 1, 6)
            assert first["at"] == datetime.datetime(2020, 1, 1, microsecond=5)
            for condition, passes in (
                ("lang = 'en' and year >= 2010", lambda id: id % 3 == 0 and id % 7 and id % 30 >= 10),
                ("day < '2020-01-11'", lambda id: id < 10),
                ("not is_new and score < 20.5", lambda id: id % 2 and id < 82),
            ):
                there = numpy.array([id for id in range(600) if passes(id)])
                distances = numpy.linalg.norm(vectors[:9, None].astype("float64") - vectors[there][None], axis=2)
                with live.search(vectors[:9], 5, list=600, where=condition) as hits:
                    assert numpy.allclose(hits.values, numpy.sort(distances)[:, :5], atol=1e-4)
                    assert set(hits.ids.ravel().tolist()) <= set(there.tolist())
                    assert hits.stats["search"]["passing_rows"] == len(there)
            live.merge()
        assert live.delete_where("year is null") == 86 and len(live) == 514
        assert live.delete_where("year is null", durability="buffered") == 0
        assert live.get([7, 8], on_missing="skip").ids.tolist() == [8]
    with adjoin.Collection(tmp_path / "live", read_only=True) as live:
        assert len(live) == 514 and live.get([8]).to_arrow()["lang"].to_pylist() == [None]


def test_tables_of_other_packages_provide_columns(vectors, tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    more = {"lang": ["en", None, "de"], "year": [2020, None, 2022]}
    arrow = pyarrow.table({"id": [0, 1, 2], "other": [1, 2, 3], "vector": vectors[:3].tolist(), **more})
    arrow = arrow.set_column(2, "vector", arrow["vector"].cast(pyarrow.list_(pyarrow.float32(), 16)))
    frame = pandas.DataFrame({"id": [3, 4, 5], **more}).assign(vector=list(vectors[3:6]))
    lazy = polars.from_arrow(arrow).with_columns(polars.col("id") + 6).lazy()
    with adjoin.Collection.create(tmp_path / "live", 16, columns={"year": "int64", "lang": "text"}) as live:
        for table in (arrow, frame, lazy):
            live.write(upsert=table)
        for id in (0, 3, 6):
            found = live.get([id, id + 1])
            first, second = found.to_polars().to_dicts()
            assert (first["lang"], first["year"], second["lang"], second["year"]) == ("en", 2020, None, None)
            assert (found.vectors[0] == vectors[id % 6]).all()


def test_refuses_invalid_columns(vectors, tmp_path):
    for columns, words in (
        ({"lang": "str"}, r"columns\['lang'\] is 'str'; give text or int64 or float64"),
        ({"lang": str}, r"columns\['lang'\] is"),
        ({"id": "int64"}, "this name is reserved"),
        (["lang"], "a dictionary of names and types"),
    ):
        with pytest.raises(adjoin.OptionError, match=words):
            adjoin.Collection.create(tmp_path / "live", 16, columns=columns)
    live = adjoin.Collection.create(tmp_path / "live", 16, columns={"lang": "text", "year": "int64"})
    one = {"id": [1], "vector": vectors[:1], "lang": ["en"], "year": [2020]}
    refused = [
        ({**one, "year": [2020.5]}, "the columns given: column year of row 0 is \"2020.5\", which is not a valid int64"),
        ({**one, "year": [-2.9]}, "column year of row 0 is \"-2.9\", which is not a valid int64"),
        ({**one, "year": [float("inf")]}, "column year of row 0 is"),
        ({**one, "year": [2**63]}, "which does not fit in a 64-bit integer; give a float or a text"),
        ({**one, "lang": [3]}, "column lang is Int64, but among the columns of .* it is text"),
        ({**one, "year": ["x", 3]}, "column year of the source has values of several types"),
        (
            {"id": [1, 2], "vector": vectors[:2], "lang": ["en", "de"], "year": [2**53 + 1, 0.5]},
            "column year of the source has fractions and 9007199254740993, which a 64-bit float cannot represent",
        ),
        ({**one, "year": [1, 2]}, "the columns given have 1, 1, 1, 2 rows"),
        ({**one, "year": 3}, "column year given is 3; give a value for each row"),
        ({**one, "year": [object()]}, "give texts, numbers, dates, True, False or None"),
        ({"id": [1], "vector": vectors[:1], "lang": ["en"]}, "there is no column year"),
        (([1], vectors[:1]), "there is no column lang"),
        (vectors[:1], "it has no columns other than its vectors"),
    ]
    for rows, words in refused:
        with pytest.raises((adjoin.InputError, adjoin.OptionError), match=words):
            live.write(insert=rows)
    for call in (lambda: live.delete_where("colour = 'red'"), lambda: live.search(vectors, 1, where="colour = 'red'")):
        with pytest.raises(adjoin.OptionError, match="there is no column colour; choose from lang, year"):
            call()
    with pytest.raises(adjoin.OptionError, match="a text, such as"):
        live.delete_where(3)
    assert len(live) == 0
    with adjoin.Collection.create(tmp_path / "plain", 16) as plain:
        for call in (lambda: plain.delete_where("a = 1"), lambda: plain.search(vectors, 1, where="a = 1")):
            with pytest.raises(adjoin.OptionError, match="rows have no columns, which (delete_)?where needs"):
                call()
