"""Publishes the report at the top of the MLflow run and among the project's reports."""

from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.errors.exception_text import error_line
from astra_core.files import write_text
from tasks.machine.console import complain
from tasks.machine.scratch import scratch_folder
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import read_record
from tasks.report.material import FLOW_TAG, Material, read_material
from tasks.report.page import html_page
from tasks.report.story import decision
from tasks.report.tables import percent
from tasks.tracking.pages import DECISION, run_page
from tasks.tracking.store import connect

if TYPE_CHECKING:
    from mlflow import MlflowClient

REPORT = Path("reports/report.html")
"""The report of the version registered here last; not a stage's output, so DVC ignores it."""
ARTIFACT = "report.html"
_NOTE_TAG = "mlflow.note.content"
_SHORT = 16
_DECIDED = "**Decision**: "


def publish_report(client: "MlflowClient", name: str, version: str) -> str:
    """The page of a version, once its run shows it as a file, in its description and its name."""
    material = read_material(client, name, version)
    run_id, page = material.lineage.summary.run_id, html_page(material)
    with scratch_folder() as drafts:
        write_text(page, drafts / ARTIFACT)
        client.log_artifact(run_id, str(drafts / ARTIFACT))
    client.set_tag(run_id, _NOTE_TAG, description(material))
    client.set_tag(run_id, DECISION, material.lineage.summary.decision or "open")
    client.update_run(run_id, name=run_name(material))
    if material.lineage.summary.decision:
        card = client.get_model_version(name, version).description or ""
        card = card.partition("\n\n")[2] if card.startswith(_DECIDED) else card
        told = f"{_DECIDED}{' '.join(decision(material))}\n\n{card}"
        client.update_model_version(name, version, description=told)
    return page


def renew_report(
    name: str,
    version: str,
    *,
    receipt: Path,
    client: "MlflowClient | None" = None,
    flow_run: str = "",
) -> None:
    """Publishes a version's report; a failure is one line, since everything else is done by then.

    Args:
        receipt: Names the version registered here last, whose page the project keeps.
        client: The client to use instead of a new one.
        flow_run: Address of the flow run's page, if known.
    """
    try:
        client = client or connect()
        if flow_run:
            run_id = str(client.get_model_version(name, version).run_id)
            client.set_tag(run_id, FLOW_TAG, flow_run)
        page = publish_report(client, name, version)
        if receipt.is_file() and read_record(receipt, RegistrationReceipt).version == version:
            write_text(page, REPORT)
    except Exception as error:  # noqa: BLE001 - whatever it is, the attacker is registered
        complain(
            f"warning: version {version} of '{name}' has no new report ({error_line(error)}); "
            f"'astra report {version}' tries again"
        )


def run_name(material: Material) -> str:
    """A name no other version has, such as ``v3-dpo-s0-asr0.85``."""
    summary = material.lineage.summary
    rate = material.evaluation.rate().value
    return f"v{summary.version}-{summary.algorithm}-s{summary.seed}-asr{rate:.2f}"


def description(material: Material) -> str:
    """The text at the top of MLflow's page of the run, in Markdown."""
    found, summary = material.evaluation, material.lineage.summary
    place = run_page(material.experiment_id, summary.run_id, artifact=ARTIFACT).lstrip("/")
    prompts = next((part.digest for part in material.lineage.data if part.part == "valid"), "")
    rates = f"untrained {percent(found.rate('baseline'))}, gain {found.lift.points()}"
    whose = f"{summary.algorithm} from seed {summary.seed}, judge `{material.lineage.scorer}`"
    keys = f"Examination `{material.examination[:_SHORT]}`, prompts `{prompts[:_SHORT]}`"
    lines = [
        f"**Attack success {percent(found.rate())}**, {rates}.",
        f"[Open the report]({place})",
        decision(material)[0],
        f"{material.name}: {whose}, {found.num_prompts} test prompts.",
        f"{keys}: figures of runs with another examination do not compare.",
        *([f"[Prefect run]({material.flow_run})"] if material.flow_run else []),
    ]
    return "\n\n".join(lines)
