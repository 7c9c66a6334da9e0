"""Words for log lines, from values and exceptions of any origin: one line each, and never an exception."""

from typing import Any

from pydantic import ValidationError


def shown(value: Any) -> str:
    """Return the value as text of at most 60 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - a foreign object may fail in any way, a long int by design
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def one_line(error: BaseException) -> str:
    """Return what is wrong, and in which field where pydantic knows it."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        return f"{place}: {message}, got {shown(first.get('input'))}" if place else message
    try:
        return " ".join(str(error).split())[:500] or type(error).__name__
    except Exception:  # noqa: BLE001 - see above
        return type(error).__name__
