"""The demonstration's claim, measured: the whole of it over fresh seeds, a table, and a verdict.

Each seed has a database of its own, so its forecasts know only its own calibration runs. Nothing of a seed
is left out of the table, and the bounds below were fixed before the seeds that the README quotes were run.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from twoclocks.demo import processes
from twoclocks.demo.run import interval, play, terminal
from twoclocks.demo.summary import Outcome


@dataclass(frozen=True)
class Bound:
    """One line of the claim: how many seeds kept it, and how many of eight are promised."""

    text: str
    count: int
    promised: float
    at_least: bool

    def holds(self, seeds: int) -> bool:
        """Whether the count keeps the promise, scaled from eight seeds."""
        bound = self.promised * seeds / 8
        return self.count >= bound if self.at_least else self.count <= bound


def claim(*, seeds: Sequence[int], summary_file: Path | None) -> int:
    """Run the demonstration for each seed, print table and verdict; returns 0 if the claim holds, else 1."""
    console = terminal()
    processes.end_children_when_ended()
    rows: list[dict[str, Outcome]] = []
    for number, seed in enumerate(seeds, start=1):
        console.print(f"\n[bold]Seed {seed}[/] ({number} of {len(seeds)})")
        with tempfile.TemporaryDirectory(prefix="twoclocks-claim-") as name:
            folder = Path(name)
            with processes.service(folder, processes.free_port()) as address:
                outcomes = play(address, seed, folder, console)
        rows.append({o.role: o for o in outcomes.values() if o.role != "calibration"})
        _write(summary_file, seeds, rows)
    console.print(table(rows))
    bounds = verdict(rows)
    for bound in bounds:
        promised = f"{'at least' if bound.at_least else 'at most'} {bound.promised * len(rows) / 8:g}"
        mark = "[green]kept  [/]" if bound.holds(len(rows)) else "[red]broken[/]"
        console.print(f"  {mark}  {bound.text}: {bound.count} of {len(rows)} ({promised})")
    return 0 if all(bound.holds(len(rows)) for bound in bounds) else 1


def verdict(rows: Sequence[dict[str, Outcome]]) -> list[Bound]:
    """The four promises, counted over the seeds."""

    def better(row: dict[str, Outcome]) -> bool:
        guided, alone = row["guided"].final_eval_reward, row["unguided"].final_eval_reward
        return guided is not None and alone is not None and guided > alone

    def covered(row: dict[str, Outcome]) -> bool:
        half = row["unguided"].half_life
        return half is not None and half.covered

    return [
        Bound("left alone, collapsed", sum(r["unguided"].collapsed_at is not None for r in rows), 6, True),
        Bound("guided, collapsed", sum(r["guided"].collapsed_at is not None for r in rows), 2, False),
        Bound("guided ends with the higher held-out reward", sum(map(better, rows)), 6, True),
        Bound("80 % interval at half life held the collapse", sum(map(covered, rows)), 6, True),
    ]


def table(rows: Sequence[dict[str, Outcome]]) -> Table:
    """One row a seed."""
    grid = Table(
        title="The claim, seed by seed", title_style="bold", header_style="dim", box=None, padding=(0, 2)
    )
    heads = (
        "seed",
        "left alone: collapsed at",
        "peak",
        "held-out",
        "80 % at half life",
        "held",
        "guided: switched at",
    )
    for head in (*heads, "collapsed at", "held-out", "control: collapsed at", "held-out"):
        grid.add_column(head, justify="right")
    for row in rows:
        alone, guided, control = row["unguided"], row["guided"], row.get("control")
        grid.add_row(
            str(alone.seed),
            _samples(alone),
            _two(alone.peak_reward),
            _two(alone.final_eval_reward),
            interval(alone),
            "" if alone.half_life is None else ("yes" if alone.half_life.covered else "no"),
            "never" if guided.switched_at is None else f"{guided.switched_at:,}",
            _samples(guided),
            _two(guided.final_eval_reward),
            "" if control is None else _samples(control),
            "" if control is None else _two(control.final_eval_reward),
        )
    return grid


def _write(summary_file: Path | None, seeds: Sequence[int], rows: Sequence[dict[str, Outcome]]) -> None:
    if summary_file:
        bounds = [{"text": b.text, "count": b.count, "kept": b.holds(len(rows))} for b in verdict(rows)]
        runs = [{role: outcome.as_dict() for role, outcome in row.items()} for row in rows]
        summary_file.write_text(
            json.dumps({"seeds": list(seeds), "claim": bounds, "runs": runs}, indent=2) + "\n"
        )


def _samples(outcome: Outcome) -> str:
    return "alive" if outcome.collapsed_at is None else f"{outcome.collapsed_at:,}"


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
