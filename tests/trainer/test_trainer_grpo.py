"""The algorithm's arithmetic against independent formulas, hand-written loops and finite differences."""

import math
import random
import statistics

import pytest
import torch

from twoclocks_trainer import grpo

N, T, V, GROUP = 6, 4, 5, 3


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([4, 2, 1, 3, 4, 2])
    return {
        "logits": torch.randn(N, T, V, generator=generator, dtype=torch.float64),
        "tokens": torch.randint(0, V, (N, T), generator=generator),
        "old": torch.randn(N, T, generator=generator, dtype=torch.float64) * 0.5 - 1.6,
        "advantages": torch.randn(N, generator=generator, dtype=torch.float64),
        "mask": (torch.arange(T) < lengths[:, None]).double(),
    }


def test_advantages_are_the_textbook_ones() -> None:
    rng = random.Random(0)
    rewards = [float(rng.random() < 0.4) for _ in range(24)]
    for normalize in (True, False):
        expected = []
        for begin in range(0, 24, 8):
            group = rewards[begin : begin + 8]
            scale = statistics.stdev(group) + 1e-4 if normalize else 1.0
            expected += [(reward - statistics.mean(group)) / scale for reward in group]
        got = grpo.group_advantages(torch.tensor(rewards), 8, normalize=normalize)
        assert got.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_group_of_equal_rewards_has_no_advantage() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert grpo.group_advantages(rewards, 2, normalize=True).tolist() == [0.0] * 4


def test_logprobs_are_of_the_tempered_distribution(batch: dict[str, torch.Tensor]) -> None:
    distribution = grpo.log_distribution(batch["logits"], 0.7)
    got = grpo.token_logprobs(distribution, batch["tokens"])
    for n in range(N):
        for t in range(T):
            weights = [math.exp(float(z) / 0.7) for z in batch["logits"][n, t]]
            token = int(batch["tokens"][n, t])
            assert float(got[n, t]) == pytest.approx(math.log(weights[token] / sum(weights)))


@pytest.mark.parametrize("clip", [(None, None), (0.2, 0.2), (0.1, 0.4), (None, 0.3), (0.3, None)])
def test_the_loss_is_the_written_out_sum(
    batch: dict[str, torch.Tensor], clip: tuple[float | None, float | None]
) -> None:
    new = grpo.token_logprobs(grpo.log_distribution(batch["logits"], 1.0), batch["tokens"])
    low, high = clip
    total, tokens, outside, squares, largest = 0.0, 0, 0, 0.0, 0.0
    for n in range(N):
        for t in range(T):
            if not batch["mask"][n, t]:
                continue
            ratio, advantage = math.exp(new[n, t] - batch["old"][n, t]), float(batch["advantages"][n])
            bounded = ratio
            if low is not None:
                bounded = max(bounded, 1 - low)
            if high is not None:
                bounded = min(bounded, 1 + high)
            total -= min(ratio * advantage, bounded * advantage)
            outside += (bounded > ratio and advantage < 0) or (bounded < ratio and advantage > 0)
            squares += math.log(ratio) ** 2
            largest = max(largest, ratio)
            tokens += 1
    got = grpo.policy_loss(
        new, batch["old"], batch["advantages"], batch["mask"], clip_low=low, clip_high=high
    )
    assert got.loss.item() == pytest.approx(total / tokens)
    assert got.squared_log_ratio == pytest.approx(squares / tokens)
    assert got.ratio_max == pytest.approx(largest)
    if clip == (None, None):
        assert got.clip_fraction is None
    else:
        assert got.clip_fraction == pytest.approx(outside / tokens)
        assert 0 < outside < tokens, "the example must clip some tokens for this test to mean anything"


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_gradient_is_that_of_finite_differences(
    batch: dict[str, torch.Tensor], clip: float | None
) -> None:
    def loss(logits: torch.Tensor) -> torch.Tensor:
        new = grpo.token_logprobs(grpo.log_distribution(logits, 0.9), batch["tokens"])
        result = grpo.policy_loss(
            new, batch["old"], batch["advantages"], batch["mask"], clip_low=clip, clip_high=clip
        )
        return result.loss + 0.1 * grpo.masked_mean(grpo.k3(new, batch["old"]), batch["mask"])

    logits = batch["logits"].requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits), logits)
    step = 1e-6
    for index in [(0, 0, 1), (1, 1, 4), (2, 0, 0), (3, 2, 2), (5, 1, 3), (1, 3, 0)]:
        bump = torch.zeros_like(logits)
        bump[index] = step
        with torch.no_grad():
            slope = (loss(logits + bump) - loss(logits - bump)).item() / (2 * step)
        assert gradient[index].item() == pytest.approx(slope, abs=1e-7)


def test_padding_never_matters_however_wild(batch: dict[str, torch.Tensor]) -> None:
    new = grpo.token_logprobs(grpo.log_distribution(batch["logits"], 1.0), batch["tokens"])
    wild = torch.where(batch["mask"].bool(), new, 900.0)
    plain = grpo.policy_loss(new, batch["old"], batch["advantages"], batch["mask"], clip_low=0.2)
    padded = grpo.policy_loss(wild, batch["old"], batch["advantages"], batch["mask"], clip_low=0.2)
    assert plain.loss.item() == padded.loss.item()
    assert plain.ratio_max == padded.ratio_max
    assert plain.squared_log_ratio == padded.squared_log_ratio


def test_every_token_weighs_the_same_not_every_response() -> None:
    mask = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    zeros = torch.zeros(2, 4)
    result = grpo.policy_loss(zeros, zeros, torch.tensor([1.0, -1.0]), mask)
    assert result.loss.item() == pytest.approx(-(4 - 1) / 5)


def test_entropy_and_kl_are_the_written_out_sums(batch: dict[str, torch.Tensor]) -> None:
    p = grpo.log_distribution(batch["logits"], 1.0)
    q = grpo.log_distribution(batch["logits"].flip(0), 1.0)
    entropies, divergences = [], []
    for n in range(N):
        for t in range(T):
            if batch["mask"][n, t]:
                pairs = [(math.exp(a), math.exp(b)) for a, b in zip(p[n, t], q[n, t], strict=True)]
                entropies.append(-sum(a * math.log(a) for a, _ in pairs))
                divergences.append(sum(a * math.log(a / b) for a, b in pairs))
    assert grpo.entropy(p, batch["mask"]) == pytest.approx(statistics.mean(entropies))
    assert grpo.exact_kl(p, q, batch["mask"]) == pytest.approx(statistics.mean(divergences))
    assert grpo.exact_kl(p, p, batch["mask"]) == 0.0


def test_k3_is_unbiased_and_never_negative(batch: dict[str, torch.Tensor]) -> None:
    p = grpo.log_distribution(batch["logits"][:1, :1], 1.0).expand(1, V, V)
    q = grpo.log_distribution(batch["logits"][1:2, :1], 1.0).expand(1, V, V)
    tokens = torch.arange(V).unsqueeze(0)
    estimates = grpo.k3(grpo.token_logprobs(p, tokens), grpo.token_logprobs(q, tokens))
    assert (estimates >= 0).all()
    expected = (p[0, 0].exp() * estimates[0]).sum().item()
    exact = grpo.exact_kl(p[:, :1], q[:, :1], torch.ones(1, 1))
    assert expected == pytest.approx(exact)
