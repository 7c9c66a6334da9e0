"""The clocks of a run: one fold per report, and what follows from the folded state.

This is where the wire meets the pure core: reports, specifications and directives come in as wire models,
the state between reports is one frozen value (`ClockState`, JSON and back exactly), forecasts, clocks and
directives go out as wire models. Nothing here reads a clock, a file or a random source; `made_at` and `now`
are arguments. Folding costs O(1) per report. A rewind is done by folding the remaining reports again.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twoclocks.core import decide as rule
from twoclocks.core import drift, onset, progress
from twoclocks.core import forecast as ahead
from twoclocks.core.drift import EXPONENTS, DriftState, Setting
from twoclocks.core.onset import OnsetState
from twoclocks.core.plan import Leg
from twoclocks.core.progress import ProgressState
from twoclocks.core.scale import Scale, choose
from twoclocks.core.state import decode, encode
from twoclocks.core.threshold import ENOUGH, Evidence, learn
from twoclocks.wire import (
    Candidate,
    Clocks,
    Directive,
    DirectiveKind,
    DirectiveRecord,
    DriftReading,
    Family,
    FamilyMember,
    Forecast,
    ForecastStatus,
    Onset,
    Outlook,
    Progress,
    RunSpec,
    ScheduledSwitch,
    StepReport,
)

VERSION = 1
UNKNOWN_SLOPE = {"displacement": 0.5}
"""d log x / d log n where a run ended before it could be measured: diffusive (THEORY.md 3.1)."""
ABSURD = 1e100
"""A reward or metric of this size is taken as one that is not finite: its square could not be held."""
HIGHEST = 1e40
"""Learning rates above this are taken as this, for the same reason."""
LEAD_STEPS = 3
"""Steps between a decision and the first step at the new setting: checkpoint, directive, application."""


@dataclass(frozen=True, slots=True)
class ClockState:
    """Both clocks of a run after some reports.

    `window` is in samples, `changed_at` where the setting last changed.
    """

    drift: DriftState = drift.AT_REST
    onset: OnsetState = onset.WATCHING
    progress: ProgressState = progress.UNBEGUN
    reports: int = 0
    step: int | None = None
    window: int = 0
    changed_at: int = 0
    regime: float | None = None
    grouped: float | None = None
    held_out: bool = False
    clipped: bool = False

    @property
    def samples(self) -> int:
        """Responses generated since the run began."""
        return self.drift.samples

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON document that `from_json` reads back to an equal value."""
        return {"version": VERSION, **encode(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "ClockState":
        """Read a stored state; ValueError if another version wrote it (fold the reports again instead)."""
        if document.get("version") != VERSION:
            raise ValueError(
                f"the stored clock state is of version {document.get('version')}, this program writes "
                f"{VERSION}: fold the run's reports again"
            )
        return decode(cls, {name: value for name, value in document.items() if name != "version"})


def begin(spec: RunSpec) -> ClockState:
    """Return the clocks of a run that has reported nothing."""
    return ClockState(window=spec.window_samples or 0)


def _beta2(spec: RunSpec) -> float:
    """Adam's memory; an optimizer without a second moment has none, so no transient."""
    return 0.0 if spec.config.optimizer.lower().startswith("sgd") else spec.config.betas[1]


def fold(state: ClockState, report: StepReport, spec: RunSpec) -> ClockState:
    """Return the clocks with one more report in them. Reports come in step order; O(1)."""
    config = spec.config
    setting = Setting(report.rollout_batch, min(report.learning_rate, HIGHEST), report.updates, report.epochs)
    reward = report.reward if abs(report.reward) < ABSURD else math.nan
    before = state.drift.setting
    changed = before is not None and _jumped(before, setting)
    window = state.window or onset.default_window(
        report.rollout_batch,
        spec.baseline_reward if spec.baseline_reward is not None else reward,
        config.group_size,
        spec.budget_samples,
    )
    carried = drift.advance(
        state.drift,
        samples=report.samples,
        setting=setting,
        window=window,
        beta2=_beta2(spec),
        clip_fraction=_usable(report, "clip_fraction"),
        zero_variance_fraction=_usable(report, "zero_variance_fraction"),
        displacement=_usable(report, "displacement"),
        importance_ratio_rms=_usable(report, "importance_ratio_rms"),
    )
    watch = onset.advance(
        state.onset,
        mark=onset.Mark(report.step, carried.samples, carried),
        samples_before=state.samples,
        rollout_batch=report.rollout_batch,
        reward=reward,
        metrics=report.metrics,
        window=window,
        changed=changed,
        group_size=config.group_size,
        baseline=spec.baseline_reward,
    )
    learned = progress.advance(
        state.progress,
        samples=report.samples,
        rollout_batch=report.rollout_batch,
        reward=reward,
        window=window,
        target=spec.target_reward,
    )
    regime = report.finite("regime")
    grouped = report.finite("zero_variance_fraction")
    return ClockState(
        drift=carried,
        onset=watch,
        progress=learned,
        reports=state.reports + 1,
        step=report.step,
        window=window,
        changed_at=state.samples if changed else state.changed_at,
        regime=state.regime if regime is None else regime,
        grouped=state.grouped if grouped is None else grouped,
        held_out=state.held_out or report.metric("eval_reward") is not None,
        clipped=state.clipped or bool(report.finite("clip_fraction")),
    )


def _usable(report: StepReport, name: str) -> float | None:
    """The metric, or None where it was not measured, is not finite, or is absurd."""
    value = report.finite(name)
    return value if value is not None and abs(value) < ABSURD else None


def _jumped(before: Setting, after: Setting) -> bool:
    """Whether the setting changed at once: another batch, or the rate by more than a quarter.

    A learning-rate schedule moves less than that from step to step, and is no event.
    """
    if before.rollout_batch != after.rollout_batch:
        return True
    if after.updates and (before.updates != after.updates or before.epochs != after.epochs):
        return True
    low, high = sorted((before.learning_rate, after.learning_rate))
    return low < 0.8 * high


# --- families -----------------------------------------------------------------------------------------------


def family_of(spec: RunSpec) -> str:
    """Return the declared family, or one derived from whatever decides the threshold (THEORY.md 3.2 and 4).

    Runs whose model or task is unknown are pooled within their project only.
    """
    if spec.family is not None:
        return spec.family
    c = spec.config
    parts = [c.algorithm]
    if c.model is None or c.task is None:
        parts.append(f"project={spec.project}")
    parts += [f"model={c.model or '-'}", f"task={c.task or '-'}"]
    parts += [f"optimizer={c.optimizer}", f"betas={c.betas[0]:g},{c.betas[1]:g}"]
    parts += [f"updates={c.updates_per_batch}", f"epochs={c.epochs}"]
    if c.clip_low is None and c.clip_high is None:
        parts.append("clip=none")
    else:
        low, high = (c.clip_low, c.clip_high)
        parts.append(f"clip={'-' if low is None else f'{low:g}'},{'-' if high is None else f'{high:g}'}")
    parts.append(f"lora={c.lora_rank or 'none'}")
    for name, value in (("decay", c.weight_decay), ("gradclip", c.max_grad_norm), ("kl", c.kl_coefficient)):
        if value:
            parts.append(f"{name}={value:g}")
    name = re.sub(r"[^A-Za-z0-9_.:=|,+ -]", "-", "|".join(parts))
    name = name if name[0].isalnum() else f"x{name}"
    if len(name) <= 256:
        return name
    return f"{name[:239]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def member(run: str, state: ClockState, spec: RunSpec) -> FamilyMember | None:
    """Return the evidence that a run gives its family, from its collapse's onset or, alive, from its last
    report.

    `drift` holds "rule:<q>" for each damage exponent, "slope:<scale>" where d log x / d log n is not 1, and
    the measured clocks. None for a run that never reported an update.
    """
    del spec
    found = state.onset.collapse
    at = found.onset.drift if found else state.drift
    if at.setting is None:  # the fall began within the first window: date it at the first drift that is known
        at = state.drift
    if at.setting is None or at.setting.eta0 <= 0 or not all(0 < x < math.inf for x in at.damage):
        return None
    values = {f"rule:{q:g}": x for q, x in zip(EXPONENTS, at.damage, strict=True)}
    for i, q in enumerate(EXPONENTS):
        if abs(at.slope(i) - 1) > 0.1:
            values[f"slope:rule:{q:g}"] = at.slope(i)
    if at.displacement is not None and at.displacement > 0:
        values["displacement"] = at.displacement
        grown = drift.growth(at.ring)
        if grown is not None:
            values["slope:displacement"] = grown.slope
    if at.ratio is not None and at.ratio > 0:
        values["ratio"] = at.ratio
    return FamilyMember(
        run=run,
        collapsed=found is not None,
        cause=found.cause if found else None,
        samples=found.onset.samples if found else state.samples,
        rollout_batch=at.setting.rollout_batch,
        learning_rate=at.setting.learning_rate,
        log_eta0=math.log(at.setting.eta0),
        drift=values,
    )


def _evidence(members: Sequence[FamilyMember], scales: Sequence[str]) -> tuple[Evidence, ...]:
    """The members that have all of the scales, as the core's evidence; other causes than drift censor."""
    return tuple(
        Evidence(
            log_x=tuple(math.log(m.drift[s]) for s in scales),
            slope=tuple(m.drift.get(f"slope:{s}", UNKNOWN_SLOPE.get(s, 1.0)) for s in scales),
            log_eta0=m.log_eta0,
            collapsed=m.collapsed and m.cause in {None, "drift"},
        )
        for m in members
        if all(m.drift.get(s, 0.0) > 0 for s in scales)
    )


RULE_SCALES = tuple(f"rule:{q:g}" for q in EXPONENTS)


# --- the forecast -------------------------------------------------------------------------------------------


def _target(current: Setting, to: Candidate | ScheduledSwitch) -> Setting:
    """The setting that a candidate or a scheduled switch means, seen from the current one."""
    rate = to.learning_rate
    if rate is None:
        scale = math.sqrt(to.rollout_batch / current.rollout_batch) if to.rule == "sqrt" else 1.0
        rate = current.learning_rate * scale
    rate = min(rate, HIGHEST)
    return Setting(to.rollout_batch, rate, current.updates, current.epochs)


def _stay_plan(state: ClockState, spec: RunSpec, current: Setting) -> list[Leg]:
    """The current setting with the declared schedule that is still to come."""
    legs: list[Leg] = []
    setting, at = current, state.samples
    for switch in sorted(spec.schedule, key=lambda s: s.at_samples):
        if switch.at_samples > state.samples:
            legs.append(Leg(setting, float(switch.at_samples - at)))
            setting, at = _target(setting, switch), switch.at_samples
    return [*legs, Leg(setting)]


def _candidates(spec: RunSpec, current: Setting) -> list[Setting]:
    """The permitted settings that differ from the current one, each once."""
    found: list[Setting] = []
    for candidate in spec.candidates:
        setting = _target(current, candidate)
        if setting.differs(current, 1e-3) and all(setting.differs(s, 1e-3) for s in found):
            found.append(setting)
    return found


def _horizon(state: ClockState, spec: RunSpec) -> int:
    """Samples of "next": four windows, or a twentieth of the budget where that is more."""
    return max(4 * state.window, (spec.budget_samples or 0) // 20)


def _reach(state: ClockState, spec: RunSpec) -> tuple[float, str]:
    """Samples for which survival is asked: to the budget, or without one (or past it) four horizons."""
    left = (spec.budget_samples or 0) - state.samples
    if left > 0:
        return float(left), "to the budget"
    reach = 4 * _horizon(state, spec)
    return float(reach), f"for {reach:,} more samples"


def forecast(
    state: ClockState, spec: RunSpec, members: Sequence[FamilyMember], *, family: str, made_at: float
) -> Forecast:
    """Return the forecast from here: a value in every state, with the reason where there is none.

    `members` are the family's other runs. At most a few milliseconds; a family's threshold is learned once
    and kept.
    """
    dead = sum(m.collapsed and m.cause in {None, "drift"} for m in members)
    base: dict[str, Any] = {
        "step": state.step or 0,
        "samples": state.samples,
        "made_at": made_at,
        "family": family,
        "collapsed_runs": dead,
        "censored_runs": len(members) - dead,
    }
    current = state.drift.setting
    if state.onset.collapse is not None:
        where = state.onset.collapse.onset.samples
        said = f"the run has collapsed: the fall began at {where:,} samples"
        return Forecast(status=ForecastStatus.COLLAPSED, reason=said, **base)
    still = _standstill(state)
    if current is None or still is not None:
        return Forecast(status=ForecastStatus.NONE, reason=still or "", **base)
    scale = choose(
        state.drift, _evidence(members, RULE_SCALES), _evidence(members, ("displacement",)), _beta2(spec)
    )
    if scale is None:
        said = (
            "no past run of this family is known, so its threshold is unknown; drift and progress are shown"
        )
        none = dict.fromkeys((f"{level:g}" for level in ahead.LEVELS), None)
        eta = state.drift.effective_eta0
        stay = Outlook(
            rollout_batch=current.rollout_batch,
            learning_rate=current.learning_rate,
            drift_per_sample=state.drift.factor(2.0) * (eta / (state.drift.first_eta0 or eta)) ** 2,
            quantiles=none,
        )
        return Forecast(
            status=ForecastStatus.UNCALIBRATED,
            reason=said,
            clock="rule",
            drift=_raw_rule(state),
            stay=stay,
            **base,
        )
    return _calibrated(state, spec, members, scale, base)


def _standstill(state: ClockState) -> str | None:
    """Why there is no drift to forecast from; None where there is some."""
    current, d = state.drift.setting, state.drift
    if current is None:
        updated = "with an optimizer update " if state.reports else ""
        return f"no report {updated}has arrived yet"
    if current.learning_rate <= drift.NEGLIGIBLE:
        return "the learning rate is 0, so drift has stopped"
    if d.damage[0] == 0 and min(d.signal, d.kept) == 0:
        why = "groups have no variance in reward" if d.signal == 0 else "tokens are clipped"
        return f"so far all {why}, so no gradient has moved the policy"
    if not all(0 < x < math.inf for x in d.damage):
        return (
            f"the drift so far is too small or too large to count at learning rate {current.learning_rate:g}"
        )
    return None


def _raw_rule(state: ClockState) -> float:
    """The rule clock without a family: squared drift in equivalent samples at the run's first eta0."""
    first = state.drift.first_eta0 or 1.0
    return state.drift.damage[EXPONENTS.index(2.0)] / first / first


def _calibrated(
    state: ClockState, spec: RunSpec, members: Sequence[FamilyMember], scale: Scale, base: dict[str, Any]
) -> Forecast:
    """The forecast against a family's threshold, on the chosen clock."""
    current = scale.drift.setting
    assert current is not None
    others = [m for m in members if m.collapsed and m.cause not in {None, "drift"}]
    hazard = ahead.other_hazard(len(others), float(sum(m.samples for m in members)))
    reach, until = _reach(state, spec)
    horizon = _horizon(state, spec)
    drawn = ahead.thresholds(scale.present)
    beyond = ahead.BEYOND * max(state.samples, state.window)

    def outlook(setting: Setting, legs: Sequence[Leg], rho: float | None = None) -> Outlook:
        table = scale.table(legs)
        left = ahead.remaining(scale.present, table, scale.spread, drawn=drawn, hazard=hazard)
        eta = scale.drift.effective_eta0 if setting is current else setting.eta0
        return Outlook(
            rollout_batch=setting.rollout_batch,
            learning_rate=setting.learning_rate,
            drift_per_sample=scale.per_sample(eta, setting.epochs),
            quantiles=ahead.quantiles(left, beyond),
            survive_budget=ahead.survive(scale.present, table.forward(reach), scale.spread, reach, hazard),
            rho=rho,
        )

    planned = _stay_plan(state, spec, current)
    stay = outlook(current, planned)
    lead = Leg(current, float(LEAD_STEPS * current.rollout_batch))
    candidates = [
        outlook(to, [lead, Leg(to)], scale.rho(planned, [Leg(to)], reach))
        for to in _candidates(spec, current)
    ]
    levels = np.quantile(scale.thresholds(drawn), ahead.LEVELS)
    threshold = {f"{level:g}": float(v) for level, v in zip(ahead.LEVELS, levels, strict=True)}
    after_next = ahead.survive(
        scale.present, scale.table(planned).forward(horizon), scale.spread, horizon, hazard
    )
    status, reason = _words(scale.present, stay, base["collapsed_runs"], until)
    return Forecast(
        status=status,
        reason=reason,
        clock=scale.name,
        drift=scale.shown,
        threshold=threshold,
        drift_used_ratio=scale.shown / threshold["0.5"],
        stay=stay,
        candidates=candidates,
        collapse_probability_next=1 - after_next,
        collapse_probability_budget=None if spec.budget_samples is None else 1 - (stay.survive_budget or 0.0),
        horizon_samples=horizon,
        contradiction=scale.present.alive,
        **base,
    )


def _words(present: ahead.Present, stay: Outlook, dead: int, until: str) -> tuple[ForecastStatus, str]:
    """The status and its sentence."""
    low, middle, high = (stay.quantiles[level] for level in ("0.1", "0.5", "0.9"))
    ends = [f"{v:,.0f}" if v is not None else "no end in reach" for v in (low, middle, high)]
    left = f"collapse is expected in {ends[1]} samples (80 % interval {ends[0]} to {ends[2]})"
    survival = f"surviving {until} has probability {stay.survive_budget or 0.0:.2f}"
    if dead < ENOUGH:
        runs = "no past run of this family has" if dead == 0 else f"only {dead} past runs of this family have"
        runs = "only 1 past run of this family has" if dead == 1 else runs
        said = f"{runs} collapsed and {ENOUGH} are needed: taken as a guess, {left}"
        return ForecastStatus.UNCALIBRATED, said
    if present.contradicted:
        said = (
            f"the calibration is contradicted by this run: it gave {present.alive:.3f} to surviving so far, "
            f"so its threshold was widened; {survival}"
        )
        return ForecastStatus.CONTRADICTED, said
    return ForecastStatus.FORECAST, f"{left}; {survival}"


# --- documents ----------------------------------------------------------------------------------------------


def clocks_document(run: str, state: ClockState, spec: RunSpec, forecast: Forecast | None) -> Clocks:
    """Return both clocks of a run as they are shown, the rule clock in its forecast's unit."""
    d = state.drift
    readings = []
    if d.setting is not None:
        eta = d.effective_eta0 / (d.first_eta0 or 1.0)
        value, rate = _raw_rule(state), d.factor(2.0) * eta**2
        if forecast is not None and forecast.clock == "rule" and forecast.drift is not None and forecast.stay:
            value, rate = forecast.drift, forecast.stay.drift_per_sample
        readings.append(DriftReading(scale="rule", value=value, per_sample=rate))
    if d.displacement is not None:
        grown = drift.growth(d.ring)
        speed = None
        if grown is not None and d.displacement > 0:
            speed = grown.rate * grown.h * d.displacement ** (1 - 1 / grown.h)
        readings.append(DriftReading(scale="displacement", value=d.displacement, per_sample=speed))
    if d.ratio is not None:
        readings.append(DriftReading(scale="ratio", value=d.ratio))
    return Clocks(
        run=run,
        step=state.step,
        samples=state.samples,
        failure=forecast,
        progress=_progress(state, spec),
        drift=readings,
        onset=_onset(state),
        regime=state.regime,
        notices=_notices(state, spec, forecast),
    )


def _progress(state: ClockState, spec: RunSpec) -> Progress:
    p, noise = state.progress, state.onset.noise
    band = progress.interval(p, noise)
    way = progress.way(p, noise, spec.target_reward)
    return Progress(
        reward=p.level,
        reward_low=band[0] if band else None,
        reward_high=band[1] if band else None,
        peak=p.peak,
        target=spec.target_reward,
        reached_at_samples=p.reached,
        remaining=way.remaining,
        per_sample=way.per_sample,
        reason=way.reason,
    )


def _onset(state: ClockState) -> Onset | None:
    found = state.onset.collapse
    if found is None:
        return None
    return Onset(
        step=found.onset.step,
        samples=found.onset.samples,
        alarm_step=found.alarm_step,
        alarm_samples=found.alarm_samples,
        cause=found.cause,
        evidence=list(found.evidence),
    )


def _notices(state: ClockState, spec: RunSpec, forecast: Forecast | None) -> list[str]:
    """What a person should know about the clocks of this run (THEORY.md 4), in plain sentences."""
    d = state.drift
    if d.setting is None:
        return []
    said = []
    if forecast is not None and forecast.status is ForecastStatus.CONTRADICTED:
        said.append("Calibration contradicted by this run: it outlived what its family's past gave it.")
    if not state.held_out:
        said.append("No held-out reward is reported, so reward hacking cannot be seen.")
    if d.setting.updates == 1 and (spec.config.clip_low or spec.config.clip_high):
        said.append("With one update per rollout batch the clip cannot act: it does not delay collapse.")
    if state.regime is not None and state.regime > 0.6:
        said.append(
            f"R = {state.regime:.2f}: signal-dominated updates; first-order drift depends on the batch."
        )
    stale = d.effective_eta0 / d.setting.eta0 if d.setting.eta0 > 0 else 1.0
    if abs(math.log(stale)) > 0.1:  # R is small or large for this reason alone, and says nothing more
        said.append(f"Adam still remembers another batch: its steps are {stale:.2f} times their steady size.")
    elif state.regime is not None and state.regime < 0.08:
        said.append(
            f"R = {state.regime:.2f}: gradients shrink faster than Adam forgets, as in a dying policy."
        )
    if state.grouped is not None and state.grouped > 0.9 and state.onset.collapse is None:
        said.append(
            f"{state.grouped:.0%} of the groups have no variance in reward: a plateau teaches nothing."
        )
    if spec.config.optimizer.lower().startswith("sgd"):
        said.append(
            "The square-root rule is Adam's; for plain SGD drift per sample is kept by a linear rule."
        )
    if state.onset.revoked:
        times = "once" if state.onset.revoked == 1 else f"{state.onset.revoked} times"
        said.append(f"The reward fell to less than half {times} and recovered.")
    if state.onset.lowest < 0 and state.onset.reference is not None and state.onset.loss is None:
        said.append(
            "Rewards may be negative and have not risen yet, so a loss of half of them has no meaning."
        )
    return said


def family_document(family: str, members: Sequence[FamilyMember]) -> Family:
    """Return a family's threshold in equivalent samples at its median eta0, with the runs behind it."""
    runs = _evidence(members, RULE_SCALES)
    dead = sum(r.collapsed for r in runs)
    document = Family(
        family=family,
        status=ForecastStatus.FORECAST if dead >= ENOUGH else ForecastStatus.UNCALIBRATED,
        collapsed_runs=dead,
        censored_runs=len(members) - dead,
        members=list(members),
    )
    if not runs:
        return document
    posterior = learn(runs, EXPONENTS)
    z = np.random.default_rng(0).standard_normal(len(posterior.mu))
    levels = np.quantile(np.exp(posterior.mu + posterior.omega * z), ahead.LEVELS)
    threshold = {f"{level:g}": float(v) for level, v in zip(ahead.LEVELS, levels, strict=True)}
    spread = float(posterior.omega.mean())
    return document.model_copy(update={"clock": "rule", "threshold": threshold, "spread": spread})


# --- the directive ------------------------------------------------------------------------------------------


def decide(
    state: ClockState, spec: RunSpec, forecast: Forecast | None, log: Sequence[DirectiveRecord], *, now: float
) -> Directive | None:
    """Return a new generation of the run's directive, or None while the latest one is still right.

    `log` is every directive of the run so far, oldest first; `now` (Unix seconds) only dates the new one.
    """
    current = state.drift.setting
    if current is None or state.step is None:
        return None
    calibrated = forecast is not None and forecast.status is ForecastStatus.FORECAST
    options: tuple[rule.Option, ...] = ()
    _, until = _reach(state, spec)
    if calibrated and forecast is not None:
        options = tuple(
            rule.Option(
                Setting(o.rollout_batch, o.learning_rate, current.updates, current.epochs),
                survive=o.survive_budget or 0.0,
                rho=o.rho,
                progress=o.learning_rate / math.sqrt(o.rollout_batch),
            )
            for o in forecast.candidates
        )
    scheduled = _due(state, spec, current)
    order = rule.decide(
        rule.Situation(
            step=state.step,
            samples=state.samples,
            setting=current,
            window=state.window,
            risk=spec.risk,
            calibrated=calibrated,
            collapsed=state.onset.collapse is not None,
            changed_at=state.changed_at,
            alive=forecast.contradiction if forecast else None,
            stay=forecast.stay.survive_budget if forecast and forecast.stay else None,
            next_horizon=forecast.collapse_probability_next if forecast else None,
            horizon=forecast.horizon_samples if forecast else None,
            options=options,
            scheduled=scheduled[0] if scheduled else None,
            scheduled_at=scheduled[1] if scheduled else None,
            until=until,
        ),
        [_past(record) for record in log],
    )
    if order is None:
        return None
    steps_per_window = math.ceil(state.window / current.rollout_batch)
    evidence = dict(order.evidence)
    if forecast is not None:
        evidence |= {
            "status": forecast.status.value,
            "clock": forecast.clock,
            "family": forecast.family,
            "collapsed_runs": forecast.collapsed_runs,
            "censored_runs": forecast.censored_runs,
            "quantiles": forecast.stay.quantiles if forecast.stay else {},
        }
    return Directive(
        generation=max((record.generation for record in log), default=0) + 1,
        kind=DirectiveKind(order.kind),
        policy=spec.policy,
        rollout_batch=order.setting.rollout_batch if order.setting else None,
        learning_rate=order.setting.learning_rate if order.setting else None,
        reason=order.reason,
        evidence=evidence,
        not_before_step=state.step + 1,
        expires_at_step=None if order.kind == "hold" else state.step + 2 * steps_per_window + 10,
        issued_at=now,
        issued_at_samples=state.samples,
    )


def _due(state: ClockState, spec: RunSpec, current: Setting) -> tuple[Setting, int] | None:
    """The last point of the declared schedule that has passed and that the run does not train at yet."""
    passed = [s for s in spec.schedule if s.at_samples <= state.samples]
    if not passed:
        return None
    last = max(passed, key=lambda s: s.at_samples)
    if last.rollout_batch == current.rollout_batch and last.learning_rate is None:
        return None
    to = _target(current, last)
    return (to, last.at_samples) if to.differs(current, 1e-3) else None


def _past(record: DirectiveRecord) -> rule.Past:
    """A stored directive as the core sees it."""
    return rule.Past(
        generation=record.generation,
        kind=record.kind.value,
        rollout_batch=record.rollout_batch,
        learning_rate=record.learning_rate,
        issued_at_samples=record.issued_at_samples,
        expires_at_step=record.expires_at_step,
        ack=record.acks[-1].state.value if record.acks else None,
        complied=record.complied_at_step is not None,
    )
