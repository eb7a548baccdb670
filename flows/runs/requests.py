"""The request of one run of the pipeline: its steps, and force.

The command line, a deployment's form and a sweep use the same request. Imports nothing heavy.
"""

from dataclasses import dataclass

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt, suggestion
from tasks.pipeline.names import PROMOTION, STAGE_NAMES

STEPS = (*STAGE_NAMES, PROMOTION)
"""The stages, and the decision after them."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request of one run of the pipeline.

    Attributes:
        start: The first step; earlier ones are neither checked nor run.
        end: The last step; without ``promotion`` no decision is made.
    """

    only: str | None = None
    start: str | None = None
    end: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Refuses unknown steps, and a choice that leaves nothing to run.

        Its ConfigurationError names the option and the way out.
        """
        for option, name in (("--only", self.only), ("--from", self.start), ("--to", self.end)):
            if name is not None and name not in STEPS:
                hint = suggestion(name, STEPS)
                msg = f"{option} must name one of {list(STEPS)}, got {excerpt(name)}{hint}"
                raise ConfigurationError(msg)
        if self.only is not None and (self.start is not None or self.end is not None):
            msg = "--only must come without --from and --to, got both; leave one out"
            raise ConfigurationError(msg)
        if not self.steps:
            msg = f"--from must not come after --to, got {self.start} and {self.end}; swap them"
            raise ConfigurationError(msg)

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps to run, in their order."""
        if self.only is not None:
            return (self.only,)
        first = 0 if self.start is None else STEPS.index(self.start)
        last = len(STEPS) if self.end is None else STEPS.index(self.end) + 1
        return STEPS[first:last]

    @property
    def stages(self) -> tuple[str, ...]:
        """Those of the steps that are stages of dvc.yaml."""
        return tuple(name for name in self.steps if name != PROMOTION)

    @property
    def decides(self) -> bool:
        """Whether the run ends with the promotion decision."""
        return PROMOTION in self.steps
