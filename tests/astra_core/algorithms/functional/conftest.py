"""Shape checks on every call, and the numbers of the reference systems."""

from checked_functions import cases, checked, checked_shapes

__all__ = ["cases", "checked", "checked_shapes"]
