"""The demonstration's mistakes are one clear line, and its command lines are ones the trainer takes."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from twoclocks.cli import CommandError, main
from twoclocks.demo import processes
from twoclocks.demo.recipe import calibration, control, pair
from twoclocks.demo.run import command
from twoclocks_trainer.config import from_flags


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["demo", "--port", str(port), "--exit"]) == 2
        command = [sys.executable, "-m", "twoclocks", "demo", "--port", str(port), "--exit"]
        as_module = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"twoclocks: port {port} is taken; choose another with --port"
    assert capsys.readouterr().err.strip() == said
    assert (as_module.returncode, as_module.stderr.strip()) == (2, said)


def test_a_folder_that_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--keep", "/proc/nowhere", "--exit"]) == 2
    error = capsys.readouterr().err.strip()
    assert "choose another with --keep" in error
    assert "\n" not in error


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "twoclocks.sqlite3").write_bytes(b"this is no database, whatever its name says " * 40)
    with (
        pytest.raises(CommandError, match=r"did not start: .*database"),
        processes.service(tmp_path, processes.free_port()),
    ):
        pass


def test_the_trainer_takes_every_command_line(tmp_path: Path) -> None:
    for arm in [*calibration(1), *pair(1), control(1, 640)]:
        flags = command(arm, "http://127.0.0.1:1", tmp_path)[3:]
        config = from_flags(flags)
        for name, value in arm.all_settings().items():
            if isinstance(value, int | float | str):
                assert getattr(config, name) == value
        assert config.run == arm.name
    assert from_flags(command(control(1, 640), "off", tmp_path)[3:]).schedule[0].at_samples == 640


def test_ending_the_demonstration_ends_its_children(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "twoclocks", "demo", "--exit", "--port", str(processes.free_port())]
    demo = psutil.Popen([*command, "--keep", str(tmp_path / "kept")], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(children := demo.children(recursive=True)) < 3:  # the service and two trainers
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(30) == 128 + signal.SIGTERM
        assert psutil.wait_procs(children, timeout=30)[1] == []
    finally:
        for process in [*demo.children(recursive=True), demo] if demo.is_running() else []:
            process.kill()
