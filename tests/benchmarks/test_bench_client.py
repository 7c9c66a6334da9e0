"""What one report costs the training loop, beside a line of the standard library's logging to a file.

Nothing is asserted about time: the machine decides. Run `pytest tests/benchmarks/test_bench_client.py` and
compare the two rows; `report` carries the 15 metrics that a GRPO step usually has.
"""

import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from twoclocks.client import Monitor, NullMonitor

METRICS = {
    "reward_std": 0.21,
    "entropy": 0.83,
    "kl_reference": 0.004,
    "kl_step": 0.0002,
    "clip_fraction": 0.08,
    "grad_norm": 0.41,
    "update_norm": 0.002,
    "displacement": 1.7,
    "regime": 0.24,
    "importance_ratio_max": 1.9,
    "importance_ratio_rms": 0.05,
    "zero_variance_fraction": 0.12,
    "response_length": 412.5,
    "truncated_fraction": 0.01,
    "loss": -0.003,
}


def answer(request: httpx.Request) -> httpx.Response:
    body: dict[str, Any] = {"directive": {"generation": 0}, "generation": 0, "accepted": 0, "refused": []}
    if request.url.path.endswith("/steps"):
        body["accepted"] = len(json.loads(request.content)["reports"])
    return httpx.Response(200, json=body)


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    made = Monitor(
        "http://bench", "run", attempt=1, spool_dir=tmp_path, transport=httpx.MockTransport(answer)
    )
    yield made
    assert made.close(60)
    assert (made.refused, made.shed) == (0, 0)


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[logging.Logger]:
    logger = logging.Logger("bench")
    handler = logging.FileHandler(tmp_path / "steps.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    yield logger
    handler.close()


def report_with(monitor: Monitor | NullMonitor) -> Any:
    steps = itertools.count()

    def report() -> None:
        step = next(steps)
        monitor.report(
            step=step, samples=512 * (step + 1), rollout_batch=512, learning_rate=1e-6, reward=0.5, **METRICS
        )

    return report


@pytest.mark.benchmark(group="one step told")
def test_bench_report(benchmark: Any, monitor: Monitor) -> None:
    benchmark.pedantic(report_with(monitor), iterations=10, rounds=500, warmup_rounds=5)


@pytest.mark.benchmark(group="one step told")
def test_bench_null_monitor(benchmark: Any) -> None:
    benchmark.pedantic(report_with(NullMonitor()), iterations=10, rounds=500, warmup_rounds=5)


@pytest.mark.benchmark(group="one step told")
def test_bench_logging_the_same_numbers_to_a_file(benchmark: Any, lines: logging.Logger) -> None:
    steps = itertools.count()

    def line() -> None:
        lines.info("step %d reward %.4f %s", next(steps), 0.5, METRICS)

    benchmark.pedantic(line, iterations=10, rounds=500, warmup_rounds=5)
