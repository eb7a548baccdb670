"""The package offers its functions under one name, and they are mathematics alone."""

import ast
import inspect
import sys
from pathlib import Path

from each_row import each_row

from astra_core.algorithms import functional

FOLDER = Path(functional.__file__).parent
MODULES = sorted(path for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
PURE = {"torch", "jaxtyping", *sys.stdlib_module_names}


@each_row("name", functional.__all__)
def test_a_name_is_offered_by_the_module_that_defines_it(name):
    offered = getattr(functional, name)

    if inspect.isfunction(offered) or inspect.isclass(offered):
        assert offered.__module__.startswith(f"{functional.__name__}.")
        assert offered.__doc__


@each_row("path", MODULES)
def test_what_a_module_defines_for_others_is_offered(path):
    defined = {
        part.name
        for part in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and not part.name.startswith("_")
    }
    # The order in which a forest is walked; credit and turns share it.
    internal = {"levels"}

    assert defined - internal <= set(functional.__all__)


@each_row("path", MODULES)
def test_a_module_knows_tensors_and_errors_and_no_configuration(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [part.module for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)]
    named += [
        alias.name
        for part in ast.walk(tree)
        if isinstance(part, ast.Import)
        for alias in part.names
    ]
    ours = [name for name in named if name.split(".")[0] not in PURE]

    assert all(
        name == "astra_core.errors" or name.startswith(f"{functional.__name__}.") for name in ours
    )
