"""What the terminal shows while the demonstration runs: a live table of both clocks, and the directives.

It only reads the service; everything it says, the dashboard says too.
"""

from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from twoclocks.demo.summary import Reader
from twoclocks.wire import Ack, AckState, DirectiveKind, DirectiveRecord, Forecast, ForecastStatus, RunSummary

WIDE = 108
BAR = 16
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
            self._say(run, record.generation, "issued", "bold magenta", describe(record))
            for ack in record.acks:
                state = ack.state.value
                self._say(run, record.generation, state, ACK_STYLES[state], answer(record, ack))
            if record.complied_at_step is not None and record.kind is DirectiveKind.SWITCH_BATCH:
                seen = f"the reports show it from step {record.complied_at_step} on"
                self._say(run, record.generation, "seen", "green", seen)
        onset = run.latest.clocks.onset if run.latest else None
        if onset:
            began = f"it began at {onset.samples:,} samples (step {onset.step})"
            self._say(run, onset.step, "collapsed", "bold red", began)

    def _say(self, run: Watched, generation: int, what: str, style: str, text: str) -> None:
        """Print one line of the log once, its text indented behind the run and what happened."""
        if (run.name, generation, what) in self._said:
            return
        self._said.add((run.name, generation, what))
        line = Table.grid(padding=(0, 1))
        line.add_column(width=max(len(run.label), 11), style="bold")
        line.add_column(width=9, style=style)
        line.add_column()
        line.add_row(run.label, what, text)
        self.console.print(line)

    def render(self, now: float) -> RenderableType:
        """The table of every run watched; a narrow terminal gets no progress bars."""
        wide = self.console.width >= WIDE
        table = Table(expand=True, box=None, pad_edge=False, header_style="dim", padding=(0, 1))
        table.add_column("run", no_wrap=True)
        table.add_column("samples", justify="right", no_wrap=True)
        if wide:
            table.add_column("", width=BAR)
        for name in ("left", "batch", "reward", "drift"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("collapse expected at", no_wrap=True, ratio=1)
        for run in self.watched.values():
            cells = _row(run, now)
            table.add_row(*(cells if wide else [*cells[:2], *cells[3:]]))
        title = f"[bold]Two Clocks[/]  [link={self.reader.address}]{self.reader.address}[/]"
        return Panel(table, title=title, border_style="blue")


def describe(record: DirectiveRecord) -> str:
    """A directive in words: what, to which setting, and why."""
    setting = ""
    if record.kind is DirectiveKind.SWITCH_BATCH and record.learning_rate is not None:
        setting = f" to {record.rollout_batch} at learning rate {record.learning_rate:.3g}"
    return f"{record.kind.value}{setting}, at {record.issued_at_samples:,} samples: {record.reason}"


def answer(record: DirectiveRecord, ack: Ack) -> str:
    """What the trainer did with a directive, in words."""
    where = "" if ack.step is None else f" at step {ack.step}"
    setting = ""
    if ack.state is AckState.APPLIED and ack.rollout_batch and ack.learning_rate is not None:
        setting = f": batch {ack.rollout_batch}, learning rate {ack.learning_rate:.3g}"
    return f"{record.kind.value}{where}{setting}{f' ({ack.reason})' if ack.reason else ''}"


def expectation(forecast: Forecast | None) -> Text:
    """The forecast as one cell: the median and the 80 % interval since the start, or why there is none."""
    if forecast is None:
        return Text("no report yet", style="dim")
    if forecast.status is ForecastStatus.COLLAPSED:
        return Text("collapsed", style="bold red")
    if forecast.status is ForecastStatus.UNCALIBRATED:
        return Text("uncalibrated", style="dim")
    if forecast.stay is None or forecast.status is ForecastStatus.NONE:
        return Text("cannot be known yet", style="dim")
    low, middle, high = (
        None if (value := forecast.stay.quantiles.get(level)) is None else forecast.samples + value
        for level in ("0.1", "0.5", "0.9")
    )
    text = Text(f"{_samples(middle)} ", style="bold")
    text.append(f"({_samples(low)} to {_samples(high)})", style="default")
    if forecast.status is ForecastStatus.CONTRADICTED:
        text.append(" contradicted", style="yellow")
    return text


def _samples(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:,.0f}" if value < 1e4 else f"{value / 1e3:,.3g} k"


def _row(run: Watched, now: float) -> list[RenderableType]:
    latest = run.latest
    if latest is None or latest.samples == 0:
        starting = Text("starting", style="dim")
        return [run.label, "", ProgressBar(total=1, completed=0), "", "", "", "", starting]
    failure, progress = latest.clocks.failure, latest.clocks.progress
    used = failure.drift_used_ratio if failure else None
    elapsed = max(now - run.started, 1e-3)
    left = elapsed * (run.budget - latest.samples) / latest.samples
    return [
        run.label,
        f"{latest.samples:,}",
        ProgressBar(total=run.budget, completed=min(latest.samples, run.budget)),
        "done" if run.done else f"{max(left, 0):.0f} s",
        f"{latest.rollout_batch or ''}",
        "" if progress is None or progress.reward is None else f"{progress.reward:.2f}",
        "" if used is None else f"{used:.0%}",
        expectation(failure),
    ]
