"""The policy: a tiny Qwen2 over single characters, and its way to and from a folder.

At 84,000 parameters it trains by the real algorithm in seconds on one core. Every base model has the
vocabulary of tasks.VOCABULARY, one token a character.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from twoclocks_trainer.config import ConfigError
from twoclocks_trainer.tasks import END, PADDING, VOCABULARY

PAD_ID = VOCABULARY.index(PADDING)
END_ID = VOCABULARY.index(END)
PACKAGED = Path(__file__).parent / "bases"


class BaseError(ConfigError):
    """A base model that cannot be used; one line says why and what to do."""


def encode(text: str) -> list[int]:
    """Return the token of each character; raises ValueError for one outside the vocabulary."""
    return [VOCABULARY.index(character) for character in text]


def decode(tokens: Sequence[int]) -> str:
    """Return the characters of the tokens."""
    return "".join(VOCABULARY[token] for token in tokens)


def new_model(seed: int) -> Qwen2ForCausalLM:
    """Return an untrained policy: hidden 64, 2 layers, 4 heads, embeddings tied (THEORY.md 6)."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        eos_token_id=END_ID,
    )
    return Qwen2ForCausalLM(config)


def save_model(model: Qwen2ForCausalLM, folder: Path) -> None:
    """Write config and weights (safetensors, in half precision) to a folder; the model is left alone."""
    weights = {name: parameter.detach().half() for name, parameter in model.named_parameters()}
    model.config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load_model(folder: Path) -> Qwen2ForCausalLM:
    """Return the policy of a folder in single precision; raises BaseError where it is none of ours."""
    if not (folder / "config.json").is_file():
        raise BaseError(
            f"no base model in {folder} (config.json is missing); `twoclocks-train base` makes one"
        )
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    told = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    try:
        loaded: Any = Qwen2ForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        raise BaseError(f"the base model in {folder} cannot be read: {why}") from error
    finally:
        transformers.utils.logging.set_verbosity(told)
    model: Qwen2ForCausalLM = loaded[0]
    astray = sum(len(loaded[1][kind]) for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"))
    if astray:  # transformers would fill what is missing with random numbers
        raise BaseError(
            f"the weights in {folder} do not fit its config.json: {astray} tensors are missing, of another "
            "shape or not the model's; make the base anew with `twoclocks-train base`"
        )
    if model.config.vocab_size != len(VOCABULARY):
        raise BaseError(
            f"the base model in {folder} has {model.config.vocab_size} tokens, not the {len(VOCABULARY)} "
            "characters of the bundled tasks"
        )
    model.train(False)
    return model
