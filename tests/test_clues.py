"""What visible checks say: the suspect by name, where the first difference is, and never the answer."""

import numpy as np
import pytest

from attnlib import clues

RIGHT = np.array([[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.125, 0.875]]])
SUSPECTS = {"the scale is missing": RIGHT + 0.1, "the axes are swapped": RIGHT.swapaxes(-1, -2)}


def refusal(got, right=RIGHT, suspects=SUSPECTS, **options):
    with pytest.raises(AssertionError) as caught:
        clues.compare(got, right, suspects, what="the weights", **options)
    return str(caught.value)


@pytest.mark.parametrize("got", [RIGHT, RIGHT.astype(np.float32), RIGHT.tolist(), RIGHT + 4e-4])
def test_right_answers_pass(got):
    assert clues.compare(got, RIGHT, SUSPECTS) is None


def test_rounding_is_no_mistake_and_more_than_that_is():
    assert clues.compare(0.5004, 0.5) is None
    with pytest.raises(AssertionError):
        clues.compare(0.5006, 0.5)
    assert clues.compare(0.6, 0.5, atol=0.1 + 1e-9) is None


@pytest.mark.parametrize("sentence", list(SUSPECTS))
def test_a_suspect_is_named(sentence):
    assert refusal(SUSPECTS[sentence]) == f"the weights: {sentence}"


def test_the_first_suspect_that_fits_is_named():
    twice = {"first": [2.0], "second": [2.0]}
    assert refusal([2.0], [1.0], twice) == "the weights: first"


def test_a_suspect_may_be_nan():
    assert refusal([np.nan, 1.0], [0.0, 1.0], {"0/0": [np.nan, 1.0]}) == "the weights: 0/0"


@pytest.mark.parametrize(
    ("got", "says"), [(None, "None"), (..., "..."), ("half", "str"), ([[1], [1, 2]], "list")]
)
def test_what_is_no_array_is_refused_in_words(got, says):
    assert says in refusal(got)


def test_both_shapes_are_named():
    assert refusal(RIGHT[0]) == "the weights: got shape (2, 2), wanted (2, 2, 2)"


def test_nan_never_passes():
    got = RIGHT.copy()
    got[1, 0, 1] = np.nan
    words = refusal(got)
    assert "1 of 8" in words and "nan at head 1, row 0, column 1" in words


def test_infinities_must_stand_in_the_same_places():
    hidden = np.array([[1.0, -np.inf]])
    assert clues.compare(hidden.copy(), hidden) is None
    assert "-1e+09" in refusal([[1.0, -1e9]], hidden, {})
    assert "inf" in refusal([[1.0, np.inf]], hidden, {})


def test_the_place_is_given_and_the_answer_is_not():
    got = RIGHT.copy()
    got[1, 1, 0] = 0.6
    words = refusal(got)
    assert words.endswith(
        "1 of 8 numbers are not right; the first is 0.6 at head 1, row 1, column 0 (counted from 0)"
    )
    assert "0.125" not in words
    assert refusal([1.0, 3.0], [1.0, 2.0], {}).endswith("the first is 3 at place [1]")
    assert refusal(3.0, 2.0, {}).endswith("the first is 3")


def test_what_was_returned_is_not_changed():
    got = RIGHT.copy()
    clues.compare(got, RIGHT, SUSPECTS)
    assert np.array_equal(got, RIGHT)
