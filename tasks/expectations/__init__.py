"""What prompts and rollouts must be before the pipeline goes on, as Great Expectations suites.

Importing this package loads no Great Expectations, which takes seconds: the suites do when called.
"""

from tasks.expectations.frames import validate_frame, validate_rollouts
from tasks.expectations.report import Check, Level, ValidationReport

__all__ = ["Check", "Level", "ValidationReport", "validate_frame", "validate_rollouts"]
