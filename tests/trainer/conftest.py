"""Shared by the trainer's tests: one thread, a small configuration, and a monitor that follows a script."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from twoclocks.wire import Directive
from twoclocks_trainer.config import TrainConfig


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two workers on two cores: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., TrainConfig]:
    """A run of five steps of 16 responses, two updates each, unmonitored, unless told otherwise."""

    def make(**settings: Any) -> TrainConfig:
        usual: dict[str, Any] = {
            "run": "small",
            "monitor": "off",
            "rollout_batch": 16,
            "group_size": 4,
            "updates_per_batch": 2,
            "budget_samples": 80,
            "eval_prompts": 16,
            "checkpoint_dir": tmp_path / "checkpoints",
        }
        return TrainConfig(**usual | settings)

    return make


class ScriptedMonitor:
    """A monitor of the client's interface: hears everything, and directs by a script.

    `script` maps the number of the last reported step (0 before the first) to the directive that holds from
    then on.
    """

    def __init__(self, script: dict[int, Directive] | None = None) -> None:
        self.script = script or {}
        self.directive = self.script.get(0, Directive(generation=0))
        self.reports: list[dict[str, Any]] = []
        self.acks: list[dict[str, Any]] = []
        self.finished: tuple[str, str | None] | None = None
        self.closed = False

    def report(self, **values: Any) -> None:
        self.reports.append(values)
        self.directive = self.script.get(values["step"], self.directive)

    def ack(self, generation: int, state: str, **values: Any) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        self.acks.append({"generation": generation, "state": str(state), **given})

    def finish(self, state: str = "finished", reason: str | None = None) -> None:
        self.finished = (state, reason)

    def close(self, timeout: float = 10.0) -> bool:
        self.closed = True
        return True


@pytest.fixture
def scripted() -> type[ScriptedMonitor]:
    """The class of scripted monitors."""
    return ScriptedMonitor
