"""``python -m benchmarks`` runs every benchmark of speed and prints one table.

The exit status is 1 when a limit is exceeded. How good the result is takes minutes per seed and has
a command of its own: ``python -m benchmarks.seeds 0 1 2``.
"""

import sys

from benchmarks import trainer_overhead
from benchmarks.figures import table

BENCHMARKS = (trainer_overhead,)


def main() -> int:
    """Runs all; the exit status."""
    figures = [figure for benchmark in BENCHMARKS for figure in benchmark.figures()]
    print(table(figures))
    return int(not all(figure.is_kept for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
