"""Forked children of a process with open objects: each call works or is refused, none hangs, and the parent loses nothing.

Each child does one thing and ends. Only a child that hangs reaches the time limit."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import warnings
from contextlib import contextmanager

import numpy
import pytest

import adjoin

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

LIMIT_SECONDS = 60
#: Children per action while other threads of the parent are busy.
CHILDREN_DURING = 3


@pytest.fixture
def vectors():
    return numpy.random.default_rng(1).standard_normal((3_000, 16), dtype="float32")


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def forked(action):
    """Returns the result of ``action`` in a child, as text, or the name and the message of its exception."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of a fork next to threads
        child = os.fork()
    if child == 0:
        try:
            said = str(action())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode()[:4_000])
        os._exit(0)
    os.close(write)
    try:
        if not select.select([read], [], [], LIMIT_SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the child hangs")
        return os.read(read, 4_000).decode()
    finally:
        os.close(read)
        os.waitpid(child, 0)


@contextmanager
def at_work(*works):
    """Repeats each of ``works`` on a thread of its own until the block ends."""
    ended, begun, failed = threading.Event(), [threading.Event() for _ in works], []

    def repeat(work, begun):
        number = 0
        try:
            while not ended.is_set():
                work(number)
                number += 1
                begun.set()
        except BaseException as error:
            failed.append(error)
            begun.set()

    threads = [threading.Thread(target=repeat, args=pair) for pair in zip(works, begun)]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def garbage(holder):
    """Drops all objects in ``holder``."""
    vars(holder).clear()
    gc.collect()
    return "let go"


def searched(searchable, queries):
    with searchable.search(queries, 1) as hits:
        return hits.ids.tolist()


ACTIONS = {
    "search": lambda live, x: searched(live, x[:2]),
    "get": lambda live, x: live.get([1]),
    "insert": lambda live, x: live.write(insert=([90_000], x[:1])),
    "delete": lambda live, x: live.write(delete=[1]),
    "delete_where": lambda live, x: live.delete_where("a = 1"),
    "merge": lambda live, x: live.merge(),
    "flush": lambda live, x: live.flush(),
    "stats": lambda live, x: live.stats,
    "len": lambda live, x: len(live),
    "info": lambda live, x: live.info,
    "snapshot": lambda live, x: live.snapshot("snapshot.parquet"),
    "backup": lambda live, x: live.backup("backup.live"),
    "close": lambda live, x: live.close(),
}


def check_children(live, vectors, children=1):
    """Checks that each action is refused in a child."""
    for name, action in ACTIONS.items():
        for _ in range(children):
            said = forked(lambda: action(live, vectors))
            assert said.startswith("OptionError") and "open it in the child" in said and "spawn" in said, f"{name}: {said}"
    assert forked(lambda: garbage(live)) == "let go"


def check_nothing_is_lost(live, acknowledged):
    """Checks that the collection has exactly the acknowledged rows after it is closed and opened again."""
    live.close()
    with adjoin.Collection(live.path) as again:
        assert len(again) == len(acknowledged)
        assert len(again.get(sorted(acknowledged))) == len(acknowledged)
        again.write(insert=([1_000_000], numpy.ones((1, 16), dtype="float32")))


@pytest.mark.parametrize("merge_at", [None, "64KiB"])
def test_children_of_an_idle_collection_are_refused(vectors, merge_at):
    live = adjoin.Collection.create("some.live", 16, code_bytes=16, merge_at=merge_at)
    check_children(live, vectors)
    for start in range(0, 1_000, 100):
        live.write(insert=(range(start, start + 100), vectors[start : start + 100]))
    check_children(live, vectors)
    live.merge()
    check_children(live, vectors)
    live.write(insert=(range(1_000, 1_100), vectors[1_000:1_100]))
    assert searched(live, vectors[:3]) == [[0], [1], [2]]
    check_nothing_is_lost(live, set(range(1_100)))


@pytest.mark.parametrize("merge_at", [None, "64KiB"])
def test_children_of_a_busy_collection_are_refused(vectors, merge_at):
    live = adjoin.Collection.create("some.live", 16, code_bytes=16, merge_at=merge_at)
    acknowledged = set()

    def write(number):
        ids = range(10 * number, 10 * number + 10)
        live.write(insert=(ids, vectors[:10]), durability="buffered")
        acknowledged.update(ids)

    merging = [] if merge_at else [lambda _: live.merge()]
    with at_work(write, lambda _: searched(live, vectors[:2]), *merging):
        check_children(live, vectors, CHILDREN_DURING)
    check_nothing_is_lost(live, acknowledged)


def test_children_do_not_release_the_lock_of_their_parent(vectors):
    live = adjoin.Collection.create("some.live", 16)
    for action in [lambda: garbage(live), live.close, lambda: adjoin.Collection("some.live")]:
        forked(action)
        assert "is being written by" in forked(lambda: adjoin.Collection("some.live").close())
    live.write(insert=vectors[:10])
    check_nothing_is_lost(live, set(range(10)))
    # A child may write to a collection that its parent has closed.
    with adjoin.Collection("some.live") as live:
        pass

    def write():
        with adjoin.Collection("some.live") as own:
            return own.write(delete=[0])

    assert forked(write).isdigit()


def test_read_only_collections_are_refused_in_children(vectors):
    with adjoin.Collection.create("some.live", 16, merge_at=None) as live:
        live.write(insert=vectors[:1_000])
    with adjoin.Collection("some.live", read_only=True) as live:
        check_children(live, vectors)
        with at_work(lambda _: searched(live, vectors[:2])):
            check_children(live, vectors, CHILDREN_DURING)
        # The child opens it, as the message advises.
        assert forked(lambda: searched(adjoin.Collection("some.live", read_only=True), vectors[:2])) == "[[0], [1]]"


def test_stores_and_indexes_are_searched_in_children(vectors):
    store, index = adjoin.build(vectors, "some.store"), adjoin.build_index(vectors, "some.index", code_bytes=16)
    for opened in [store, index]:
        assert forked(lambda: searched(opened, vectors[:2])) == "[[0], [1]]"
        assert forked(lambda: opened.get([7, 5]).ids.tolist()) == "[7, 5]"
        with at_work(lambda _: searched(opened, vectors[:2])):
            for _ in range(2 * CHILDREN_DURING):
                assert forked(lambda: searched(opened, vectors[:2])) == "[[0], [1]]"
        assert forked(lambda: garbage(opened)) == "let go" and len(opened) == len(vectors)


def test_children_do_not_remove_result_files_of_their_parent(vectors):
    hits = adjoin.build(vectors, "some.store").search(vectors[:2], 1)
    joined = adjoin.join(vectors[:500], eps=2.0)
    before = [hits.ids.tolist(), len(joined), joined.to_arrow().num_rows]
    for holder in [hits, joined]:
        for action in [holder.close, lambda: garbage(holder)]:
            assert "Error" not in forked(action)
    assert forked(lambda: hits.to_arrow().num_rows) == "2"
    # Operations that would use the memory and the store of the parent are refused.
    for action in [lambda: joined.to_arrow(), lambda: joined.write("pairs.parquet"), lambda: joined.clusters()]:
        assert "open it in the child" in forked(action)
    assert [hits.ids.tolist(), len(joined), joined.to_arrow().num_rows] == before
    joined.write("pairs.parquet")


def test_children_can_join_while_their_parent_joins(vectors):
    with at_work(lambda _: adjoin.join(vectors[:200], eps=1.0).close(), lambda _: adjoin.explain(vectors[:200], eps=1.0)):
        expected = len(adjoin.join(vectors[:200], eps=1.0))
        for _ in range(CHILDREN_DURING):
            assert forked(lambda: len(adjoin.join(vectors[:200], eps=1.0))) == str(expected)
