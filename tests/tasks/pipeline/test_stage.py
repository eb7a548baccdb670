from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from astra_core.config import Choice, SystemConfiguration
from astra_core.errors import ConfigurationError
from tasks.params.schema import Params
from tasks.pipeline.stage import Dep, Metric, Out, Plot, Receipt, Stage, stage, stage_of


@dataclass(frozen=True)
class Counted:
    seed: int
    scorer: str

    def summary(self) -> str:
        return f"seed {self.seed}, scorer {self.scorer}"


def count_prompts(
    seed: int,
    system: SystemConfiguration,
    *,
    folder: Dep = Path("data/prompts"),
    counts: Out = Path("data/counts"),
    report: Metric = Path("reports/counts.json"),
    curve: Plot = Path("reports/counts.csv"),
    receipt: Receipt = Path("reports/sent.json"),
) -> Counted:
    """Counts.

    And more.
    """
    return Counted(seed, system.scorer.name)


def test_a_stage_is_what_the_signature_says():
    described = stage_of(stage(code=("tasks/counting.py",), name="counting")(count_prompts))

    assert described == Stage(
        name="counting",
        function=count_prompts,
        params=("seed", "system"),
        deps=(Path("data/prompts"),),
        outs=(Path("data/counts"),),
        metrics=(Path("reports/counts.json"),),
        plots=(Path("reports/counts.csv"),),
        receipts=(Path("reports/sent.json"),),
        code=("tasks/counting.py",),
    )


def test_a_stage_is_for_one_process_unless_it_says_otherwise():
    assert not stage_of(stage(code=())(count_prompts)).is_parallel
    assert stage_of(stage(code=(), is_parallel=True)(count_prompts)).is_parallel


def test_a_stage_is_named_after_its_module():
    assert __name__.rpartition(".")[2] == stage_of(stage(code=())(count_prompts)).name


def test_the_decorator_returns_the_plain_function():
    assert count_prompts is stage(code=())(count_prompts)
    assert Counted(3, "profanity") == count_prompts(3, Params().system)


def test_a_function_without_the_decorator_is_no_stage():
    assert stage_of(len) is None


def test_a_stage_runs_on_the_sections_that_it_names():
    described = stage_of(stage(code=())(count_prompts))

    assert "seed 7, scorer profanity" == described.run(Params(seed=7)).summary()


def test_the_description_is_the_first_line_of_the_docstring():
    assert "Counts." == stage_of(stage(code=())(count_prompts)).description


def test_the_products_are_all_that_is_written():
    described = stage_of(stage(code=())(count_prompts))

    names = ["counts", "counts.json", "counts.csv", "sent.json"]
    assert names == [path.name for path in described.products]


def _returns_nothing(seed: int) -> None: ...


def _unknown_section(sed: int) -> Counted: ...


def _path_without_role(seed: int, *, folder: Path = Path("data/x")) -> Counted: ...


def _wrong_section_type(reward: SystemConfiguration) -> Counted: ...


def _not_annotated(seed) -> Counted: ...


def _section_with_default(seed: int = 3) -> Counted: ...


def _path_without_default(seed: int, *, folder: Out) -> Counted: ...


def _path_outside(seed: int, *, folder: Out = Path("../x")) -> Counted: ...


def _absolute_path(seed: int, *, folder: Out = Path("/x")) -> Counted: ...


def _path_named_twice(a: Dep = Path("data/x"), b: Out = Path("data/x")) -> Counted: ...


def _gathers(*seed: Choice) -> Counted: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_returns_nothing, "must return a class with summary"),
        (_unknown_section, "parameter 'sed' must be a path with a role or one of the sections"),
        (_path_without_role, "parameter 'folder' must be a path with a role"),
        (_wrong_section_type, "section 'reward' must be annotated .*Choice"),
        (_not_annotated, "section 'seed' must be annotated .*int"),
        (_section_with_default, "section 'seed' must have no default"),
        (_path_without_default, "path 'folder' must have a default .*got no default"),
        (_path_outside, "path 'folder' must have a default inside the project"),
        (_absolute_path, "path 'folder' must have a default inside the project"),
        (_path_named_twice, "must name each path once"),
        (_gathers, "section 'seed' must be annotated"),
    ],
)
def test_a_signature_that_breaks_the_rule_is_refused(function: Any, message: str):
    with pytest.raises(ConfigurationError, match=message) as refusal:
        stage(code=())(function)

    assert function.__name__ in str(refusal.value)
