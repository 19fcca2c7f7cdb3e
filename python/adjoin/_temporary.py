"""Temporary folders and files, which the next process removes if a process is killed.

Folders have names of the form that the engine gives to its own, and hold a file whose lock their process holds until it
ends. So programs that use the engine remove leftovers of Python, too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import weakref
from itertools import count
from pathlib import Path
from typing import IO, Optional

from ._errors import DeviceError

#: Names of folders. The end ``removed`` marks one that is being removed.
NAME = re.compile(r"\.adjoin-python-[0-9]+-[0-9]+\.(partial|removed)")
#: File in a folder, whose lock its process holds.
OWNER = "owner.lock"


class Folder:
    """A new folder for temporary files.

    :meth:`cleanup`, or at the latest the garbage collector, removes it, but only in the process that created it. A
    forked child has a copy of this object, and must leave the folder to its parent. Leftovers of killed processes are
    removed when a folder is created next to them.
    """

    def __init__(self, at: Optional[str]) -> None:
        place = Path(tempfile.gettempdir() if at is None else at).absolute()
        self.name, lock = _created(place)
        self._remove = weakref.finalize(self, _remove_own, self.name, lock, os.getpid())
        # Without locks, a folder in use cannot be distinguished from a leftover.
        if lock is not None:
            _remove_leftovers(place)

    def cleanup(self) -> None:
        """Removes the folder and its content."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _created(place: Path) -> tuple[str, Optional[IO[bytes]]]:
    """Creates a folder. Returns its path and its lock, which is None on a file system without locks."""
    for number in count():
        path = place / f".adjoin-python-{os.getpid()}-{number}.partial"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        try:
            file = open(path / OWNER, "xb")
        except (FileNotFoundError, FileExistsError):  # another process took the empty folder for a leftover
            continue
        try:
            if _locked(file.fileno(), path / OWNER):
                return os.fspath(path), file
        except OSError:
            file.close()
            os.unlink(path / OWNER)
            return os.fspath(path), None
        file.close()  # as above
    raise AssertionError("one of all numbers is free")


def _locked(file: int, path: Path) -> bool:
    """Takes the lock of an open file. Returns whether the file, which is at ``path``, now has the lock of this process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed the file since it was opened, and a third one may have created it again.
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _remove_own(name: str, lock: Optional[IO[bytes]], creator: int) -> None:
    if os.getpid() == creator:
        _remove_folder(name)
        if lock is not None:
            lock.close()


def _remove_folder(name: str) -> None:
    """Removes a folder. It is renamed first, since an interrupted removal might leave files without the lock."""
    removed = f"{name.removesuffix('.partial')}.removed"
    try:
        os.rename(name, removed)
    except OSError:
        removed = name
    shutil.rmtree(removed, ignore_errors=True)


def _remove_leftovers(place: Path) -> None:
    """Removes the folders whose process has ended, if this process may remove them."""
    try:
        names = [entry.name for entry in os.scandir(place) if NAME.fullmatch(entry.name)]
    except OSError:  # a folder in which files may be created, but not listed
        return
    for name in names:
        path = place / name
        if name.endswith(".removed"):
            shutil.rmtree(path, ignore_errors=True)
            continue
        try:
            path.rmdir()  # a process that is killed early leaves an empty folder
            continue
        except OSError:
            pass
        try:
            file = os.open(path / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _locked(file, path / OWNER):
                _remove_folder(os.fspath(path))
        except OSError:
            continue
        finally:
            os.close(file)


class File:
    """A temporary file of a result, or None. It is removed as a :class:`Folder` is."""

    def __init__(self, name: Optional[str]) -> None:
        self._remove = None if name is None else weakref.finalize(self, _remove_file, name, os.getpid())

    def cleanup(self) -> None:
        """Removes the file."""
        if self._remove is not None:
            self._remove()


def _remove_file(name: str, creator: int) -> None:
    if os.getpid() == creator:
        Path(name).unlink(missing_ok=True)


def folder_in(temporary: Optional[str]) -> Folder:
    """Makes a folder for temporary files."""
    try:
        return Folder(temporary)
    except OSError as error:
        place = tempfile.gettempdir() if temporary is None else temporary
        raise DeviceError(f"temporary {place} cannot be written; name another folder ({error.strerror})") from error
