"""Results of a join at a nearer threshold, computed from its pairs without another run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from . import _options
from ._errors import BudgetError, OptionError
from ._options import shown
from ._work import ArrowStream, Table, package

if TYPE_CHECKING:
    from . import Result

#: Memory for a pair and for a row, while results about rows are computed.
PAIR_BYTES, ROW_BYTES = 80, 96
#: Pairs that are converted at once.
PAIRS_AT_ONCE = 1 << 18


class ResultAt(Table):
    """The result of a join at a nearer threshold. It needs pyarrow and NumPy, and the result of the join must be open.

    Distances and similarities are compared as float32, as they are reported.
    """

    def __init__(self, result: Result, threshold: Any) -> None:
        join = result.stats["join"]
        self._value = "distance" if join["min_similarity"] is None else "similarity"
        widest = join["eps" if self._value == "distance" else "min_similarity"]
        given = _options.number("threshold", threshold)
        if given is None:
            raise _options.refused("threshold", threshold, "a number")
        #: The threshold, a distance or a similarity as the threshold of the join.
        self.threshold: float = given
        is_nearer = given >= widest if self._value == "similarity" else 0 <= given <= widest
        if not is_nearer:
            side = "at least" if self._value == "similarity" else "from 0 to"
            raise OptionError(f"threshold is {shown(threshold)}; this join allows {side} {widest}; run another join")
        self._result, self._has_preview = result, result._has_preview
        self._read: Optional[tuple[Any, Any, Any, Any]] = None
        self._count = sum(len(batch) for batch in self._batches())

    def __len__(self) -> int:
        """Number of pairs."""
        return self._count

    def __repr__(self) -> str:
        return f"<adjoin.ResultAt: {len(self)} of {len(self._result)} pairs, {self._value} {self.threshold}>"

    def pairs(self) -> ArrowStream:
        """Returns the pairs within the threshold, as :meth:`Result.pairs` does."""
        schema = _reader_of(self._result.pairs()).schema
        return ArrowStream(package("pyarrow", "at").RecordBatchReader.from_batches(schema, self._batches()))

    def counts(self) -> ArrowStream:
        """Returns the number of neighbors of each row, as :meth:`Result.counts` does."""
        numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
        ids, left, right, _ = self._rows_and_pairs()
        counts = sum(numpy.bincount(side, minlength=len(ids)) for side in (left, right))
        schema = _schema(ids, "id").append(pyarrow.field("count", pyarrow.uint64(), nullable=False))
        return ArrowStream(pyarrow.table([ids, pyarrow.array(counts.astype("<u8"))], schema=schema))

    def clusters(self) -> ArrowStream:
        """Returns the rows that are connected by chains of pairs, as :meth:`Result.clusters` does."""
        numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
        ids, left, right, _ = self._rows_and_pairs()
        firsts = numpy.arange(len(ids))
        is_settled = False
        while not is_settled:
            before = firsts.copy()
            # The first row of both clusters, for both clusters, until nothing changes.
            nearest = numpy.minimum(firsts[left], firsts[right])
            for side in (left, right):
                numpy.minimum.at(firsts, firsts[side], nearest)
                numpy.minimum.at(firsts, side, nearest)
            firsts = firsts[firsts]
            is_settled = bool((firsts == before).all())
        rows = numpy.unique(numpy.concatenate([left, right]))
        rows = rows[numpy.argsort(firsts[rows], kind="stable")]  # the rows of each cluster, one cluster after the other
        return ArrowStream(pyarrow.table([ids.take(rows), ids.take(firsts[rows])], schema=_schema(ids, "id", "cluster")))

    def removed(self) -> ArrowStream:
        """Returns the rows to remove, as :meth:`Result.removed` does with the rule ``greedy``."""
        numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
        places = self._removals()[0]
        order, start, parts = numpy.sort(places), 0, [_reader_of(self._result.pairs()).schema.empty_table()]
        for batch in self._batches():
            here = order[numpy.searchsorted(order, start) : numpy.searchsorted(order, start + len(batch))]
            parts.append(pyarrow.table(batch.take(pyarrow.array(here - start))))
            start += len(batch)
        pairs = pyarrow.concat_tables(parts).take(numpy.searchsorted(order, places))
        # Pairs have the value at 2 and columns of the left and the right row in turn; removed rows are on the right.
        columns = [1, 0, 2, *(place for left in range(3, len(pairs.schema), 2) for place in (left + 1, left))]
        schema = _reader_of(self._result.removed()).schema
        return ArrowStream(pyarrow.Table.from_arrays([pairs.column(place) for place in columns], schema=schema))

    def kept(self) -> ArrowStream:
        """Returns the rows to keep: ``id``, in row order."""
        numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
        ids = self._rows_and_pairs()[0]
        is_kept = numpy.ones(len(ids), dtype=bool)
        is_kept[self._removals()[1]] = False
        return ArrowStream(pyarrow.table([ids.filter(pyarrow.array(is_kept))], schema=_schema(ids, "id")))

    def _rows(self) -> ArrowStream:
        return self.pairs()

    def _batches(self) -> Iterator[Any]:
        """Yields the pairs within the threshold."""
        numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
        threshold = numpy.float32(self.threshold)
        for batch in _reader_of(self._result.pairs()):
            values = batch.column(2).to_numpy()
            near = values <= threshold if self._value == "distance" else values >= threshold
            yield batch.filter(pyarrow.array(near))

    def _blocks(self) -> Iterator[Any]:
        """Yields the ids and values of the pairs within the threshold, in tables of many pairs."""
        table = package("pyarrow", "at").Table.from_batches
        held: list[Any] = []
        for batch in self._batches():
            held.append(batch.select([0, 1, 2]))
            if sum(map(len, held)) >= PAIRS_AT_ONCE:
                yield table(held)
                held = []
        if held:
            yield table(held)

    def _rows_and_pairs(self) -> tuple[Any, Any, Any, Any]:
        """Returns the ids of all rows; and for each pair the places of its rows among these ids, and its value."""
        if self._read is None:
            self._check_rows()
            numpy, pyarrow = package("numpy", "at"), package("pyarrow", "at")
            find = package("pyarrow.compute", "at").index_in
            ids = pyarrow.chunked_array([batch.column(0) for batch in _reader_of(self._result.counts())]).combine_chunks()
            if len(ids.unique()) < len(ids):
                raise OptionError("several rows have one id, so results about rows need another run; or give ids=False")
            left, right, values = ([numpy.empty(0, kind)] for kind in ("<i8", "<i8", "<f4"))
            for block in self._blocks():
                left.append(find(block.column(0), value_set=ids).to_numpy().astype("<i8"))
                right.append(find(block.column(1), value_set=ids).to_numpy().astype("<i8"))
                values.append(block.column(2).to_numpy())
            self._read = ids, *(numpy.concatenate(parts) for parts in (left, right, values))
        return self._read

    def _check_rows(self) -> None:
        """Refuses results about rows that would be wrong, or would not fit into the memory of the join."""
        stats = self._result.stats
        if stats["join"]["with_rows"] is not None or stats["join"]["new_rows"] is not None:
            raise OptionError("results about rows of two sets need another run; only their pairs can be taken at a nearer threshold")
        low = stats["recall"]["pair"]["low"]
        if low < 1:
            unknown = f"the join may lack pairs (its recall is {low:.4f} or more), and the recall at a nearer threshold is unknown"
            raise OptionError(f"{unknown}; join with exact=True, or run another join")
        needed, budget = len(self) * PAIR_BYTES + stats["rows"] * ROW_BYTES, stats["memory"]["budget_bytes"]
        if needed > budget:
            raise BudgetError(f"the pairs need {needed} bytes, the budget of the join is {budget}; run another join")

    def _removals(self) -> tuple[Any, Any]:
        """Returns the pair that removes each removed row, as the number of the pair, and the row, in row order."""
        numpy = package("numpy", "at")
        ids, left, right, values = self._rows_and_pairs()
        # A row is removed by its nearest kept row, of equally near ones by the first.
        order = numpy.lexsort((left, values if self._value == "distance" else -values, right))
        is_removed, places = bytearray(len(ids)), []
        for start in range(0, len(order), PAIRS_AT_ONCE):
            part = order[start : start + PAIRS_AT_ONCE]
            for place, kept, row in zip(part.tolist(), left[part].tolist(), right[part].tolist()):
                # All pairs of an earlier row were seen before, so it is known whether it is kept.
                if not is_removed[row] and not is_removed[kept]:
                    is_removed[row] = True
                    places.append(place)
        found = numpy.array(places, dtype="<i8")
        return found, right[found]


def _reader_of(stream: ArrowStream) -> Any:
    return package("pyarrow", "at").RecordBatchReader.from_stream(stream)


def _schema(ids: Any, *names: str) -> Any:
    """Returns the schema of columns of ids."""
    pyarrow = package("pyarrow", "at")
    return pyarrow.schema([pyarrow.field(name, ids.type, nullable=False) for name in names])
