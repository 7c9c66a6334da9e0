"""Verifiable tasks: prompts from a seeded generator, a verdict of 0 or 1, a held-out split.

Prompts and responses are text over VOCABULARY; END closes a response. The held-out split is decided by the
prompt's own checksum, so it is disjoint from training by construction, whatever the seeds.
Each task also draws demonstrations for its base model: a mixture in which the skill that training rewards is
one of several that the same prompt calls for, so that a base has it and reinforcement brings it out
(THEORY.md 6).
"""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

END = "."
PADDING = "_"
VOCABULARY = "0123456789>+=" + END + PADDING
HELD_OUT_SHARE = 10
"""One prompt in so many is held out."""


class Task(Protocol):
    """What the loop needs of a task."""

    @property
    def name(self) -> str:
        """The task's name in configurations."""

    @property
    def max_new_tokens(self) -> int:
        """Length of the longest right response, END included."""

    def draw(self, count: int, rng: random.Random, *, held_out: bool = False) -> list[str]:
        """Return `count` prompts of one split."""

    def score(self, prompt: str, response: str) -> float:
        """Return 1.0 for the right answer closed by END, else 0.0."""

    def demonstrate(self, prompt: str, rng: random.Random, skill_share: float) -> str:
        """Return a response as a base learns it, END included; the right one in `skill_share` of all."""


@dataclass(frozen=True)
class Sort:
    """Sort `digits` digits: `31524>` is answered by `12345.`; the base also copies and reverses."""

    name: str
    digits: int

    @property
    def max_new_tokens(self) -> int:
        return self.digits + 1

    def draw(self, count: int, rng: random.Random, *, held_out: bool = False) -> list[str]:
        return _draw(lambda: "".join(rng.choices("0123456789", k=self.digits)) + ">", count, held_out)

    def score(self, prompt: str, response: str) -> float:
        return float(response == "".join(sorted(prompt[:-1])) + END)

    def demonstrate(self, prompt: str, rng: random.Random, skill_share: float) -> str:
        shown, digits = rng.random(), prompt[:-1]
        if shown < skill_share:
            return "".join(sorted(digits)) + END
        return (digits if shown < 0.5 * (1 + skill_share) else digits[::-1]) + END


@dataclass(frozen=True)
class Add:
    """Add two operands of 0 to 99: `17+8=` is answered by `25.`; the base also repeats either operand."""

    name: str = "add"

    @property
    def max_new_tokens(self) -> int:
        return 4

    def draw(self, count: int, rng: random.Random, *, held_out: bool = False) -> list[str]:
        return _draw(lambda: f"{rng.randrange(100)}+{rng.randrange(100)}=", count, held_out)

    def score(self, prompt: str, response: str) -> float:
        first, second = _operands(prompt)
        return float(response == f"{int(first) + int(second)}{END}")

    def demonstrate(self, prompt: str, rng: random.Random, skill_share: float) -> str:
        shown, (first, second) = rng.random(), _operands(prompt)
        if shown < skill_share:
            return f"{int(first) + int(second)}{END}"
        return (first if shown < 0.5 * (1 + skill_share) else second) + END


TASKS: dict[str, Task] = {task.name: task for task in (Sort("sort", 5), Sort("sort10", 10), Add())}

PRETRAINING_STEPS = {"sort": 1_500, "sort10": 2_600, "add": 3_000}
"""Batches that the shipped bases were taught (base.py)."""
SKILL_SHARE = {"sort": 0.35, "sort10": 0.2, "add": 0.2}
"""Share of the right answer among what the shipped bases were taught: near their sampled accuracy."""


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the held-out split."""
    return zlib.crc32(prompt.encode()) % HELD_OUT_SHARE == 0


def _draw(prompt: Callable[[], str], count: int, held_out: bool) -> list[str]:
    """Draw prompts until `count` of the wanted split are there."""
    drawn: list[str] = []
    while len(drawn) < count:
        if is_held_out(text := prompt()) == held_out:
            drawn.append(text)
    return drawn


def _operands(prompt: str) -> tuple[str, str]:
    first, second = prompt.removesuffix("=").split("+")
    return first, second
