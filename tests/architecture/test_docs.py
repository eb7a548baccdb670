"""What the documentation says is so: keys, files, links, examples and names exist."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from each_row import each_row
from pages import PAGES, ROOT, blocks, codes, known_variables, prose

from astra_core.registry import BUILT_INS, resolve
from tasks.params.checks import check_params
from tasks.params.schema import Params, read_record
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import stages

# What a run makes beside the stages' own products.
MADE_BY_A_RUN = (
    "site",
    "findings",
    "sweeps",
    "runs",
    "tracking",
    "mlruns",
    "mlflow.db",
    ".astra",
    ".prefect",
    ".venv",
    ".env",
    "mutants",
    "dvc.lock",
    ".dvc/cache",
    "data",
    "models",
    "reports",
)
# Names that stand for something of the reader's own.
EXAMPLES = (
    "plugins/shouting.py",
    "my/prompts.jsonl",
    "my/labelled.csv",
    "my/judge.yaml",
    "my/target",
    ".dvc/config.local",
)
SETTINGS_OF_LIBRARIES = ("HF_HOME", "HF_TOKEN")


def test_the_readme_is_short_and_starts_with_a_command():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("make "))

    assert len(lines) < 120
    assert first <= 25


def test_the_readme_draws_the_stages_in_their_order():
    drawing = " -> ".join(["params", *STAGE_NAMES, "promotion"])

    assert drawing in (ROOT / "README.md").read_text("utf-8").splitlines()


def test_the_readme_names_what_the_end_of_a_run_prints():
    from flows.runs import summary

    (block,) = blocks(ROOT / "README.md", "text")
    labels = [re.split(r"\s{2,}", line)[0] for line in block.splitlines()]
    printed = Path(summary.__file__).read_text("utf-8")
    # A label fills a column of fifteen; a longer value may follow the label after one space.
    missing = [label for label in labels if not re.search(rf'"{label} ', printed)]

    assert [] == missing


def _example(monkeypatch, tmp_path: Path) -> None:
    """The plug-in of the README, where the README says."""
    (code,) = blocks(ROOT / "README.md", "python")
    (tmp_path / "plugins").mkdir()
    (tmp_path / EXAMPLES[0]).write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_plug_in_of_the_readme_keeps_the_contract(tmp_path, monkeypatch):
    from astra_parts.testing import check_scorer

    _example(monkeypatch, tmp_path)
    check_scorer("plugins.shouting:ShoutingScorer")


@each_row("block", lambda: [block for page in PAGES for block in blocks(page, "yaml")])
def test_a_part_of_params_in_the_pages_is_usable(block, tmp_path, monkeypatch):
    _example(monkeypatch, tmp_path)
    record = _merged(read_record(ROOT / "params.yaml"), yaml.safe_load(block))

    check_params(Params.read(record, where=""))


def _merged(old: Any, new: Any) -> Any:
    """``old`` with the values of ``new``; a choice with another name brings its own options."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or "name" in new:
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def test_the_rows_of_rollouts_are_read_as_the_pages_say(tmp_path, monkeypatch):
    from astra_parts.testing import tiny_graph, tiny_node
    from tasks.records.rollouts import write_rollouts

    monkeypatch.chdir(tmp_path)
    write_rollouts([tiny_graph(tiny_node(0.9))], Path("data/rollouts/rollouts.parquet"))
    (code,) = [b for b in blocks(ROOT / "docs/operations.md", "python") if "rollouts" in b]
    names: dict[str, Any] = {}
    exec(compile(code, "operations.md", "exec"), names)  # noqa: S102 - a page of ours

    assert len(names["worst"]) > 0


@each_row("page", PAGES)
def test_a_key_in_a_page_is_a_key_of_params(page):
    known = set(_keys(Params().model_dump(), ""))
    for kind, section in _choices().items():
        for name in BUILT_INS[kind]:
            options = getattr(resolve(kind, name), "Options", None)
            known |= {
                f"{section}.options.{field}" for field in getattr(options, "model_fields", {})
            }
    first = "|".join(Params.model_fields)
    keys = [code for code in codes(page) if re.fullmatch(rf"({first})(\.[a-z_0-9]+)+", code)]

    assert [] == sorted(set(keys) - known)


def _choices() -> dict[str, str]:
    training = {
        kind: f"training.{kind}" for kind in ("algorithm", "trainer", "optimizer", "schedule")
    }
    return {
        **training,
        "reward": "reward",
        "scorer": "system.scorer",
        "target": "system.target",
        "sampler": "rollouts.sampler",
        "executor": "executor",
    }


def _keys(record: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in record.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


@each_row("page", PAGES)
def test_a_file_in_a_page_exists_or_is_made_by_a_run(page):
    missing = [
        code
        for code in codes(page)
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]*)*", code)
        and ("/" in code or Path(code).suffix in {".py", ".md", ".yaml", ".toml", ".lock", ".sh"})
        and re.search(r"[a-z]", code)
        and not re.fullmatch(r"[a-z]+/[a-z_0-9]+", code.replace("eval/", "train/"))
        and not code.startswith(MADE_BY_A_RUN)
        and code not in EXAMPLES
        and not any(folder.joinpath(code).exists() for folder in (ROOT, page.parent))
    ]

    assert [] == missing


@each_row("page", PAGES)
def test_a_link_in_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page

        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


def _anchors(page: Path) -> list[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_the_architecture_names_every_function_and_product():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    for stage in stages().values():
        row = next(line for line in text.splitlines() if line.startswith(f"| {stage.name} |"))

        assert f"`{stage.function.__name__}`" in row
        assert [] == [path for path in stage.products if path.as_posix() not in row]


@each_row("page", sorted((ROOT / "docs/decisions").glob("0*.md")))
def test_a_decision_is_short_and_whole(page):
    text = page.read_text("utf-8")

    assert len(text.splitlines()) <= 40
    assert ["Context", "Choice", "Refused", "Consequences"] == re.findall(
        r"^\*\*(\w+)\.\*\*", text, re.MULTILINE
    )
    assert page.name in (ROOT / "docs/decisions/README.md").read_text("utf-8")


def test_no_page_names_a_machine():
    pages = [*PAGES, ROOT / ".env.example", ROOT / ".ci/run", ROOT / "Makefile"]
    found = [
        page.name
        for page in pages
        if re.search(r"(?<![\w.])/(work|root|home|tmp)/", page.read_text("utf-8"))
    ]

    assert [] == found


def test_a_setting_of_the_machine_is_one_that_is_read():
    names = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text("utf-8"), re.MULTILINE)

    assert names
    assert set() == set(names) - known_variables() - set(SETTINGS_OF_LIBRARIES)


def test_continuous_integration_runs_what_the_readme_says():
    script = ROOT / ".ci/run"
    targets = re.findall(r"^make ([\w-]+)", script.read_text("utf-8"), re.MULTILINE)

    assert os.access(script, os.X_OK)
    assert ["dev", "training-service", "check", "test-routes", "test-real"] == targets
    assert 0 == subprocess.run(["bash", "-n", script], check=False).returncode
