"""States as JSON documents: exact, strict, and clear about what does not fit."""

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoclocks.core.state import decode, encode


@dataclass(frozen=True)
class Inner:
    level: float | None = None
    pair: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True)
class Outer:
    name: str
    on: bool
    many: tuple[Inner, ...]
    one: Inner | None
    table: dict[str, float]


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
INNER = st.builds(Inner, st.none() | FLOATS, st.tuples(st.integers(), FLOATS))
OUTER = st.builds(
    Outer,
    st.text(),
    st.booleans(),
    st.lists(INNER).map(tuple),
    st.none() | INNER,
    st.dictionaries(st.text(), FLOATS),
)


@given(OUTER)
def test_there_and_back_exactly(state: Outer) -> None:
    text = json.dumps(encode(state), allow_nan=False)
    back = decode(Outer, json.loads(text))
    assert repr(back) == repr(state)  # repr compares NaN as equal and keeps every bit of a float
    assert json.dumps(encode(back), allow_nan=False) == text


def test_what_json_has_no_literal_for() -> None:
    assert encode(Inner(math.nan, (1, -math.inf))) == {"level": "NaN", "pair": [1, "-Infinity"]}
    assert decode(Inner, {"level": 3, "pair": [1, 2]}) == Inner(3.0, (1, 2.0))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"level": None}, "other fields"),
        ({"level": "high", "pair": [1, 2.0]}, r"Inner.level: expected a number"),
        ({"level": 1.0, "pair": 3}, r"Inner.pair: expected a list"),
        ({"level": 1.0, "pair": ["a", 2.0]}, r"Inner.pair\[0\]: expected int"),
        ({"level": 1.0, "pair": [1]}, "shorter"),
        ([], "other fields"),
    ],
)
def test_what_does_not_fit_is_named(document: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(Inner, document)
