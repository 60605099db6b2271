"""What was measured once and is shown again: the records that the chapters read, shipped with the package."""

import json
from pathlib import Path

from .errors import AttnError

FOLDER = Path(__file__).with_name("data")


def names(folder=""):
    """The records there are, below one folder (`"gpu"`) or all of them: `"cpu/attention.json"` and so on."""
    found = (FOLDER / folder).rglob("*.json")
    return sorted(path.relative_to(FOLDER).as_posix() for path in found)


def load(name):
    """One record, as it was written.

    Parameters
    ----------
    name : str
        As in :func:`names`.

    Returns
    -------
    dict or list

    Raises
    ------
    AttnError
        A name that is not there.

    Examples
    --------
    >>> load("cpu/attention.json")["settings"]["heads"]
    8
    """
    if name not in names():
        raise AttnError(
            f"no record is called {name!r}; there are {', '.join(names())}"
        )
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))
