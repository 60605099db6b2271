"""The worked examples as data. Nothing else in the project types these numbers.

None of the numbers was learned by a model: they are small so that every step can be checked by hand.
Each call returns fresh arrays, so a notebook that overwrites one harms nobody.
"""

from typing import NamedTuple

import numpy as np


class Example(NamedTuple):
    """One attention layer's input.

    Attributes
    ----------
    tokens : tuple of str
        One word per token.
    x : array, shape (T, d)
        One row per token: the vectors that enter the layer.
    w_q, w_k, w_v : array, shape (d, n_heads * d_h)
        Projections.
    w_o : array, shape (n_heads * d_h, d)
        Output projection.
    n_heads : int
    """

    tokens: tuple
    x: np.ndarray
    w_q: np.ndarray
    w_k: np.ndarray
    w_v: np.ndarray
    w_o: np.ndarray
    n_heads: int

    @property
    def query(self):
        """Queries of all heads, shape (n_heads, T, d_h)."""
        return self._per_head(self.w_q)

    @property
    def key(self):
        """Keys of all heads, shape (n_heads, T, d_h)."""
        return self._per_head(self.w_k)

    @property
    def value(self):
        """Values of all heads, shape (n_heads, T, d_h)."""
        return self._per_head(self.w_v)

    def head(self, number):
        """``(Q, K, V)`` of one head, counted from 1 as in the text; each has shape (T, d_h)."""
        if not 1 <= number <= self.n_heads:
            raise IndexError(
                f"head {number} asked for, but the heads are 1 to {self.n_heads}"
            )
        return (
            self.query[number - 1],
            self.key[number - 1],
            self.value[number - 1],
        )

    def _per_head(self, weight):
        # Columns 1 to d_h belong to head 1, the next d_h to head 2: data, so it needs no library code.
        return np.stack(np.split(self.x @ weight, self.n_heads, axis=1))


def three_tokens():
    """The example of every chapter: T = 3 tokens, d = 8, two heads of width 4.

    Returns
    -------
    Example
        Head 1 reproduces every number that the source document prints; head 2, the inputs and the
        projections are ours, chosen so that no two rows of any Q, K or V agree.

    Notes
    -----
    Source: "core attention" (source one of the mission's facts): Q, K, V of head 1.

    Examples
    --------
    >>> q, k, v = three_tokens().head(1)
    >>> q @ k.T
    array([[ 3.,  0., -2.],
           [ 6.,  3., -2.],
           [ 2.,  0.,  6.]])
    """
    x = [
        [0, 1, 2, 0, -1, 0, -1, -1],
        [0, 0, 0, -1, 0, 1, -1, 0],
        [1, 1, 1, 1, 1, 0, -1, 0],
    ]
    w_q = [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, -1, 0, 0, -1],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [-1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 1],
        [0, 0, -1, 0, 0, 1, 1, 0],
        [-1, 0, 0, 0, 0, 0, 0, 0],
    ]
    w_k = [
        [-1, 0, 0, 1, 0, 0, 1, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 1, -1, 0, 1, 1, 0, 0],
        [-1, 0, 0, 0, 0, 0, 0, 0],
        [-1, 0, 0, 0, -1, 0, 0, 0],
        [0, 1, 0, 0, 0, 1, 0, -1],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
    w_v = [
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, -1],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, -1, 0],
        [0, 0, 0, -1, -1, 0, 0, -1],
        [-1, 0, 0, 0, 0, 0, 0, 0],
    ]
    # Every column takes one component of head 1 (rows 1-4) and one of head 2 (rows 5-8): W_O mixes heads.
    w_o = [
        [1, 0, 0, 0, 0, -1, 0, 0],
        [0, 1, 0, 0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0, 0, -1, 0],
        [0, -1, 0, 0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, -1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 1, 0, 0],
    ]
    arrays = (
        np.asarray(rows, dtype=np.float64) for rows in (x, w_q, w_k, w_v, w_o)
    )
    return Example(("we", "like", "tea"), *arrays, n_heads=2)


def cat_sleeps():
    """The head of three words that chapter 7 lets the reader play with: T = 3, d = 2, one head of width 2.

    Returns
    -------
    Example
        The output projection is the identity: the source stops at the head's output.

    Notes
    -----
    Source: "one head of three words" (source two of the mission's facts).

    Examples
    --------
    >>> q, k, v = cat_sleeps().head(1)
    >>> q @ k.T
    array([[1., 1., 2.],
           [1., 0., 1.],
           [2., 1., 3.]])
    """
    x = [[1, 0], [0, 1], [1, 1]]
    w_q, w_k, w_v = [[1, 0.5], [0, 1]], [[0.5, 1], [1, 0]], [[1, -1], [0.5, 1]]
    arrays = (
        np.asarray(rows, dtype=np.float64)
        for rows in (x, w_q, w_k, w_v, [[1, 0], [0, 1]])
    )
    return Example(("The", "cat", "sleeps"), *arrays, n_heads=1)


class Ragged(NamedTuple):
    """Queries, keys and values whose sizes all differ; see :func:`all_sizes_differ`."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


def all_sizes_differ():
    """The asymmetric companion: batch 2, 3 heads, 4 queries, 5 keys, head width 6, value width 7.

    No square matrix appears anywhere, so a swapped axis or a missing transpose cannot hide.

    Returns
    -------
    Ragged
        ``query`` (2, 3, 4, 6), ``key`` (2, 3, 5, 6), ``value`` (2, 3, 5, 7): multiples of 1/2 from
        -2 to 2, made by a fixed rule, no two rows alike.

    Examples
    --------
    >>> [a.shape for a in all_sizes_differ()]
    [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)]
    """

    def halves(seed, *shape):
        # A linear congruential generator: the same halves on every machine and NumPy version.
        numbers, state = [], seed
        for _ in range(int(np.prod(shape))):
            state = (1103515245 * state + 12345) % 2**31
            numbers.append((state >> 16) % 9 / 2 - 2)
        return np.asarray(numbers).reshape(shape)

    return Ragged(
        halves(1, 2, 3, 4, 6), halves(2, 2, 3, 5, 6), halves(3, 2, 3, 5, 7)
    )
