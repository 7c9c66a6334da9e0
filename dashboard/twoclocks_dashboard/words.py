"""What a metric is and in which unit, for hovers and labels."""

from twoclocks.wire import CANONICAL_METRICS

METRIC_UNITS = {
    "entropy": "nats per token",
    "kl_reference": "nats per token",
    "kl_step": "nats per token",
    "importance_ratio_rms": "nats",
    "clip_fraction": "share of tokens",
    "zero_variance_fraction": "share of groups",
    "truncated_fraction": "share of responses",
    "response_length": "tokens",
    "tokens": "tokens",
    "displacement": "norm of θ − θ₀",
    "update_norm": "norm",
    "grad_norm": "norm",
    "regime": "R",
    "reward_std": "reward",
}


def describe(name: str) -> str:
    """What the metric is; a metric that this service does not know is said to be the trainer's own."""
    return CANONICAL_METRICS.get(name, "a metric of the trainer's own")
