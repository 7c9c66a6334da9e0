"""What to ask of the trainer: hold, checkpoint, switch the batch, or stop (THEORY.md 1.8, DESIGN 5).

Let A be the calibration's P(alive at the present drift), P_stay and P_c the probabilities of surviving to
the budget given alive now, for staying and for switching to candidate c now.

* P_stay >= 1 - risk: nothing needs to be done.
* *Quantile rule* (THEORY.md equation 9). A P_c is the whole run's chance of surviving if it switches to c
  now. It falls while the run waits; when it reaches 1 - risk this is the latest switch that keeps the run's
  risk. The risk is one budget for the whole run: counted afresh from every moment survived (P_c alone) it
  would never be used up.
* *Expected progress* (equation 10). Where rho < 1, switch when P_c falls to 1 - rho, if that is sooner.
* *Infeasible*: no candidate has A P_c >= 1 - risk (any more), but the best one takes away a good part of the
  danger (1 - P_c at most three quarters of 1 - P_stay): switch at once, and say that it is the best
  available.
* Without candidates: a checkpoint when collapse within the next horizon has more than half of `risk`, and a
  stop when it has all of it.
* Collapsed: stop. What follows is not worth its samples, and the checkpoint to return to is the earlier one.

The best candidate is the one with the most expected first-order progress among those that keep the risk, or,
if none does, the one most likely to survive. A checkpoint precedes a switch or a stop; these follow when it
was carried out or refused, or after three steps' samples. After a switch the service is silent until a
window and five steps' samples have passed at the new setting. Only a calibrated forecast moves anything,
except that a declared schedule is carried out in any state but collapse.

Documents are level-triggered: the last generation holds until it is replaced. One that is still right and
still valid is not repeated; expired, it is issued again under a new generation; a rejected switch is not
asked for again. A pending switch or stop that staying has made needless is taken back by a `hold`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twoclocks.core.drift import Setting

MATERIAL = 0.75
PATIENCE_STEPS = 3
SETTLE_STEPS = 5


@dataclass(frozen=True, slots=True)
class Past:
    """A directive already issued.

    `ack` is the trainer's last word on it, `complied` that the reports show the setting.
    """

    generation: int
    kind: str
    rollout_batch: int | None
    learning_rate: float | None
    issued_at_samples: int
    expires_at_step: int | None
    ack: str | None = None
    complied: bool = False

    @property
    def settled(self) -> bool:
        """Whether the trainer has carried it out or refused it."""
        return self.complied or self.ack in {"applied", "rejected"}


@dataclass(frozen=True, slots=True)
class Option:
    """A permitted switch: where to, P(survive to the budget | switched now), rho, first-order progress."""

    setting: Setting
    survive: float
    rho: float | None
    progress: float


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the rule looks at. Probabilities are None while there is no calibrated forecast."""

    step: int
    samples: int
    setting: Setting
    window: int
    risk: float
    calibrated: bool
    collapsed: bool
    changed_at: int
    alive: float | None = None
    stay: float | None = None
    next_horizon: float | None = None
    horizon: int | None = None
    options: tuple[Option, ...] = ()
    scheduled: Setting | None = None
    scheduled_at: int | None = None
    until: str = "to the budget"


@dataclass(frozen=True, slots=True)
class Order:
    """What should hold now: kind, setting (switches only), the sentence, and the numbers behind it."""

    kind: str
    reason: str
    setting: Setting | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def decide(now: Situation, log: Sequence[Past]) -> Order | None:
    """Return the directive to issue now, or None when the latest one is still the right one."""
    latest = log[-1] if log else None
    wanted = _wanted(now, log)
    if wanted is None:
        return None
    if wanted.kind == "hold":
        pending = latest is not None and latest.kind in {"switch_batch", "stop"} and not latest.settled
        return wanted if pending and not _expired(latest, now) else None
    if wanted.kind in {"switch_batch", "stop"} and not now.collapsed:
        return _after_checkpoint(wanted, now, log)
    if latest is not None and latest.kind == wanted.kind and not _again(latest, now):
        return None
    if latest is not None and latest.kind == "stop" and not latest.settled and not _expired(latest, now):
        return None
    return wanted


def _wanted(now: Situation, log: Sequence[Past]) -> Order | None:
    """The order that this situation calls for, whatever was said before, rejected switches left out."""
    if now.collapsed:
        return Order(
            "stop", "the run has collapsed: what it trains from here on is lost; go back to a checkpoint"
        )
    refused = [p for p in log if p.kind == "switch_batch" and p.ack == "rejected"]
    if now.scheduled is not None and not _refused(now.scheduled, refused, since=now.scheduled_at):
        return Order(
            "switch_batch",
            f"the declared schedule switches at {now.scheduled_at:,} samples",
            now.scheduled,
            {"rule": "schedule", "at_samples": now.scheduled_at},
        )
    settling = now.changed_at > 0 and now.samples - now.changed_at < (
        now.window + SETTLE_STEPS * now.setting.rollout_batch
    )
    if settling or not now.calibrated or now.stay is None or now.alive is None:
        return None
    if now.stay >= 1 - now.risk:
        return Order(
            "hold",
            f"staying survives {now.until} with probability {now.stay:.2f}; {1 - now.risk:.2f} was asked",
            evidence={"rule": "safe", "survive_stay": now.stay},
        )
    options = [o for o in now.options if not _refused(o.setting, refused, since=None)]
    if options:
        return _best(now, options)
    return _alone(now, "the trainer declined the switch" if now.options else "no switch is permitted")


