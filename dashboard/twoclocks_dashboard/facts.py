"""The numbers of a run's page, each with its name, its unit and what it is. Pure.

A number that is not known is said not to be known, with the reason where the service gives one.
"""

from dataclasses import dataclass

from twoclocks.wire import Forecast, ForecastStatus, Policy, RunState, RunSummary
from twoclocks_dashboard import dials, numbers
from twoclocks_dashboard.verdict import ENDED


@dataclass(frozen=True, slots=True)
class Fact:
    """One number with its name, a second line, and the hover that says what it is and by which formula."""

    name: str
    value: str
    help: str
    note: str = ""
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Road:
    """One setting the run may go on with: samples left, and the probability that it lives to the budget."""

    name: str
    setting: str
    left: str
    interval: str
    survive: float
    kept: bool


def roads(run: RunSummary) -> list[Road]:
    """Staying and every permitted switch, side by side; empty where nothing is forecast or nothing ahead."""
    forecast = run.clocks.failure
    if forecast is None or forecast.stay is None or not forecast.threshold or not dials.living(run):
        return []
    found = []
    for outlook in (forecast.stay, *forecast.candidates):
        if outlook.survive_budget is None:
            continue
        q = outlook.quantiles
        found.append(
            Road(
                "stay" if outlook is forecast.stay else "switch",
                f"{numbers.count(outlook.rollout_batch)} at {numbers.scientific(outlook.learning_rate)}",
                numbers.about(q.get("0.5")),
                numbers.between(q.get("0.1"), q.get("0.9")),
                outlook.survive_budget,
                outlook.survive_budget >= 1 - run.spec.risk,
            )
        )
    return found


def glance(run: RunSummary, seconds_per_sample: float | None) -> list[Fact]:
    """The setting, the pace and the way through the budget: what stands under the verdict."""
    budget = run.spec.budget_samples
    living = run.state not in ENDED
    through = (
        f"{numbers.share(run.samples / budget)} of {numbers.count(budget)}"
        if budget
        else "no budget declared"
    )
    pace = Fact(
        "pace", "not known", "Samples per time over the last reports that carry a time.", missing=True
    )
    if seconds_per_sample is not None:
        rest = (budget or 0) - run.samples
        left = f"budget in {numbers.duration(rest * seconds_per_sample)}" if living and rest > 0 else ""
        pace = Fact("pace", f"{numbers.about(60 / seconds_per_sample)} / min", pace.help, left)
    acts = "the trainer obeys" if run.spec.policy is Policy.ACT else "a person decides"
    step = f"step {run.step:,}" if run.step is not None else "no step yet"
    return [
        Fact("samples", numbers.count(run.samples), "Responses generated since the run began.", through),
        Fact(
            "rollout batch",
            numbers.count(run.rollout_batch) if run.rollout_batch is not None else "not known",
            "Responses generated per step (prompts times group size).",
            step,
            missing=run.rollout_batch is None,
        ),
        Fact(
            "learning rate",
            numbers.scientific(run.learning_rate) if run.learning_rate is not None else "not known",
            "The optimizer's rate in the last report.",
            missing=run.learning_rate is None,
        ),
        pace,
        Fact("policy", run.spec.policy.value, "Whether directives are advice or are carried out.", acts),
    ]


def samples_left(run: RunSummary) -> dict[str, float | None]:
    """Quantiles of the samples left, where they mean anything: a living run with a forecast."""
    forecast = run.clocks.failure
    if run.state in ENDED or run.clocks.onset is not None or forecast is None or forecast.stay is None:
        return {}
    return forecast.stay.quantiles if forecast.threshold else {}


def failure_facts(run: RunSummary, seconds_per_sample: float | None) -> list[Fact]:
    """The numbers beneath the failure clock."""
    forecast = run.clocks.failure
    if forecast is None or forecast.status is ForecastStatus.NONE:
        return [Fact("samples left", "not known", "Samples from now to collapse.", missing=True)]
    if forecast.status is ForecastStatus.COLLAPSED or run.clocks.onset is not None:
        return _collapse_facts(run)
    facts = [_left_fact(run, forecast, seconds_per_sample)]
    if forecast.collapse_probability_budget is not None and run.spec.budget_samples:
        facts.append(
            Fact(
                "collapse before the budget",
                numbers.share(forecast.collapse_probability_budget),
                "1 − P(drift stays below D up to the budget | alive now), at the present batch and rate.",
                f"accepted: {numbers.share(run.spec.risk)}",
            )
        )
    if forecast.collapse_probability_next is not None:
        facts.append(
            Fact(
                "collapse soon",
                numbers.share(forecast.collapse_probability_next),
                "P(collapse within the next horizon | alive now).",
                f"within {numbers.count(forecast.horizon_samples)} samples",
            )
        )
    if forecast.drift_used_ratio is not None:
        facts.append(
            Fact(
                "threshold used",
                numbers.share(forecast.drift_used_ratio),
                "Drift x over the median of the threshold D, given survival to now.",
                f"{forecast.clock} clock",
            )
        )
    facts.append(_evidence_fact(forecast))
    return facts


