"""Real sockets and real processes: a service that goes away, one that hangs, and a trainer that is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from twoclocks.client import Monitor

TRAINER = """
import os, sys, time
from twoclocks.client import Monitor

url, spool, attempt, steps, end = sys.argv[1:]
monitor = Monitor(url, "run", attempt=int(attempt), spool_dir=spool, timeout=0.5)
for step in range(int(steps)):
    monitor.report(step=step, samples=8 * step + 8, rollout_batch=8, learning_rate=1e-5, reward=float(step))
if end == "wait":
    print("reported", flush=True)
    time.sleep(60)
elif end == "close":
    sys.exit(0 if monitor.close(30) else 1)
elif end == "crash":
    raise RuntimeError("training failed")
"""


def waiting(folder: Path) -> int:
    """Items in the spool files of the folder, read from outside."""
    total = 0
    for path in folder.glob("*.sqlite3"):
        found = sqlite3.connect(path, timeout=10)
        total += found.execute("SELECT count(*) FROM items").fetchone()[0]
        found.close()
    return total


def trainer(url: str, spool: Path, attempt: int, steps: int, end: str) -> subprocess.Popen[str]:
    arguments = [url, str(spool), str(attempt), str(steps), end]
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_an_outage_in_mid_run_loses_nothing_and_doubles_nothing(
    served: Any, service: Any, give: Any, until: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Monitor(served.url, "run", attempt=1, spool_dir=tmp_path, timeout=5.0)
    for step in range(20):
        give(monitor, step)
    until(lambda: len(service.reports) == 20)
    served.stop()
    for step in range(20, 60):
        give(monitor, step)
    until(lambda: "cannot be reached" in caplog.text)
    assert monitor.pending >= 40
    served.start()
    for step in range(60, 70):
        give(monitor, step)
    assert monitor.close(60)
    assert service.steps(1) == list(range(70))
    assert len(service.reports) == monitor.delivered == 70
    assert [record.message.split(";")[0].split(" (")[0] for record in caplog.records] == [
        f"the service at {served.url} cannot be reached",
        f"the service at {served.url} answers again",
    ]


def test_a_service_that_is_not_there_at_the_start_is_one_line_and_training_goes_on(
    served: Any, service: Any, give: Any, until: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.stop()
    monitor = Monitor(served.url, "run", attempt=1, spool_dir=tmp_path)
    give(monitor, 0)
    until(lambda: bool(caplog.records))
    assert str(next(tmp_path.glob("run-*.sqlite3"))) in caplog.records[0].message
    served.start()
    assert monitor.close(60)
    assert service.steps(1) == [0]
    assert "Connection refused); training goes on, reports wait in" in caplog.records[0].message


def test_reports_are_on_disk_while_the_service_hangs(
    served: Any, service: Any, give: Any, until: Any, tmp_path: Path
) -> None:
    released = threading.Event()
    service.fault = lambda request: released.wait(60) and None
    monitor = Monitor(served.url, "run", attempt=1, spool_dir=tmp_path, timeout=30.0)
    until(lambda: bool(service.requests))
    for step in range(10):
        give(monitor, step)
    until(lambda: waiting(tmp_path) == 10)
    released.set()
    assert monitor.close(60)
    assert service.steps(1) == list(range(10))


def test_a_killed_trainer_leaves_its_reports_for_the_next_one(
    served: Any, service: Any, give: Any, until: Any, tmp_path: Path
) -> None:
    served.stop()
    process = trainer(served.url, tmp_path, 1, 50, "wait")
    assert process.stdout
    assert process.stdout.readline() == "reported\n"
    until(lambda: waiting(tmp_path) == 50)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    served.start()
    monitor = Monitor(served.url, "run", attempt=2, spool_dir=tmp_path)
    for step in range(40, 45):
        give(monitor, step)
    assert monitor.close(60)
    assert service.steps(1) == list(range(50))
    assert service.steps(2) == list(range(40, 45))
    assert service.arrivals.index((2, "spec")) > service.arrivals.index((1, 49))
    assert monitor.delivered == 55


def test_a_trainer_killed_while_the_service_takes_its_reports_doubles_nothing(
    served: Any, service: Any, until: Any, tmp_path: Path
) -> None:
    stored: list[int] = []

    def kill_after_storing(request: Any) -> Any:
        if request.url.path.endswith("/steps") and not stored:
            answer = service.handle(request)
            stored.append(len(service.reports))
            until(lambda: waiting(tmp_path) == 50)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return answer
        return None

    service.fault = kill_after_storing
    process = trainer(served.url, tmp_path, 1, 50, "wait")
    process.communicate()
    assert stored
    monitor = Monitor(served.url, "run", attempt=2, spool_dir=tmp_path)
    assert monitor.close(60)
    assert service.steps(1) == list(range(50))
    assert service.received > 50


def test_two_trainers_of_one_run_share_a_spool(served: Any, service: Any, tmp_path: Path) -> None:
    processes = [trainer(served.url, tmp_path, attempt, 300, "close") for attempt in (1, 2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert sorted(service.reports) == [(attempt, step) for attempt in (1, 2) for step in range(300)]


def test_a_crash_without_close_still_delivers_at_exit(served: Any, service: Any, tmp_path: Path) -> None:
    process = trainer(served.url, tmp_path, 1, 30, "crash")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.rstrip().endswith("RuntimeError: training failed")
    assert service.steps(1) == list(range(30))
    assert not list(tmp_path.iterdir())
