"""The planted mistakes: each changes its number, each is caught, and none stays behind."""

import math

import numpy as np
import pytest

from attnlib import checks, core, heads, masks, mistakes
from attnlib.mistakes import MISTAKES, planted

# From the mission's facts: wrong answers that name their mistake.
KNOWN = {"no_scale": 0.9796, "scale_by_model_width": 0.7337, "scale_by_width": 0.6285}


def test_there_are_enough():
    assert len(MISTAKES) >= 14


@pytest.mark.parametrize("name", MISTAKES)
def test_telling_number_changes(name):
    right, wrong = MISTAKES[name].numbers()
    assert math.isfinite(right)
    assert math.isnan(wrong) or abs(wrong - right) > 1e-6
    assert MISTAKES[name].look() == right, "the mistake stayed behind"


@pytest.mark.parametrize("name", KNOWN)
def test_known_wrong_numbers(name):
    right, wrong = MISTAKES[name].numbers()
    assert round(right, 4) == 0.8438
    assert round(wrong, 4) == KNOWN[name]


def test_no_two_mistakes_at_one_place_give_the_same_number():
    """A wrong number can only name its mistake if no other gives it."""
    seen = {}
    for mistake in MISTAKES.values():
        wrong = mistake.numbers()[1]
        key = (mistake.where, round(wrong, 4))
        assert math.isnan(wrong) or key not in seen, (mistake.name, seen[key])
        seen[key] = mistake.name


@pytest.mark.parametrize("name", checks.CHECKS)
def test_library_passes(name):
    checks.CHECKS[name]()


def test_no_mistake_survives_and_no_check_is_idle():
    matrix = checks.kill_matrix()
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    caught = {check for row in matrix.values() for check, hit in row.items() if hit}
    assert caught == set(checks.CHECKS)


def test_a_check_that_sees_nothing_catches_nothing():
    matrix = checks.kill_matrix({"blind": lambda: None})
    assert not any(row["blind"] for row in matrix.values())


def test_planting_is_undone_even_after_an_error():
    before = (core.default_scale, core.softmax, heads.split_heads, masks.read_mask)
    with pytest.raises(ZeroDivisionError), planted("no_scale"):
        assert core.default_scale(4) == 1.0
        raise ZeroDivisionError
    assert (core.default_scale, core.softmax, heads.split_heads, masks.read_mask) == before


def test_unknown_mistake_lists_the_names():
    with pytest.raises(KeyError, match="no_scale"), planted("no_such"):
        pass


def test_planting_reaches_torch():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(a) for a in mistakes.three_tokens().head(1))
    for name in MISTAKES:
        with planted(name), np.errstate(all="ignore"):
            steps = core.attention_steps(q, k, v, is_causal=True)
        assert steps.output.shape == (3, 4), name


@pytest.mark.parametrize("wrong", [math.nan, 1 + 1e-9, 2.0])
def test_same_refuses(wrong):
    with pytest.raises(AssertionError, match="number"):
        checks.same([1.0, wrong], [1.0, 1.0], "number")
    with pytest.raises(AssertionError, match="shape"):
        checks.same([1.0], [[1.0]], "shape")
