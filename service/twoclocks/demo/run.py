"""The demonstration in order: calibrate the family, train unguided and guided side by side, then control."""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from subprocess import Popen
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from twoclocks.cli import CommandError
from twoclocks.demo import processes
from twoclocks.demo.recipe import BUDGET, Arm, calibration, control, pair
from twoclocks.demo.screen import Screen
from twoclocks.demo.summary import Outcome, Reader

PROJECT = "demo"
AT_ONCE = 2
POLL_SECONDS = 0.25
ENDED_WELL = {0, 3}
"""Exit codes of a trainer that used its budget, or was stopped by a directive."""


def demo(*, seed: int, port: int, leave: bool, summary_file: Path | None, folder: Path | None) -> int:
    """Run it all and print the summary; unless `leave`, keep the dashboard up until Ctrl-C. Returns 0.

    Raises CommandError where the service or a trainer does not start.
    """
    console = terminal()
    processes.end_children_when_ended()
    with _folder(folder) as place, processes.service(place, port) as address:
        console.print(f"[bold]Two Clocks[/] is up: watch it at [link={address}]{address}[/]")
        console.print(f"Real GRPO on this machine's CPU, seed {seed}; logs and database in {place}\n")
        outcomes = play(address, seed, place, console)
        console.print(table(outcomes))
        for line in sentences(outcomes):
            console.print(line)
        if summary_file:
            summary_file.write_text(json.dumps(document(seed, outcomes), indent=2) + "\n")
            console.print(f"Summary written to {summary_file}")
        if not leave:
            console.print(f"\nThe dashboard stays at [link={address}]{address}[/]; Ctrl-C ends it.")
            _wait_for_interrupt()
    return 0


def terminal() -> Console:
    """The terminal, or 120 columns of plain text where the output is not one."""
    return Console(width=None if sys.stdout.isatty() else 120)


def play(address: str, seed: int, folder: Path, console: Console) -> dict[str, Outcome]:
    """Train every run of the recipe against the service at `address`; returns outcomes by run name."""
    reader = Reader(address)
    screen = Screen(console, reader)
    outcomes: dict[str, Outcome] = {}
    live = Live(console=console, refresh_per_second=4) if console.is_terminal else nullcontext()
    try:
        with live:

            def train(title: str, arms: Sequence[Arm]) -> None:
                console.print(f"[bold]{title}[/]")
                _train(arms, address, folder, screen, live)
                outcomes.update({arm.name: reader.outcome(arm.name, arm.seed) for arm in arms})

            train("Calibration: runs of one family, each left alone until it collapses", calibration(seed))
            alone, guided = pair(seed)
            train("The same seed left alone, and guided by directives", [alone, guided])
            asked_at = outcomes[guided.name].asked_at
            if asked_at is not None:
                title = "Control: at the same sample the batch is held and the rate lowered to the same eta0"
                train(title, [control(seed, asked_at)])
    finally:
        reader.close()
    return outcomes


def _train(arms: Sequence[Arm], address: str, folder: Path, screen: Screen, live: Any) -> None:
    """Run the arms, a few at once; a calibration run ends when the service has seen it collapse."""
    waiting = list(arms)
    running: dict[str, tuple[Arm, Popen[bytes], Path]] = {}
    with ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                arm = waiting.pop(0)
                log = folder / f"{arm.name}.log"
                process = stack.enter_context(processes.start(command(arm, address, folder), log))
                running[arm.name] = arm, process, log
                spoken = arm.role != "calibration"
                screen.watch(arm.name, arm.name, arm.budget, time.monotonic(), spoken=spoken)
            screen.refresh()
            if isinstance(live, Live):
                live.update(screen.render(time.monotonic()))
            for name, (arm, process, log) in list(running.items()):
                latest = screen.watched[name].latest
                collapsed = latest is not None and latest.clocks.onset is not None
                if process.poll() is None:
                    if arm.role == "calibration" and collapsed:
                        process.send_signal(signal.SIGTERM)
                    continue
                if process.returncode not in ENDED_WELL and not collapsed:
                    said = processes.last_line(log)
                    raise CommandError(f"the run {name} ended with {process.returncode}: {said}")
                screen.refresh()
                screen.watched[name].done = True
                del running[name]
            time.sleep(POLL_SECONDS)
        if isinstance(live, Live):
            live.update(screen.render(time.monotonic()))


