"""What a run's summary comes to, in one word, one sentence and one thing to do.

Every page sorts and colours by the verdict, so that they cannot disagree. The numbers are the service's;
only the two lines that part the words "well", "forecast" and "imminent" are drawn here: the run's own risk,
and one half.
"""

from dataclasses import dataclass

from twoclocks.wire import (
    Candidate,
    Directive,
    DirectiveKind,
    Forecast,
    ForecastStatus,
    Outlook,
    Policy,
    RunState,
    RunSummary,
)
from twoclocks_dashboard import numbers

IMMINENT = 0.5
"""P(collapse within the next horizon) from which the word is "imminent"."""
ENDED = frozenset({RunState.FINISHED, RunState.FAILED, RunState.STOPPED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """`key` names the style and the shape of the sign; a smaller `urgency` wants looking at sooner."""

    key: str
    word: str
    urgency: int
    belief: str
    action: str


def judge(run: RunSummary, now: float) -> Verdict:
    """Return the verdict on a run at `now` (Unix seconds)."""
    forecast = run.clocks.failure
    collapsed = run.clocks.onset is not None
    belief = _belief(run, forecast)
    if run.state in ENDED:
        return _ended(run, belief, collapsed=collapsed)
    if collapsed:
        return Verdict("collapsed", "Collapsed", 1, belief, _after_collapse(run))
    if run.state is RunState.LOST:
        heard = run.last_report_at if run.last_report_at is not None else run.created_at
        silent = numbers.duration(now - heard)
        said = f"Look at the trainer: nothing has been heard for {silent}. What it reports later is not lost."
        return Verdict("lost", "Lost", 2, belief, said)
    if run.reports == 0:
        return Verdict("waiting", "Waiting", 8, belief, "Send the first report; the clocks start with it.")
    return _living(run, forecast, belief)


def _living(run: RunSummary, forecast: Forecast | None, belief: str) -> Verdict:
    """The verdict on a run that reports and has not collapsed."""
    status = forecast.status if forecast else ForecastStatus.NONE
    pending = order(run.directive) if run.directive_pending else None
    who = "the trainer carries it out" if run.directive.policy is Policy.ACT else "yours to carry out"
    if forecast and status is ForecastStatus.FORECAST:
        soon = forecast.collapse_probability_next or 0.0
        danger = _danger(forecast)
        if soon >= IMMINENT:
            return Verdict("imminent", "Imminent", 0, belief, _order_or(pending, who, _without_order(run)))
        if danger is not None and danger > run.spec.risk:
            key, word, urgency = "forecast", "Collapse forecast", 4
            if pending is None and _way_out(run, forecast):
                key, word, urgency = "planned", "Switch ahead", 5
            return Verdict(key, word, urgency, belief, _order_or(pending, who, _without_order(run)))
        return Verdict("well", "Well", 7, belief, _order_or(pending, who, "Nothing: let it train."))
    if status is ForecastStatus.CONTRADICTED:
        said = "Let it train, with checkpoints: it has outlived its family's calibration."
        return Verdict("contradicted", "Off the map", 4, belief, _order_or(pending, who, said))
    if status is ForecastStatus.UNCALIBRATED:
        said = "Nothing to act on: let it train. Its forecast counts once three of its family have collapsed."
        return Verdict("uncalibrated", "Uncalibrated", 6, belief, _order_or(pending, who, said))
    return Verdict("waiting", "No forecast", 6, belief, _order_or(pending, who, "Let it train."))


def _ended(run: RunSummary, belief: str, *, collapsed: bool) -> Verdict:
    word = {"finished": "Finished", "failed": "Failed", "stopped": "Stopped"}[run.state.value]
    reason = f" {sentence(run.end_reason)}" if run.end_reason else ""
    if collapsed:
        return Verdict("collapsed-ended", f"Collapsed, {word.lower()}", 9, belief, f"Ended.{reason}")
    return Verdict(run.state.value, word, 9, belief, f"Nothing: the run has ended.{reason}")


def _way_out(run: RunSummary, forecast: Forecast) -> bool:
    """Whether a permitted switch would keep the run's risk."""
    return any((to.survive_budget or 0.0) >= 1 - run.spec.risk for to in forecast.candidates)


def _danger(forecast: Forecast) -> float | None:
    """P(collapse) up to the budget where there is one, else over the service's own reach."""
    if forecast.collapse_probability_budget is not None:
        return forecast.collapse_probability_budget
    if forecast.stay is None or forecast.stay.survive_budget is None:
        return None
    return 1 - forecast.stay.survive_budget


def _without_order(run: RunSummary) -> str:
    last = run.directive
    unheeded = last.kind is DirectiveKind.SWITCH_BATCH and last.rollout_batch != run.rollout_batch
    if unheeded or last.kind is DirectiveKind.STOP:
        return f"{order(last)}. The trainer was asked to and declined, so this is for you to do."
    if run.spec.candidates:
        return (
            f"Nothing yet: a switch to {_settings(run.spec.candidates)} is permitted, and asked for when "
            f"waiting would spend more than the accepted risk of {numbers.share(run.spec.risk)}."
        )
    return "Save a checkpoint. Declare candidates (batch and rate) to be told when a switch helps."


def _after_collapse(run: RunSummary) -> str:
    onset = run.clocks.onset
    assert onset is not None
    return f"Stop, and go back to a checkpoint from before {numbers.count(onset.samples)} samples."


def _order_or(pending: str | None, who: str, otherwise: str) -> str:
    return f"{pending}: {who}." if pending else otherwise


def _settings(candidates: list[Candidate]) -> str:
    shown = [f"batch {numbers.count(c.rollout_batch)}" for c in candidates[:3]]
    more = f" or {len(candidates) - 3} more" if len(candidates) > 3 else ""
    return " or ".join(shown) + more


def order(directive: Directive) -> str:
    """A directive as an imperative: "Switch to batch 512 at learning rate 2e-4"."""
    if directive.kind is DirectiveKind.SWITCH_BATCH:
        batch = numbers.count(directive.rollout_batch) if directive.rollout_batch else "as it is"
        rate = (
            f" at learning rate {numbers.scientific(directive.learning_rate)}"
            if directive.learning_rate
            else ""
        )
        return f"Switch to batch {batch}{rate}"
    return {"checkpoint": "Save a checkpoint", "stop": "Stop the run", "hold": "Carry on as it is"}[
        directive.kind.value
    ]


def _belief(run: RunSummary, forecast: Forecast | None) -> str:
    """The forecast's own reason as a sentence, or why there is none."""
    onset = run.clocks.onset
    if onset is not None:
        proof = f": {', '.join(onset.evidence)}" if onset.evidence else ""
        return (
            f"The fall began at {numbers.count(onset.samples)} samples and was certain at "
            f"{numbers.count(onset.alarm_samples)} (cause: {onset.cause}{proof})."
        )
    if forecast is None:
        return "No report has arrived yet." if run.reports == 0 else "No forecast has been made yet."
    if forecast.status is ForecastStatus.FORECAST and forecast.stay is not None and run.state not in ENDED:
        return _expectation(run, forecast, forecast.stay)
    return sentence(forecast.reason)


def _expectation(run: RunSummary, forecast: Forecast, stay: Outlook) -> str:
    """A calibrated forecast in one sentence, in samples since the run began."""
    n, q, budget = forecast.samples, stay.quantiles, run.spec.budget_samples
    low, high = q.get("0.1"), q.get("0.9")
    until = "to reach its budget" if budget else "to live through the time that is forecast"
    chance = None if stay.survive_budget is None else f"a {_chance(stay.survive_budget)} chance {until}"
    ends = numbers.between(None if low is None else n + low, None if high is None else n + high)
    if low is None:
        said = "At this batch and rate no collapse is within reach" + (f": {chance}" if chance else "")
    elif budget is not None and n + low > budget and chance:
        said = f"At this batch and rate it has {chance}; collapse lies beyond it, at {ends} samples (80 %)"
    elif high is None:
        said = f"At this batch and rate nine in ten such runs live beyond {numbers.about(n + low)} samples"
        said += f", and it has {chance}" if chance else ""
    else:
        window = ends.replace(" to ", " and ")
        said = f"At this batch and rate there is an 80 % chance of collapse between {window} samples"
        said += f", and {chance}" if chance else ""
    better = max(forecast.candidates, key=lambda to: to.survive_budget or 0.0, default=None)
    if better is not None and (better.survive_budget or 0.0) > (stay.survive_budget or 0.0) + 0.02:
        to = f"batch {numbers.count(better.rollout_batch)} at {numbers.scientific(better.learning_rate)}"
        said += f". Switching now to {to} gives {_chance(better.survive_budget or 0.0)} instead"
    return f"{said}. It is at {numbers.count(run.samples)} samples now."


def _chance(p: float) -> str:
    return numbers.share(p).replace("<", "less than").replace(">", "more than")


def sentence(text: str) -> str:
    """The text with a capital and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
