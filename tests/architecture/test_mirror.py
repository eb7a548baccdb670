"""Tests lie where their module lies, under its name."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("astra_core", "tasks", "flows")
# A test of one part of a module whose own file would become too long, or of a whole package.
PARTS = {
    "tasks/expectations/test_rollout_suite.py": "tasks/expectations/suites.py",
    "astra_core/test_training_settings.py": "astra_core/config.py",
    "astra_core/test_budgets.py": "astra_core/trainer.py",
    "astra_core/test_other_device.py": "astra_core/trainer.py",
    # Of all algorithms together.
    "astra_core/algorithms/test_against_trl.py": "astra_core/algorithms",
    "astra_core/algorithms/test_options.py": "astra_core/algorithms",
    "astra_core/algorithms/test_packed_updates.py": "astra_core/algorithms",
    "astra_core/samplers/test_remembered_trees.py": "astra_core/samplers/tree.py",
}


def test_every_test_has_a_module_of_its_name():
    tests = ROOT / "tests"
    names = [
        path.relative_to(tests).as_posix()
        for package in PACKAGES
        for path in (tests / package).rglob("test_*.py")
    ]
    orphans = [
        name for name in names if not any((ROOT / path).exists() for path in _candidates(name))
    ]

    assert [] == sorted(orphans)


def _candidates(name: str) -> list[Path]:
    """Where a test's module may lie: a file, a private file, a package, or the folder itself."""
    if name in PARTS:
        return [Path(PARTS[name])]
    folder, stem = Path(name).parent, Path(name).stem.removeprefix("test_")
    if stem == folder.name:
        return [folder]
    files = [f"{stem}.py", f"_{stem}.py", f"__{stem}__.py", f"{stem}/__init__.py"]
    return [folder / file for file in files]
