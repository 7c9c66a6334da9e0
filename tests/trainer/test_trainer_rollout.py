"""Padding, masks and log-probabilities of rollouts: a batch says what its rows say one by one."""

import pytest
import torch

from twoclocks_trainer import grpo
from twoclocks_trainer.model import END_ID, PACKAGED, PAD_ID, decode, encode, load_model
from twoclocks_trainer.rollout import response_distribution, roll_out, token_batch

PROMPTS = ["7+5=", "31+8=", "99+99=", "0+0=", "12+7="]


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    return load_model(PACKAGED / "add")


def test_the_worked_example_of_the_docstring() -> None:
    batch = token_batch([[1, 2, 9], [5, 9]], [[3, END_ID], [4, 4, END_ID]])
    pad = PAD_ID
    assert batch.tokens.tolist() == [[1, 2, 9, 3, END_ID, pad], [pad, 5, 9, 4, 4, END_ID]]
    assert batch.attention.tolist() == [[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]]
    assert batch.response_mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.responses.tolist() == [[3, END_ID, pad], [4, 4, END_ID]]
    assert batch.rows(torch.tensor([1])).tokens.tolist() == [[pad, 5, 9, 4, 4, END_ID]]


def test_text_goes_there_and_back() -> None:
    assert decode(encode("31524>12345._")) == "31524>12345._"
    with pytest.raises(ValueError, match="substring"):
        encode("a")


def test_a_padded_batch_says_what_its_rows_say_alone(model) -> None:  # type: ignore[no-untyped-def]
    responses = ["12.", "39.", "198.", "0.", "9999"]
    rows = [(encode(p), encode(r)) for p, r in zip(PROMPTS, responses, strict=True)]
    with torch.no_grad():
        together = token_batch([p for p, _ in rows], [r for _, r in rows])
        distribution = response_distribution(model, together, 0.8)
        for n, (prompt, response) in enumerate(rows):
            alone = response_distribution(model, token_batch([prompt], [response]), 0.8)[0]
            torch.testing.assert_close(distribution[n, : len(response)], alone, atol=2e-5, rtol=1e-4)


def test_sampled_logprobs_are_those_of_the_training_pass(model) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    rollout = roll_out(model, PROMPTS, group_size=4, temperature=0.7, max_new_tokens=4)
    with torch.no_grad():
        distribution = response_distribution(model, rollout.batch, 0.7)
    again = grpo.token_logprobs(distribution, rollout.batch.responses)
    mask = rollout.batch.response_mask
    torch.testing.assert_close(rollout.logprobs * mask, again * mask, atol=2e-5, rtol=1e-4)
    assert rollout.logprobs.shape == mask.shape == rollout.distribution.shape[:2]
    assert len(mask) == len(rollout.texts) == 20
    assert not again.requires_grad


def test_the_mask_ends_with_the_end_mark_and_the_text_too(model) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    rollout = roll_out(model, PROMPTS, group_size=8, temperature=1.5, max_new_tokens=2)
    mask = rollout.batch.response_mask
    lengths = mask.sum(dim=1).int().tolist()
    assert set(lengths) <= {1, 2}
    for row, length, text in zip(rollout.batch.responses.tolist(), lengths, rollout.texts, strict=True):
        ended = END_ID in row
        assert length == (row.index(END_ID) + 1 if ended else 2)
        assert text == decode(row[:length])
        assert text.endswith(".") == ended
        assert all(token == PAD_ID for token in row[length:])
    assert (mask == (mask.cumsum(1) == torch.arange(1, 3)).float()).all(), "a mask has no holes"
    assert rollout.truncated.tolist() == [not text.endswith(".") for text in rollout.texts]
    assert 0 < rollout.truncated.sum() < 40, "the example needs responses of both kinds"


def test_groups_stay_together(model) -> None:  # type: ignore[no-untyped-def]
    rollout = roll_out(model, PROMPTS, group_size=3, max_new_tokens=2)
    width = max(map(len, PROMPTS))
    prompts = [decode(row).lstrip("_") for row in rollout.batch.tokens[:, :width].tolist()]
    assert prompts == [prompt for prompt in PROMPTS for _ in range(3)]


def test_greedy_uses_no_randomness_and_sampling_follows_the_seed(model) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    greedy = roll_out(model, PROMPTS, max_new_tokens=4, greedy=True)
    assert torch.equal(before, torch.get_rng_state())
    likeliest = greedy.distribution.argmax(-1)
    mask = greedy.batch.response_mask.bool()
    assert torch.equal(likeliest[mask], greedy.batch.responses[mask])

    def sample(seed: int) -> list[str]:
        torch.manual_seed(seed)
        return roll_out(model, PROMPTS, group_size=8, max_new_tokens=4).texts

    assert sample(1) == sample(1) != sample(2)


def test_sampling_is_from_the_whole_distribution(model) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    rollout = roll_out(model, ["17+25="], group_size=4_000, temperature=2.0, max_new_tokens=1)
    expected = rollout.distribution[0, 0].exp()
    counts = torch.bincount(rollout.batch.responses[:, 0], minlength=len(expected)) / 4_000
    standard_error = (expected * (1 - expected) / 4_000).sqrt()
    assert ((counts - expected).abs() < 5 * standard_error + 1e-3).all()
