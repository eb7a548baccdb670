"""Weights & Biases; the package ``wandb`` is an optional extra, and nothing leaves the machine.

Only with ``mode: online`` does it contact a service.
"""

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from astra_core.config import Section
from astra_core.errors.packages import require_package
from astra_parts.sink import Sink, SinkRun, Status


class WandbSink(Sink):
    """A run of Weights & Biases under the run's key, in files unless it is asked to send them."""

    class Options(Section):
        """Where the run is recorded."""

        project: str = Field("red-team-training", min_length=1)
        entity: str | None = Field(None, description="online: the team or user.")
        mode: Literal["offline", "online"] = Field(
            "offline", description="offline writes files for 'wandb sync'; online sends."
        )

    options: Options

    @classmethod
    def check(cls) -> None:
        """Raises ConfigurationError unless the package is installed."""
        require_package(
            "wandb", subject="tracking.sinks: wandb", extra="wandb", otherwise=" or remove the name"
        )

    def __init__(self, options: Options, *, run: SinkRun) -> None:
        self.check()
        # Otherwise the package reports its own errors to its makers, also offline.
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        import wandb

        super().__init__(options, run=run)
        run.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=options.project,
            entity=options.entity,
            id=run.key[:32],
            name=run.key[:12],
            dir=str(run.folder),
            mode=options.mode,
            resume="allow" if options.mode == "online" else None,
            config=dict(run.params),
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Logs the figures of one step."""
        self._run.log(dict(figures), step=step)

    def finish(self, status: Status) -> None:
        """Closes the run."""
        self._run.finish(exit_code=int(status != "FINISHED"))
