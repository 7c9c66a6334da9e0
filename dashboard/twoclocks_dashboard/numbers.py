"""Numbers as people read them: 1.24 M, 12,000, 2e-4, 3 h 20 min. Text in, never markup.

A value that was not measured is said to be so (`MISSING`), and is never shown as 0. A thin space that does
not break stands between a number and its unit.
"""

import math
from datetime import UTC, datetime

MISSING = "not reported"
BEYOND = "beyond reach"
NARROW = "\N{NARROW NO-BREAK SPACE}"
DASH = "\N{EN DASH}"
STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_799.0
"""The calendar's ends, years 1 and 9999, in Unix seconds."""
DURATIONS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def count(number: float | None) -> str:
    """A count: 9,420 and 124,000 in full, from a million on in three digits (1.24 M)."""
    if number is None:
        return MISSING
    if not math.isfinite(number):
        return value(number)
    for size, unit in STEPS:
        if abs(number) >= 0.9995 * size:
            return f"{_digits(number / size)}{NARROW}{unit}"
    return f"{number:,.0f}"


def about(number: float | None) -> str:
    """A forecast count, to three digits, because more would be pretended; None is beyond reach."""
    if number is None or not math.isfinite(number):
        return BEYOND
    if abs(number) < 1_000:
        return f"{number:,.0f}"
    return count(round(number, 2 - math.floor(math.log10(abs(number)))))


def between(low: float | None, high: float | None) -> str:
    """An interval of forecast counts; an end without reach is named."""
    if low is None and high is None:
        return BEYOND
    return f"{about(low)} to {about(high)}"


def short(number: float) -> str:
    """A tick label: 500, 1.5 k, 24 k, 2 M."""
    for size, unit in (*STEPS, (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{NARROW}{unit}"
    return f"{number:.4g}"


def value(number: float | None, digits: int = 3) -> str:
    """A measured value to `digits` significant digits; NaN and infinities by name."""
    if number is None:
        return MISSING
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if number == 0:
        return "0"
    size = math.floor(math.log10(abs(number)))
    plain = f"{number:,.{max(digits - 1 - size, 0)}f}"
    text = plain if -4 < size < 6 else scientific(number, digits)
    return text.replace("-", "−") if number < 0 else text


def reward(number: float | None) -> str:
    """A reward: three decimals, so that a dead policy reads 0.000; larger scales by significant digits."""
    small = number is not None and math.isfinite(number) and abs(number) < 10
    return f"{number:.3f}".replace("-", "−") if small else value(number)


def scientific(number: float | None, digits: int = 3) -> str:
    """A learning rate as its recipe writes it: 2e-4, 1.5e-6."""
    if number is None:
        return MISSING
    if number == 0 or not math.isfinite(number):
        return value(number)
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def share(number: float | None) -> str:
    """A probability or share in per cent; never 0 % or 100 % where it is only near."""
    if number is None:
        return MISSING
    if math.isnan(number):
        return "NaN"
    if 0 < number < 0.01:
        return f"<{NARROW}1{NARROW}%"
    if 0.99 < number < 1:
        return f">{NARROW}99{NARROW}%"
    return f"{number * 100:.0f}{NARROW}%"


def duration(seconds: float | None) -> str:
    """A stretch of time in its two largest units: 3 h 20 min, 45 s, 2 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    seconds = max(0, round(seconds))
    for size, unit, part, below in DURATIONS:
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            small = rest // part
            tail = f" {small}{NARROW}{below}" if small and whole < 100 else ""
            return f"{whole}{NARROW}{unit}{tail}"
    return f"{seconds}{NARROW}s"


def moment(seconds: float | None) -> str:
    """A time in ISO 8601, UTC, shown in the reader's zone; nothing for one beyond the calendar."""
    if seconds is None or not FIRST_SECOND <= seconds <= LAST_SECOND:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _digits(number: float) -> str:
    size = abs(number)
    return f"{number:.0f}" if size >= 99.95 else f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"
