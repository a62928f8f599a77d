"""Filters of values, as LangGraph's stores have them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches_filter(value: Any, pattern: Mapping[str, Any] | None) -> bool:
    """Whether each named field of a value is what the filter says: equal, for an object in the
    fields that it names, or as `{"$gt": 4}` compares (`$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`).
    Numbers compare with numbers and texts with texts; all else is neither less nor more. Raises
    ValueError for another operator."""
    return all(_matches(_get_field(value, name), one) for name, one in (pattern or {}).items())


def _get_field(value: Any, name: str) -> Any:
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None


def _matches(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, Mapping):
        parts = cast("Mapping[str, Any]", pattern)
        if any(name.startswith("$") for name in parts):
            return all(_compare(value, name, operand) for name, operand in parts.items())
        return isinstance(value, Mapping) and matches_filter(value, parts)
    if isinstance(pattern, list | tuple):
        items = cast("list[Any]", pattern)
        return (
            isinstance(value, list | tuple)
            and len(cast("list[Any]", value)) == len(items)
            and all(map(_matches, cast("list[Any]", value), items))
        )
    return bool(value == pattern)


def _compare(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    if name not in _COMPARISONS:
        raise ValueError(f"unknown operator of a filter: {name}")
    if isinstance(value, str) != isinstance(operand, str) or value is None:
        return False
    try:
        return _COMPARISONS[name](value, operand)
    except TypeError:
        return False
