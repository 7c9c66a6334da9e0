"""What a hostile or careless user hands to the trainer is refused in one line."""

import logging
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from twoclocks_trainer import checkpoint
from twoclocks_trainer.config import ConfigError, from_flags
from twoclocks_trainer.model import PACKAGED, BaseError, load_model


@pytest.mark.parametrize("flag", ["--learning-rate", "--temperature", "--weight-decay", "--target-reward"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_settings_are_finite(flag: str, value: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        from_flags([flag, value])


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(PACKAGED / "sort", base)
    weights = load_file(base / "model.safetensors")
    weights.pop(next(name for name in weights if "mlp" in name))
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BaseError, match="1 tensors are missing"):
        load_model(base)


def test_no_whole_checkpoint_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "step-00000001").mkdir()
    names = {path.name for path in checkpoint.newest_first(tmp_path)}
    with caplog.at_level(logging.WARNING):
        assert checkpoint.load_newest(tmp_path) is None
    assert bool(names) == ("no checkpoint in" in caplog.text)
