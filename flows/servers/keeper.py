"""``python -m flows.servers.keeper COMMAND``: a command that ends with the process that started us.

It is for programs that do not do so themselves: MLflow's server, Prefect's worker. Standard input
is the lifeline.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from flows.servers.lifeline import at_end_of_lifeline
from flows.servers.processes import SERVER, run_group, stage_command
from tasks.pipeline.failures import Stopped, exit_status, stop_on_terminate


def keeper_command(command: Sequence[str]) -> list[str]:
    """The command under a keeper, which needs a pipe as its standard input."""
    return [*stage_command("flows.servers.keeper"), *command]


def main(command: Sequence[str]) -> int:
    """The command's exit status, once it ends or is ended by a signal or the lifeline."""
    stop_on_terminate()
    try:
        at_end_of_lifeline(lambda: os.kill(os.getpid(), signal.SIGTERM))
        return run_group(command, environment=os.environ, farewell=SERVER, stdin=subprocess.DEVNULL)
    except (Stopped, KeyboardInterrupt) as error:
        return exit_status(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
