"""What can go wrong, as exceptions. Each has one message that says what, where and the remedy."""

from __future__ import annotations


class AdjoinError(Exception):
    """The base of all errors of this package."""


class InputError(AdjoinError, ValueError):
    """The vectors, ids or files given are not what they must be."""


class OptionError(AdjoinError, ValueError):
    """An option has no meaning, or not together with another."""


class OptionTypeError(OptionError, TypeError):
    """An argument is of the wrong type."""


class BudgetError(AdjoinError, MemoryError):
    """The memory budget is too small; the message says the least that would do."""


class DeviceError(AdjoinError, OSError):
    """The system refused: no such file, no permission, a full disk."""


class CorruptError(AdjoinError):
    """Bytes of a store have changed since they were written."""


class PromiseWarning(RuntimeWarning):
    """A run ended with a result, and held more memory than it was given."""
