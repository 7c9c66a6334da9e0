"""Killed and resumed is the same, bit for bit, as never killed: for real, with a process and SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCHEDULE = '[{"at_samples": 100, "rollout_batch": 32, "rule": "held"}]'
FLAGS = (
    "--monitor off --rollout-batch 16 --group-size 4 --updates-per-batch 4 --epochs 2 --learning-rate 1e-3 "
    "--verdict-noise 0.1 --budget-samples 900 --eval-every-samples 64 --eval-prompts 8 "
    "--checkpoint-every-steps 4 --policy act"
)


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "twoclocks_trainer",
        "--run",
        "r",
        *FLAGS.split(),
        "--schedule",
        SCHEDULE,
    ]
    command += [
        "--checkpoint-dir",
        str(folder / "checkpoints"),
        "--metrics-file",
        str(folder / "metrics"),
        *more,
    ]
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )


def lines(folder: Path) -> list[str]:
    path = folder / "metrics"
    return (
        [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if path.exists()
        else []
    )


def kill_after(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """SIGKILL once so many lines are in the metrics file; fails if the process ends before."""
    while len(lines(folder)) < count:
        assert process.poll() is None, (folder / "output").read_text()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_and_resumed_is_bit_identical_to_never_killed(tmp_path: Path) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    plain.mkdir()
    killed.mkdir()
    whole = start(plain)
    try:
        kill_after(start(killed), killed, 6)  # before the switch, which comes after step 7
        kill_after(start(killed, "--resume"), killed, len(lines(killed)) + 12)  # and after it
        last = start(killed, "--resume")
        assert last.wait() == 0, (killed / "output").read_text()
        assert whole.wait() == 0, (plain / "output").read_text()
    finally:
        whole.kill()
    expected = {json.loads(line)["step"]: line for line in lines(plain)}
    seen = [(json.loads(line)["step"], line) for line in lines(killed)]
    assert len(seen) > len(expected), "the kills must have cost some steps, else nothing was tested"
    assert {step for step, _ in seen} == set(expected)
    for step, line in seen:
        assert line == expected[step], f"step {step} differs"
    batches = {json.loads(line)["rollout_batch"] for line in expected.values()}
    assert batches == {16, 32}
