"""What is installed for which part: the core runs alone, and every import is declared."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from each_row import each_row
from packaging.requirements import Requirement
from pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PIPELINE = ("ops", "serve", "sweep")
# Installed with what needs it.
BESIDE = {"starlette": "fastapi", "uvicorn": "prefect", "alembic": "mlflow", "voluptuous": "dvc"}
BESIDE |= {"dvc-data": "dvc", "dvc-objects": "dvc", "triton": "torch"}
ALONE = f"""\
import sys
sys.path.insert(0, {str(ROOT / "tests/astra_core")!r})
blocked = set(sys.argv[1].split())

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import importlib, pkgutil
for name in ("astra_core", "astra_parts"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        # Asked for only where triton is, which comes with torch for CUDA.
        if module.name != "astra_core.engine.head_kernels":
            importlib.import_module(module.name)
from pathlib import Path
from tiny_training import configured, trainer_of
print(trainer_of(configured(training_steps=2), Path("run")).train().training_step)
try:
    import flows.start
    flows.start.main()
except SystemExit as end:
    print("astra:", end.code)
"""


@cache
def distributions():
    """Which distributions have a module, by its name."""
    return packages_distributions()


def name_of(requirement):
    return re.sub(r"[-_.]+", "-", Requirement(requirement).name).lower()


def closure(requirements):
    """The distributions that are installed with these."""
    found, left = set(), [*requirements]
    while left:
        requirement = Requirement(left.pop())
        name = name_of(str(requirement))
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name in found:
            continue
        found.add(name)
        try:
            left += requires(name) or []
        except PackageNotFoundError:
            continue
    return found


def imported(folder):
    """The top-level names that the modules of a folder import."""
    found = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    return (
        found
        - set(sys.stdlib_module_names)
        - {"astra_core", "astra_parts", "tasks", "flows", "plugins"}
    )


@pytest.mark.real
@each_row(
    ("folder", "extras"),
    [
        ("astra_core", ("lora", "profanity")),
        ("astra_parts", ("gguf", "lora", "remote", "ray", "tensorboard", "wandb")),
        ("tasks", ("lora", "profanity", *PIPELINE)),
        ("flows", ("lora", "profanity", *PIPELINE)),
    ],
)
def test_every_import_is_declared(folder, extras):
    declared = {name_of(each) for each in PROJECT["dependencies"]}
    for extra in extras:
        declared |= {name_of(each) for each in EXTRAS[extra]}
    whose = distributions()
    missing = {}
    for module in imported(folder) - {"_typeshed"}:
        owners = {re.sub(r"[-_.]+", "-", each).lower() for each in whose.get(module, [module])}
        owners |= {BESIDE.get(owner, owner) for owner in owners}
        if not owners & declared:
            missing[module] = owners

    assert {} == missing


def test_what_is_locked_has_digests_and_lies_in_the_declared_ranges():
    text, more = (ROOT.joinpath(f"requirements{kind}.lock").read_text() for kind in ("", "-dev"))
    entries, beside = (re.split(r"\n(?=\S)", each.strip()) for each in (text, more))
    torch = (ROOT / "requirements-torch.lock").read_text("utf-8").strip()
    pins = dict(re.match(r"([\w.-]+)==([^\s;]+)", entry).groups() for entry in [*entries, torch])
    ranges = [Requirement(each) for each in (*PROJECT["dependencies"], *EXTRAS["ops"])]
    wrong = [
        str(each)
        for each in ranges
        if (name := name_of(str(each))) != PROJECT["name"] and pins[name] not in each.specifier
    ]

    assert [] == [entry for entry in (*entries, *beside) if "--hash=sha256:" not in entry]
    # What only tests and checks need is not installed to run.
    assert {"ray", "pytest", "mkdocs"} <= {each.partition("==")[0] for each in beside} - {*pins}
    assert "torch" in pins
    assert [] == wrong


def test_a_bound_closer_than_a_major_release_has_its_reason():
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    close = re.compile(r'^(?:  "|\w+ = \["\w).*(?:==[\d.*]+|<(?!0\.)\d+\.\d+|<0\.18)"')
    found = {number for number, line in enumerate(lines) if close.match(line)}
    bare = [lines[n] for n in sorted(found) if not {n - 1, n - 2} & {*_comments(lines)}]

    assert 5 < len(found)
    assert [] == bare


def _comments(lines):
    return [number for number, line in enumerate(lines) if line.lstrip().startswith("#")]


@pytest.mark.wide
def test_the_core_trains_with_what_is_installed_for_it_alone(tmp_path):
    core = closure(PROJECT["dependencies"])
    blocked = [
        module
        for module, owners in distributions().items()
        if not {re.sub(r"[-_.]+", "-", each).lower() for each in owners} & core
        and module not in {"astra_core", "astra_parts", "tasks", "flows"}
    ]
    assert {"pandas", "dvc", "mlflow", "prefect", "peft", "sklearn"} <= {*blocked}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, " ".join(blocked)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ["2", "astra: 2"] == done.stdout.split("\n")[:2], done.stderr
    assert "error: astra must have the package pandas, got none" in done.stderr
