"""The pages of a flow run in Prefect: a table of its stages, and the gates' findings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.runs.attempts import StageOutcome
from tasks.machine.console import complain

VALIDATION_PAGE = Path("reports/validation.md")


@contextmanager
def pipeline_report() -> Iterator[list[StageOutcome]]:
    """A context for the outcomes of a flow run's stages; published on exit, also after an error."""
    outcomes: list[StageOutcome] = []
    try:
        yield outcomes
    except Exception:  # not Ctrl-C: the user should not have to wait for a page
        _publish_outcomes(outcomes)
        raise
    _publish_outcomes(outcomes)


def _publish_outcomes(outcomes: Sequence[StageOutcome]) -> None:
    """Shows a row for each stage that was reached, in order."""
    names = ("stage", "state", "seconds", "attempts", "message")
    rows = [{name: getattr(outcome, name) for name in names} for outcome in outcomes]
    try:
        create_table_artifact(key="pipeline-report", table=rows, description="Stages of this run")
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
