"""Exceptions of the package. Each message names the object, the problem and the remedy, in one line."""

from __future__ import annotations


class AdjoinError(Exception):
    """Base class of all errors of this package."""


class InputError(AdjoinError, ValueError):
    """The given vectors, ids or files are not valid."""


class OptionError(AdjoinError, ValueError):
    """An option has an invalid value, or cannot be combined with another."""


class OptionTypeError(OptionError, TypeError):
    """An argument has the wrong type."""


class BudgetError(AdjoinError, MemoryError):
    """The memory budget is too small. The message states the minimum."""


class DeviceError(AdjoinError, OSError):
    """The operating system refused: no such file, no permission, a full disk."""


class CorruptError(AdjoinError):
    """Bytes of a store have changed since they were written."""


class ServerError(AdjoinError):
    """A server refused a request, or failed."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        #: Status of its answer, such as 401 without a valid key, 429 under too much load, or 504 after the deadline.
        self.status = status

    def __reduce__(self) -> tuple[type[ServerError], tuple[str, int]]:
        return type(self), (str(self), self.status)


class PromiseWarning(RuntimeWarning):
    """A run returned a result, but broke a promise about memory, recall or the number of rows."""
