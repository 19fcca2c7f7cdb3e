"""Signatures of the engine for the typed package."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union, final

from ._types import Batches, Progress

__all__ = [
    "CHOICES",
    "Collection",
    "Folder",
    "Found",
    "Joined",
    "Rows",
    "__version__",
    "append",
    "build",
    "build_index",
    "columns",
    "condition_columns",
    "copy_folder",
    "create_live",
    "dedupe",
    "explain",
    "generate",
    "groundtruth",
    "join",
    "kind_of",
    "main",
    "merge",
    "nearest",
    "plan",
    "plan_build",
    "relayout",
    "report",
    "resident_from_now_on",
    "rows",
    "run_part",
    "spool",
    "threshold_leaving",
    "write_columns",
    "write_parquet",
]

__version__: str
#: Names of the values of each option with a closed set of values.
CHOICES: dict[str, tuple[str, ...]]

def main(arguments: Sequence[str]) -> int: ...
def spool(source: Any, path: str, options: dict[str, Any], whole: bool) -> str: ...
def write_columns(columns: Sequence[tuple[str, Any]], path: str) -> None: ...
def columns(table: Any, options: dict[str, Any]) -> list[str]: ...
def condition_columns(filters: dict[str, Any], set: int, are_two_sets: bool) -> list[str]: ...
def write_parquet(rows: Batches, path: str) -> None: ...
def rows(files: Sequence[str]) -> Batches: ...
def dedupe(
    sources: Sequence[str],
    target: dict[str, Any],
    rows_to_keep: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def resident_from_now_on() -> int: ...
def kind_of(folder: str) -> str: ...
def build(
    sources: Sequence[str],
    store: str,
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def append(
    sources: Sequence[str],
    store: str,
    delete: Union[list[int], list[str]],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def copy_folder(
    source: str, target: str, force: bool, resources: dict[str, Any], progress: Optional[Progress]
) -> str: ...
def build_index(
    sources: Sequence[str],
    index: str,
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def relayout(
    index: str, output: Optional[str], force: bool, resources: dict[str, Any], progress: Optional[Progress]
) -> str: ...
def groundtruth(
    sources: Sequence[str],
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> tuple[Batches, str]: ...
def generate(request: dict[str, Any], resources: dict[str, Any], progress: Optional[Progress]) -> None: ...
def explain(
    sources: Sequence[str],
    target: dict[str, Any],
    metric: Optional[str],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def plan(request: dict[str, Any], resources: dict[str, Any], progress: Optional[Progress]) -> str: ...
def plan_build(
    sources: Sequence[str],
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> str: ...
def run_part(request: dict[str, Any], resources: dict[str, Any], progress: Optional[Progress]) -> Optional[str]: ...
def merge(request: dict[str, Any], resources: dict[str, Any], progress: Optional[Progress]) -> str: ...
def threshold_leaving(
    sources: Sequence[str],
    rows: int,
    metric: str,
    store_options: dict[str, Any],
    resources: dict[str, Any],
    progress: Optional[Progress],
) -> tuple[float, Optional[int]]: ...
@final
class Joined:
    """The result of a join, with its pairs in a temporary file."""

    @property
    def stats(self) -> str: ...
    def pairs(self) -> Batches: ...
    def at(self, threshold: float) -> tuple[Joined, int]: ...
    def rows(self, result: str, rule: str) -> Batches: ...
    def write(self, path: str, result: str, rule: str, force: bool) -> None: ...
    def report(self, result: str, rule: str, page: dict[str, Any]) -> None: ...
    def close(self) -> None: ...

def join(
    sets: Sequence[Sequence[str]],
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    folder: str,
    progress: Optional[Progress],
) -> Joined: ...

def report(
    result: str, stats: Union[str, Path, None], page: dict[str, Any], resources: dict[str, Any]
) -> None: ...
@final
class Found:
    """The result of a search, with its hits in memory or in a temporary file."""

    @property
    def stats(self) -> str: ...
    @property
    def keeps_promises(self) -> bool: ...
    @property
    def in_memory(self) -> bool: ...
    def hits(self) -> Batches: ...
    def counts(self) -> bytes: ...
    def rows(self) -> bytes: ...
    def columns(self) -> tuple[_IdColumn, bytes]: ...

def nearest(
    sources: Sequence[str],
    request: dict[str, Any],
    store_options: dict[str, Any],
    resources: dict[str, Any],
    folder: str,
    progress: Optional[Progress],
) -> Found: ...

@final
class Folder:
    """An open store, index or collection. Searches may run on any thread."""

    def __new__(cls, path: str, opening: dict[str, Any], resources: dict[str, Any]) -> Folder: ...
    @property
    def info(self) -> str: ...
    def columns(self) -> list[str]: ...
    def collection(self) -> Collection: ...
    def search(
        self,
        queries: Union[Sequence[str], tuple[bytes, str, int]],
        asked: tuple[dict[str, Any], dict[str, Any]],
        resources: dict[str, Any],
        file: str,
        progress: Optional[Progress],
    ) -> Found: ...
    def get(
        self, ids: _Ids, skip_missing: bool, resources: dict[str, Any], progress: Optional[Progress]
    ) -> Rows: ...
    def verify(self, resources: dict[str, Any], progress: Optional[Progress]) -> str: ...

@final
class Rows:
    """Rows fetched by id, in memory."""

    def rows(self) -> Batches: ...
    def ids(self) -> _IdColumn: ...
    def vectors(self) -> bytes: ...
    def __len__(self) -> int: ...

#: Files of new rows, and options for reading them.
_Rows = Optional[tuple[Sequence[str], dict[str, Any]]]
_Ids = Union[Sequence[int], Sequence[str]]
#: Ids as little-endian integers or texts, and their type.
_IdColumn = tuple[Union[bytes, list[str]], str]

def create_live(folder: str, wanted: dict[str, Any], index: dict[str, Any], seed: int) -> None: ...

@final
class Collection:
    """A handle for writes to an open collection."""

    def stats(self) -> str: ...
    def write(
        self,
        rows: tuple[_Rows, _Rows],
        delete: _Ids,
        buffered: bool,
        resources: dict[str, Any],
        progress: Optional[Progress],
    ) -> str: ...
    def delete_where(
        self, condition: str, buffered: bool, resources: dict[str, Any], progress: Optional[Progress]
    ) -> str: ...
    def merge(self, resources: dict[str, Any], progress: Optional[Progress]) -> str: ...
    def snapshot(self, path: str, force: bool, resources: dict[str, Any], progress: Optional[Progress]) -> int: ...
    def backup(self, folder: str, force: bool, resources: dict[str, Any], progress: Optional[Progress]) -> str: ...
    def flush(self) -> int: ...
    def close(self) -> None: ...
