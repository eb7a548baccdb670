"""A run's findings on Prefect's pages: figures with intervals, and links to the rest."""

from pathlib import Path
from typing import TYPE_CHECKING

from prefect.artifacts import create_link_artifact

from flows.orchestration.events import announce_data_drift
from flows.orchestration.reports import publish_page
from flows.runs.data_drift import DataDrift
from tasks.figures.category_table import with_categories
from tasks.records.evaluation import EVALUATION, EvaluationRecord, read_evaluation
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.pages import pages_of, run_page

if TYPE_CHECKING:
    from tasks.promotion.gate import Comparison

REPORT = Path("reports/report.html")
DOCS = {
    "validation": Path("reports/data_docs/prompts.html"),
    "rollouts": Path("reports/data_docs/rollouts.html"),
}
"""The Data Docs that a stage writes."""


def publish_evaluation(evaluation: Path = EVALUATION) -> None:
    """Shows both attackers' figures beside the run, if they were examined."""
    if evaluation.is_file():
        page = evaluation_page(read_evaluation(evaluation))
        publish_page("evaluation", page, "Both attackers on the test prompts")


def evaluation_page(record: EvaluationRecord) -> str:
    """Both attackers' success with intervals, the gain, diversity, and success by category."""
    before, after = (record.rate(role).spelled() for role in ("baseline", "attacker"))
    unique = [_spell(own.get("unique_probes")) for own in (record.baseline, record.attacker)]
    rows = [
        "| | untrained | trained |",
        "|---|---|---|",
        f"| attack success | {before} | {after} |",
        f"| unique probes | {unique[0]} | {unique[1]} |",
    ]
    gain = (
        f"Gain of the trained attacker, paired by prompt: **{record.lift.spelled('+.3f')}** "
        f"({record.confidence:.0%} intervals over {record.num_prompts} test prompts)."
    )
    return with_categories("\n".join([gain, "", *rows, ""]), record.categories)


def _spell(figure: object) -> str:
    return f"{figure:.2f}" if isinstance(figure, int | float) else "unknown"


def comparison_table(compared: "Comparison") -> str:
    """A table of the candidate and what it would replace, with the gain and its interval."""
    span = f"[{compared.low:+.3f}, {compared.high:+.3f}]"
    return "\n".join(
        [
            f"On {compared.num_prompts} prompts that both were examined on:",
            "",
            "| | attack success |",
            "|---|---|",
            f"| candidate | {compared.candidate:.3f} |",
            f"| what it would replace | {compared.champion:.3f} |",
            f"| gain | {compared.gain:+.3f} {span} ({compared.confidence:.0%}) |",
        ]
    )


def publish_run(receipt: Path = RECEIPT) -> None:
    """Shows where the figures of the registered version are in MLflow."""
    found = read_record(receipt, RegistrationReceipt)
    create_link_artifact(
        key="mlflow-run",
        link=run_address(found),
        link_text=f"MLflow run of {found.model_name} version {found.version}",
        description="'astra ui' serves these pages.",
    )


def publish_docs(stage: str) -> None:
    """Shows where the stage's Data Docs are, if there are any."""
    _publish_file(f"data-docs-{DOCS[stage].stem}", DOCS[stage], "Data Docs")


def publish_drift(found: DataDrift) -> None:
    """Shows how a stage's data differ from the champion's, and announces it where they drifted."""
    if found.found:
        key = f"data-drift-{found.found[0].subject}"
        publish_page(key, found.to_markdown(), "How the data differ from the champion's")
    if found.large:
        announce_data_drift(found)


def publish_report(report: Path = REPORT) -> None:
    """Shows where the report of the version is, if there is one."""
    _publish_file("report", report, "Report, as 'astra report --open' shows it")


def _publish_file(key: str, path: Path, about: str) -> None:
    """Shows the address of a file to copy: browsers follow no link to one from a server's page."""
    if path.is_file():
        publish_page(key, f"`{path.absolute().as_uri()}`", f"{about}: open this address")


def run_address(receipt: RegistrationReceipt) -> str:
    """The page of the registered run, on the tracking server or on this machine."""
    base = pages_of(receipt.tracking_uri)
    return run_page(receipt.experiment_id, receipt.run_id, server=base)
