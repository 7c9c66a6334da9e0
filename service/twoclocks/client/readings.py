"""From what a training loop hands over to plain numbers: the cheap half of a report's validation.

It runs in the caller's thread, so it only looks at types; the wire's model does the rest in the writer's.
Values are copied out here, because a tensor may change before the writer sees it. Reading a tensor that lives
on an accelerator waits for it, as `float(tensor)` does: hand over numbers that you have anyway.
"""

import operator
from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

from twoclocks.client.lines import shown
from twoclocks.wire import MAX_GENERATION

Number = SupportsFloat | SupportsIndex
"""A float or int of Python, a scalar of numpy, a tensor of one element."""

REQUIRED = frozenset({"step", "samples", "rollout_batch", "learning_rate", "reward"})


class MalformedError(ValueError):
    """The report cannot be one; the message says in one line what to correct, `cause` groups the like."""

    def __init__(self, cause: str, line: str) -> None:
        super().__init__(line)
        self.cause = cause


def readings(given: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, float | int]:
    """Return the report as a dict of Python numbers. None means not measured and is left out.

    `given` holds the wire's own fields, of which those in REQUIRED must be there. Raises MalformedError.
    """
    taken: dict[str, float | int] = {}
    for values in (given, metrics):
        for name, value in values.items():
            if type(value) is float or type(value) is int:
                taken[name] = value
            elif value is not None:
                taken[name] = number(name, value)
            elif name in REQUIRED:
                hint = "; give float('nan') where it came out as no number" if name == "reward" else ""
                raise MalformedError(f"missing {name}", f"{name} is missing and every report needs it{hint}")
    return taken


def generation_of(value: Any) -> int:
    """Return a directive's generation; raises MalformedError for what cannot be one."""
    found = number("generation", value)
    if isinstance(found, int) and 0 <= found <= MAX_GENERATION:
        return found
    raise MalformedError("generation", f"generation is {shown(value)}; give that of the directive")


def number(name: str, value: Any) -> float | int:
    """Return one value as a Python number; raises MalformedError for text, arrays and all that is none."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, float):
            return float(plain)
        if not isinstance(plain, str | bytes | bytearray):
            return int(operator.index(plain)) if hasattr(plain, "__index__") else float(plain)
    except Exception:  # noqa: BLE001 - a foreign object may fail in any way when asked for its number
        pass
    raise MalformedError(
        f"type of {name}",
        f"{name} is {shown(value)}; give a number, NaN included, or None where it was not measured",
    )
