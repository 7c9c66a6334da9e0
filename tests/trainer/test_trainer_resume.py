"""Killed and resumed is the same, bit for bit, as never killed: real processes and SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from twoclocks_trainer.config import from_flags
from twoclocks_trainer.loop import train

SETTINGS = {
    "--monitor": "off",
    "--run": "r",
    "--rollout-batch": "16",
    "--group-size": "4",
    "--updates-per-batch": "4",
    "--epochs": "2",
    "--learning-rate": "1e-3",
    "--verdict-noise": "0.1",
    "--budget-samples": "640",
    "--eval-every-samples": "64",
    "--eval-prompts": "8",
    "--checkpoint-every-steps": "4",
    "--policy": "act",
    "--schedule": '[{"at_samples": 150, "rollout_batch": 32, "rule": "held"}]',
}


def flags(folder: Path) -> list[str]:
    return [
        *(text for pair in SETTINGS.items() for text in pair),
        "--checkpoint-dir",
        f"{folder / 'checkpoints'}",
        "--metrics-file",
        f"{folder / 'metrics'}",
    ]


def lines(folder: Path) -> list[str]:
    """The whole lines of the metrics file; a process killed while writing may leave a part of one."""
    path = folder / "metrics"
    written = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line for line in written if line.endswith("\n")]


def kill_after(count: int, folder: Path, run: Callable[[], object]) -> None:
    """Run in a forked process, and SIGKILL it once `count` lines are in the metrics file."""
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    while len(lines(folder)) < count:
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended before it could be killed"
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical_to_never_killed(tmp_path: Path) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    plain.mkdir()
    killed.mkdir()
    train(from_flags(flags(plain)))

    resumed = [*flags(killed), "--resume"]
    kill_after(
        6, killed, lambda: train(from_flags(flags(killed)))
    )  # before the switch, which follows step 10
    kill_after(len(lines(killed)) + 11, killed, lambda: train(from_flags(resumed)))  # and after it
    subprocess.run([sys.executable, "-m", "twoclocks_trainer", *resumed], check=True)

    expected = {json.loads(line)["step"]: line for line in lines(plain)}
    seen = [(json.loads(line)["step"], line) for line in lines(killed)]
    assert len(seen) > len(expected), "the kills must have cost some steps, else nothing was tested"
    assert {step for step, _ in seen} == set(expected)
    for step, line in seen:
        assert line == expected[step], f"step {step} differs"
    assert {json.loads(line)["rollout_batch"] for line in expected.values()} == {16, 32}
