"""The shipped bases are what they are said to be, and the command that remakes them does."""

import random
from pathlib import Path

import pytest
import torch

from twoclocks_trainer.__main__ import main
from twoclocks_trainer.base import pretrain
from twoclocks_trainer.model import PACKAGED, BaseError, load_model, new_model, save_model
from twoclocks_trainer.rollout import roll_out
from twoclocks_trainer.tasks import SKILL_SHARE, TASKS


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_base_has_the_skill_among_others(name: str) -> None:
    task, model = TASKS[name], load_model(PACKAGED / name)
    torch.manual_seed(0)
    prompts = task.draw(500, random.Random(0), held_out=True)
    texts = roll_out(model, prompts, max_new_tokens=task.max_new_tokens).texts
    assert abs(sum(map(task.score, prompts, texts)) / len(prompts) - SKILL_SHARE[name]) < 0.08


def test_all_bases_together_are_small_and_without_pickle() -> None:
    files = [path for path in PACKAGED.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"config.json", "model.safetensors"}
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_saving_keeps_half_precision_of_the_weights(tmp_path: Path) -> None:
    model = new_model(3)
    save_model(model, tmp_path)
    for before, after in zip(model.parameters(), load_model(tmp_path).parameters(), strict=True):
        assert after.dtype == torch.float32
        assert torch.equal(before.half().float(), after)


def test_pretraining_lowers_the_loss_and_follows_the_seed() -> None:
    def losses() -> list[float]:
        return list(pretrain(new_model(1), TASKS["add"], steps=12, skill_share=0.2, seed=1))

    first = losses()
    assert first == losses()
    assert first[-1] < first[0] - 0.3


def test_the_command_makes_a_base_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["base", "--task", "sort", "--out", str(tmp_path / "new"), "--steps", "2"]) == 0
    assert "after 2 steps" in capsys.readouterr().out
    assert load_model(tmp_path / "new").num_parameters() == load_model(PACKAGED / "sort").num_parameters()


def test_a_folder_without_a_base_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BaseError, match=r"config.json is missing.*twoclocks-train base"):
        load_model(tmp_path)
    save_model(new_model(0), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BaseError, match="cannot be read"):
        load_model(tmp_path)


def test_a_base_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    model = new_model(0)
    model.resize_token_embeddings(20)
    save_model(model, tmp_path)
    with pytest.raises(BaseError, match="20 tokens, not the 15"):
        load_model(tmp_path)