def _left_fact(run: RunSummary, forecast: Forecast, seconds_per_sample: float | None) -> Fact:
    left = samples_left(run)
    text = "Samples from now to collapse at the present batch and rate: the n at which drift x(n) reaches D."
    if run.state in ENDED:
        return Fact("samples left", "not reached", text, "the run is over", missing=True)
    if not any(v is not None for v in left.values()):
        if not left:
            return Fact(
                "samples left", "not known", text, "no threshold is known for its family", missing=True
            )
        return Fact("samples left", numbers.BEYOND, text, "no collapse within a thousand times its life")
    middle = left.get("0.5")
    time = ""
    if middle is not None and seconds_per_sample is not None and run.state is RunState.RUNNING:
        time = f", about {numbers.duration(middle * seconds_per_sample)}"
    guess = "" if forecast.status is ForecastStatus.FORECAST else " (a guess)"
    note = f"80 %: {numbers.between(left.get('0.1'), left.get('0.9'))}{time}{guess}"
    return Fact("samples left", numbers.about(middle), text, note)


def _collapse_facts(run: RunSummary) -> list[Fact]:
    onset = run.clocks.onset
    if onset is None:
        return [Fact("samples left", "0", "The run has collapsed.")]
    return [
        Fact(
            "collapsed at",
            numbers.count(onset.samples),
            "Samples at which the fall began: the last point of the CUSUM before it left zero.",
            f"step {onset.step:,}",
        ),
        Fact(
            "certain at",
            numbers.count(onset.alarm_samples),
            "Samples at which the detector and a corroborator agreed.",
            f"step {onset.alarm_step:,}",
        ),
        Fact("cause", onset.cause, "The detector's tag; its evidence stands under the verdict."),
    ]


def _evidence_fact(forecast: Forecast) -> Fact:
    return Fact(
        "learned from",
        f"{forecast.collapsed_runs + forecast.censored_runs:,} runs",
        "Runs of the same family whose end gives the threshold its posterior: collapsed, or "
        "censored (alive when last seen).",
        f"{forecast.collapsed_runs} collapsed, {forecast.censored_runs} censored",
        missing=forecast.collapsed_runs + forecast.censored_runs == 0,
    )


def progress_facts(run: RunSummary, seconds_per_sample: float | None) -> list[Fact]:
    """The numbers beneath the progress clock."""
    clock = run.clocks.progress
    if clock is None or clock.reward is None:
        return [
            Fact("reward", numbers.MISSING, "Mean verifiable reward, smoothed over a window.", missing=True)
        ]
    facts = [_target_fact(run, seconds_per_sample)]
    interval = ""
    if clock.reward_low is not None and clock.reward_high is not None:
        interval = f"90 %: {numbers.reward(clock.reward_low)} to {numbers.reward(clock.reward_high)}"
    facts.append(
        Fact(
            "reward now",
            numbers.reward(clock.reward),
            "Exponentially weighted mean of the steps' rewards over one window of samples.",
            interval,
        )
    )
    if clock.peak is not None:
        facts.append(Fact("best so far", numbers.reward(clock.peak), "Greatest smoothed reward.", "smoothed"))
    if clock.per_sample is not None:
        facts.append(
            Fact(
                "gain per 1,000 samples",
                numbers.value(1_000 * clock.per_sample, 2),
                "Slope now of the saturating curve c − a exp(−n/τ) through the reward, times 1,000.",
                "reward",
            )
        )
    return facts


def _target_fact(run: RunSummary, seconds_per_sample: float | None) -> Fact:
    clock = run.clocks.progress
    assert clock is not None
    text = "Samples from now until the saturating curve c − a exp(−n/τ) through the reward meets the target."
    if clock.target is None:
        return Fact(
            "samples to target", "no target", text, "declare target_reward to set this alarm", missing=True
        )
    name = f"samples to {clock.target:g}"
    if clock.reached_at_samples is not None:
        return Fact(name, "reached", text, f"at {numbers.count(clock.reached_at_samples)} samples")
    if run.state in ENDED or run.clocks.onset is not None:
        return Fact(name, "not reached", text, "the run is over", missing=True)
    middle = clock.remaining.get("0.5")
    if middle is None:
        return Fact(name, "not known", text, clock.reason, missing=True)
    time = ""
    if seconds_per_sample is not None and run.state is RunState.RUNNING:
        time = f", about {numbers.duration(middle * seconds_per_sample)}"
    ends = numbers.between(clock.remaining.get("0.1"), clock.remaining.get("0.9"))
    return Fact(name, numbers.about(middle), text, f"80 %: {ends}{time}")
