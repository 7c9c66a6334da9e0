"""What two programs say to each other: version 1 of the wire, as pydantic models.

The client, the service, the trainer and the dashboard all speak through these models and nothing else.
Times are Unix seconds (float), drift is in the unit of its scale, samples are responses counted over the run.
NaN and infinities are legal values of a metric; in JSON they travel as the strings "NaN", "Infinity" and
"-Infinity" (JSON has no literal for them), and the literals some encoders write are accepted too.
A metric that was not measured is left out or null; it never becomes 0.
"""

import math
import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

API_PREFIX = "/api/v1"
MAX_REPORTS_PER_BATCH = 1_000
MAX_METRICS_PER_REPORT = 256
MAX_GENERATION = 2**31 - 1
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@%+ -]{0,127}")

CANONICAL_METRICS: dict[str, str] = {
    "reward": "mean verifiable reward of the step's responses",
    "reward_std": "standard deviation of the rewards within a group, averaged over groups",
    "eval_reward": "mean reward on held-out prompts",
    "entropy": "mean entropy per generated token, nats",
    "kl_reference": "KL divergence to the reference policy per token, nats",
    "kl_step": "KL divergence moved by this step's updates per token, nats",
    "clip_fraction": "share of tokens whose importance ratio was clipped, 0..1",
    "grad_norm": "gradient norm before clipping, mean over the step's updates",
    "update_norm": "norm of one optimizer update, mean over the step's updates",
    "displacement": "net norm of theta - theta0 since the run began",
    "regime": "R = update norm / (learning rate x sqrt(parameters)); about 0.23 is noise-dominated Adam",
    "importance_ratio_max": "largest importance ratio of the step",
    "importance_ratio_rms": "sqrt(E[(log ratio)^2]) over the step's updates, nats",
    "zero_variance_fraction": "share of groups whose rewards are all equal, 0..1",
    "response_length": "mean response length, tokens",
    "truncated_fraction": "share of responses cut at the length limit, 0..1",
    "loss": "policy loss, mean over the step's updates",
    "tokens": "generated tokens since the run began",
}

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
FamilyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:=|,+ -]{0,255}$")]
LARGEST = 2**53
"""The largest count: beyond it JSON's numbers and floats no longer tell neighbours apart."""
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Place = Annotated[int, Field(ge=0, le=LARGEST)]
"""A count that may be 0: a step, an attempt, samples."""
Memory = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
"""An exponential memory of Adam's; at 1 or above its averages would never forget, or grow without end."""


class WireModel(BaseModel):
    """The common settings: unknown fields are refused by name, NaN survives the journey."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", from_attributes=True)


class Policy(StrEnum):
    """Whether directives are advice or are meant to be carried out."""

    ADVISE = "advise"
    ACT = "act"


class RunState(StrEnum):
    """Where a run stands; `lost` is a running run that missed its declared heartbeat interval."""

    RUNNING = "running"
    LOST = "lost"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class Candidate(WireModel):
    """A setting that a run permits the service to switch it to.

    `rule` says what happens to the learning rate: `held` keeps it, `sqrt` scales it by sqrt(new / old batch).
    An explicit `learning_rate` overrides the rule.
    """

    rollout_batch: Count
    rule: Literal["held", "sqrt"] = "held"
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class ScheduledSwitch(WireModel):
    """A fixed point of a schedule: at `at_samples` responses, switch to this setting."""

    at_samples: Place
    rollout_batch: Count
    rule: Literal["held", "sqrt"] = "held"
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class RunConfig(WireModel):
    """What the run trains and how. Every field is optional; any further one is kept and shown.

    The fields from `model` to `lora_rank` decide which runs are of one family (their thresholds are alike).
    """

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="strings", from_attributes=True)

    model: str | None = None
    task: str | None = None
    algorithm: str = "grpo"
    optimizer: str = "adamw"
    betas: tuple[Memory, Memory] = (0.9, 0.999)
    weight_decay: float | None = None
    max_grad_norm: float | None = None
    updates_per_batch: Count = Field(default=1, description="optimizer updates per rollout batch")
    epochs: Count = Field(default=1, description="passes over each rollout batch")
    clip_low: float | None = None
    clip_high: float | None = None
    kl_coefficient: float | None = None
    lora_rank: int | None = None
    group_size: Count | None = None
    parameters: Count | None = Field(default=None, description="trained parameters")
    seed: int | None = None


class RunSpec(WireModel):
    """The body of `PUT /api/v1/runs/{run}`: create or resume. `{}` will do; what is left out is unknown."""

    project: RunName = "default"
    family: FamilyName | None = Field(default=None, description="left out: derived from the configuration")
    config: RunConfig = Field(default_factory=RunConfig)
    attempt: Place = Field(default=1, description="grows with each start of the process")
    target_reward: float | None = Field(default=None, allow_inf_nan=False)
    budget_samples: Count | None = None
    policy: Policy = Policy.ADVISE
    risk: float = Field(
        default=0.1, gt=0, lt=1, description="accepted probability of collapse before the budget"
    )
    candidates: list[Candidate] = Field(default_factory=list, max_length=32)
    schedule: list[ScheduledSwitch] = Field(default_factory=list, max_length=64)
    heartbeat_seconds: float = Field(
        default=600.0, gt=0, allow_inf_nan=False, description="silence that means lost"
    )
    window_samples: Count | None = Field(
        default=None, description="window of smoothing and of onset detection"
    )
    baseline_reward: float | None = Field(
        default=None, allow_inf_nan=False, description="reward before training"
    )


class StepReport(WireModel):
    """One step: a rollout batch and its updates. Any further field is a metric (a float or null)."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="strings", from_attributes=True)
    __pydantic_extra__: dict[str, float | None]

    step: Place
    samples: Place = Field(description="responses generated since the run began, this step's included")
    rollout_batch: Count
    learning_rate: float = Field(ge=0, allow_inf_nan=False)
    reward: float
    updates: Place = Field(default=1, description="optimizer updates made in this step")
    epochs: Count = Field(default=1, description="passes over the rollout batch")
    time: float | None = Field(default=None, allow_inf_nan=False, description="Unix seconds")

    @model_validator(mode="after")
    def _metrics_are_named(self) -> Self:
        extra = self.__pydantic_extra__
        if len(extra) > MAX_METRICS_PER_REPORT:
            raise ValueError(
                f"{len(extra)} metrics in one report; at most {MAX_METRICS_PER_REPORT} are taken"
            )
        for name in extra:
            if not METRIC_NAME.fullmatch(name):
                raise ValueError(
                    f"metric name {name[:40]!r}: use letters, digits and _ . / : - up to 128 characters"
                )
        return self

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric that was measured, the reward included; null ones are left out."""
        measured = {name: value for name, value in self.__pydantic_extra__.items() if value is not None}
        return {"reward": self.reward, **measured}

    def metric(self, name: str) -> float | None:
        """The metric's value, or None where it was not measured."""
        return self.reward if name == "reward" else self.__pydantic_extra__.get(name)

    def finite(self, name: str) -> float | None:
        """The metric's value, or None where it was not measured or is not finite."""
        value = self.metric(name)
        return value if value is not None and math.isfinite(value) else None


