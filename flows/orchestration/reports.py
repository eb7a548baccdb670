"""The pages of a flow run in Prefect: a table of its stages, and the gates' findings."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.runs.attempts import StageOutcome
from tasks.machine.console import complain

VALIDATION_PAGE = Path("reports/validation.md")


class PipelineReport:
    """The outcomes of a flow run's stages; published on exit, however the run ends."""

    def __init__(self) -> None:
        self.outcomes: list[StageOutcome] = []

    def add(self, outcome: StageOutcome) -> StageOutcome:
        """The outcome, after it is recorded.

        Raises StageError if the stage is not done; the message is the stage's own.
        """
        self.outcomes.append(outcome)
        return outcome.checked()

    def rows(self) -> list[dict[str, Any]]:
        """One row per stage that was reached, in order."""
        names = ("stage", "state", "seconds", "attempts", "message")
        return [{name: getattr(outcome, name) for name in names} for outcome in self.outcomes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After Ctrl-C the user should not have to wait for a page.
        if error is not None and not isinstance(error, Exception):
            return
        try:
            create_table_artifact(
                key="pipeline-report", table=self.rows(), description="Stages of this run"
            )
        except Exception as problem:  # noqa: BLE001 - must not hide why the run failed
            complain(f"warning: Prefect did not accept the report: {type(problem).__name__}")


def publish_validation(page: Path = VALIDATION_PAGE) -> None:
    """Shows the data gate's own page beside the run, if it wrote one."""
    if page.is_file():
        text = page.read_text(encoding="utf-8")
        publish_page("validation-report", text, "What the prompts were checked for")


def publish_page(key: str, markdown: str, about: str) -> None:
    """Shows a page beside the run."""
    create_markdown_artifact(key=key, markdown=markdown, description=about)
