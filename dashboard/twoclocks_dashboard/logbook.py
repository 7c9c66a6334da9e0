"""The directive log and the configuration of a run, as words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twoclocks.wire import AckState, Candidate, DirectiveKind, DirectiveRecord, RunSummary, ScheduledSwitch
from twoclocks_dashboard import numbers, verdict
from twoclocks_dashboard.numbers import moment


@dataclass(frozen=True, slots=True)
class Entry:
    """One directive of the log: what was asked, what became of it, in order."""

    record: DirectiveRecord
    order: str
    reason: str
    fate: str
    fate_key: str
    steps: list[tuple[str, str, str]]
    evidence: list[tuple[str, str]]


def log(run: RunSummary, records: Sequence[DirectiveRecord]) -> list[Entry]:
    """The directive log, newest first."""
    latest = max((r.generation for r in records), default=0)
    made = []
    for record in sorted(records, key=lambda r: -r.generation):
        key, fate = _fate(run, record, latest=record.generation == latest)
        steps = [
            ("issued", f"at {numbers.count(record.issued_at_samples)} samples", moment(record.issued_at))
        ]
        for ack in record.acks:
            used = [f"step {ack.step:,}"] if ack.step is not None else []
            used += [f"batch {numbers.count(ack.rollout_batch)}"] if ack.rollout_batch else []
            used += [f"rate {numbers.scientific(ack.learning_rate)}"] if ack.learning_rate is not None else []
            said = ", ".join(used) + (f": {ack.reason}" if ack.reason and used else ack.reason or "")
            steps.append((ack.state.value, said, moment(ack.time)))
        if record.complied_at_step is not None:
            steps.append(("seen in the reports", f"step {record.complied_at_step:,}", ""))
        made.append(
            Entry(
                record,
                verdict.order(record),
                verdict.sentence(record.reason),
                fate,
                key,
                steps,
                [(k.replace("_", " "), _plain(v)) for k, v in record.evidence.items()],
            )
        )
    return made


def _fate(run: RunSummary, record: DirectiveRecord, *, latest: bool) -> tuple[str, str]:
    """The key and the word for what became of a directive."""
    said = {ack.state for ack in record.acks}
    if record.complied_at_step is not None:
        return "done", "carried out"
    for state, key in (
        (AckState.REJECTED, "refused"),
        (AckState.EXPIRED, "expired"),
        (AckState.APPLIED, "done"),
    ):
        if state in said:
            return key, state.value
    if record.kind is DirectiveKind.HOLD:
        return "holds" if latest else "past", "holds" if latest else "replaced"
    if latest and run.directive_pending:
        return "pending", "received, waiting" if AckState.RECEIVED in said else "waiting for the trainer"
    if not latest:
        return "past", "replaced"
    return "expired", "not answered"


def _plain(value: Any) -> str:
    """A value of unknown kind as short text."""
    if value is None:
        return numbers.MISSING
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(v)}" for name, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(v) for v in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"  # exact, however large: a seed is no quantity to round
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 1e6 else numbers.scientific(value, 4)


def configuration(run: RunSummary) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """The run's declaration as titled groups of (name, text, missing)."""
    spec, config = run.spec, run.spec.config
    setting = [
        ("rollout batch", numbers.count(run.rollout_batch), run.rollout_batch is None),
        ("learning rate", numbers.scientific(run.learning_rate), run.learning_rate is None),
        ("attempt", f"{run.attempt:,} ({run.attempts:,} in all)", False),
        ("reports", numbers.count(run.reports), False),
        ("step", numbers.count(run.step), run.step is None),
    ]
    asked = [
        ("budget", f"{numbers.count(spec.budget_samples)} samples", spec.budget_samples is None),
        ("target reward", f"{spec.target_reward}", spec.target_reward is None),
        ("policy", spec.policy.value, False),
        ("accepted risk", numbers.share(spec.risk), False),
        ("candidates", ", ".join(_candidate(c) for c in spec.candidates), not spec.candidates),
        (
            "schedule",
            ", ".join(f"at {numbers.count(s.at_samples)}: {_candidate(s)}" for s in spec.schedule),
            not spec.schedule,
        ),
        ("lost after", f"{numbers.duration(spec.heartbeat_seconds)} of silence", False),
    ]
    given = config.model_dump()
    declared = [(name.replace("_", " "), _plain(v), v is None) for name, v in given.items()]
    return [("Now", setting), ("Asked for", asked), ("Declared", declared)]


def _candidate(to: Candidate | ScheduledSwitch) -> str:
    rate = numbers.scientific(to.learning_rate) if to.learning_rate else f"rate {to.rule}"
    return f"{numbers.count(to.rollout_batch)} ({rate})"