class StepBatch(WireModel):
    """The body of `POST /api/v1/runs/{run}/steps`. `sequence` counts the client's batches, for tracing."""

    attempt: Place = 1
    sequence: Place = 0
    reports: list[StepReport] = Field(min_length=1, max_length=MAX_REPORTS_PER_BATCH)


class DirectiveKind(StrEnum):
    """What the trainer is asked to do at the next step boundary."""

    HOLD = "hold"
    CHECKPOINT = "checkpoint"
    SWITCH_BATCH = "switch_batch"
    STOP = "stop"


class AckState(StrEnum):
    """What the trainer did with a directive. Acknowledging is not complying: the reports decide."""

    RECEIVED = "received"
    APPLIED = "applied"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Ack(WireModel):
    """The body of `PUT .../directive/{generation}/ack`; saying it twice changes nothing."""

    state: AckState
    attempt: Place = 1
    step: Place | None = None
    rollout_batch: Count | None = None
    learning_rate: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    reason: str | None = Field(default=None, max_length=2_000)
    time: float | None = Field(default=None, allow_inf_nan=False)


class Directive(WireModel):
    """One level-triggered document per run: the latest generation is the one that holds."""

    generation: int = Field(ge=0)
    kind: DirectiveKind = DirectiveKind.HOLD
    policy: Policy = Policy.ADVISE
    rollout_batch: int | None = None
    learning_rate: float | None = None
    reason: str = ""
    evidence: dict[str, Any] = Field(default_factory=dict)
    not_before_step: int = 0
    expires_at_step: int | None = None
    issued_at: float = 0.0
    issued_at_samples: int = 0


class DirectiveRecord(Directive):
    """A directive with what became of it, for the log."""

    acks: list[Ack] = Field(default_factory=list)
    complied_at_step: int | None = Field(default=None, description="first report that shows the new setting")


class Refused(WireModel):
    """A report that differs from the one stored under the same (run, attempt, step)."""

    step: int
    attempt: int
    reason: str
    stored: StepReport


class IngestReply(WireModel):
    """The reply to a batch: what was new, a replay, or refused, and the directive that holds."""

    accepted: int
    duplicates: int
    refused: list[Refused] = Field(default_factory=list)
    directive: Directive


class ForecastStatus(StrEnum):
    """What a forecast is worth. Only `forecast` pages, and only it issues a switch by itself."""

    FORECAST = "forecast"
    UNCALIBRATED = "uncalibrated"
    CONTRADICTED = "contradicted"
    COLLAPSED = "collapsed"
    NONE = "none"


