"""Every setting of a training run, typed, and its command line. Imports no torch, so `--help` is instant."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    CliImplicitFlag,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from twoclocks.wire import Candidate, RunName, ScheduledSwitch
from twoclocks_trainer.tasks import TASKS

OFF = "off"


class ConfigError(ValueError):
    """Settings that cannot be; one line says which and what to do."""


def _fresh_name() -> str:
    return f"run-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() // 1_000_000 % 1_000:03d}"


class TrainConfig(BaseModel):
    """One training run. Batches and samples count responses, clip bounds are distances from a ratio of 1."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    run: RunName = Field(default_factory=_fresh_name, description="the run's name")
    project: RunName = Field(default="default", description="the project it is shown under")
    monitor: str = Field(default="http://127.0.0.1:8900", description="address of the service, or `off`")
    family: str | None = Field(
        default=None, description="runs that share a threshold; none: derived from the settings"
    )

    task: str = Field(default="sort", description=f"one of {', '.join(TASKS)}")
    base: Path | None = Field(default=None, description="folder of the base model; none: the task's own")
    seed: int = Field(default=0, ge=0, description="of prompts, sampling and shuffling")
    budget_samples: int = Field(default=20_000, ge=1, description="responses after which the run ends")

    rollout_batch: int = Field(default=64, ge=2, description="responses of a step")
    group_size: int = Field(default=8, ge=2, description="responses to one prompt")
    temperature: float = Field(default=1.0, gt=0, description="of sampling, and of every probability")
    max_new_tokens: int | None = Field(default=None, ge=1, description="length limit; none: the task's own")
    verdict_noise: float = Field(
        default=0.0, ge=0, lt=0.5, description="share of verdicts flipped in training, as real verifiers err"
    )

    learning_rate: float = Field(default=3e-4, gt=0, description="of AdamW")
    warmup_samples: int = Field(default=0, ge=0, description="samples over which the rate rises from 0")
    updates_per_batch: int = Field(
        default=1, ge=1, description="optimizer updates of a step, all epochs together"
    )
    epochs: int = Field(default=1, ge=1, description="passes over each rollout batch")
    clip_low: float | None = Field(default=None, gt=0, lt=1, description="lower clip of the ratio")
    clip_high: float | None = Field(default=None, gt=0, description="upper clip of the ratio")
    kl_coefficient: float = Field(default=0.0, ge=0, description="weight of the KL divergence to the base")
    std_advantages: CliImplicitFlag[bool] = Field(
        default=True, description="divide advantages by the group's standard deviation"
    )
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="of AdamW")
    weight_decay: float = Field(default=0.0, ge=0, description="of AdamW")
    max_grad_norm: float | None = Field(default=None, gt=0, description="clip of the gradient's norm")

    eval_every_samples: int = Field(default=2_048, ge=1, description="samples between held-out evaluations")
    eval_prompts: int = Field(default=256, ge=1, description="held-out prompts, answered greedily")

    policy: Literal["advise", "act"] = Field(
        default="advise", description="`act`: carry out directives; `advise`: decline them"
    )
    risk: float = Field(default=0.1, gt=0, lt=1, description="accepted probability of collapse in the budget")
    candidates: list[Candidate] = Field(
        default=[], description='permitted switches, e.g. [{"rollout_batch": 512, "rule": "held"}]'
    )
    schedule: list[ScheduledSwitch] = Field(
        default=[], description='fixed switches, e.g. [{"at_samples": 1000, "rollout_batch": 512}]'
    )
    target_reward: float | None = Field(default=None, description="what the progress clock counts down to")
    window_samples: int | None = Field(
        default=None, ge=1, description="samples of smoothing and of onset detection"
    )
    heartbeat_seconds: float = Field(default=600.0, gt=0, description="silence that means the run is lost")

    checkpoint_dir: Path | None = Field(default=None, description="folder of checkpoints; none: runs/RUN")
    checkpoint_every_steps: int = Field(
        default=50, ge=0, description="steps between checkpoints; 0: when asked and at the end"
    )
    resume: CliImplicitFlag[bool] = Field(default=False, description="go on from the newest whole checkpoint")
    metrics_file: Path | None = Field(default=None, description="append every report there, a JSON line each")
    threads: int = Field(default=1, ge=1, description="CPU threads of torch")

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.checkpoint_dir or Path("runs") / self.run

    @property
    def minibatches(self) -> int:
        """Updates of one pass."""
        return self.updates_per_batch // self.epochs

    @property
    def response_limit(self) -> int:
        """Tokens after which a response is cut."""
        return self.max_new_tokens or TASKS[self.task].max_new_tokens

    def why_not(self, rollout_batch: int) -> str | None:
        """Why a rollout batch cannot be trained on, or None where it can."""
        if rollout_batch % self.group_size:
            return f"a rollout batch of {rollout_batch} is not a multiple of the group size {self.group_size}"
        if rollout_batch % self.minibatches:
            return f"a rollout batch of {rollout_batch} does not divide into {self.minibatches} minibatches"
        return None

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.task not in TASKS:
            raise ValueError(f"task {self.task!r} is unknown; choose one of {', '.join(TASKS)}")
        if self.updates_per_batch % self.epochs:
            raise ValueError(
                f"updates_per_batch {self.updates_per_batch} must be a multiple of epochs {self.epochs}"
            )
        batches = [c.rollout_batch for c in self.candidates] + [s.rollout_batch for s in self.schedule]
        for batch in (self.rollout_batch, *batches):
            if reason := self.why_not(batch):
                raise ValueError(reason)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must lie in [0, 1)")
        if self.schedule and self.monitor == OFF and self.policy != "act":
            raise ValueError("a schedule is carried out only with policy act; add --policy act")
        return self


class _Flags(TrainConfig, BaseSettings):
    """Train by GRPO, watched by Two Clocks or not. `twoclocks-train base` makes a base model."""

    model_config = SettingsConfigDict(
        extra="forbid",
        cli_prog_name="twoclocks-train",
        cli_kebab_case=True,
        cli_exit_on_error=False,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_enforce_required=False,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def from_flags(argv: Sequence[str]) -> TrainConfig:
    """Return the configuration of a command line. Raises ConfigError; `--help` prints and exits with 0."""
    try:
        source = CliSettingsSource[object](_Flags, cli_parse_args=list(argv))
        flags: Any = _Flags
        return TrainConfig(**flags(_cli_settings_source=source).model_dump(exclude_unset=True))
    except SettingsError as error:
        raise ConfigError(f"{error}; `twoclocks-train --help` lists every flag") from None
    except ValidationError as error:
        raise ConfigError(one_line(error)) from None


def one_line(error: ValidationError) -> str:
    """The first thing wrong, with the flag it came from."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]).replace("_", "-")
    text = first["msg"].removeprefix("Value error, ")
    return f"--{where}: {text}, got {first['input']!r}" if where else text
