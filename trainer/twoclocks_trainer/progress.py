"""What a person sees while a run trains: a live line on a terminal, else a plain line at each evaluation."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from twoclocks_trainer.config import TrainConfig
from twoclocks_trainer.reporter import Report


class Display:
    """Takes each report as it is made (`update`); a context manager, for the live line must be put away."""

    def __init__(self, config: TrainConfig, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[now]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task(config.run, total=config.budget_samples, now="starting")
        self._held_out: float | None = None

    def update(self, report: Report) -> None:
        """Show a report."""
        fresh = report.get("eval_reward")
        self._held_out = self._held_out if fresh is None else fresh
        line = one_line(report, self._held_out)
        self._progress.update(self._bar, completed=report["samples"] or 0, now=line)
        if fresh is not None and not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def one_line(report: Report, held_out: float | None) -> str:
    """Step, samples, reward, batch and rate of a report, and the latest held-out reward."""
    tail = "" if held_out is None else f"  held-out {held_out:.2f}"
    return (
        f"step {report['step']}  samples {report['samples']:,}  reward {report['reward']:.2f}{tail}"
        f"  batch {report['rollout_batch']}  rate {report['learning_rate']:.3g}"
    )
