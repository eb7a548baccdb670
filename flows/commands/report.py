"""Pages about one version or two: ``astra report`` and ``astra compare``."""

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import DataError
from flows.commands.chronicle import model_name
from flows.usage import AsJson
from tasks.machine.console import say

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path("reports")
_WANTED = typer.Argument(help="A number, an alias, or the id of a run.", show_default=False)
_AS_MARKDOWN = Annotated[bool, typer.Option("--md", help="Print Markdown.")]
_OPEN = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def report(
    version: Annotated[str | None, _WANTED] = None,
    opened: _OPEN = False,
    as_markdown: _AS_MARKDOWN = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of a version; by default the one registered here last."""
    from tasks.report.material import read_material
    from tasks.report.page import html_page, markdown_page
    from tasks.report.story import story
    from tasks.tracking.store import store_errors

    with store_errors():
        material = read_material(registry(), model_name(), version or _last())
    if as_json:
        say(json.dumps(story(material), indent=2))
    elif as_markdown:
        say(markdown_page(material).rstrip())
    else:
        name = f"report_{material.lineage.summary.version}" if version else "report"
        leave_page(html_page(material), FOLDER / f"{name}.html", opened=opened)


def compare(
    first: Annotated[str, _WANTED],
    second: Annotated[str, _WANTED],
    opened: _OPEN = False,
    as_html: Annotated[bool, typer.Option("--html", help="Write a page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show two versions side by side, with differences paired by prompt."""
    from tasks.report.comparison import html_of_two, markdown_of_two, side_by_side
    from tasks.report.material import read_material
    from tasks.tracking.store import store_errors

    with store_errors():
        client, name = registry(), model_name()
        found = side_by_side(*(read_material(client, name, own) for own in (first, second)))
    if as_json:
        say(json.dumps(found.record(), indent=2))
    elif as_html or opened:
        numbers = (own.lineage.summary.version for own in (found.first, found.second))
        leave_page(html_of_two(found), FOLDER / f"compare_{'_'.join(numbers)}.html", opened=opened)
    else:
        say(markdown_of_two(found).rstrip())


def leave_page(page: str, path: Path, *, opened: bool) -> None:
    """Writes a page, prints where it is, and opens it if asked to."""
    from astra_core.files import write_text

    write_text(page, path)
    say(path.as_posix())
    if opened and not webbrowser.open(path.absolute().as_uri()):
        say("no browser was found; open that file yourself")


def registry() -> "MlflowClient":
    """A client of the registry, which is not created here."""
    from tasks.tracking.database.store_check import existing_registry

    client = existing_registry()
    if client is None:
        msg = "a version must be registered, got an empty registry; see 'astra run'"
        raise DataError(msg)
    return client


def _last() -> str:
    """The version that was registered here last; in a clone without one the newest candidate."""
    # Imported late because of pydantic: `astra --help` must answer at once.
    from tasks.records.receipt import RECEIPT, RegistrationReceipt
    from tasks.records.reports import read_record
    from tasks.tracking.registry.versions import CANDIDATE

    if not RECEIPT.is_file():
        return CANDIDATE
    return read_record(RECEIPT, RegistrationReceipt).version
