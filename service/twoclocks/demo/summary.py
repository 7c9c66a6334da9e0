"""What came of the demonstration's runs, read back from the service: the same numbers a user would see."""

from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from pydantic import TypeAdapter

from twoclocks.wire import (
    API_PREFIX,
    DirectiveKind,
    DirectiveRecord,
    Forecast,
    ForecastStatus,
    RunSummary,
    StepColumns,
)

FORECASTS = TypeAdapter(list[Forecast])
DIRECTIVES = TypeAdapter(list[DirectiveRecord])


@dataclass(frozen=True)
class HalfLife:
    """The forecast that stood when a run had lived half of its life, in samples since its start."""

    samples: int
    status: str
    low: float | None
    median: float | None
    high: float | None
    covered: bool


@dataclass(frozen=True)
class Outcome:
    """One run as it ended: where it collapsed, what was forecast, what it was told and did."""

    run: str
    seed: int
    samples: int
    collapsed_at: int | None
    half_life: HalfLife | None
    peak_reward: float | None
    final_reward: float | None
    final_eval_reward: float | None
    directives: list[dict[str, Any]] = field(default_factory=list)

    @property
    def role(self) -> str:
        """What the run was for: calibration, unguided, guided or control."""
        return self.run.rsplit("-", 1)[0]

    @property
    def switched_at(self) -> int | None:
        """Samples at which the switch that was carried out was issued, or None where there was none."""
        applied = (d for d in self.directives if d["kind"] == "switch_batch" and d["outcome"] == "applied")
        return next((int(d["issued_at_samples"]) for d in applied), None)

    @property
    def asked_at(self) -> int | None:
        """Samples at which that switch was first prepared, by the checkpoint before it."""
        if self.switched_at is None:
            return None
        return min(int(d["issued_at_samples"]) for d in self.directives)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class Reader:
    """The service's answers about the demonstration's runs."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._http = httpx.Client(base_url=f"{address}{API_PREFIX}", timeout=30.0)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, name: str) -> RunSummary | None:
        """The run, or None where it has not reported yet."""
        reply = self._http.get(f"/runs/{name}")
        return (
            None
            if reply.status_code == httpx.codes.NOT_FOUND
            else RunSummary.model_validate_json(self._body(reply))
        )

    def forecasts(self, name: str) -> list[Forecast]:
        """Every forecast made for the run, oldest first."""
        return FORECASTS.validate_json(self._body(self._http.get(f"/runs/{name}/forecasts")))

    def directives(self, name: str) -> list[DirectiveRecord]:
        """Every directive issued to the run, oldest first."""
        return DIRECTIVES.validate_json(self._body(self._http.get(f"/runs/{name}/directives")))

    def steps(self, name: str) -> StepColumns:
        """The run's live reports as columns."""
        return StepColumns.model_validate_json(self._body(self._http.get(f"/runs/{name}/steps")))

    def outcome(self, name: str, seed: int) -> Outcome:
        """What came of one run; it must have reported at least once."""
        run = self.run(name)
        if run is None:
            raise LookupError(f"the run {name} never reported; see its log")
        columns, onset = self.steps(name), run.clocks.onset
        rewards = [value for value in columns.metrics.get("reward", []) if value is not None]
        held_out = [value for value in columns.metrics.get("eval_reward", []) if value is not None]
        tail = rewards[-max(1, len(rewards) // 20) :]
        progress = run.clocks.progress
        return Outcome(
            run=name,
            seed=seed,
            samples=run.samples,
            collapsed_at=onset.samples if onset else None,
            half_life=half_life(self.forecasts(name), onset.samples) if onset else None,
            peak_reward=progress.peak if progress else None,
            final_reward=sum(tail) / len(tail) if tail else None,
            final_eval_reward=held_out[-1] if held_out else None,
            directives=[
                _directive(record)
                for record in self.directives(name)
                if record.kind is not DirectiveKind.HOLD
            ],
        )

    @staticmethod
    def _body(reply: httpx.Response) -> bytes:
        reply.raise_for_status()
        return reply.content


def half_life(forecasts: list[Forecast], collapsed_at: int) -> HalfLife | None:
    """The last forecast made before half of the run's life, and whether its 80 % interval held the collapse.

    All in samples since the start of the run; None where no forecast with numbers stood by then.
    """
    standing = [
        f
        for f in forecasts
        if f.samples <= collapsed_at / 2 and f.stay and f.status is not ForecastStatus.NONE
    ]
    if not standing:
        return None
    forecast = standing[-1]
    remaining = forecast.stay.quantiles if forecast.stay else {}
    low, median, high = (
        None if remaining.get(level) is None else forecast.samples + float(remaining[level] or 0.0)
        for level in ("0.1", "0.5", "0.9")
    )
    covered = low is not None and low <= collapsed_at and (high is None or collapsed_at <= high)
    return HalfLife(forecast.samples, forecast.status.value, low, median, high, covered)


def _directive(record: DirectiveRecord) -> dict[str, Any]:
    ended = [ack for ack in record.acks if ack.state.value != "received"]
    return {
        "generation": record.generation,
        "kind": record.kind.value,
        "issued_at_samples": record.issued_at_samples,
        "rollout_batch": record.rollout_batch,
        "learning_rate": record.learning_rate,
        "reason": record.reason,
        "outcome": ended[-1].state.value if ended else "unanswered",
        "outcome_step": ended[-1].step if ended else None,
        "outcome_reason": ended[-1].reason if ended else None,
        "complied_at_step": record.complied_at_step,
        "collapsed_runs_known": record.evidence.get("collapsed_runs"),
    }
