"""Two Clocks: live collapse forecasting for GRPO training."""

__version__ = "0.1.0"
