"""Child processes of the demonstration: the service and the trainers, each with a log of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx

from twoclocks.cli import CommandError

STARTUP_SECONDS = 60.0


def end_children_when_ended() -> None:
    """Let SIGTERM unwind this process like an exception, so that its children are ended too."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


@contextmanager
def service(folder: Path, port: int) -> Iterator[str]:
    """Run `twoclocks serve` on a database in `folder` and yield its address.

    Raises CommandError with the service's own last line where it does not start (a taken port, say).
    """
    if not _is_free(port):  # otherwise whoever listens there would be taken for our service
        raise CommandError(f"port {port} is taken; choose another with --port")
    log = folder / "service.log"
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "twoclocks", "serve", "--port", str(port), "--log-level", "warning"]
    command += ["--database-url", f"sqlite:///{folder / 'twoclocks.sqlite3'}"]
    with start(command, log) as process:
        deadline = time.monotonic() + STARTUP_SECONDS
        while not _ready(address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandError(f"the service did not start: {last_line(log)}")
            time.sleep(0.1)
        yield address


@contextmanager
def start(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with its output in `log`; ended, and waited for, on the way out."""
    environment = os.environ | {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def last_line(log: Path) -> str:
    """The last line a process printed that says anything."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"it printed nothing; see {log}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=2.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
