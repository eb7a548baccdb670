"""Tests lie where their module lies, under its name, and every module has some."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("astra_core", "astra_parts", "tasks", "flows", "benchmarks", "plugins")
# A test of one part of a module whose own file would become too long, or of a whole package.
PARTS = {
    "flows/commands/test_baselines.py": "flows/commands/evaluating.py",
    "astra_core/test_budgets.py": "astra_core/training/trainer.py",
    "astra_core/test_other_device.py": "astra_core/training/trainer.py",
    "astra_core/training/resume/test_own_state.py": "astra_core/training/resume/state.py",
    "astra_core/settings/test_kl.py": "astra_core/settings/training.py",
    "astra_core/settings/test_staleness.py": "astra_core/settings/training.py",
    "astra_core/training/test_update_passes.py": "astra_core/training/update.py",
    "tasks/params/test_checks_of_algorithms.py": "tasks/params/checks.py",
    "tasks/promotion/test_rollback.py": "tasks/promotion/decision.py",
    "tasks/promotion/test_choice.py": "tasks/promotion/decision.py",
    "astra_parts/testing/contracts/test_scorer.py": "astra_parts/testing/contracts/judge.py",
    "astra_parts/testing/contracts/test_term.py": "astra_parts/testing/contracts/reward.py",
    "astra_parts/testing/contracts/test_schedule.py": "astra_parts/testing/contracts/optimizer.py",
    "astra_parts/targets/test_endpoint_limits.py": "astra_parts/targets/endpoint.py",
    "tasks/stages/test_black_box.py": "tasks/stages/training.py",
    "astra_core/extensions/test_promises.py": "astra_core/extensions/calls.py",
    # Of all algorithms together.
    "astra_core/algorithms/test_against_trl.py": "astra_core/algorithms",
    "astra_core/algorithms/test_logged_figures.py": "astra_core/algorithms",
    "astra_core/algorithms/test_options.py": "astra_core/algorithms",
    "astra_core/algorithms/test_packed_updates.py": "astra_core/algorithms",
    "astra_parts/algorithms/functional/test_finite.py": "astra_parts/algorithms/functional",
    "astra_core/samplers/test_remembered_trees.py": "astra_core/samplers/tree.py",
    "astra_core/samplers/test_replies.py": "astra_core/samplers/tree.py",
}
# So short a module is a name or two.
MAX_UNTESTED_LINES = 10


def test_every_test_has_a_module_of_its_name():
    orphans = [name for name in _tests() if not any(map(_exists, _candidates(name)))]

    assert [] == sorted(orphans)


def test_every_module_has_a_test_of_its_name():
    # A part does not stand for the whole: the module has a test of its own beside.
    tested = {path for name in _tests() if name not in PARTS for path in _candidates(name)}
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    untested = [
        path.relative_to(ROOT).as_posix()
        for path in modules
        if len(path.read_text(encoding="utf-8").splitlines()) > MAX_UNTESTED_LINES
        and path.relative_to(ROOT) not in tested
    ]

    assert [] == sorted(untested)


def test_every_part_is_there_and_of_something():
    gone = [name for name in PARTS if not (ROOT / "tests" / name).exists()]

    assert [] == gone


def _tests() -> list[str]:
    tests = ROOT / "tests"
    return [
        path.relative_to(tests).as_posix()
        for package in PACKAGES
        for path in (tests / package).rglob("test_*.py")
    ]


def _exists(path: Path) -> bool:
    return (ROOT / path).exists()


def _candidates(name: str) -> list[Path]:
    """Where a test's module may lie: a file, a private file, a package, or the folder itself."""
    if name in PARTS:
        return [Path(PARTS[name])]
    folder, stem = Path(name).parent, Path(name).stem.removeprefix("test_")
    if stem == folder.name:
        return [folder, folder / "__init__.py"]
    files = [f"{stem}.py", f"_{stem}.py", f"__{stem}__.py", f"{stem}/__init__.py"]
    return [folder / file for file in files]