class Outlook(WireModel):
    """Samples to collapse under one setting, from now.

    `quantiles` maps "0.05", "0.1", "0.5", "0.9", "0.95" to remaining samples; null means never within reach.
    """

    rollout_batch: int
    learning_rate: float
    drift_per_sample: float
    quantiles: dict[str, float | None]
    survive_budget: float | None = None
    rho: float | None = Field(
        default=None, description="THEORY 1.8; 1 or more: never switch for failure's sake"
    )


class Forecast(WireModel):
    """A forecast made at one moment and kept for ever, so that it can be scored when the run ends."""

    status: ForecastStatus
    reason: str = Field(description="one sentence a person understands")
    step: int
    samples: int
    made_at: float
    family: str
    collapsed_runs: int = 0
    censored_runs: int = 0
    clock: str | None = Field(default=None, description="the drift scale used")
    drift: float | None = None
    threshold: dict[str, float] = Field(
        default_factory=dict, description="quantiles of D given survival to now"
    )
    drift_used_ratio: float | None = Field(default=None, description="drift over the median threshold")
    stay: Outlook | None = None
    candidates: list[Outlook] = Field(default_factory=list)
    collapse_probability_next: float | None = Field(
        default=None, description="within the next `horizon_samples`"
    )
    collapse_probability_budget: float | None = None
    horizon_samples: int | None = None
    contradiction: float | None = Field(
        default=None, description="calibration's probability of outliving this drift"
    )


class DriftReading(WireModel):
    """One drift clock's hand."""

    scale: str
    value: float
    per_sample: float | None = None


class Onset(WireModel):
    """The collapse as detected: where it began, where the alarm rang, and what corroborates it."""

    step: int
    samples: int
    alarm_step: int
    alarm_samples: int
    cause: str = "drift"
    evidence: list[str] = Field(default_factory=list)


class Progress(WireModel):
    """The progress clock: smoothed reward against samples, with the fitted way to the target."""

    reward: float | None = None
    reward_low: float | None = None
    reward_high: float | None = None
    peak: float | None = None
    target: float | None = None
    reached_at_samples: int | None = None
    remaining: dict[str, float | None] = Field(
        default_factory=dict, description="quantiles of samples to target"
    )
    per_sample: float | None = Field(default=None, description="reward gained per sample now")
    reason: str = ""


class Clocks(WireModel):
    """Both clocks of a run as stored: `GET /api/v1/runs/{run}/clocks`."""

    run: str
    step: int | None = None
    samples: int = 0
    failure: Forecast | None = None
    progress: Progress | None = None
    drift: list[DriftReading] = Field(default_factory=list)
    onset: Onset | None = None
    regime: float | None = None
    critical_batch: float | None = None
    notices: list[str] = Field(default_factory=list)


class RunSummary(WireModel):
    """One run as lists and pages show it: `GET /api/v1/runs/{run}`."""

    run: str
    project: str
    family: str
    state: RunState
    attempt: int
    attempts: int
    spec: RunSpec
    step: int | None = None
    samples: int = 0
    rollout_batch: int | None = None
    learning_rate: float | None = None
    reports: int = 0
    created_at: float
    last_report_at: float | None = None
    ended_at: float | None = None
    end_reason: str | None = None
    revision: int = Field(default=0, description="grows with every change of the run; the event stream's id")
    directive: Directive
    directive_pending: bool = False
    clocks: Clocks


class RunList(WireModel):
    """`GET /api/v1/runs`."""

    runs: list[RunSummary]
    total: int


class StepColumns(WireModel):
    """`GET /api/v1/runs/{run}/steps`: columns of equal length; a metric that was not measured is null."""

    run: str
    total: int = Field(description="reports stored in the asked range, before downsampling")
    attempt: list[int]
    step: list[int]
    samples: list[int]
    rollout_batch: list[int]
    learning_rate: list[float]
    time: list[float | None]
    metrics: dict[str, list[float | None]]
    metrics_left_out: int = Field(default=0, description="metrics beyond the most that one answer holds")


class Finish(WireModel):
    """The body of `POST /api/v1/runs/{run}/finish`."""

    state: Literal["finished", "failed", "stopped"] = "finished"
    attempt: Place = 1
    reason: str | None = Field(default=None, max_length=2_000)


class FamilyMember(WireModel):
    """One run behind a family's threshold; `collapsed` false means censored: it was alive when last seen."""

    run: str
    collapsed: bool
    cause: str | None = None
    samples: int
    rollout_batch: int
    learning_rate: float
    log_eta0: float
    drift: dict[str, float]


class Family(WireModel):
    """`GET /api/v1/families`: a threshold learned so far, with the runs behind it."""

    family: str
    status: ForecastStatus
    clock: str | None = None
    threshold: dict[str, float] = Field(default_factory=dict)
    spread: float | None = Field(default=None, description="posterior mean of omega, the sd of log D")
    collapsed_runs: int = 0
    censored_runs: int = 0
    members: list[FamilyMember] = Field(default_factory=list)


class Problem(WireModel):
    """RFC 9457 problem details: the one shape of every error."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str | None = None
