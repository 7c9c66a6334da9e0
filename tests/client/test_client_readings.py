import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from twoclocks.client.readings import MalformedError, readings

GOOD = {"step": 1, "samples": 8, "rollout_batch": 8, "learning_rate": 1e-5, "reward": 0.5}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (3, 3),
        (0.25, 0.25),
        (True, 1),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.array(0.125), 0.125),
        (np.array([2.0]), 2.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (math.inf, math.inf),
    ],
)
def test_what_is_a_number_becomes_a_plain_one(value: object, plain: float) -> None:
    taken = readings(GOOD, {"entropy": value})["entropy"]
    assert taken == plain
    assert type(taken) in (int, float)


def test_tensors_are_read_even_those_with_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    loss = torch.tensor(1.5, requires_grad=True) * 2
    taken = readings(
        GOOD, {"loss": loss, "kl_step": torch.tensor(0.5, dtype=torch.bfloat16), "n": torch.tensor(4)}
    )
    assert (taken["loss"], taken["kl_step"], taken["n"]) == (3.0, 0.5, 4)


def test_a_tensor_is_copied_out_at_once() -> None:
    value = np.array(1.0)
    taken = readings(GOOD, {"loss": value})
    value += 1
    assert taken["loss"] == 1.0


def test_nan_is_kept_and_none_is_left_out() -> None:
    taken = readings({**GOOD, "reward": math.nan}, {"entropy": None, "loss": -math.inf})
    assert math.isnan(taken["reward"])
    assert taken["loss"] == -math.inf
    assert "entropy" not in taken


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(MalformedError, match=f"^{name} is missing"):
        readings({**GOOD, name: None}, {})


@pytest.mark.parametrize(
    "value",
    ["0.5", b"1", [1.0], {}, 1j, np.array([1.0, 2.0]), np.str_("0.5"), object(), lambda: 1],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_named_with_its_value(value: object) -> None:
    with pytest.raises(MalformedError, match=r"^entropy is .*; give a number") as caught:
        readings(GOOD, {"entropy": value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
