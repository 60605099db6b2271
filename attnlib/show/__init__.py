"""Pictures, tables and printed numbers for the book. Takes arrays, computes no attention.

Arrays may be NumPy, torch (any device, any float type) or nested lists. Importing this package does not
import matplotlib; the first picture does. Everything here is drawn the same, byte for byte, on every call.
"""

from ._alt import describe
from ._heatmap import heatmap
from ._html import Source, Strip, Table, pipeline, source, table
from ._numbers import number, text, values
from ._svg import COLOURS, Picture, axes, picture

__all__ = [
    "COLOURS",
    "Picture",
    "Source",
    "Strip",
    "Table",
    "axes",
    "describe",
    "heatmap",
    "number",
    "picture",
    "pipeline",
    "source",
    "table",
    "text",
    "values",
]
