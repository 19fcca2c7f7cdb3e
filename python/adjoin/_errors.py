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


class PromiseWarning(RuntimeWarning):
    """A run returned a result, but broke a promise about memory, recall or the number of rows."""
