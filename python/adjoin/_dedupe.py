"""Data sets without their near-duplicates."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _engine
from . import _options
from ._errors import InputError
from ._options import PathLike
from ._report import page_request, write_page
from ._source import NAMED_ARRAYS, TEXTS, texts_of
from ._temporary import Folder
from ._types import OnBad
from ._work import ArrowStream, Table, Temporary, check_memory, check_recall, package, working
from .text import Embedded, without_csv

ShingleUnit = Literal["words", "characters"]


class Deduped(Table, Temporary):
    """A data set without its near-duplicates. Temporary files are kept until :meth:`close` or the end of a ``with``
    block."""

    def __init__(self, done: dict[str, Any], output: Union[Path, str], removed: Path, folder: Folder) -> None:
        super().__init__(folder)
        self._removed = removed
        self._temporary = folder.name
        #: Output file or folder. A text if it is a URL.
        self.output = output
        self._has_preview = isinstance(output, Path)
        #: Statistics of the run, as written by ``--stats`` of the command.
        self.stats: dict[str, Any] = done["statistics"]
        told = self.stats["dedupe"]
        #: Number of rows of the source, of rows removed because their texts are equal, and of rows removed because
        #: their vectors are near.
        self.rows, self.equal_rows, self.near_rows = (int(told[name]) for name in ("source_rows", "equal_rows", "near_rows"))
        #: Some removed rows, with the least similar ones first. Each has ``row``, ``kept_row``, ``value`` (the distance
        #: or similarity of the two), and ``texts`` (the texts of both, if there is a column of texts).
        self.examples: list[dict[str, Any]] = done["examples"]

    def __len__(self) -> int:
        """Number of kept rows."""
        return int(self.stats["dedupe"]["kept_rows"])

    def kept(self) -> ArrowStream:
        """Returns the kept rows with all columns, in source order. The files must be Parquet or Arrow. If the source is an
        array, returns the numbers of its kept rows as ``id``; :meth:`to_numpy` returns their vectors. If the source is a
        tuple of ids and an array, returns ``id`` and ``vectors``; :meth:`to_numpy` returns such a tuple."""
        output = self._local_output()
        if output.suffix == ".npy":
            return self._kept_numbers()
        if output.suffix == ".npz":
            return self._kept_columns()
        files = [output]
        if output.is_dir():
            files = sorted((path for path in output.rglob("*") if path.is_file()), key=os.fsencode)
        return ArrowStream(_engine.rows([os.fspath(file) for file in files]))

    def _kept_numbers(self) -> ArrowStream:
        """Returns the numbers of the kept rows of an array."""
        numpy, pyarrow = package("numpy", "kept()"), package("pyarrow", "kept()")
        is_kept = numpy.ones(self.rows, dtype=bool)
        for batch in pyarrow.RecordBatchReader.from_stream(self.removed()):
            is_kept[batch.column(0).to_numpy()] = False
        schema = pyarrow.schema([pyarrow.field("id", pyarrow.uint64(), nullable=False)])
        return ArrowStream(pyarrow.table([numpy.flatnonzero(is_kept).astype("<u8")], schema=schema))

    def _kept_named(self) -> tuple[Any, Any]:
        """Returns the ids and the vectors of the kept rows of such a tuple, in memory."""
        numpy = package("numpy", "kept()")
        with numpy.load(self._local_output()) as arrays:
            if set(arrays.files) != set(NAMED_ARRAYS):
                raise InputError(f"{self.output} has the arrays {', '.join(arrays.files)}; read it with numpy.load")
            ids, vectors = (arrays[name] for name in NAMED_ARRAYS)
        return ids, vectors

    def _kept_columns(self) -> ArrowStream:
        """Returns these ids and vectors as columns."""
        (ids, vectors), pyarrow = self._kept_named(), package("pyarrow", "kept()")
        rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        return ArrowStream(pyarrow.table([pyarrow.array(ids), rows], names=list(NAMED_ARRAYS)))

    def removed(self) -> ArrowStream:
        """Returns the removed rows: ``id``, ``kept_id`` (null if the row was removed by decision), the ``distance`` or
        ``similarity`` of the two rows (null unless the reason is ``similar``), the ``reason``, and the requested
        ``columns`` of both rows."""
        return ArrowStream(_engine.rows([os.fspath(self._removed)]))

    def to_numpy(self) -> Any:
        """Returns the kept vectors of an array, or of a ``.npy`` file, as a NumPy array that reads the file on demand. If
        the source is a tuple of ids and an array, returns such a tuple, in memory.

        bfloat16 is converted to float32. Do not close the result while the array is in use.
        """
        import numpy

        output = self._local_output()
        if output.suffix == ".npy":
            return numpy.load(output, mmap_mode="r")
        if output.suffix == ".npz":
            return self._kept_named()
        # The caller has never seen the name of a temporary output.
        what = "the source" if self._temporary in map(str, output.parents) else str(output)
        raise InputError(f"{what} is not an array; take its rows by kept()")

    def _local_output(self) -> Path:
        """Returns the output, which must be on this machine."""
        if isinstance(self.output, str):
            raise InputError(f"{self.output} is in an object store; read the rows from there, or leave output out")
        return self.output

    def report(
        self,
        path: PathLike,
        *,
        names: Optional[PathLike] = None,
        id_column: Optional[str] = None,
        name_column: Optional[str] = None,
        force: bool = False,
    ) -> None:
        """Writes an HTML page about the removed rows in one file, as ``adjoin report`` does. The page shows the requested
        ``columns`` of both rows.

        ``names`` is a file, a folder or a glob of tables with the ids and texts of all rows of the source, for a result
        without columns. The ids are the column ``id_column``, by default ``id``, or row numbers if there is no such
        column. The texts are the column ``name_column``, by default the first text column. An existing page is replaced
        only with ``force``.
        """
        page = page_request(path, names, id_column, name_column, None, None, None, force)
        write_page(self.removed(), json.dumps(self.stats), page)

    def _rows(self) -> ArrowStream:
        return self.kept()

    def __repr__(self) -> str:
        return f"<adjoin.Deduped: {len(self)} of {self.rows} rows are kept>"


def dedupe(
    source: Any,
    output: Optional[PathLike] = None,
    *,
    eps: Optional[float] = None,
    min_similarity: Optional[float] = None,
    text: Optional[str] = None,
    min_jaccard: Optional[float] = None,
    shingles: ShingleUnit = "words",
    shingle_size: Optional[int] = None,
    recall: Optional[float] = None,
    exact: bool = False,
    keep_by: Optional[str] = None,
    exact_text: Optional[str] = None,
    decisions: Optional[PathLike] = None,
    columns: Sequence[str] = (),
    memory: Union[str, int, None] = None,
    threads: Optional[int] = None,
    seed: int = 1,
    vector_column: Optional[str] = None,
    id_column: Optional[str] = None,
    ids: bool = True,
    split: Optional[str] = None,
    on_bad: OnBad = "error",
    force: bool = False,
    temporary: Optional[PathLike] = None,
    progress: Optional[bool] = None,
) -> Deduped:
    """Writes a data set without its near-duplicates. The output has all columns, in the shards of the source.

    Rows are near-duplicates if their vectors are within ``eps`` or ``min_similarity``, or if their texts share many
    shingles, which are runs of words. ``adjoin.dedupe(texts)`` removes near-duplicates from a list of texts.

    Args:
        source: Anything that :func:`build` accepts. Without ``eps``, ``min_similarity`` and ``text``, a list or an Arrow
            array of texts, or a Series of pandas or Polars. The rows of the result then have the column ``text``.
        text: Column of texts to compare instead of vectors. The source may then be a ``.csv`` file too, which pyarrow
            reads; its ``output`` is an ``.arrow`` file.
        min_jaccard: Least Jaccard similarity of two texts, the number of shingles of both divided by the number of
            shingles of either. The default is 0.8. Texts are compared in lower case, and each run of white space counts
            as one space. Empty texts and nulls are always kept.
        shingles: Unit of shingles, ``"words"`` or ``"characters"``.
        shingle_size: Number of units of a shingle, by default 3 words or 9 characters. A shorter text is one shingle.
        output: A file if the source is one file, otherwise a folder. Both may be URLs such as ``s3://bucket/clean``. A
            folder in an object store is complete when it has ``_SUCCESS``. Without ``output``, :meth:`Deduped.kept` returns the kept
            rows.
        keep_by: Order of the rows, such as ``"length(text) desc, date"``. Of several near rows, the first in this order
            is kept. The default is the order of the source.
        exact_text: A column, or an expression such as ``"normalize(text)"``. Of rows with equal values, one is kept;
            their vectors are not compared.
        decisions: A file of JSON lines such as ``{"id": "a", "decision": "keep"}``, as the page of ``adjoin report``
            saves them. A row with ``"keep"`` is never removed. A row with ``"remove"`` is always removed.
        columns: Columns to add to :meth:`Deduped.removed`, for both rows. For example, ``["text"]`` adds ``text`` and
            ``kept_text``.
        on_bad: With ``"skip"``, rows without a usable vector are kept.

    The other arguments are options of :func:`join`.

    Raises a subclass of :class:`AdjoinError` that names the kind of error. Warns with :class:`PromiseWarning` if the
    run exceeded ``memory`` or missed its recall. Ctrl-C stops it and removes temporary files and partial output.
    """
    target = _options.optional_path("output", output)
    wanted = _options.threshold(eps, min_similarity, recall, exact)
    options = _options.store_options(seed, None, vector_column, id_column, ids, split, on_bad, "keep")
    carried = [source.text] if isinstance(source, Embedded) else []
    if eps is None and min_similarity is None and text is None:
        otherwise = "text=COLUMN to compare texts, or eps or min_similarity to compare vectors"
        source, text, carried = {TEXTS: texts_of(source, otherwise)}, TEXTS, [TEXTS]
    elif text is not None:
        source = without_csv(source, target)
    staying: dict[str, Any] = {
        "texts": _options.compared_texts(text, min_jaccard, shingles, shingle_size, wanted, options),
        "keep_by": _options.text("keep_by", keep_by),
        "exact_text": _options.text("exact_text", exact_text),
        "decisions": _options.optional_path("decisions", decisions),
        "columns": _options.texts("columns", columns) or carried,
        "force": _options.flag("force", force),
    }
    resources = _options.resources(memory, threads)
    with working(source, temporary, options, progress, whole=True) as (files, folder, shown):
        resources["temporary"] = folder.name
        _options.refuse_inputs(target, [*files, *filter(None, [staying["decisions"]])])
        staying["removed"] = os.path.join(folder.name, "removed.parquet")
        staying["output"] = target or os.path.join(folder.name, _kept_name(files))
        done = json.loads(_engine.dedupe(files, wanted, staying, options, resources, shown))
        written = staying["output"]
        deduped = Deduped(done, written if "://" in written else Path(written), Path(staying["removed"]), folder)
    check_memory(deduped.stats["memory"], deduped)
    check_recall(deduped.stats["recall"], deduped)
    return deduped


def _kept_name(files: list[str]) -> str:
    """Returns the name of the output for the kept rows. If the source is a single file, the name has its extension."""
    ending = os.path.splitext(files[0])[1]
    is_file = len(files) == 1 and (os.path.isfile(files[0]) or "://" in files[0] and ending != "")
    return f"kept{ending}" if is_file else "kept"
