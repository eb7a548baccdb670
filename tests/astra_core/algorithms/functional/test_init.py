"""Both packages offer their functions under one name, and they are mathematics alone."""

import ast
import inspect
import sys
from pathlib import Path

from checked_functions import offered
from each_row import each_row

from astra_core.algorithms import functional
from astra_parts.algorithms import functional as others

PACKAGES = {package.__name__: package for package in (functional, others)}
MODULES = sorted(
    path
    for package in PACKAGES.values()
    for path in Path(package.__file__).parent.glob("*.py")
    if not path.stem.startswith("_") and path.stem not in {"shapes", "margins"}
)
# The order in which a forest is walked, and what groups of any size are made of.
INTERNAL = {"levels", "Moments", "moments_of", "group_index", "compact"}
INTERNAL |= {"require_column_or_same", "require_label_smoothing"}
PURE = {"torch", "jaxtyping", *sys.stdlib_module_names}


@each_row("package", PACKAGES)
def test_a_name_is_offered_by_the_module_that_defines_it(package):
    for name in offered(PACKAGES[package]):
        own = getattr(PACKAGES[package], name)

        if inspect.isfunction(own) or inspect.isclass(own):
            assert own.__module__.startswith(f"{package}.")
            assert own.__doc__


@each_row("path", MODULES)
def test_what_a_module_defines_for_others_is_offered(path):
    defined = {
        part.name
        for part in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and not part.name.startswith("_")
    }

    assert defined - INTERNAL <= offered(functional) | offered(others)


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

    assert all(name == "astra_core.errors" or name.rpartition(".")[0] in PACKAGES for name in ours)
