"""attnlib: attention one step at a time, the same lines on NumPy, torch and a GPU."""

from .core import (
    AttentionSteps,
    apply_mask,
    attention,
    attention_steps,
    default_scale,
    scale_scores,
    scores,
    softmax,
    weighted_sum,
)
from .errors import AttnError, MaskError, ShapeError
from .heads import merge_heads, project, repeat_heads, split_heads
from .masks import (
    causal_mask,
    combine_masks,
    decoding_mask,
    document_mask,
    padding_mask,
    prefix_mask,
    sliding_window_mask,
    to_additive,
    to_ignore,
)
from .tiled import flash_attention

__version__ = "0.1.0"

__all__ = [
    "AttentionSteps",
    "AttnError",
    "MaskError",
    "ShapeError",
    "apply_mask",
    "attention",
    "attention_steps",
    "causal_mask",
    "combine_masks",
    "decoding_mask",
    "default_scale",
    "document_mask",
    "flash_attention",
    "merge_heads",
    "padding_mask",
    "prefix_mask",
    "project",
    "repeat_heads",
    "scale_scores",
    "scores",
    "sliding_window_mask",
    "softmax",
    "split_heads",
    "to_additive",
    "to_ignore",
    "weighted_sum",
]
