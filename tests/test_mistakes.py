"""The planted mistakes: each changes its number, each is caught, and none stays behind."""

import math

import numpy as np
import pytest

from attnlib import checks, core, heads, masks, mistakes, online, tiled, tiled_checks, tiled_mistakes
from attnlib.mistakes import MISTAKES, planted

# Part I and Part II: each list of mistakes with the checks that must catch it.
LISTS = {
    "one head": (MISTAKES, checks.CHECKS),
    "tiles": (tiled_mistakes.MISTAKES, tiled_checks.CHECKS),
}
EVERY = {name: mistake for planting, _ in LISTS.values() for name, mistake in planting.items()}
both = pytest.mark.parametrize("planting, caught_by", LISTS.values(), ids=LISTS)

# From the mission's facts: wrong answers that name their mistake.
KNOWN = {"no_scale": 0.9796, "scale_by_model_width": 0.7337, "scale_by_width": 0.6285}
# The same of the state and of tiles: right and wrong, by hand. Scores [1, 0, 3].
KNOWN_OF_TILES = {
    "wrong_sign": (1.1851, (1 + math.exp(-1)) * math.exp(2) + 1),
    "no_rescale": (1.1851, 2 + math.exp(-1)),
    "max_reset": (1, 0),
    "parts_averaged": (0.1142, 0.3655),
    "padded_keys_counted": (1, 17 / (17 + 3 * math.exp(5))),
    "lse_without_sum": (3.1698, 3),
    "never_divided": (0.1142, 0.1353),
    "missing_delta": (0.1493, 0.1142 / 2),
}


def test_there_are_enough():
    assert len(MISTAKES) >= 14 and len(EVERY) >= 40
    assert len(EVERY) == sum(len(planting) for planting, _ in LISTS.values()), "two of one name"


@pytest.mark.parametrize("name", EVERY)
def test_telling_number_changes(name):
    mistake = EVERY[name]
    right, wrong = mistake.numbers()
    assert mistake.name == name and mistake.says.endswith(".")
    assert math.isfinite(right)
    assert math.isnan(wrong) or abs(wrong - right) > 1e-6
    assert mistake.look() == right, "the mistake stayed behind"


@pytest.mark.parametrize("name", KNOWN)
def test_known_wrong_numbers(name):
    right, wrong = MISTAKES[name].numbers()
    assert round(right, 4) == 0.8438
    assert round(wrong, 4) == KNOWN[name]


@pytest.mark.parametrize("name", KNOWN_OF_TILES)
def test_known_wrong_numbers_of_tiles(name):
    known_right, known_wrong = KNOWN_OF_TILES[name]
    right, wrong = EVERY[name].numbers()
    assert right == pytest.approx(known_right, abs=5.1e-5)
    assert wrong == pytest.approx(known_wrong, abs=5.1e-5)


def test_no_two_mistakes_at_one_place_give_the_same_number():
    """A wrong number can only name its mistake if no other gives it."""
    seen = {}
    for mistake in EVERY.values():
        wrong = mistake.numbers()[1]
        key = (mistake.where, round(wrong, 4))
        assert math.isnan(wrong) or key not in seen, (mistake.name, seen[key])
        seen[key] = mistake.name


@pytest.mark.parametrize("check", [c for _, caught_by in LISTS.values() for c in caught_by.values()])
def test_library_passes(check):
    check()


@both
def test_no_mistake_survives_and_no_check_is_idle(planting, caught_by):
    matrix = checks.kill_matrix(caught_by, planting)
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    caught = {check for row in matrix.values() for check, hit in row.items() if hit}
    assert caught == set(caught_by)
    for check in caught_by.values():  # and nothing stayed behind
        check()


def test_the_kill_matrix_is_of_one_head_if_nothing_is_given():
    matrix = checks.kill_matrix({"blind": lambda: None})
    assert list(matrix) == list(MISTAKES)
    assert set(checks.kill_matrix(planting={})) == set()


def test_a_check_that_sees_nothing_catches_nothing():
    matrix = checks.kill_matrix({"blind": lambda: None})
    assert not any(row["blind"] for row in matrix.values())


def test_planting_is_undone_even_after_an_error():
    before = (core.default_scale, core.softmax, heads.split_heads, masks.read_mask)
    with pytest.raises(ZeroDivisionError), planted("no_scale"):
        assert core.default_scale(4) == 1.0
        raise ZeroDivisionError
    assert (core.default_scale, core.softmax, heads.split_heads, masks.read_mask) == before


def test_planting_in_tiles_is_undone_even_after_an_error():
    names = {
        place.split(".")[1]: place.split(".")[0]
        for mistake in tiled_mistakes.MISTAKES.values()
        for place in mistake.wrong
    }
    modules = {"online": online, "tiled": tiled}
    before = {name: getattr(modules[module], name) for name, module in names.items()}
    for mistake in tiled_mistakes.MISTAKES.values():
        with pytest.raises(ZeroDivisionError), planted(mistake):
            assert any(getattr(modules[module], name) is not before[name] for name, module in names.items())
            raise ZeroDivisionError
        assert all(getattr(modules[module], name) is before[name] for name, module in names.items())


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
    for name, mistake in tiled_mistakes.MISTAKES.items():
        with planted(mistake), np.errstate(all="ignore"):
            output = tiled.flash_attention(q, k, v, is_causal=True, block_q=3, block_k=3)
        assert output.shape == (3, 4), name


@pytest.mark.parametrize("wrong", [math.nan, 1 + 1e-9, 2.0])
def test_same_refuses(wrong):
    with pytest.raises(AssertionError, match="number"):
        checks.same([1.0, wrong], [1.0, 1.0], "number")
    with pytest.raises(AssertionError, match="shape"):
        checks.same([1.0], [[1.0]], "shape")


def test_B3_a_mistake_in_tiles_is_planted_by_its_name_too():
    assert not set(MISTAKES) & set(tiled_mistakes.MISTAKES)
    for name, mistake in tiled_mistakes.MISTAKES.items():
        with tiled_mistakes.planted(name) as made:
            assert made is mistake
