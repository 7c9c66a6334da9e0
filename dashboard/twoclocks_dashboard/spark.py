"""Sparklines of the reward: a path in a small frame, and the cache that keeps a list of many runs cheap."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 120.0, 28.0
POINTS = 60
KEPT = 2_000
FRESH_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Spark:
    """`path` is SVG; `last` the last finite point; `nans` the places of NaN and infinities; `label` in
    words.
    """

    path: str
    last: tuple[float, float] | None
    nans: tuple[float, ...]
    low: float | None
    high: float | None


def spark(samples: Sequence[int], rewards: Sequence[float | None]) -> Spark:
    """Return the sparkline of rewards against samples; missing and NaN values break the line."""
    finite = [r for r in rewards if r is not None and math.isfinite(r)]
    if not finite:
        return Spark("", None, (), None, None)
    low, high = min(finite), max(finite)
    first, last = samples[0], samples[-1]
    across = max(last - first, 1)
    up = (high - low) or 1.0
    parts: list[str] = []
    nans: list[float] = []
    end: tuple[float, float] | None = None
    pen = "M"
    for n, reward in zip(samples, rewards, strict=True):
        x = round(2 + (WIDTH - 6) * (n - first) / across, 1)
        if reward is None or not math.isfinite(reward):
            nans += [x] if reward is not None else []
            pen = "M"
            continue
        end = (x, round(HEIGHT - 4 - (HEIGHT - 8) * (reward - low) / up, 1))
        parts.append(f"{pen}{end[0]:g} {end[1]:g}")
        pen = "L"
    return Spark("".join(parts), end, tuple(nans), low, high)


class Sparks:
    """Sparklines remembered by run and revision; a live run's is drawn anew at most every few seconds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, float, Spark]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, run: str, revision: int, now: float, draw: Callable[[], Spark]) -> Spark:
        """The run's sparkline; `draw` is called where the one kept is of an older revision and not fresh."""
        with self._lock:
            kept = self._kept.get(run)
        if kept is not None and (kept[0] == revision or 0 <= now - kept[1] < FRESH_SECONDS):
            return kept[2]
        drawn = draw()
        with self._lock:
            self._kept[run] = (revision, now, drawn)
            self._kept.move_to_end(run)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return drawn
