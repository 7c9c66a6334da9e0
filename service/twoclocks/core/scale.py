"""A drift clock held against its family's threshold: where the run stands and what a plan adds, in one unit.

Two clocks forecast. `rule` carries a grid of damage exponents q (drift.py) in equivalent samples at the
family's median eta0, weighed by the posterior of q. `displacement` is the measured net norm x: with x
growing as n^h, x^(1/h) grows evenly, at a rate that goes as eta0^(1/h), so it is forecast as a damage of the
one exponent 1/h and shown as x. The displacement clock is used where it predicted the family's collapses
clearly better (leave-one-run-out log density of their log samples, THEORY.md 3.1), the rule clock otherwise:
it is always there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twoclocks.core.drift import EXPONENTS, NEGLIGIBLE, DriftState, Growth, growth
from twoclocks.core.drift import rho as rho_of
from twoclocks.core.forecast import RATE_SPREAD, Present, stand, survivals
from twoclocks.core.plan import Leg, Table, tabulate
from twoclocks.core.threshold import ENOUGH, Evidence, Posterior, learn

BETTER = 0.2
STALE_SPREAD = 0.2
"""Added to the rate's spread per unit of |log(effective eta0 / eta0)|, while Adam remembers another batch."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One clock against one family. `factors` and `exponents` make a plan's gains in the posterior's units.

    `shown` is the present drift as people see it: equivalent samples on exponent `shown_index` (rule), the
    norm (displacement); `power` turns the posterior's log units into the shown ones.
    """

    name: str
    present: Present
    exponents: tuple[float, ...]
    factors: NDArray[np.float64]
    spread: float
    shown: float
    shown_index: int
    power: float
    drift: DriftState
    beta2: float

    def table(self, legs: Sequence[Leg]) -> Table:
        """Return the drift that a plan adds from now, in the posterior's units."""
        return tabulate(legs, self.exponents, self.factors, self.drift.second_moment or 1.0, self.beta2)

    def progress(self, legs: Sequence[Leg], reach: float) -> float:
        """Return a plan's first-order progress over `reach` samples: the integral of eta0 (THEORY.md 1.1)."""
        kept = np.array([self.drift.kept])
        return float(
            tabulate(legs, (1.0,), kept, self.drift.second_moment or 1.0, self.beta2).forward(reach)[0]
        )

    def rho(self, stay: Sequence[Leg], switched: Sequence[Leg], reach: float) -> float | None:
        """Return rho (THEORY.md 1.8) of two plans over `reach` samples; None where switching saves no drift.

        With q uncertain, setting dU/dn_s = 0 in U = E_q[int p S dn] gives, per unit of survival now,
        p1/p2 - 1 = E[(d1/d2 - 1) (1 - S_T/S_s)]: equation (10) with d1/d2 - 1 averaged over the draws
        weighted by the deaths they foresee after the switch. p is first-order, p and d are averages over
        what is left, so Adam's transient is in both.
        """
        p1, p2 = self.progress(stay, reach), self.progress(switched, reach)
        gained, instead = self.table(stay).forward(reach), self.table(switched).forward(reach)
        if min(p1, p2) <= 0 or min(gained.min(), instead.min()) <= 0:
            return None
        deaths = self.present.weights * (1 - survivals(self.present, instead, self.spread))
        if deaths.sum() <= 0:
            deaths = self.present.weights
        saved = (gained / instead)[self.present.posterior.exponent]
        ratio = float((deaths * saved).sum() / deaths.sum())
        return rho_of(p1, p2, ratio, 1.0) if ratio > 1 + 1e-9 else None

    def per_sample(self, eta0: float, epochs: int) -> float:
        """Return the drift per sample at an effective eta0, in the shown unit."""
        rate = float(self.factors[self.shown_index]) * epochs * eta0 ** self.exponents[self.shown_index]
        return float(rate * self.power * self.shown ** (1 - 1 / self.power))

    def thresholds(self, drawn: tuple[NDArray[np.intp], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return draws of D in the shown unit, from `forecast.thresholds`."""
        exponent, log_d = drawn
        return np.asarray(self.shown * np.exp(self.power * (log_d - self.present.log_x[exponent])))


def by_rule(drift: DriftState, posterior: Posterior, beta2: float) -> Scale:
    """Return the rule clock of a run against its family's threshold. The run must have drifted."""
    if drift.setting is None or min(drift.damage) <= 0:
        raise ValueError("the rule clock needs a run that has drifted")
    present = stand(posterior, posterior.log_units([math.log(x) for x in drift.damage]))
    q = np.array(EXPONENTS)
    weights = np.bincount(posterior.exponent, present.weights, len(q))
    index = int(np.abs(q - (weights * q).sum()).argmin())
    stale = abs(math.log(drift.effective_eta0 / drift.setting.eta0))
    return Scale(
        name="rule",
        present=present,
        exponents=EXPONENTS,
        factors=drift.kept
        * drift.signal ** (1 - np.minimum(q, 2.0) / 2)
        * np.exp(-q * posterior.log_eta_ref),
        spread=math.hypot(RATE_SPREAD, STALE_SPREAD * stale),
        shown=float(np.exp(present.log_x[index])),
        shown_index=index,
        power=1.0,
        drift=drift,
        beta2=beta2,
    )


def by_displacement(drift: DriftState, posterior: Posterior, grown: Growth, beta2: float) -> Scale:
    """Return the displacement clock of a run against its family's threshold, learned with the exponent 1."""
    if drift.setting is None or not drift.displacement:
        raise ValueError("the displacement clock needs a run that reports its displacement")
    h = grown.h
    scaled = replace(posterior, exponents=(1 / h,), mu=posterior.mu / h, omega=posterior.omega / h)
    factor = grown.rate / (drift.setting.epochs * drift.effective_eta0 ** (1 / h))
    return Scale(
        name="displacement",
        present=stand(scaled, np.array([math.log(drift.displacement) / h])),
        exponents=(1 / h,),
        factors=np.array([factor]),
        spread=math.hypot(RATE_SPREAD, grown.spread),
        shown=drift.displacement,
        shown_index=0,
        power=h,
        drift=drift,
        beta2=beta2,
    )


def choose(
    drift: DriftState, rule: tuple[Evidence, ...], displacement: tuple[Evidence, ...], beta2: float
) -> Scale | None:
    """Return the clock to forecast with, given the family's evidence on each; None without any, or without
    drift.

    Clocks are compared on the same runs only: displacement is considered where every member reports it.
    """
    if (
        not rule
        or drift.setting is None
        or min(drift.damage) <= 0
        or drift.setting.learning_rate <= NEGLIGIBLE
    ):
        return None
    posterior = learn(rule, EXPONENTS)
    grown = growth(drift.ring)
    if (
        grown is not None
        and drift.displacement
        and len(displacement) == len(rule)
        and posterior.collapsed >= ENOUGH
    ):
        measured = learn(displacement, (1.0,))
        if measured.score > posterior.score + BETTER:
            return by_displacement(drift, measured, grown, beta2)
    return by_rule(drift, posterior, beta2)
