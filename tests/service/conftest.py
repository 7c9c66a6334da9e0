"""A fresh database made by the migrations for every test, and synthetic reports."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from twoclocks.app import create_app
from twoclocks.config import Settings
from twoclocks.store import Store, migrate
from twoclocks.wire import StepBatch, StepReport

ReportMaker = Callable[..., StepReport]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path / 'service.sqlite3'}"
    migrate.upgrade(address)
    return address


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url)
    yield opened
    opened.close()


@pytest.fixture
def settings(url: str) -> Settings:
    return Settings(database_url=url, port=0)


@pytest.fixture
def api(settings: Settings, clock: Clock) -> Iterator[TestClient]:
    with TestClient(create_app(settings, clock), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def report() -> ReportMaker:
    """Make a report of 64 responses a step; anything may be given otherwise."""

    def make(step: int, **given: Any) -> StepReport:
        fields = {"samples": 64 * (step + 1), "rollout_batch": 64, "learning_rate": 1e-4, "reward": 0.5}
        return StepReport.model_validate({"step": step, **fields, **given})

    return make


@pytest.fixture
def batch() -> Callable[..., StepBatch]:
    def make(*reports: StepReport, attempt: int = 1) -> StepBatch:
        return StepBatch(attempt=attempt, reports=list(reports))

    return make


@pytest.fixture
def collapsing(report: ReportMaker) -> Callable[..., list[StepReport]]:
    """Make reports whose reward rises and falls to nothing at step `at`: detected with windows of 256."""

    def make(steps: int, at: int, seed: int = 0, first: int = 0) -> list[StepReport]:
        noise = random.Random(seed)

        def reward(step: int) -> float:
            return min(0.8, 0.3 + 0.01 * step) + noise.gauss(0, 0.02) if step < at else 0.02 * noise.random()

        return [report(step, reward=reward(step), entropy=1.0) for step in range(first, steps)]

    return make
