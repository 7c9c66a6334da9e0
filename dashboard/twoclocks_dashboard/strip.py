"""A family's runs on one axis of drift, with the threshold behind them. Pure.

Drift is in the family's unit: equivalent samples, that is responses used (times epochs) at the family's
median eta0. Runs at another eta0 are brought there by the exponent 2, the theory's middle; at the median it
matters not.
"""

import math
from dataclasses import dataclass
from statistics import median

from twoclocks.wire import Family, FamilyMember
from twoclocks_dashboard import numbers

EXPONENT = 2.0


@dataclass(frozen=True, slots=True)
class Member:
    """One run: its place between 0 and 1 across the axis, and what it is in words."""

    place: float
    run: str
    collapsed: bool
    said: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A family's runs on one logarithmic axis, the ticks, and the threshold's 80 % interval and median."""

    ticks: list[tuple[float, str]]
    members: list[Member]
    band: tuple[float, float] | None
    median: float | None


def equivalent(family: Family) -> list[tuple[FamilyMember, float]]:
    """The members that have drifted, with it: the rule clock in equivalent samples at the median eta0."""
    key = f"rule:{EXPONENT:g}"
    known = [m for m in family.members if m.drift.get(key, 0.0) > 0]
    if not known:
        return []
    usual = median(m.log_eta0 for m in known)
    return [(m, m.drift[key] * math.exp(-EXPONENT * usual)) for m in known]


def strip(family: Family) -> Strip | None:
    """Where the members and the threshold lie; None without members that have drifted."""
    drifted, d = equivalent(family), family.threshold
    if not drifted:
        return None
    known = {"0.1", "0.5", "0.9"} <= set(d)
    ends = [*(x for _, x in drifted), *((d["0.1"], d["0.9"]) if known else ())]
    low, high = math.log10(min(ends)) - 0.08, math.log10(max(ends)) + 0.08

    def place(x: float) -> float:
        return round((math.log10(x) - low) / (high - low), 4)

    ticks = [
        (place(x), numbers.short(x))
        for power in range(math.floor(low), math.ceil(high) + 1)
        for x in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if low <= math.log10(x) <= high
    ]
    members = [Member(place(x), m.run, m.collapsed, _said(m)) for m, x in drifted]
    band = (place(d["0.1"]), place(d["0.9"])) if known else None
    return Strip(ticks, members, band, place(d["0.5"]) if known else None)


def _said(m: FamilyMember) -> str:
    what = "collapsed at" if m.collapsed else "alive when last seen at"
    cause = f" ({m.cause})" if m.cause and m.cause != "drift" else ""
    return (
        f"{m.run}: {what} {numbers.count(m.samples)} samples{cause}, batch {numbers.count(m.rollout_batch)}, "
        f"learning rate {numbers.scientific(m.learning_rate)}"
    )
