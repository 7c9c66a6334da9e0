"""Frozen states as JSON documents and back, exactly.

Floats travel as JSON numbers (shortest decimal that reads back to the same bits); NaN and the infinities,
for which JSON has no literal, as the strings "NaN", "Infinity" and "-Infinity". Reading is by the
dataclass's own types, so a document that does not fit raises ValueError naming the field: the caller
re-folds the reports instead.
"""

import dataclasses
import math
import types
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

State = TypeVar("State")
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(value: Any) -> Any:
    """Return `value` (dataclasses, tuples, dicts, numbers, strings) as a JSON document."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[State], document: Any) -> State:
    """Return the `kind` that `encode` made this document of; ValueError where it does not fit."""
    decoded: State = _decode(kind, document, kind.__name__)
    return decoded


@lru_cache(maxsize=64)
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _decode(kind: Any, value: Any, where: str) -> Any:  # noqa: PLR0911
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = _fields(kind)
        if not isinstance(value, dict) or set(value) != set(fields):
            raise ValueError(
                f"{where}: the stored state has other fields than this version's {kind.__name__}"
            )
        return kind(**{name: _decode(hint, value[name], f"{where}.{name}") for name, hint in fields.items()})
    origin, args = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        if value is None:
            return None
        return _decode(next(arg for arg in args if arg is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list, found {type(value).__name__}")
        kinds = [args[0]] * len(value) if args[1:] == (...,) else args
        return tuple(
            _decode(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is dict:
        return {key: _decode(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if kind is float and isinstance(value, str):
        if value not in SPECIAL:
            raise ValueError(f"{where}: expected a number, found {value!r}")
        return SPECIAL[value]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise ValueError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")  # noqa: TRY004
    return value
