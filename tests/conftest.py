"""Fixtures that every test module shares; the arithmetic behind them is in oracle.py."""

import os
import shutil

# Triton looks once, when it is imported: its kernels then run on the CPU, in its interpreter.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from oracle import LIBRARIES

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name.replace(" ", "-"))
def lib(request):
    """NumPy, torch, array_api_strict, and array_api_strict on a device that is not the default."""
    return request.param


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # The sizes are small: threads only cost time, and more so where tests run side by side.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium, one for all tests. Missing: an error in CI, a named skip elsewhere."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        message = "no Chromium found: install it, or name its program in the variable CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def _staged(browser, folder):
    from stage import Stage, served

    with served(folder) as address:
        stage = Stage(browser, folder, address)
        yield stage
        for context in stage.contexts:
            context.close()
    assert stage.faults == []


@pytest.fixture
def stage(browser, tmp_path):
    """A page to put a widget on; afterwards, it must have asked no other host and reported no error."""
    yield from _staged(browser, tmp_path)


@pytest.fixture(scope="module")
def shared_stage(browser, tmp_path_factory):
    """The same for all tests of a module that leave the widget as they found it."""
    yield from _staged(browser, tmp_path_factory.mktemp("stage"))
