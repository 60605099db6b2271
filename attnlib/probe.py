"""The leak test: recover from a black box who looks at whom, by changing one token at a time."""

import numpy as np

from ._arrays import namespace


def moved_rows(function, tokens, j, *, delta=1.0):
    """Add `delta` to row j of the input and report which output rows move.

    Parameters
    ----------
    function : callable
        Takes one array like `tokens`, returns an array of shape (..., Tq, width).
    tokens : floating array, shape (..., Tk, width)
        Not modified.
    j : int
        Row to change, from 0.
    delta : float
        By how much; not 0.

    Returns
    -------
    boolean array of NumPy, shape (Tq,)
        True where any number of that output row changed, in any batch item or head. Exact: no
        tolerance, since a hidden token must change nothing at all. A NaN counts as a change.

    Examples
    --------
    >>> import numpy as np
    >>> moved_rows(lambda x: np.cumsum(x, axis=0), np.zeros((3, 2)), 1)
    array([False,  True,  True])
    """
    xp = namespace(tokens=tokens)
    row = xp.arange(tokens.shape[-2])[:, None] == j
    changed = xp.where(row, tokens + delta, tokens)
    before, after = _as_numpy(function(tokens)), _as_numpy(function(changed))
    moved = (before != after).any(axis=-1)
    return moved.reshape(-1, moved.shape[-1]).any(axis=0)


def recover_mask(function, tokens, *, delta=1.0):
    """The mask of a black box: entry (i, j) is True if output i moves when token j is changed.

    Parameters
    ----------
    function, tokens, delta
        As in :func:`moved_rows`.

    Returns
    -------
    boolean array of NumPy, shape (Tq, Tk)
        True = may attend, if changing a token reaches the outputs through attention alone.

    Notes
    -----
    In self-attention a token's own output always moves with its query. To see the mask itself, change
    the values only: ``recover_mask(lambda v: attention(q, k, v), v)``. One call of `function` more than
    there are tokens would do; it makes two per token, for clarity.

    Examples
    --------
    >>> from attnlib import attention
    >>> from attnlib.examples import three_tokens
    >>> q, k, v = three_tokens().head(1)
    >>> recover_mask(lambda v: attention(q, k, v, is_causal=True), v).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    columns = [
        moved_rows(function, tokens, j, delta=delta)
        for j in range(tokens.shape[-2])
    ]
    return np.stack(columns, axis=-1)


def _as_numpy(array):
    return np.asarray(
        array.detach().cpu() if hasattr(array, "detach") else array
    )
