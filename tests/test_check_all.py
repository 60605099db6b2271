"""The checks themselves: what an earlier run left behind hides no fault, and nobody is made to read noise."""

import logging
import subprocess

import check_all


def test_A5_the_site_is_built_from_nothing(tmp_path):
    # Sphinx reads a page that it remembers no second time, and says no second time what is wrong with it.
    left = [tmp_path / "_build" / name for name in (".doctrees/page.doctree", "html/gone.html")]
    for path in [*left, tmp_path / "_config.yml"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    *before, build = check_all.STEPS["site"]
    for command in before:
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert not any(path.exists() for path in left) and {"build", "-W"} <= set(build)


def test_ranges_run_only_when_they_are_named():
    assert "ranges" in check_all.ON_REQUEST and "ranges" not in check_all.STEPS


def test_building_says_nothing_of_fonts():
    import webfont

    assert webfont and not logging.getLogger("fontTools.subset").isEnabledFor(logging.INFO)
