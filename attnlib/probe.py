"""The leak test: recover from a black box who looks at whom, by changing one token at a time."""

import numpy as np
from array_api_compat import device

from ._arrays import namespace, require_floating, whole_number
from .errors import AttnError, ShapeError


def moved_rows(function, tokens, j, *, delta=1.0):
    """Add `delta` to row j of the input and report which output rows move.

    Parameters
    ----------
    function : callable
        Takes one array like `tokens`, returns an array of shape (..., Tq, width).
    tokens : floating array, shape (..., Tk, width)
        Not modified.
    j : int
        Row to change, from 0 to Tk - 1.
    delta : float
        By how much; not 0, and not so little that the row stays what it was.

    Returns
    -------
    boolean array of NumPy, shape (Tq,)
        True where any number of that output row changed, in any batch item or head. Exact: no
        tolerance, since a hidden token must change nothing at all. A NaN counts as a change.

    Raises
    ------
    ShapeError
        Tokens or outputs that are no rows; a row that is not there.
    AttnError
        A `delta` that changes nothing: every mask would look closed.

    Examples
    --------
    >>> import numpy as np
    >>> moved_rows(lambda x: np.cumsum(x, axis=0), np.zeros((3, 2)), 1)
    array([False,  True,  True])
    """
    xp = namespace(tokens=tokens)
    require_floating(xp, tokens.dtype, "tokens")
    if tokens.ndim < 2:
        raise ShapeError(
            f"tokens have shape {tuple(tokens.shape)}, wanted at least 2 axes: (..., Tk, width)"
        )
    n_tokens = tokens.shape[-2]
    if not whole_number(j, "j", least=0) < n_tokens:
        raise ShapeError(f"j is {j}, wanted a row from 0 to {n_tokens - 1}")
    row = xp.arange(n_tokens, device=device(tokens))[:, None] == j
    changed = xp.where(row, tokens + delta, tokens)
    if not bool(xp.any(changed != tokens)):
        raise AttnError(
            f"delta is {delta!r}, and adding it changes no number of row {j}: wanted a larger one"
        )
    # A function may write into the same memory again.
    before = _as_numpy(function(tokens)).copy()
    after = _as_numpy(function(changed))
    if before.ndim < 2:
        raise ShapeError(
            f"the function returned shape {before.shape}, wanted rows (..., Tq, width)"
        )
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
    namespace(tokens=tokens)
    n_tokens = tokens.shape[-2] if tokens.ndim > 1 else 0
    if not n_tokens:
        raise ShapeError(
            f"tokens have shape {tuple(tokens.shape)}, wanted at least one row (..., Tk, width)"
        )
    columns = [
        moved_rows(function, tokens, j, delta=delta) for j in range(n_tokens)
    ]
    return np.stack(columns, axis=-1)


def _as_numpy(array):
    namespace(**{"what the function returned": array})
    if hasattr(array, "detach"):  # NumPy has no bfloat16
        array = array.detach().cpu().double()
    return np.asarray(array)
