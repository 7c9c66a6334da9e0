"""The service as a process: its start, its end, what a SIGKILL leaves, and its event stream."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from twoclocks.app import running, serve
from twoclocks.config import Settings, load_settings
from twoclocks.errors import StartError
from twoclocks.store import Store
from twoclocks.wire import RunSpec, RunSummary, StepBatch, StepReport

Report = Callable[..., StepReport]
Batch = Callable[..., StepBatch]
PROGRAM = [sys.executable, "-m", "twoclocks", "serve", "--port", "0", "--log-level", "warning"]


@contextlib.contextmanager
def process(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real service; yields it and its address, and leaves nothing running."""
    environment = {**os.environ, "TWOCLOCKS_DATABASE_URL": url, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(PROGRAM, env=environment, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            line = service.stdout.readline()
            assert line.startswith("Two Clocks is at http://127.0.0.1:"), line
            yield service, line.split()[-1]
        finally:
            if service.poll() is None:
                service.kill()


def events(lines: Iterator[str]) -> Iterator[tuple[str, RunSummary]]:
    """Each event of a stream as its id and its summary."""
    number = ""
    for line in lines:
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        if line.startswith("data: "):
            yield number, RunSummary.model_validate_json(line.removeprefix("data: "))


def test_events_are_sent_at_every_change(
    settings: Settings, store: Store, report: Report, batch: Batch
) -> None:
    store.put_run("a", RunSpec(), time.time())
    with running(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        with client.stream("GET", "/api/v1/runs/a/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            received = events(stream.iter_lines())
            number, summary = next(received)
            assert (number, summary.revision, summary.step) == ("1", 1, None)
            store.ingest("a", batch(report(0)), time.time())  # another connection, as another process would
            number, summary = next(received)
            assert (number, summary.step) == ("2", 0)
        with client.stream("GET", "/api/v1/runs/a/events", headers={"Last-Event-ID": "1"}) as stream:
            assert next(events(stream.iter_lines()))[0] == "2"
        with client.stream("GET", "/api/v1/runs/a/events", headers={"Last-Event-ID": "2"}) as stream:
            received = events(stream.iter_lines())
            store.ingest("a", batch(report(1)), time.time())
            assert next(received)[0] == "3"


def test_a_run_that_falls_silent_is_an_event_too(settings: Settings, store: Store) -> None:
    now = [1_000.0]
    store.put_run("a", RunSpec(heartbeat_seconds=60), now[0])
    with (
        running(settings, clock=lambda: now[0]) as url,
        httpx.stream("GET", f"{url}/api/v1/runs/a/events", timeout=20) as stream,
    ):
        received = events(stream.iter_lines())
        assert next(received)[1].state == "running"
        now[0] = 2_000.0
        assert next(received)[1].state == "lost"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_asked_with_streams_and_long_polls_open(url: str, how: signal.Signals) -> None:
    with process(url) as (service, address), httpx.Client(base_url=address, timeout=20) as client:
        client.put("/api/v1/runs/a", json={})
        answers: list[int] = []

        def poll() -> None:
            headers = {"If-None-Match": '"0"'}
            answers.append(client.get("/api/v1/runs/a/directive?wait=60", headers=headers).status_code)

        waiting = threading.Thread(target=poll)
        with client.stream("GET", "/api/v1/runs/a/events") as stream:
            next(events(stream.iter_lines()))
            waiting.start()
            time.sleep(0.3)
            service.send_signal(how)
            assert service.wait(timeout=5) == 0
        waiting.join(timeout=5)
        assert answers == [304]


def test_sigkill_loses_and_doubles_nothing(url: str, report: Report, batch: Batch) -> None:
    acknowledged: dict[str, set[int]] = {name: set() for name in ("a", "b")}
    tried: dict[str, set[int]] = {name: set() for name in acknowledged}

    def send(address: str, run: str, first: int) -> None:
        with httpx.Client(base_url=address, timeout=5) as client, contextlib.suppress(httpx.HTTPError):
            for start in range(first, first + 3_000, 3):
                reports = batch(*(report(step) for step in range(start, start + 3)))
                tried[run].update(range(start, start + 3))
                answer = client.post(
                    f"/api/v1/runs/{run}/steps",
                    content=reports.model_dump_json(),
                    headers={"Content-Type": "application/json"},
                )
                if answer.status_code == 200:
                    acknowledged[run].update(range(start, start + 3))

    for life in range(3):
        with process(url) as (service, address):
            threads = [
                threading.Thread(target=send, args=(address, run, 10_000 * life)) for run in acknowledged
            ]
            for thread in threads:
                thread.start()
            goal = {run: len(steps) + 9 for run, steps in acknowledged.items()}
            while any(len(acknowledged[run]) < goal[run] for run in goal) and service.poll() is None:
                time.sleep(0.01)
            service.kill()
            for thread in threads:
                thread.join()
    with process(url) as (_, address), httpx.Client(base_url=address, timeout=20) as client:
        for run, kept in acknowledged.items():
            assert len(kept) >= 27
            columns = client.get(f"/api/v1/runs/{run}/steps").json()
            assert len(columns["step"]) == len(set(columns["step"]))
            assert kept <= set(columns["step"]) <= tried[run]
            summary = RunSummary.model_validate(client.get(f"/api/v1/runs/{run}").json())
            assert summary.reports == len(columns["step"])
            assert summary.step == summary.clocks.step == max(columns["step"])
            replayed = batch(*(report(step) for step in sorted(kept)[:900])).model_dump(mode="json")
            answer = client.post(f"/api/v1/runs/{run}/steps", json=replayed).json()
            assert (answer["accepted"], answer["duplicates"]) == (0, min(len(kept), 900))


def test_a_taken_port_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert serve(Settings(database_url=url, port=port)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"twoclocks: cannot listen on 127.0.0.1:{port}: address already in use")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"database_url": "sqlite:////no/such/folder/x.sqlite3"}, "the folder does not exist"),
        ({"database_url": "sqlite://"}, "would lose every report"),
        ({"host": "nowhere.invalid"}, "no such address 'nowhere.invalid'"),
    ],
)
def test_what_it_cannot_start_with_is_one_line(
    url: str, setting: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(Settings(**{"database_url": url, "port": 0, **setting})) == 2  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_newer_database_is_refused_at_start(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "service.sqlite3")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    assert serve(Settings(database_url=url, port=0)) == 2
    assert "a newer one made it" in capsys.readouterr().err


def test_a_database_that_is_locked_is_unavailable_and_comes_back(
    settings: Settings, tmp_path: Path, report: Report, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoclocks.store.engine.BUSY_TIMEOUT_MS", 50)
    body = batch(report(0)).model_dump(mode="json")
    with running(settings) as url, httpx.Client(base_url=url, timeout=20) as client:
        with contextlib.closing(sqlite3.connect(tmp_path / "service.sqlite3")) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = client.post("/api/v1/runs/a/steps", json=body)
            other.rollback()
        assert refused.status_code == 503
        assert "locked by another process" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        assert client.post("/api/v1/runs/a/steps", json=body).json()["accepted"] == 1
        assert 'twoclocks_errors_total{kind="unavailable"} 1.0' in client.get("/metrics").text


def test_two_processes_on_one_database_give_the_same(url: str, report: Report, batch: Batch) -> None:
    with process(url) as (_, one), process(url) as (_, two):
        httpx.put(f"{one}/api/v1/runs/a", json={})
        with httpx.stream("GET", f"{two}/api/v1/runs/a/events", timeout=20) as stream:
            received = events(stream.iter_lines())
            assert next(received)[1].reports == 0
            for step, address in ((0, one), (1, two), (2, one), (0, two)):
                body = batch(report(step)).model_dump(mode="json")
                assert httpx.post(f"{address}/api/v1/runs/a/steps", json=body).status_code == 200
            while next(received)[1].reports < 3:
                pass
        assert (
            httpx.get(f"{one}/api/v1/runs/a/steps").json() == httpx.get(f"{two}/api/v1/runs/a/steps").json()
        )


def test_settings_come_from_the_environment_and_a_bad_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().database_url == "sqlite:///twoclocks.sqlite3"
    monkeypatch.setenv("TWOCLOCKS_PORT", "9999")
    assert load_settings().port == 9_999
    assert load_settings(port=1).port == 1
    monkeypatch.setenv("TWOCLOCKS_PORT", "many")
    with pytest.raises(StartError, match=r"setting TWOCLOCKS_PORT: .*got 'many'"):
        load_settings()


def test_the_process_says_one_line_for_a_bad_setting() -> None:
    environment = {**os.environ, "TWOCLOCKS_PORT": "many"}
    command = [sys.executable, "-m", "twoclocks", "serve"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("twoclocks: setting TWOCLOCKS_PORT")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
