"""What the tests compare attnlib with, and how: plain loops in float64, torch's attention, one `close`."""

import math
from dataclasses import dataclass

import array_api_strict
import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def plain_attention(query, key, value, mask=None, scale=None):
    """Attention with one number at a time, in Python floats: (output, weights, lse).

    A forbidden key is never looked at, so nothing that it holds can matter. `mask` is boolean or additive
    and broadcasts to the scores; a row without a key gives zeros and -inf.
    """
    query, key, value = (np.asarray(a, dtype=np.float64) for a in (query, key, value))
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (np.broadcast_to(a, lead + a.shape[-2:]) for a in (query, key, value))
    (n_q, width), n_k, d_v = query.shape[-2:], key.shape[-2], value.shape[-1]
    scale = 1 / math.sqrt(width) if scale is None else scale
    mask = np.broadcast_to(np.asarray(True if mask is None else mask), (*lead, n_q, n_k))
    output, weights, lse = (
        np.zeros((*lead, n_q, d_v)),
        np.zeros((*lead, n_q, n_k)),
        np.full((*lead, n_q), -np.inf),
    )
    for at in np.ndindex(*lead, n_q):
        q, k, v = query[at], key[at[:-1]], value[at[:-1]]
        scores = {}
        for j in range(n_k):
            entry = mask[at][j]
            allowed = bool(entry) if mask.dtype == bool else entry != -np.inf
            if allowed:
                bias = 0.0 if mask.dtype == bool else float(entry)
                scores[j] = scale * math.fsum(a * b for a, b in zip(q, k[j], strict=True)) + bias
        if not scores:
            continue
        top = max(scores.values())
        total = math.fsum(math.exp(s - top) for s in scores.values())
        lse[at] = top + math.log(total)
        for j, s in scores.items():
            weights[at][j] = math.exp(s - top) / total
        for c in range(d_v):
            output[at][c] = math.fsum(weights[at][j] * v[j, c] for j in scores)
    return output, weights, lse


def torch_attention(query, key, value, mask=None, **how):
    """torch's scaled_dot_product_attention in float64 on NumPy arrays."""
    mask = None if mask is None else torch.asarray(np.array(mask))
    return sdpa(
        *(torch.asarray(np.array(a, dtype=np.float64)) for a in (query, key, value)), mask, **how
    ).numpy()


def plain_formula(query, key, value, mask=None):
    """softmax(QKᵀ/√d + M) V in the inputs' own precision, torch: the yardstick of the 2 x and 3 x rules."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1) @ value


def close(got, want, *, rtol=1e-12, atol=1e-12, nan_at=None):
    """Fail unless `got` is `want`: same shape, no NaN on either side, the same infinities, near otherwise.

    `nan_at`, a boolean array, names the places where `got` must be NaN; they are not compared further.
    """
    got, want = to_numpy(got), to_numpy(want)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    got, want = got.astype(np.float64), want.astype(np.float64)
    if nan_at is not None:
        nan_at = np.broadcast_to(nan_at, got.shape)
        assert np.isnan(got[nan_at]).all(), f"no NaN where one must show: {got}"
        got, want = np.where(nan_at, 0, got), np.where(nan_at, 0, want)
    assert not np.isnan(want).any(), "the reference itself is NaN: it proves nothing"
    assert not np.isnan(got).any(), f"NaN in {got}"
    infinite = np.isinf(want)
    assert np.array_equal(np.where(infinite, want, 0), np.where(np.isinf(got), got, 0)), (
        f"{got} wanted {want}"
    )
    error = np.abs(np.where(infinite, 0, got) - np.where(infinite, 0, want))
    allowed = atol + rtol * np.where(infinite, 0, np.abs(want))
    assert (error <= allowed).all(), f"off by {error.max():.3g}:\n{got}\nwanted\n{want}"


def worst(got, want):
    """The largest error; NaN or an infinity counts as infinite."""
    error = np.abs(to_numpy(got).astype(np.float64) - to_numpy(want).astype(np.float64))
    return float(np.where(np.isfinite(error), error, np.inf).max())


def to_numpy(array):
    """Any library's array as NumPy; bfloat16, which NumPy lacks, as float64."""
    if isinstance(array, torch.Tensor):
        array = array.detach()
        return (array.double() if array.is_floating_point() else array).numpy()
    if isinstance(array, np.ndarray | np.generic | float | int | list | tuple):
        return np.asarray(array)
    return np.asarray(array_api_strict.asarray(array, device=array_api_strict.Device("CPU_DEVICE")))


@dataclass(frozen=True)
class Library:
    """One array library, as the tests use it: the same data in, its own arrays out."""

    name: str

    def array(self, data, dtype="float64"):
        data = np.asarray(data)
        if data.dtype.kind == "f":
            data = data.astype(dtype)
        return self.wrap(data)

    def wrap(self, data):
        """The very memory of a NumPy array where the library can share it: strides stay what they are."""
        if self.name == "torch":
            return torch.from_numpy(data)
        if self.name == "strict":
            return array_api_strict.asarray(data, copy=False)
        if self.name == "strict on a device":
            return array_api_strict.asarray(data, device=array_api_strict.Device("device1"))
        return data

    def owns(self, array):
        """Whether `array` is this library's, on this device."""
        if self.name.startswith("strict"):
            device = "device1" if "device" in self.name else "CPU_DEVICE"
            return isinstance(array, array_api_strict._array_object.Array) and array.device == (
                array_api_strict.Device(device)
            )
        return isinstance(array, torch.Tensor if self.name == "torch" else np.ndarray)

    def dtype(self, array):
        """The name of an array's type: "float32"."""
        return str(array.dtype).split(".")[-1]


LIBRARIES = [Library(name) for name in ("numpy", "torch", "strict", "strict on a device")]


def random_qkv(seed, lead, n_q, n_k, width, d_v, spread=1.0):
    """Seeded float64 queries, keys and values, shapes (*lead, tokens, width)."""
    rng = np.random.default_rng(seed)
    shapes = ((*lead, n_q, width), (*lead, n_k, width), (*lead, n_k, d_v))
    return tuple(spread * rng.standard_normal(shape) for shape in shapes)
