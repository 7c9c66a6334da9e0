"""A small service that keeps the wire's promises in memory, behind a transport or behind a real socket."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from twoclocks.client import Monitor
from twoclocks.client.ledger import Ledger
from twoclocks.client.link import Link
from twoclocks.client.sender import Sender
from twoclocks.client.spool import Spool

URL = "http://two-clocks.test"
PROBLEM = {"Content-Type": "application/problem+json"}


def problem(status: int, detail: str, **more: Any) -> httpx.Response:
    body = {"type": "about:blank", "title": "no", "status": status, "detail": detail, **more}
    return httpx.Response(status, content=json.dumps(body), headers=PROBLEM)


class FakeService:
    """Idempotent by (run, attempt, step), as the real one is. `fault` may answer or raise in its place."""

    def __init__(self) -> None:
        self.fault: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.requests: list[httpx.Request] = []
        self.specs: dict[int, dict[str, Any]] = {}
        self.reports: dict[tuple[int, int], dict[str, Any]] = {}
        self.arrivals: list[tuple[int, Any]] = []
        self.acks: list[tuple[int, dict[str, Any]]] = []
        self.finishes: list[dict[str, Any]] = []
        self.received = 0
        self.directive: dict[str, Any] = {"generation": 0, "kind": "hold", "issued_at": 1.0}
        self.lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            self.requests.append(request)
        answer = self.fault(request)
        if answer is not None:
            return answer
        with self.lock:
            return self.handle(request)

    def handle(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        parts = request.url.path.split("/")
        match request.method, parts[5:]:
            case "PUT", []:
                self.specs[body["attempt"]] = body
                self.arrivals.append((body["attempt"], "spec"))
            case "POST", ["steps"]:
                return self.ingest(body)
            case "GET", ["directive"]:
                etag = f'"{self.directive["generation"]}"'
                if request.headers.get("If-None-Match") == etag:
                    return httpx.Response(304)
                return httpx.Response(200, json=self.directive, headers={"ETag": etag})
            case "PUT", ["directive", generation, "ack"]:
                self.acks.append((int(generation), body))
                self.arrivals.append((body["attempt"], "ack"))
            case "POST", ["finish"]:
                self.finishes.append(body)
                self.arrivals.append((body["attempt"], "finish"))
            case _:
                return problem(404, f"no route {request.url.path}")
        return httpx.Response(200, json={"directive": self.directive})

    def ingest(self, body: dict[str, Any]) -> httpx.Response:
        accepted = duplicates = 0
        refused = []
        for report in body["reports"]:
            self.received += 1
            key = (body["attempt"], report["step"])
            if key not in self.reports:
                self.reports[key] = report
                self.arrivals.append(key)
                accepted += 1
            elif self.reports[key] == report:
                duplicates += 1
            else:
                reason = f"step {report['step']} is stored with another reward"
                refused.append({"step": report["step"], "attempt": body["attempt"], "reason": reason})
        if len(refused) == len(body["reports"]):
            return problem(409, "every report differs", refused=refused)
        reply = {"accepted": accepted, "duplicates": duplicates, "refused": refused}
        return httpx.Response(200, json={**reply, "directive": self.directive})

    def steps(self, attempt: int) -> list[int]:
        return [key[1] for key in self.arrivals if key[0] == attempt and isinstance(key[1], int)]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def refuse() -> Callable[..., httpx.Response]:
    return problem


@pytest.fixture
def make(service: FakeService, tmp_path: Path) -> Iterator[Callable[..., Monitor]]:
    """Monitors of the fake service; whatever a test leaves open is closed without waiting."""
    made: list[Monitor] = []

    def monitor(run: str = "run", **given: Any) -> Monitor:
        given = {"spool_dir": tmp_path / "spool", "transport": httpx.MockTransport(service), **given}
        made.append(Monitor(given.pop("url", URL), run, **given))
        return made[-1]

    yield monitor
    for each in made:
        each.close(0.0)


class Bench:
    """A sender with its spool and its hands on time: `now` and `luck` are set by the test."""

    def __init__(self, service: FakeService, path: Path, limit: int = 2**20) -> None:
        self.now, self.luck = 0.0, 1.0
        self.ledger = Ledger()
        self.spool = Spool(path, limit=limit, ledger=self.ledger)
        self.client = httpx.Client(transport=httpx.MockTransport(service))
        self.sender = Sender(
            Link(self.client, URL),
            self.spool,
            self.ledger,
            run="run",
            attempt=2,
            spec='{"attempt":2}',
            poll_seconds=5.0,
            uniform=lambda: self.luck,
            clock=lambda: self.now,
        )

    def settle(self, most: int = 100) -> float:
        """Step until there is something to wait for; returns for how long."""
        for _ in range(most):
            if wait := self.sender.step():
                return wait
        raise AssertionError(f"no rest after {most} steps")


@pytest.fixture
def bench(service: FakeService, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(service, tmp_path / "bench.sqlite3")
    yield made
    made.client.close()
    made.spool.close()


@pytest.fixture
def give() -> Callable[..., None]:
    """Report one good step to a monitor."""

    def report(monitor: Monitor, number: int, **more: Any) -> None:
        known = {"step": number, "samples": 8 * (number + 1), "rollout_batch": 8, "learning_rate": 1e-5}
        monitor.report(**{**known, "reward": 0.5, **more})

    return report


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait for something another thread does; a minute without it is a failure."""

    def wait(true: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not true():
            assert time.monotonic() < end, "waited a minute in vain"
            time.sleep(0.005)

    return wait


class Served:
    """The fake service on a real port; `stop` closes the port, `start` opens the same one again."""

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self.service

        class Handler(BaseHTTPRequestHandler):
            def reply(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                url = f"http://service{self.path}"
                answer = service(
                    httpx.Request(
                        self.command, url, headers=dict(self.headers), content=self.rfile.read(length)
                    )
                )
                self.send_response(answer.status_code)
                for name in ("Content-Type", "ETag", "Retry-After", "Location"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_PUT = do_POST = reply  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def served(service: FakeService) -> Iterator[Served]:
    server = Served(service)
    yield server
    server.stop()
