"""``python -m tasks.serving.fine_tuning.worker FOLDER JOB`` trains one job.

The exit status is 0 when the job has ended or another process trains it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tasks.machine.console import quiet_libraries
from tasks.machine.garbage import collect_rarely


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains the job that the arguments name."""
    collect_rarely()
    folder, job_id = sys.argv[1:] if arguments is None else arguments
    quiet_libraries()
    from tasks.serving.fine_tuning.training import run_job

    run_job(Path(folder), job_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
