"""Tasks: right answers, disjoint splits, the mixture a base is taught."""

import random

import pytest

from twoclocks_trainer.tasks import TASKS, VOCABULARY, is_held_out

EXAMPLES = [
    ("sort", "31524>", "12345.", ["12345", "1234.", "31524.", "12345..", "", "12354."]),
    ("sort10", "9876543210>", "0123456789.", ["0123456789", "9876543210."]),
    ("add", "17+8=", "25.", ["25", "17.", "025.", "2.", "25.0"]),
    ("add", "0+0=", "0.", ["00.", "."]),
]


@pytest.mark.parametrize(("name", "prompt", "right", "wrong"), EXAMPLES)
def test_only_the_closed_right_answer_counts(name: str, prompt: str, right: str, wrong: list[str]) -> None:
    task = TASKS[name]
    assert task.score(prompt, right) == 1.0
    assert [task.score(prompt, text) for text in wrong] == [0.0] * len(wrong)
    assert len(right) <= task.max_new_tokens


@pytest.mark.parametrize("name", TASKS)
def test_training_never_sees_a_held_out_prompt(name: str) -> None:
    task = TASKS[name]
    seen = {prompt for seed in range(3) for prompt in task.draw(1_000, random.Random(seed))}
    held_out = set(task.draw(1_000, random.Random(0), held_out=True))
    assert not seen & held_out
    assert all(map(is_held_out, held_out))
    assert not any(map(is_held_out, seen))


@pytest.mark.parametrize("name", TASKS)
def test_prompts_follow_the_generator(name: str) -> None:
    task = TASKS[name]
    assert (
        task.draw(50, random.Random(4)) == task.draw(50, random.Random(4)) != task.draw(50, random.Random(5))
    )
    assert len(task.draw(0, random.Random(1))) == 0


@pytest.mark.parametrize("name", TASKS)
def test_the_base_is_taught_the_skill_among_others(name: str) -> None:
    task, rng = TASKS[name], random.Random(1)
    prompts = task.draw(3_000, rng)
    responses = [task.demonstrate(prompt, rng, 0.2) for prompt in prompts]
    right = sum(map(task.score, prompts, responses)) / 3_000
    assert 0.17 < right < 0.25
    assert all(set(text) <= set(VOCABULARY) for text in (*prompts, *responses))
    assert max(map(len, responses)) <= task.max_new_tokens
