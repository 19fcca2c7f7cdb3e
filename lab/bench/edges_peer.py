"""Finds the clusters of pairs with another program.

usage: edges_peer.py scipy|duckdb|polars PAIRS.parquet CLUSTERS.parquet ROWS
       edges_peer.py summary CLUSTERS.parquet

The first form writes columns `id` and `cluster`, which is the least id of the cluster, for rows with a pair. The second
form prints the number of clusters and a digest of the rows.
"""

from __future__ import annotations

import hashlib
import sys


def with_scipy(pairs: str, out: str, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    table = pq.read_table(pairs, columns=["left_id", "right_id"])
    left, right = (table[name].to_numpy().astype(np.int32) for name in table.column_names)
    _, label = connected_components(coo_array((np.ones(len(left), np.int8), (left, right)), shape=(rows, rows)), directed=False)
    first = np.full(rows, rows)
    np.minimum.at(first, label, np.arange(rows))
    ids = np.union1d(left, right).astype(np.int64)
    pq.write_table(pa.table({"id": ids, "cluster": first[label[ids]]}), out)


def with_duckdb(pairs: str, out: str, rows: int) -> None:
    import duckdb

    db = duckdb.connect()
    db.execute(f"create table e as select left_id a, right_id b from '{pairs}' union all select right_id, left_id from '{pairs}'")
    db.execute("create table l as select a id, least(a, min(b)) c from e group by a")
    changed = 1
    while changed:
        least = "select e.a id, least(any_value(m.c), min(l.c)) c from e join l on e.b = l.id join l m on e.a = m.id group by e.a"
        db.execute(f"create or replace table n as select n.id, least(n.c, l.c) c from ({least}) n join l on l.id = n.c")
        changed = db.execute("select count(*) from n join l using (id) where n.c < l.c").fetchone()[0]
        db.execute("create or replace table l as from n")
    db.execute(f"copy (select id, c cluster from l) to '{out}' (format parquet)")


def with_polars(pairs: str, out: str, rows: int) -> None:
    import polars as pl

    read = pl.read_parquet(pairs, columns=["left_id", "right_id"]).rename({"left_id": "a", "right_id": "b"})
    edges = pl.concat([read, read.select(a="b", b="a")])
    labels = edges.group_by("a").agg(c=pl.col("b").min()).select(id="a", c=pl.min_horizontal("a", "c"))
    while True:
        least = edges.join(labels, left_on="b", right_on="id").group_by("a").agg(n=pl.col("c").min())
        both = labels.join(least, left_on="id", right_on="a").select("id", c=pl.min_horizontal("c", "n"))
        jumped = both.join(labels, left_on="c", right_on="id").select("id", c=pl.min_horizontal("c", "c_right"))
        if jumped["c"].sum() == labels["c"].sum():
            break
        labels = jumped
    labels.rename({"c": "cluster"}).write_parquet(out)


def print_summary(path: str) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["id", "cluster"])
    ids, clusters = (table[name].to_numpy().astype(np.int64) for name in table.column_names)
    order = np.argsort(ids)
    digest = hashlib.sha256(ids[order].tobytes() + clusters[order].tobytes()).hexdigest()
    print(len(np.unique(clusters)), digest)


if __name__ == "__main__":
    what, path, *more = sys.argv[1:]
    if what == "summary":
        print_summary(path)
    else:
        {"scipy": with_scipy, "duckdb": with_duckdb, "polars": with_polars}[what](path, more[0], int(more[1]))
