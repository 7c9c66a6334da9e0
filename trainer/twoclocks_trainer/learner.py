"""Everything of a run that changes while it trains, and its way into a checkpoint and back, bit for bit."""

import hashlib
import random
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector
from transformers import Qwen2ForCausalLM

from twoclocks_trainer.checkpoint import Checkpoint
from twoclocks_trainer.config import ConfigError, TrainConfig

# What may differ between a run and its continuation; every other setting shapes the numbers.
FREE = frozenset(
    {
        *("run", "project", "family", "base", "budget_samples", "target_reward", "heartbeat_seconds"),
        *("monitor", "policy", "risk", "candidates", "schedule", "metrics_file", "resume"),
        *("checkpoint_dir", "checkpoint_every_steps"),
    }
)


@dataclass
class State:
    """The counters, and the two dials that a directive may turn; read at the top of each step."""

    rollout_batch: int
    learning_rate: float
    step: int = 0
    samples: int = 0
    tokens: int = 0
    evaluated_at: int = 0
    received: int = 0
    answered: int = 0
    baseline_reward: float | None = None
    smoothed_reward: float | None = None
    eval_reward: float | None = None
    switches: list[dict[str, Any]] = field(default_factory=list)


class Learner:
    """Policy, optimizer, random streams and counters of one run."""

    def __init__(self, config: TrainConfig, model: Qwen2ForCausalLM) -> None:
        self.config = config
        self.model = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.theta0 = self.theta()
        self.prompts = random.Random(f"prompts {config.seed}")
        self.shuffles = torch.Generator().manual_seed(config.seed)
        torch.manual_seed(config.seed)
        self.state = State(config.rollout_batch, config.learning_rate)

    def theta(self) -> Tensor:
        """A copy of the parameters as one vector."""
        return parameters_to_vector(self.model.parameters()).detach().clone()

    @property
    def base_name(self) -> str:
        """The architecture, its size, and a digest of the base's weights: runs of another base are no kin."""
        digest = hashlib.sha256(self.theta0.numpy().tobytes()).hexdigest()
        return f"qwen2-{round(self.theta0.numel() / 1000)}k-{digest[:8]}"

    def checkpoint(self) -> Checkpoint:
        """The whole state, the samplers' included."""
        tensors = {f"model/{name}": value.detach() for name, value in self.model.named_parameters()}
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{name}": value for name, value in values.items()}
        tensors |= {
            "theta0": self.theta0,
            "random/torch": torch.get_rng_state(),
            "random/shuffles": self.shuffles.get_state(),
        }
        document = {
            "state": asdict(self.state),
            "prompts": self.prompts.getstate(),
            "config": self.config.model_dump(mode="json"),
        }
        return Checkpoint(self.state.step, tensors, document)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Become what the checkpoint holds; raises ConfigError where its settings are not this run's."""
        mine = self.config.model_dump(mode="json")
        for name, value in checkpoint.document["config"].items():
            if name not in FREE and mine.get(name) != value:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {mine.get(name)} but the checkpoint's run had {value}; "
                    "resume with the same, or start anew with another --run"
                )
        tensors = checkpoint.tensors
        if not torch.equal(tensors["theta0"], self.theta0):
            raise ConfigError("--base is not the model that the checkpoint's run began from; give that one")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"model/{name}"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer/"):
                _, index, moment = name.split("/")
                moments.setdefault(int(index), {})[moment] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        torch.set_rng_state(tensors["random/torch"])
        self.shuffles.set_state(tensors["random/shuffles"])
        version, internal, gauss = checkpoint.document["prompts"]
        self.prompts.setstate((version, tuple(internal), gauss))
        self.state = State(**checkpoint.document["state"])
