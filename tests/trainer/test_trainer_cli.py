"""The command: one clear line for bad input, help without torch, and an end that says how it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twoclocks_trainer.__main__ import main
from twoclocks_trainer.config import ConfigError, TrainConfig, from_flags

SMALL = ["--monitor", "off", "--rollout-batch", "8", "--group-size", "4", "--budget-samples", "16"]
SMALL += ["--eval-prompts", "4"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        ("stray", "unrecognized arguments: stray"),
        ("--seed many", "--seed: Input should be a valid integer"),
        ("--clip-low", "expected one argument"),
        ("--task chess", "choose one of sort, sort10, add"),
        ("--rollout-batch 60", "60 is not a multiple of the group size 8"),
        ("--updates-per-batch 3 --epochs 2", "must be a multiple of epochs 2"),
        ("--updates-per-batch 48", "does not divide into 48 minibatches"),
        ("--betas 0.9,1.5", "must lie in [0, 1)"),
        ("--verdict-noise 0.6", "--verdict-noise: Input should be less than 0.5"),
        ("--policy perhaps", "'advise' or 'act'"),
        ("--run bad/name", "--run: "),
        ('--candidates [{"rollout_batch":100}]', "100 is not a multiple of the group size 8"),
        ('--monitor off --schedule [{"at_samples":1,"rollout_batch":64}]', "add --policy act"),
        ("--base /nowhere --monitor off", "no base model in /nowhere"),
        ("--monitor ftp://x", "the monitor cannot be set up: url 'ftp://x'"),
        ("base --out /proc/no --steps 1", "--out cannot be written"),
        ("base --out x --steps 0", "at least 1"),
        ("base --out x --skill-share 2", "--skill-share within 0 and 1"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(
    flags: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWOCLOCKS_SPOOL_DIR", str(tmp_path))
    assert main(flags.split()) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("twoclocks-train: ")
    assert said in line


def test_flags_become_settings_and_the_environment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "9")
    monkeypatch.setenv("LEARNING_RATE", "9")
    flags = "--learning-rate 2e-4 --betas 0.9,0.95 --clip-high 0.3 --resume --no-std-advantages --policy act"
    flags += ' --candidates [{"rollout_batch":512,"rule":"sqrt"}]'
    config = from_flags(flags.split())
    assert (config.seed, config.learning_rate, config.betas, config.clip_high) == (0, 2e-4, (0.9, 0.95), 0.3)
    assert (config.resume, config.std_advantages, config.policy) == (True, False, "act")
    assert config.candidates[0].rule == "sqrt"
    assert from_flags([]).run != from_flags([]).run or from_flags([]).run.startswith("run-")
    with pytest.raises(ConfigError, match="lists every flag"):
        from_flags(["--x"])


def test_every_setting_is_a_flag_with_a_description() -> None:
    for name, field in TrainConfig.model_fields.items():
        assert field.description, name
    command = [sys.executable, "-X", "importtime", "-m", "twoclocks_trainer", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in TrainConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in done.stdout
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "pydantic_settings" in imported
    assert not imported & {"torch", "transformers", "numpy", "scipy"}, "help must not wait for torch"


def test_a_run_ends_with_a_summary_and_exit_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*SMALL, "--run", "short", "--checkpoint-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("short finished: 2 steps, 16 samples, reward ")
    assert out[0].startswith("step 2  samples 16  reward ")


def test_sigterm_ends_at_a_boundary_with_exit_3_and_a_checkpoint(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "twoclocks_trainer",
        *SMALL,
        "--run",
        "long",
        "--budget-samples",
        "100000",
    ]
    command += ["--checkpoint-dir", str(tmp_path / "c"), "--metrics-file", str(tmp_path / "metrics")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        while not (tmp_path / "metrics").exists() or not (tmp_path / "metrics").read_text():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 3
    assert "long stopped (interrupted)" in out
    assert len(list((tmp_path / "c").iterdir())) == 1