def _best(now: Situation, options: Sequence[Option]) -> Order | None:
    """The rule over candidates."""
    assert now.stay is not None
    assert now.alive is not None
    safe = [o for o in options if now.alive * o.survive >= 1 - now.risk]
    if safe:
        best = max(safe, key=lambda o: (o.progress * o.survive, o.survive))
    else:
        best = max(options, key=lambda o: (o.survive, o.progress))
    evidence = {
        "survive_stay": now.stay,
        "survive_switch": best.survive,
        "survived_so_far": now.alive,
        "whole_run": now.alive * best.survive,
        "rho": best.rho,
        "risk": now.risk,
    }
    to = f"batch {best.setting.rollout_batch} at learning rate {best.setting.learning_rate:.3g}"
    odds = f"survival {now.until} is {now.stay:.2f} staying and {best.survive:.2f} switched to {to}"
    if best.rho is not None and best.rho < 1 and best.survive <= 1 - best.rho and best.survive > now.stay:
        reason = (
            f"{odds}; it has fallen to 1 - rho = {1 - best.rho:.2f}, where waiting earns less than it risks"
        )
        return Order("switch_batch", reason, best.setting, {"rule": "expected progress", **evidence})
    if safe:
        return None
    if 1 - best.survive > MATERIAL * (1 - now.stay):
        return _alone(now, "no permitted switch helps")
    whole = now.alive * best.survive
    if whole >= 1 - 1.5 * now.risk:
        reason = f"{odds}; over the whole run that is {whole:.2f}, all that the risk of {now.risk:.2f} allows"
        return Order("switch_batch", reason, best.setting, {"rule": "quantile", **evidence})
    reason = (
        f"{odds}; over the whole run no permitted switch reaches the asked {1 - now.risk:.2f} "
        f"(this one {whole:.2f}): the best available"
    )
    return Order("switch_batch", reason, best.setting, {"rule": "infeasible", **evidence})


def _alone(now: Situation, why: str) -> Order | None:
    """Without a useful candidate: checkpoint before the window, stop inside it."""
    if now.next_horizon is None or now.horizon is None or now.next_horizon <= now.risk / 2:
        return None
    reason = f"collapse within {now.horizon:,} samples has probability {now.next_horizon:.2f} and {why}"
    evidence = {
        "rule": "no candidate",
        "collapse_next": now.next_horizon,
        "horizon_samples": now.horizon,
        "survive_stay": now.stay,
        "risk": now.risk,
    }
    if now.next_horizon > now.risk:
        return Order("stop", reason, evidence=evidence)
    return Order("checkpoint", f"{reason}: save the policy while it is good", evidence=evidence)


def _after_checkpoint(wanted: Order, now: Situation, log: Sequence[Past]) -> Order | None:
    """A switch or stop, or the checkpoint before it, or nothing while either is under way."""
    latest = log[-1] if log else None
    same = (
        latest is not None
        and latest.kind == wanted.kind
        and (wanted.setting is None or _same(latest, wanted.setting))
    )
    if latest is not None and same:
        return wanted if _again(latest, now) else None
    saved = [p for p in log if p.kind == "checkpoint" and p.issued_at_samples >= now.changed_at]
    patience = PATIENCE_STEPS * now.setting.rollout_batch
    if saved and now.samples - saved[-1].issued_at_samples <= 2 * now.window + patience:
        waited = now.samples - saved[-1].issued_at_samples >= patience
        return wanted if saved[-1].settled or waited else None
    what = "a stop" if wanted.kind == "stop" else "a switch"
    return Order("checkpoint", f"{what} follows: {wanted.reason}", evidence=wanted.evidence)


def _again(past: Past, now: Situation) -> bool:
    """Whether a directive that still is right must be issued once more."""
    if past.kind == "checkpoint":
        return now.samples - past.issued_at_samples >= 2 * (now.horizon or now.window)
    return (_expired(past, now) or past.ack == "expired") and not past.settled


def _expired(past: Past | None, now: Situation) -> bool:
    return past is not None and past.expires_at_step is not None and now.step > past.expires_at_step


def _same(past: Past, setting: Setting) -> bool:
    if past.rollout_batch is None or past.learning_rate is None:
        return False
    return not Setting(past.rollout_batch, past.learning_rate).differs(setting, 1e-3)


def _refused(setting: Setting, refused: Sequence[Past], since: int | None) -> bool:
    return any(_same(p, setting) and (since is None or p.issued_at_samples >= since) for p in refused)
