"""What the terminal shows while the demonstration runs: a live table of both clocks, and the directives.

It only reads the service; everything it says, the dashboard says too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twoclocks.demo.summary import Reader
from twoclocks.wire import AckState, DirectiveKind, DirectiveRecord, Forecast, ForecastStatus, RunSummary

ACK_STYLES = {"received": "cyan", "applied": "bold green", "rejected": "yellow", "expired": "dim"}


@dataclass
class Watched:
    """A run on screen: its budget, when it began by our clock, and the latest the service said of it."""

    name: str
    label: str
    budget: int
    started: float
    spoken: bool
    latest: RunSummary | None = None
    done: bool = False


@dataclass
class Screen:
    """Reads the service, says what is new above the table, and renders the table."""

    console: Console
    reader: Reader
    watched: dict[str, Watched] = field(default_factory=dict)
    _said: set[tuple[str, int, str]] = field(default_factory=set)

    def watch(self, name: str, label: str, budget: int, now: float, *, spoken: bool) -> None:
        """Put a run on the screen; where `spoken`, its directives are said as they come."""
        self.watched[name] = Watched(name, label, budget, now, spoken)

    def refresh(self) -> None:
        """Read every run that is still going, and say what is new about its directives."""
        for run in self.watched.values():
            if run.done:
                continue
            run.latest = self.reader.run(run.name) or run.latest
            if run.latest and (run.latest.directive.generation or run.latest.clocks.onset):
                self._speak(run)

    def _speak(self, run: Watched) -> None:
        for record in self.reader.directives(run.name) if run.spoken else ():
            if record.kind is DirectiveKind.HOLD:
                continue
            self._say(
                run,
                record.generation,
                "issued",
                Text.assemble(("issued   ", "bold magenta"), describe(record)),
            )
            for ack in record.acks:
                where = "" if ack.step is None else f" at step {ack.step}"
                setting = ""
                if ack.state is AckState.APPLIED and ack.rollout_batch and ack.learning_rate is not None:
                    setting = f": batch {ack.rollout_batch}, learning rate {ack.learning_rate:.3g}"
                text = Text.assemble((f"{ack.state.value:<9}", ACK_STYLES[ack.state.value]))
                text.append(f"{record.kind.value}{where}{setting}{f' ({ack.reason})' if ack.reason else ''}")
                self._say(run, record.generation, ack.state.value, text)
            if record.complied_at_step is not None and record.kind is DirectiveKind.SWITCH_BATCH:
                text = Text.assemble(
                    ("seen     ", "green"), f"the reports show it from step {record.complied_at_step} on"
                )
                self._say(run, record.generation, "seen", text)
        onset = run.latest.clocks.onset if run.latest else None
        if onset:
            text = Text.assemble(
                ("collapsed", "bold red"), f": it began at {onset.samples:,} samples (step {onset.step})"
            )
            self._say(run, onset.step, "onset", text)

    def _say(self, run: Watched, generation: int, what: str, text: Text) -> None:
        if (run.name, generation, what) not in self._said:
            self._said.add((run.name, generation, what))
            self.console.print(Text.assemble((f"{run.label:>12}  ", "bold"), text))

    def render(self, now: float) -> RenderableType:
        """The table of every run watched."""
        table = Table(expand=True, box=None, pad_edge=False, header_style="dim", padding=(0, 1))
        for name in (
            "run",
            "samples",
            "",
            "left",
            "batch",
            "reward",
            "drift used",
            "collapse expected at samples",
        ):
            table.add_column(
                name,
                justify="left" if name in {"run", "", "collapse expected at samples"} else "right",
                no_wrap=True,
            )
        for run in self.watched.values():
            table.add_row(*_row(run, now))
        return Panel(
            Group(table),
            title=f"[bold]Two Clocks[/]  [link={self.reader.address}]{self.reader.address}[/]",
            border_style="blue",
        )


def describe(record: DirectiveRecord) -> str:
    """A directive in words: what, to which setting, and why."""
    setting = ""
    if record.kind is DirectiveKind.SWITCH_BATCH and record.learning_rate is not None:
        setting = f" to {record.rollout_batch} at learning rate {record.learning_rate:.3g}"
    return f"{record.kind.value}{setting}, at {record.issued_at_samples:,} samples: {record.reason}"


def expectation(forecast: Forecast | None) -> Text:
    """The forecast as one cell: the median and the 80 % interval since the start, or why there is none."""
    if forecast is None:
        return Text("no report yet", style="dim")
    if forecast.status is ForecastStatus.COLLAPSED:
        return Text("collapsed", style="bold red")
    if forecast.stay is None or forecast.status is ForecastStatus.NONE:
        return Text("cannot be known yet", style="dim")
    low, middle, high = (
        None if (value := forecast.stay.quantiles.get(level)) is None else forecast.samples + value
        for level in ("0.1", "0.5", "0.9")
    )
    text = Text(f"{_samples(middle)} ", style="bold")
    text.append(f"(80 %: {_samples(low)} to {_samples(high)})", style="default")
    if forecast.status is not ForecastStatus.FORECAST:
        text.append(f" {forecast.status.value}", style="yellow")
    return text


def _samples(value: float | None) -> str:
    return "out of reach" if value is None else f"{value:,.0f}"


def _row(run: Watched, now: float) -> Iterable[RenderableType]:
    latest = run.latest
    if latest is None or latest.samples == 0:
        return (
            run.label,
            "",
            ProgressBar(total=1, completed=0, width=16),
            "",
            "",
            "",
            "",
            Text("starting", style="dim"),
        )
    failure, progress = latest.clocks.failure, latest.clocks.progress
    used = failure.drift_used_ratio if failure else None
    elapsed = max(now - run.started, 1e-3)
    left = elapsed * (run.budget - latest.samples) / latest.samples
    return (
        run.label,
        f"{latest.samples:,}",
        ProgressBar(total=run.budget, completed=min(latest.samples, run.budget), width=16),
        "done" if run.done else f"{max(left, 0):.0f} s",
        f"{latest.rollout_batch or ''}",
        "" if progress is None or progress.reward is None else f"{progress.reward:.2f}",
        "" if used is None else f"{used:.0%}",
        expectation(failure),
    )
