"""``python -m benchmarks.method``, the same as ``python -m benchmarks method``."""

import sys

from benchmarks.measures.method import main

if __name__ == "__main__":
    sys.exit(main())
