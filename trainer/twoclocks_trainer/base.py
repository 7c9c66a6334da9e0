"""Makes a base model: supervised pretraining on a task's mixture of skills, one or two minutes on one core.

The bases shipped in `bases/` were made by `twoclocks-train base --task TASK` with the defaults below and
stay as they are: thresholds learned on runs of one base say nothing of another.
"""

import random
from collections.abc import Iterator

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen2ForCausalLM

from twoclocks_trainer.model import PAD_ID, encode
from twoclocks_trainer.tasks import Task

BATCH = 128
PEAK_LEARNING_RATE = 4e-3
IGNORED = -100


def pretrain(
    model: Qwen2ForCausalLM, task: Task, *, steps: int, skill_share: float, seed: int
) -> Iterator[float]:
    """Teach the model `steps` batches of the task's demonstrations, in place; yield each loss, nats a token.

    `skill_share` of the demonstrations show the skill that training rewards, the others those beside it.
    The loss is on responses only; held-out prompts are never shown.
    """
    rng = random.Random(seed)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, total_steps=steps)
    for _ in range(steps):
        tokens, targets, mask = _batch(task, rng, skill_share)
        logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        yield loss.item()
    model.train(False)


def _batch(
    task: Task, rng: random.Random, skill_share: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens, targets (IGNORED outside the response) and mask, all (BATCH, longest), padded right."""
    prompts = task.draw(BATCH, rng)
    rows = [(encode(prompt), encode(task.demonstrate(prompt, rng, skill_share))) for prompt in prompts]
    longest = max(len(prompt) + len(response) for prompt, response in rows)
    tokens = torch.full((BATCH, longest), PAD_ID)
    targets = torch.full((BATCH, longest), IGNORED)
    mask = torch.zeros((BATCH, longest), dtype=torch.long)
    for row, (prompt, response) in enumerate(rows):
        end = len(prompt) + len(response)
        tokens[row, :end] = torch.tensor(prompt + response)
        targets[row, len(prompt) : end] = torch.tensor(response)
        mask[row, :end] = 1
    return tokens, targets, mask
