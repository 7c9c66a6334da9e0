"""The client against the real service, in a thread and as a process that is killed."""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from twoclocks.client import Monitor
from twoclocks.wire import StepColumns

app = pytest.importorskip("twoclocks.app", reason="the service's extra is not installed")


def columns(url: str, run: str, **asked: Any) -> StepColumns:
    return StepColumns.model_validate_json(httpx.get(f"{url}/api/v1/runs/{run}/steps", params=asked).content)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    from twoclocks.config import Settings

    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.sqlite3'}", port=0)
    with app.running(settings) as address:
        yield address


def test_every_report_arrives_once_with_its_values(url: str, give: Any, tmp_path: Path) -> None:
    monitor = Monitor(
        url, "run", attempt=1, spool_dir=tmp_path, config={"model": "tiny"}, budget_samples=10_000
    )
    for step in range(50):
        give(monitor, step, reward=math.nan if step == 7 else step / 100, entropy=None if step % 2 else 0.5)
    monitor.finish()
    assert monitor.close(60)
    stored = columns(url, "run")
    assert stored.step == list(range(50))
    assert stored.metrics["entropy"][:4] == [0.5, None, 0.5, None]
    assert math.isnan(stored.metrics["reward"][7] or 0.0)
    run = httpx.get(f"{url}/api/v1/runs/run").json()
    assert (run["state"], run["reports"], run["spec"]["config"]["model"]) == ("finished", 50, "tiny")
    assert (monitor.delivered, monitor.refused, monitor.shed, monitor.pending) == (50, 0, 0, 0)


def test_a_report_that_differs_from_the_stored_one_is_refused_and_told(
    url: str, give: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Monitor(url, "run", attempt=1, spool_dir=tmp_path)
    give(monitor, 0)
    give(monitor, 1)
    give(monitor, 1, reward=0.75)
    give(monitor, 2)
    assert monitor.close(60)
    assert columns(url, "run").step == [0, 1, 2]
    assert columns(url, "run").metrics["reward"] == [0.5, 0.5, 0.5]
    assert (monitor.delivered, monitor.refused) == (3, 1)
    assert "the service refuses a report: step 1 of attempt 1 is stored with another" in caplog.text


def test_a_schedule_becomes_a_directive_that_is_acknowledged(
    url: str, give: Any, until: Any, tmp_path: Path
) -> None:
    monitor = Monitor(
        url,
        "run",
        attempt=1,
        spool_dir=tmp_path,
        policy="act",
        budget_samples=1_000,
        schedule=[{"at_samples": 40, "rollout_batch": 32}],
        candidates=[{"rollout_batch": 32}],
    )
    batch, samples, seen = 8, 0, 0
    for step in range(25):
        samples += batch
        give(monitor, step, samples=samples, rollout_batch=batch)
        until(lambda: monitor.pending == 0)
        asked = monitor.directive
        if asked.generation > seen:
            seen = asked.generation
            batch = asked.rollout_batch or batch
            monitor.ack(seen, "applied", step=step + 1, rollout_batch=batch, learning_rate=1e-5)
    assert monitor.close(60)
    assert batch == 32
    log = httpx.get(f"{url}/api/v1/runs/run/directives").json()
    switch = next(each for each in log if each["kind"] == "switch_batch")
    assert [ack["state"] for ack in switch["acks"]] == ["applied"]
    assert switch["complied_at_step"] == switch["acks"][0]["step"]
    assert monitor.refused == 0


def test_a_resumed_run_is_a_new_attempt(url: str, give: Any, tmp_path: Path) -> None:
    for steps in (range(30), range(20, 40)):
        with Monitor(url, "run", spool_dir=tmp_path) as monitor:
            for step in steps:
                give(monitor, step)
    stored = columns(url, "run")
    assert stored.step == list(range(40))
    assert len(set(stored.attempt)) == 2
    assert httpx.get(f"{url}/api/v1/runs/run").json()["attempts"] == 2


def test_an_unknown_directive_is_not_acknowledged_for_ever(
    url: str, give: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Monitor(url, "run", attempt=1, spool_dir=tmp_path)
    monitor.ack(99, "applied")
    give(monitor, 0)
    assert monitor.close(60)
    assert monitor.refused == 1
    assert "the service refuses the ack: run 'run' has no directive of generation 99" in caplog.text
    assert columns(url, "run").step == [0]


class Service:
    """`twoclocks serve` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "TWOCLOCKS_DATABASE_URL": f"sqlite:///{self.folder / 'service.sqlite3'}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "twoclocks", "serve", "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"http://[^:]+:(\d+)", line)
        if not found:
            self.kill()
            raise AssertionError(f"no address in {line!r}")
        self.port = int(found[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_the_service_killed_in_mid_run_and_started_again_misses_and_doubles_nothing(
    give: Any, until: Any, tmp_path: Path
) -> None:
    service = Service(tmp_path)
    try:
        monitor = Monitor(service.url, "run", attempt=1, spool_dir=tmp_path / "spool")
        for step in range(300):
            give(monitor, step)
        until(lambda: monitor.delivered > 0)
        service.kill()
        for step in range(300, 400):
            give(monitor, step)
        service.start()
        for step in range(400, 450):
            give(monitor, step)
        assert monitor.close(60)
        assert columns(service.url, "run").step == list(range(450))
        assert httpx.get(f"{service.url}/api/v1/runs/run").json()["reports"] == 450
        assert (monitor.delivered, monitor.refused, monitor.shed) == (450, 0, 0)
    finally:
        service.kill()
