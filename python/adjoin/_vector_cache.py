"""Vectors of texts that were embedded before, by the hash of their content."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._errors import CorruptError, DeviceError

#: Seconds to wait for another process that writes.
WAIT_S = 60


class VectorCache:
    """The vectors of one model in a file of SQLite, which several processes may use."""

    def __init__(self, folder: str, digest: str) -> None:
        self._file = Path(folder) / f"{digest}.sqlite"
        with self._errors():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # The engine reads the texts on one of its threads.
            self._connection = sqlite3.connect(self._file, timeout=WAIT_S, check_same_thread=False)
            self._connection.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL)")

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def vectors(self, texts: list[str], dimensions: int, encode: Callable[[list[str]], Any]) -> Any:
        """Returns the vector of each text. Calls ``encode`` for missing ones, and keeps their vectors."""
        import numpy

        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
        vectors = numpy.empty((len(texts), dimensions), "<f4")
        with self._errors():
            query = f"SELECT text, vector FROM vectors WHERE text IN ({','.join('?' * len(keys))})"
            kept = dict(self._connection.execute(query, keys))
        missing = [place for place, key in enumerate(keys) if key not in kept]
        for place, key in enumerate(keys):
            if key in kept:
                if len(kept[key]) != vectors[place].nbytes:
                    raise CorruptError(f"{self._file} has a vector of {len(kept[key])} bytes; remove this file")
                vectors[place] = numpy.frombuffer(kept[key], "<f4")
        if missing:
            vectors[missing] = encode([texts[place] for place in missing])
            with self._errors(), self._connection:
                rows = ((keys[place], vectors[place].tobytes()) for place in missing)
                self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return vectors

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Converts errors of SQLite and of the file system."""
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            raise DeviceError(f"cache {self._file} cannot be used: {error}; name another folder") from error
        except sqlite3.DatabaseError as error:
            raise CorruptError(f"cache {self._file} is damaged: {error}; remove this file") from error
