"""SQL conditions of searches, written from the filters of other packages."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

from ._errors import OptionError
from ._options import shown

#: Most bytes of a list of texts in one condition. The engine accepts conditions of 4,096 bytes.
LIST_BYTES = 2_000

#: Comparisons by the names that they have in filters.
COMPARISONS = {"$eq": "=", "$ne": "<>", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
OPERATORS = [*COMPARISONS, "$in", "$nin", "$between", "$exists", "$like", "$ilike"]
CONNECTIVES = ["$and", "$or", "$not"]

#: Python types of the values of a column, and a name of them for messages.
VALUES: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "int64": ((int,), "an integer"),
    "float64": ((int, float), "a number"),
    "bool": ((bool,), "True or False"),
    "date": ((str, datetime.date), "a date, or a text such as '2026-01-31'"),
    "timestamp": ((str, datetime.date), "a datetime, or a text such as '2026-01-31T12:00:00'"),
}


def fits(value: Any, kind: Optional[str]) -> bool:
    """Returns whether a value can be in a column of the type ``kind``, or of any type if it is None."""
    kinds = VALUES[kind][0] if kind else (str, int, float, bool, datetime.date)
    is_bool = isinstance(value, bool)
    return isinstance(value, kinds) and (not is_bool or kind in ("bool", None))


def all_of(conditions: Iterable[Optional[str]]) -> Optional[str]:
    """Returns the condition that all ``conditions`` but None are true; None if none is left."""
    parts = [f"({condition})" for condition in conditions if condition is not None]
    return " and ".join(parts) or None


def any_of(conditions: Sequence[str]) -> str:
    """Returns the condition that one of ``conditions`` is true."""
    return " or ".join(f"({condition})" for condition in conditions) or "false"


def none_of(conditions: Sequence[str]) -> str:
    """Returns the condition that none of ``conditions`` is true. A condition on a missing value is not true."""
    return f"not coalesce({any_of(conditions)}, false)"


def in_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Splits texts into lists that each fit into a condition."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        bytes = len(quoted(text).encode()) + 2
        if chunk and size + bytes > LIST_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += bytes
    if chunk:
        yield chunk


def quoted(text: str) -> str:
    """Returns a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


class Columns:
    """Columns of a folder that conditions can use, with their types if these are known."""

    def __init__(self, types: Mapping[str, Optional[str]]) -> None:
        self.types = dict(types)

    def name(self, column: str) -> str:
        """Returns the name of a column in SQL.

        Raises :class:`OptionError` if there is no such column.
        """
        if column not in self.types:
            there = ", ".join(self.types) or "none"
            raise OptionError(
                f"filter: there is no column {shown(column)}, only {there}; "
                "filters use columns that the folder was created with, such as columns={'year': 'int64'}"
            )
        return '"' + column.replace('"', '""') + '"'

    def literal(self, column: str, value: Any) -> str:
        """Returns a value to compare a column with, as a literal of SQL."""
        if hasattr(value, "item"):
            value = value.item()  # a NumPy scalar
        kind = self.types[column]
        is_number = kind in ("int64", "float64") and isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (fits(value, kind) or is_number):
            wanted = VALUES[kind][1] if kind else "a text, a number, a date, True or False"
            raise OptionError(f"filter: {shown(value)} is compared with the column {column}; give {wanted}")
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, datetime.date):
            return quoted(value.isoformat())
        return str(value).lower() if isinstance(value, bool) else repr(value)

    def compare(self, column: str, operator: str, value: Any) -> str:
        """Returns the condition of one of :data:`OPERATORS`. A row without a value passes ``$ne`` and ``$nin`` only."""
        name = self.name(column)
        if operator == "$exists":
            return f"{name} is not null" if value else f"{name} is null"
        if operator in ("$eq", "$ne") and value is None:
            return f"{name} is null" if operator == "$eq" else f"{name} is not null"
        if operator in COMPARISONS:
            compared = f"{name} {COMPARISONS[operator]} {self.literal(column, value)}"
            return f"{compared} or {name} is null" if operator == "$ne" else compared
        if operator in ("$like", "$ilike"):
            return f"{name} {operator[1:]} {self.literal(column, value)}"
        listed = self._list(operator, value)
        literals = [self.literal(column, one) for one in listed]
        if operator == "$between":
            if len(literals) != 2:
                raise OptionError(f"filter: $between has {len(literals)} values; give the least and the greatest")
            return f"{name} between {literals[0]} and {literals[1]}"
        if not literals:
            return "false" if operator == "$in" else "true"
        within = f"{name} in ({', '.join(literals)})"
        return within if operator == "$in" else f"not ({within}) or {name} is null"

    @staticmethod
    def _list(operator: str, value: Any) -> list[Any]:
        if operator not in ("$in", "$nin", "$between"):
            raise OptionError(f"filter: there is no operator {shown(operator)}; use one of {', '.join(OPERATORS)}")
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise OptionError(f"filter: {operator} has {shown(value)}; give a list of values")
        return list(value)

    def condition(self, filter: Any) -> Optional[str]:
        """Returns the condition of a filter, which is None, a condition itself, or a dictionary.

        A dictionary is as in other vector stores: ``{"lang": "en", "year": {"$gte": 2020}}``, with the operators
        :data:`OPERATORS`, and ``$and``, ``$or`` and ``$not`` of such dictionaries.
        """
        if filter is None:
            return None
        if isinstance(filter, str):
            return filter
        if not isinstance(filter, Mapping):
            wanted = "a condition such as \"year >= 2020\", or a dictionary such as {'year': {'$gte': 2020}}"
            raise OptionError(f"filter is {shown(filter)}; give {wanted}")
        return all_of(self._entry(key, value) for key, value in filter.items())

    def _entry(self, key: Any, value: Any) -> Optional[str]:
        """Returns the condition of one entry of a dictionary."""
        if key in CONNECTIVES:
            return self._connected(key, value)
        if not isinstance(key, str) or key.startswith("$"):
            raise OptionError(f"filter: {shown(key)} is not the name of a column, nor {', '.join(CONNECTIVES)}")
        if not isinstance(value, Mapping):
            return self.compare(key, "$in" if isinstance(value, (list, tuple, set)) else "$eq", value)
        parts = []
        for operator, operand in value.items():
            parts.append(
                none_of([self._entry(key, operand) or "true"])
                if operator == "$not"
                else self.compare(key, operator, operand)
            )
        return all_of(parts)

    def _connected(self, connective: str, value: Any) -> Optional[str]:
        """Returns the condition of ``$and``, ``$or`` or ``$not``."""
        filters = [value] if isinstance(value, Mapping) else value
        if not isinstance(filters, (list, tuple)) or not filters:
            raise OptionError(f"filter: {connective} has {shown(value)}; give a list of filters")
        parts = [self.condition(filter) or "true" for filter in filters]
        combine: dict[str, Callable[[Sequence[str]], Optional[str]]] = {"$and": all_of, "$or": any_of, "$not": none_of}
        return combine[connective](parts)
