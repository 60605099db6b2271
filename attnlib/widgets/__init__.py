"""Widgets that let a reader break attention: on a static page without a kernel, in JupyterLab with one.

Each function returns an anywidget. Its ``state`` is what the reader has set, its ``result`` what follows from
it, computed in the browser; both can be read from Python after a click. Where no script runs, a figure with
the first settings stands in its place.
"""

from ._backward_strip import backward_strip
from ._base import NAMES, module, plain_script
from ._gpu_explorer import gpu_explorer
from ._heads import heads
from ._mask_painter import mask_painter
from ._mixing import mixing
from ._one_head import one_head
from ._one_score import one_score
from ._online_softmax import online_softmax
from ._roofline import roofline
from ._scaling_lab import scaling_lab
from ._softmax_bars import softmax_bars
from ._strip import strip
from ._tile_replay import tile_replay

__all__ = [
    "NAMES",
    "backward_strip",
    "gpu_explorer",
    "heads",
    "mask_painter",
    "mixing",
    "module",
    "one_head",
    "one_score",
    "online_softmax",
    "plain_script",
    "roofline",
    "scaling_lab",
    "softmax_bars",
    "strip",
    "tile_replay",
]
