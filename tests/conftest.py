"""Fixtures that every test module shares; the arithmetic behind them is in oracle.py."""

import pytest
import torch
from oracle import LIBRARIES


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name.replace(" ", "-"))
def lib(request):
    """NumPy, torch, array_api_strict, and array_api_strict on a device that is not the default."""
    return request.param


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # The sizes are small: threads only cost time, and more so where tests run side by side.
    torch.set_num_threads(1)
