"""Rollouts: prompts in, groups of sampled responses with their log-probabilities out.

Prompts are padded on the left, so that every response begins at the same column; responses end with the end
mark, which is part of the response, and are padded on the right after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig, Qwen2ForCausalLM

from twoclocks_trainer.grpo import log_distribution, token_logprobs
from twoclocks_trainer.model import END_ID, PAD_ID, decode, encode


@dataclass(frozen=True)
class TokenBatch:
    """N rows of P prompt columns and T response columns.

    tokens and attention are (N, P + T); response_mask (N, T) is 1 up to and with the end mark.
    """

    tokens: Tensor
    attention: Tensor
    response_mask: Tensor

    @property
    def responses(self) -> Tensor:
        """The response tokens, (N, T)."""
        return self.tokens[:, -self.response_mask.shape[1] :]

    def rows(self, index: Tensor) -> "TokenBatch":
        """The rows of an index, as a batch."""
        return TokenBatch(self.tokens[index], self.attention[index], self.response_mask[index])


@dataclass(frozen=True)
class Rollout:
    """Sampled responses: their tokens, the policy's log-probabilities then, and their text.

    logprobs is (N, T), distribution the policy's whole log-distribution at each position, (N, T, V).
    """

    batch: TokenBatch
    logprobs: Tensor
    distribution: Tensor
    texts: list[str]

    @property
    def truncated(self) -> Tensor:
        """(N,) whether a response was cut at the length limit, before its end mark."""
        return ~(self.batch.responses * self.batch.response_mask == END_ID).any(dim=1)


def token_batch(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> TokenBatch:
    """Pad prompts on the left, responses on the right, side by side. With _ for padding and . as end mark:

    prompts = [[1, 2, 9], [5, 9]]      tokens = [[1, 2, 9,  3, ., _],     attention = [[1, 1, 1,  1, 1, 0],
    responses = [[3, .], [4, 4, .]]              [_, 5, 9,  4, 4, .]]                  [0, 1, 1,  1, 1, 1]]
                                       response_mask = [[1, 1, 0], [1, 1, 1]]
    """
    width, length = max(map(len, prompts)), max(map(len, responses))
    tokens = torch.full((len(prompts), width + length), PAD_ID)
    attention = torch.zeros_like(tokens)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        begin, end = width - len(prompt), width + len(response)
        tokens[row, begin:end] = torch.tensor([*prompt, *response])
        attention[row, begin:end] = 1
    return TokenBatch(tokens, attention, attention[:, width:].float())


def response_distribution(model: Qwen2ForCausalLM, batch: TokenBatch, temperature: float) -> Tensor:
    """Return the policy's log-distribution (N, T, V) at every response position of the batch."""
    attention = batch.attention[:, :-1]
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    output = model(
        input_ids=batch.tokens[:, :-1], attention_mask=attention, position_ids=positions, use_cache=False
    )
    return log_distribution(output.logits[:, -batch.response_mask.shape[1] :], temperature)


@torch.no_grad()
def roll_out(
    model: Qwen2ForCausalLM,
    prompts: Sequence[str],
    *,
    group_size: int = 1,
    temperature: float = 1.0,
    max_new_tokens: int,
    greedy: bool = False,
) -> Rollout:
    """Sample `group_size` responses to each prompt, group after group, from torch's global generator.

    Sampling is from the whole vocabulary (no top-k, no top-p), so the log-probabilities are the sampler's
    own. `greedy` takes the likeliest token instead, and consumes no randomness.
    """
    asked = token_batch([encode(prompt) for prompt in prompts], [[]] * len(prompts))
    how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": temperature, "top_k": 0}
    output = model.generate(
        asked.tokens.repeat_interleave(group_size, dim=0),
        attention_mask=asked.attention.repeat_interleave(group_size, dim=0),
        generation_config=GenerationConfig(  # type: ignore[no-untyped-call]
            **how,
            max_new_tokens=max_new_tokens,
            eos_token_id=END_ID,
            pad_token_id=PAD_ID,
            return_dict_in_generate=True,
            output_logits=True,
        ),
    )
    distribution = log_distribution(torch.stack(output.logits, dim=1), temperature)
    responses = output.sequences[:, asked.tokens.shape[1] :]
    ended = (responses == END_ID).cumsum(dim=1)
    mask = (ended - (responses == END_ID).long() == 0).long()
    batch = TokenBatch(
        tokens=torch.cat([output.sequences[:, : asked.tokens.shape[1]], responses], dim=1),
        attention=torch.cat([asked.attention.repeat_interleave(group_size, dim=0), mask], dim=1),
        response_mask=mask.float(),
    )
    lengths = mask.sum(dim=1).tolist()
    texts = [decode(row[:length]) for row, length in zip(responses.tolist(), lengths, strict=True)]
    return Rollout(batch, token_logprobs(distribution, responses), distribution, texts)
