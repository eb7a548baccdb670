"""A shape of milliseconds, and no patience."""

from benchmarks.shapes import Shape
from benchmarks.timing import Effort

TINY = Shape("tiny", 2, 16, 2, 100, prompt_tokens=8, new_tokens=4, tree_depth=2)
QUICK = Effort(threads=1, repetitions=1, plain_repetitions=1, trees=2)
