"""The whole loop with real processes: a service, a trainer, and SIGKILL for either of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from twoclocks.demo.processes import free_port
from twoclocks.demo.summary import DIRECTIVES
from twoclocks.wire import API_PREFIX, AckState, DirectiveKind, RunState, RunSummary, StepColumns

PATIENCE = 120.0
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(0.05)


class Service:
    """`twoclocks serve` on one database and one port, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "twoclocks", "serve", "--port", str(self.port)]
        command += ["--database-url", f"sqlite:///{self.folder / 'twoclocks.sqlite3'}"]
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)
        wait_for(self.ready, "the service")

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.address}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> bytes:
        return httpx.get(f"{self.address}{API_PREFIX}{path}").raise_for_status().content

    def run(self, name: str) -> RunSummary:
        return RunSummary.model_validate_json(self.get(f"/runs/{name}"))

    def steps(self, name: str) -> StepColumns:
        return StepColumns.model_validate_json(self.get(f"/runs/{name}/steps"))

    def reported(self, name: str, step: int) -> bool:
        reply = httpx.get(f"{self.address}{API_PREFIX}/runs/{name}")
        return reply.status_code == 200 and (RunSummary.model_validate_json(reply.content).step or 0) >= step


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    service.start()
    yield service
    service.kill()


@contextmanager
def trainer(folder: Path, address: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real training run of about 25 short steps, killed on the way out if it still goes."""
    command = [sys.executable, "-m", "twoclocks_trainer", "--run", "r", "--monitor", address]
    command += [
        "--checkpoint-dir",
        str(folder / "checkpoints"),
        "--metrics-file",
        str(folder / "metrics.jsonl"),
    ]
    command += ["--rollout-batch", "16", "--budget-samples", "400", "--eval-every-samples", "200"]
    command += ["--updates-per-batch", "4", "--window-samples", "64", *flags]
    environment = ENVIRONMENT | {"TWOCLOCKS_SPOOL_DIR": str(folder / "spool")}
    with (folder / "trainer.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written(folder: Path) -> dict[int, float]:
    """What the trainer says it reported: step -> reward, the last word on each step."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {report["step"]: report["reward"] for report in map(json.loads, lines)}


def test_a_scheduled_switch_goes_round_the_whole_loop(service: Service, tmp_path: Path) -> None:
    schedule = json.dumps([{"at_samples": 96, "rollout_batch": 32, "rule": "held"}])
    with trainer(tmp_path, service.address, "--policy", "act", "--schedule", schedule) as process:
        assert process.wait(PATIENCE) == 0
    wait_for(lambda: service.run("r").state is RunState.FINISHED, "the run to finish")
    steps = service.steps("r")
    assert dict(zip(steps.step, steps.metrics["reward"], strict=True)) == written(tmp_path)
    assert set(steps.rollout_batch) == {16, 32}
    log = DIRECTIVES.validate_json(service.get("/runs/r/directives"))
    kinds = [record.kind for record in log]
    assert kinds.index(DirectiveKind.CHECKPOINT) < kinds.index(DirectiveKind.SWITCH_BATCH)
    switch = log[kinds.index(DirectiveKind.SWITCH_BATCH)]
    assert [ack.state for ack in switch.acks] == [AckState.RECEIVED, AckState.APPLIED]
    assert switch.complied_at_step == switch.acks[-1].step
    first_large = steps.step[steps.rollout_batch.index(32)]
    assert switch.complied_at_step == first_large


def test_a_killed_service_loses_and_doubles_nothing(service: Service, tmp_path: Path) -> None:
    with trainer(tmp_path, service.address, "--budget-samples", "960") as process:
        wait_for(lambda: service.reported("r", 3), "the first reports")
        service.kill()
        behind = len(written(tmp_path))
        wait_for(lambda: len(written(tmp_path)) >= behind + 3, "training to go on without the service")
        service.start()
        assert process.wait(PATIENCE) == 0
    wait_for(lambda: service.run("r").state is RunState.FINISHED, "the run to finish")
    steps = service.steps("r")
    assert steps.step == sorted(set(steps.step))
    assert dict(zip(steps.step, steps.metrics["reward"], strict=True)) == written(tmp_path)
    assert service.run("r").reports == len(steps.step)


def test_a_killed_trainer_is_lost_and_resumes_as_a_new_attempt(service: Service, tmp_path: Path) -> None:
    flags = ("--heartbeat-seconds", "1", "--checkpoint-every-steps", "4")
    with trainer(tmp_path, service.address, *flags) as process:
        wait_for(lambda: service.reported("r", 6), "six steps")
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: service.run("r").state is RunState.LOST, "the run to be lost")
    first = service.run("r").attempt
    with trainer(tmp_path, service.address, *flags, "--resume") as process:
        assert process.wait(PATIENCE) == 0
    wait_for(lambda: service.run("r").state is RunState.FINISHED, "the resumed run to finish")
    resumed = service.run("r")
    assert resumed.attempts == 2
    assert resumed.attempt > first
    steps = service.steps("r")
    assert steps.step == list(range(steps.step[0], steps.step[-1] + 1))
    assert steps.samples[-1] == 400
    assert dict(zip(steps.step, steps.metrics["reward"], strict=True)) == written(tmp_path)


def test_no_service_at_all_costs_one_line(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with trainer(tmp_path, address, "--budget-samples", "64") as process:
        assert process.wait(PATIENCE) == 0
    lines = [line for line in (tmp_path / "trainer.log").read_text().splitlines() if address in line]
    assert len(lines) <= 2, lines  # once when it begins, once for what waits in the spool
    assert lines
    assert len(written(tmp_path)) == 4


def test_what_waited_on_disk_is_sent_by_the_next_start(service: Service, tmp_path: Path) -> None:
    service.kill()
    with trainer(tmp_path, service.address, "--budget-samples", "64") as process:
        assert process.wait(PATIENCE) == 0
    service.start()
    with trainer(tmp_path, service.address, "--budget-samples", "128", "--resume") as process:
        assert process.wait(PATIENCE) == 0
    wait_for(lambda: service.run("r").state is RunState.FINISHED, "the run to finish")
    steps = service.steps("r")
    assert dict(zip(steps.step, steps.metrics["reward"], strict=True)) == written(tmp_path)
