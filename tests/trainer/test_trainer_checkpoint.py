"""Checkpoints: whole or not there, the newest whole one is found, and a refusing disk stops nothing."""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from twoclocks_trainer import checkpoint
from twoclocks_trainer.checkpoint import Checkpoint, load, load_newest, newest_first, save
from twoclocks_trainer.config import ConfigError, TrainConfig
from twoclocks_trainer.loop import train
from twoclocks_trainer.model import new_model, save_model

Make = Callable[..., TrainConfig]


def state(step: int, value: float = 1.0) -> Checkpoint:
    return Checkpoint(step, {"weights": torch.full((3,), value)}, {"step": step, "note": "π"})


def names(folder: Path) -> list[str]:
    return [path.name for path in newest_first(folder)]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path, state(7, 0.1))
    found = load_newest(tmp_path)
    assert found is not None
    assert found.step == 7
    assert found.document == {"step": 7, "note": "π"}
    assert torch.equal(found.tensors["weights"], torch.full((3,), 0.1))
    assert load_newest(tmp_path / "nowhere") is None


def test_the_last_few_stay_and_those_asked_for(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, state(step), keep=step in {2, 5})
    assert names(tmp_path) == [f"step-0000000{n}" for n in ("7", "6", "5.kept", "4", "2.kept")]


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, state(3, 1.0))
    save(tmp_path, state(3, 2.0))
    found = load_newest(tmp_path)
    assert found is not None
    assert found.tensors["weights"][0] == 2.0
    save(tmp_path, state(3, 3.0), keep=True)
    assert names(tmp_path) == ["step-00000003.kept", "step-00000003"]


@pytest.mark.parametrize("point", ["save_file", "_checksum", "_sync", "rename"])
def test_a_crash_while_writing_leaves_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class PowerCut(BaseException):
        """Nothing catches this, as nothing survives a power cut; what it leaves on disk is what counts."""

    def cut(*ignored: Any) -> None:
        raise PowerCut

    save(tmp_path, state(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_discard", lambda *paths: None)  # nobody tidies up after a crash
        if point == "rename":
            patch.setattr(Path, "rename", cut)
        else:
            patch.setattr(checkpoint, point, cut)
        with pytest.raises(PowerCut):
            save(tmp_path, state(2))
    assert any(path.name.startswith(".") for path in tmp_path.iterdir()), "the crash left something"
    found = load_newest(tmp_path)
    assert found is not None
    assert found.step == 1
    save(tmp_path, state(2))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_one_is_skipped_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, damage: str
) -> None:
    save(tmp_path, state(1))
    path = save(tmp_path, state(2)) / file
    whole = path.read_bytes()
    match damage:
        case "flip":
            at = random.Random(file).randrange(len(whole) // 2, len(whole) - 2)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
    found = load_newest(tmp_path)
    assert found is not None
    assert found.step == 1
    (record,) = caplog.records
    assert "step-00000002 is damaged" in record.getMessage()


def test_a_disk_that_refuses_costs_a_line_and_nothing_else(
    small: Make, scripted: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    monitor = scripted()
    result = train(small(checkpoint_every_steps=2), monitor=monitor)
    assert (result.state, result.steps) == ("finished", 5)
    assert [event["event"] for event in result.events] == ["checkpoint_failed"] * 3
    assert [r["checkpoint_failures"] for r in monitor.reports] == [0, 0, 1, 1, 2]
    assert len(caplog.records) == 3
    assert "no checkpoint could be written, training goes on" in caplog.text


def test_a_full_disk_leaves_no_half_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, state(1))
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, state(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_run_of_other_settings_is_not_resumed(small: Make) -> None:
    train(small(budget_samples=16))
    with pytest.raises(ConfigError, match=r"--learning-rate is 0.001 but the checkpoint's run had 0.0003"):
        train(small(resume=True, learning_rate=1e-3))
    with pytest.raises(ConfigError, match="go on from it with --resume"):
        train(small())
    assert train(small(resume=True, budget_samples=32)).steps == 2


def test_a_run_is_not_resumed_on_another_base(small: Make, tmp_path: Path) -> None:
    train(small(budget_samples=16))
    save_model(new_model(1), tmp_path)
    with pytest.raises(ConfigError, match="--base is not the model"):
        train(small(resume=True, budget_samples=32, base=tmp_path))


def test_resume_without_a_checkpoint_begins(small: Make) -> None:
    assert train(small(resume=True, budget_samples=16)).steps == 1


def test_a_manifest_of_another_shape_is_damage(tmp_path: Path) -> None:
    path = save(tmp_path, state(1))
    (path / "manifest.json").write_text("[]")
    with pytest.raises((ValueError, KeyError, TypeError)):
        load(path)
    assert load_newest(tmp_path) is None