def command(arm: Arm, address: str, folder: Path) -> list[str]:
    """The trainer's command line for one arm."""
    flags = [
        sys.executable,
        "-m",
        "twoclocks_trainer",
        "--run",
        arm.name,
        "--monitor",
        address,
        "--project",
        PROJECT,
    ]
    flags += ["--checkpoint-dir", str(folder / "checkpoints" / arm.name)]
    for name, value in arm.all_settings().items():
        text = json.dumps(value) if isinstance(value, list | dict) else str(value)
        flags += [f"--{name.replace('_', '-')}", text]
    return flags


def document(seed: int, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """The summary as plain values, for `--json`."""
    return {
        "seed": seed,
        "budget_samples": BUDGET,
        "runs": {name: o.as_dict() for name, o in outcomes.items()},
    }


def table(outcomes: dict[str, Outcome]) -> Table:
    """What came of the runs after calibration."""
    grid = Table(title="What came of it", title_style="bold", header_style="dim", box=None, padding=(0, 1))
    for name in ("run", "collapsed at", "80 % at half life", "held it", "peak", "reward", "held-out"):
        grid.add_column(name, justify="left" if name == "run" else "right", no_wrap=True)
    for outcome in outcomes.values():
        if outcome.role == "calibration":
            continue
        half = outcome.half_life
        grid.add_row(
            outcome.run,
            "alive" if outcome.collapsed_at is None else f"[red]{outcome.collapsed_at:,}[/]",
            interval(outcome),
            "" if half is None or half.low is None else ("yes" if half.covered else "no"),
            _two(outcome.peak_reward),
            _two(outcome.final_reward),
            _two(outcome.final_eval_reward),
        )
    return grid


def interval(outcome: Outcome) -> str:
    """The 80 % interval that stood at half life, in samples since the start."""
    half = outcome.half_life
    if half is None or half.low is None:
        return "" if half is None else half.status
    return f"{half.low:,.0f} to {'out of reach' if half.high is None else f'{half.high:,.0f}'}"


def sentences(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """The summary in words."""
    calibrated = [o for o in outcomes.values() if o.role == "calibration"]
    onsets = sorted(o.collapsed_at for o in calibrated if o.collapsed_at is not None)
    at = ", ".join(f"{samples:,}" for samples in onsets)
    yield f"[bold]calibration[/]: {len(onsets)} of {len(calibrated)} runs collapsed, at {at} samples."
    for outcome in outcomes.values():
        if outcome.role == "calibration":
            continue
        end = "alive" if outcome.collapsed_at is None else f"collapsed at {outcome.collapsed_at:,} samples"
        half = outcome.half_life
        told = ""
        if half and half.low is not None:
            told = f"; at half its life ({half.samples:,}) the forecast was {interval(outcome)} (80 %)"
        did = [d for d in outcome.directives if d["kind"] == "switch_batch"]
        switch = ""
        if did:
            last = did[-1]
            switch = (
                f"; told at {last['issued_at_samples']:,} samples to switch to {last['rollout_batch']}"
                f" at {last['learning_rate']:.3g}: {last['outcome']}"
            )
        held_out = f"held-out reward {_two(outcome.final_eval_reward)}"
        yield f"[bold]{outcome.role}[/]: {end}, {held_out}{told}{switch}."


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="twoclocks-demo-") as name:
            yield Path(name)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"cannot make the folder {given}: {error.strerror}; choose another with --keep"
        ) from None
    yield given


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3_600)
    except KeyboardInterrupt:
        return
