"""Values over a pipe, without pickle: JSON for the structure, raw bytes for the arrays.

A frame is a length (8 bytes, big-endian) and that many bytes: a JSON text with its own length (4 bytes), then
the arrays one after the other. Nothing in a frame can name code: from a student's process it is only data.
This file is used on both sides, so it imports NumPy and nothing of the course.
"""

import json
import re
import struct

import numpy as np

LARGEST = 64 * 2**20
# What student code may send: arrays are raw bytes, so the text around them is short. Parsed text costs many
# times its length in memory.
LARGEST_TEXT = 4 * 2**20
_KINDS = "biuf"
# NumPy takes whole lists of types for one, and needs minutes for a long one.
_TYPE = re.compile("[<>|=]?[biuf][1248]")


class WireError(Exception):
    """What came over the wire is not a value, or is larger than allowed.

    When reading, the message repeats nothing that was sent: it may be shown, and the sender has seen private
    inputs.
    """


def pack(value):
    """One frame's bytes."""
    blobs = []
    text = json.dumps(_plain(value, blobs, 0)).encode()
    body = struct.pack(">I", len(text)) + text + b"".join(blobs)
    if len(body) > LARGEST:
        raise WireError(f"{len(body)} bytes, at most {LARGEST} can be handed over")
    return struct.pack(">Q", len(body)) + body


def unpack(body, trusted=False):
    """The value of a frame's body; :class:`WireError` if it is anything else than a value."""
    try:
        (length,) = struct.unpack_from(">I", body)
        text, arrays = body[4 : 4 + length], memoryview(body)[4 + length :]
        if len(text) > LARGEST_TEXT and not trusted:
            raise WireError("too many things in it")
        value, used = _rich(json.loads(text.decode()), arrays, 0)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"not a frame: {type(error).__name__}") from None
    if used != len(arrays):
        raise WireError("more bytes than its arrays have")
    return value


def send(stream, value):
    stream.write(pack(value))
    stream.flush()


def receive(stream, trusted=False):
    """The next value of a stream; None at its end. A `trusted` sender's texts may be as long as a frame."""
    head = _read(stream, 8)
    if head is None:
        return None
    (length,) = struct.unpack(">Q", head)
    if length > LARGEST:
        raise WireError(f"more than the {LARGEST} bytes that are taken are announced")
    body = _read(stream, length)
    if body is None:
        raise WireError("the other side stopped in the middle of a frame")
    return unpack(body, trusted)


def _read(stream, length):
    parts, missing = [], length
    while missing:
        part = stream.read(min(missing, 2**20))
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _plain(value, blobs, depth):
    if depth > 20:
        raise WireError("lists inside lists, more than 20 deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        if abs(int(value)) >= 2**63:
            raise WireError("a whole number beyond 64 bits")
        return int(value)
    if isinstance(value, (float, np.floating)) and not isinstance(value, np.longdouble):
        # Words, since JSON has no infinity; hex, so that no digit is lost.
        return {"float": float(value).hex()}
    if isinstance(value, (tuple, list)):
        return {"list": [_plain(item, blobs, depth + 1) for item in value]}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise WireError("a dict whose keys are not words")
        return {"dict": {key: _plain(item, blobs, depth + 1) for key, item in value.items()}}
    array = _as_array(value)
    blobs.append(array.tobytes())
    return {"array": [array.dtype.str, list(array.shape)]}


def _as_array(value):
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise WireError(f"a {type(value).__name__}, wanted an array or a number")
    if value.dtype.kind not in _KINDS or value.dtype.itemsize > 8:
        raise WireError(f"an array of type {value.dtype}, wanted numbers")
    return np.ascontiguousarray(value).reshape(value.shape)


def _rich(value, arrays, used):
    if value is None or isinstance(value, (bool, str, int)):
        return value, used
    ((kind, inner),) = value.items()
    if kind == "float":
        return float.fromhex(inner), used
    if kind == "list":
        items = []
        for item in inner:
            item, used = _rich(item, arrays, used)
            items.append(item)
        return items, used
    if kind == "dict":
        found = {}
        for key, item in inner.items():
            found[key], used = _rich(item, arrays, used)
        return found, used
    if kind == "array":
        if not _TYPE.fullmatch(inner[0]):
            raise WireError("an array of something else than numbers")
        dtype, shape = np.dtype(inner[0]), tuple(int(n) for n in inner[1])
        if min(shape, default=0) < 0:
            raise WireError("an array of negative size")
        size = dtype.itemsize
        for n in shape:
            size *= n
        if size > len(arrays) - used:
            raise WireError("an array longer than its frame")
        array = np.frombuffer(arrays[used : used + size], dtype=dtype).reshape(shape).copy()
        return array, used + size
    raise WireError("an unknown kind of value")
