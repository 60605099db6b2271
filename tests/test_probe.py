"""The leak test must not say "nothing moves" because nothing was asked."""

import numpy as np
import pytest
import torch

from attnlib import AttnError, ShapeError, attention, causal_mask
from attnlib.probe import moved_rows, recover_mask


def running_sum(x):
    return np.cumsum(x, axis=0)


@pytest.mark.parametrize("j", [3, -1, 0.5, True, "0"])
def test_a_row_that_is_not_there_is_refused(j):
    with pytest.raises(ShapeError, match="j is "):
        moved_rows(running_sum, np.zeros((3, 2)), j)


@pytest.mark.parametrize("size, delta", [(0.0, 0), (1.0, 1e-30), (1e20, 1.0)])
def test_a_change_that_changes_nothing_is_refused(size, delta):
    with pytest.raises(AttnError, match="changes no number of row 0"):
        moved_rows(running_sum, np.full((3, 2), size), 0, delta=delta)


def test_a_function_may_use_its_memory_again():
    room = np.empty((3, 2))
    got = recover_mask(lambda v: np.matmul(np.tri(3), v, out=room), np.zeros((3, 2)))
    assert np.array_equal(got, causal_mask(3, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_torch_in_any_precision(dtype):
    x = torch.linspace(-1, 1, 6).reshape(3, 2).to(dtype)
    got = recover_mask(lambda v: attention(x, x, v, is_causal=True), x)
    assert np.array_equal(got, causal_mask(3, 3))


@pytest.mark.parametrize(
    "function, tokens, words",
    [
        (running_sum, np.zeros(3), "wanted at least one row"),
        (running_sum, np.zeros((0, 2)), "wanted at least one row"),
        (running_sum, np.zeros((3, 2), int), "wanted floating point"),
        (lambda x: x[:, 0], np.zeros((3, 2)), "wanted rows"),
        (lambda x: (x, x), np.zeros((3, 2)), "what the function returned is a tuple"),
    ],
)
def test_what_has_no_rows_is_refused(function, tokens, words):
    with pytest.raises(ShapeError, match=words):
        recover_mask(function, tokens)
