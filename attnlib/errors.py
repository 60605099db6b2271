"""The errors attnlib raises. A message gives what was got, what was wanted, then the fix."""


class AttnError(ValueError):
    """Any refusal by attnlib; catch this one to catch them all."""


class ShapeError(AttnError):
    """Shapes or types of queries, keys, values or pictures do not fit together."""


class MaskError(AttnError):
    """A mask cannot be read in exactly one way."""
