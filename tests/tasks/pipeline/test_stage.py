from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

from astra_core.config import SystemConfiguration
from astra_core.errors import ConfigurationError
from tasks.params.schema import Params, RegistrationConfiguration
from tasks.pipeline.stage import (
    Dep,
    Metric,
    Out,
    Plot,
    Receipt,
    Stage,
    Untracked,
    plain_sections,
    sections_for,
    stage,
    stage_of,
)


@dataclass(frozen=True)
class Counted:
    seed: int
    scorer: str

    def summary(self) -> str:
        return f"seed {self.seed}, scorer {self.scorer}"


@dataclass(frozen=True)
class CountingParams:
    seed: int
    system: SystemConfiguration
    registration: Untracked[RegistrationConfiguration]


@dataclass(frozen=True)
class CountingFiles:
    folder: Dep = Path("data/prompts")
    counts: Out = Path("data/counts")
    report: Metric = Path("reports/counts.json")
    curve: Plot = Path("reports/counts.csv")
    receipt: Receipt = Path("reports/sent.json")


def count_prompts(params: CountingParams, files: CountingFiles = CountingFiles()) -> Counted:
    """Counts.

    And more.
    """
    return Counted(params.seed, params.system.scorer.name)


def test_a_stage_is_what_the_signature_says():
    described = stage_of(stage(name="counting")(count_prompts))

    assert described == Stage(
        name="counting",
        function=count_prompts,
        params_class=CountingParams,
        params=("seed", "system"),
        deps=(Path("data/prompts"),),
        outs=(Path("data/counts"),),
        metrics=(Path("reports/counts.json"),),
        plots=(Path("reports/counts.csv"),),
        receipts=(Path("reports/sent.json"),),
    )


def test_a_stage_is_for_one_process_unless_it_says_otherwise():
    assert not stage_of(stage()(count_prompts)).is_parallel
    assert stage_of(stage(is_parallel=True)(count_prompts)).is_parallel


def test_a_stage_is_named_after_its_module():
    assert __name__.rpartition(".")[2] == stage_of(stage()(count_prompts)).name


def test_the_decorator_returns_the_plain_function():
    assert count_prompts is stage()(count_prompts)
    assert Counted(3, "profanity") == count_prompts(sections_for(CountingParams, Params(seed=3)))


def test_a_function_without_the_decorator_is_no_stage():
    assert stage_of(len) is None


def test_a_stage_runs_on_the_sections_that_it_names():
    described = stage_of(stage()(count_prompts))

    assert "seed 7, scorer profanity" == described.run(Params(seed=7)).summary()


def test_the_description_is_the_first_line_of_the_docstring():
    assert "Counts." == stage_of(stage()(count_prompts)).description


def test_the_products_are_all_that_is_written():
    described = stage_of(stage()(count_prompts))

    names = ["counts", "counts.json", "counts.csv", "sent.json"]
    assert names == [path.name for path in described.products]


def test_the_sections_of_a_stage_are_those_that_its_class_names():
    params = Params(seed=7, registration=RegistrationConfiguration(experiment="elsewhere"))
    found = sections_for(CountingParams, params)

    assert CountingParams(7, params.system, params.registration) == found


def test_plain_sections_leave_out_what_cannot_change_the_result():
    found = plain_sections(sections_for(CountingParams, Params(seed=7)))

    assert {"seed": 7, "system": Params().system.model_dump(mode="json")} == found


def _stage_with(params: Any = CountingParams, files: Any = CountingFiles, default: Any = None):
    """A stage's function that takes these two classes."""

    def counts(params, files): ...

    counts.__annotations__ = {"params": params, "files": files, "return": Counted}
    counts.__defaults__ = (files() if default is None else default,)
    return counts


def _params(**annotations: Any) -> Any:
    return _stage_with(params=make_dataclass("Own", annotations.items(), frozen=True))


def _files(**fields: Any) -> Any:
    own = [(name, hint, field(default=path)) for name, (hint, path) in fields.items()]
    return _stage_with(files=make_dataclass("Own", own, frozen=True))


def _returns_nothing(params: CountingParams, files: CountingFiles = CountingFiles()) -> None: ...


def _one_class(params: CountingParams) -> Counted: ...


def _many_sections(seed: int, system: SystemConfiguration) -> Counted: ...


def _no_default(params: CountingParams, files: CountingFiles) -> Counted: ...


@dataclass(frozen=True)
class WithDefault:
    seed: int = 3


@dataclass(frozen=True)
class WithoutDefault:
    folder: Out


@dataclass
class Thawed:
    seed: int


@each_row(
    ("function", "message"),
    [
        (_returns_nothing, "_returns_nothing must return a class with summary"),
        (_one_class, r"_one_class must take params and files, got \['params'\]"),
        (_many_sections, r"must take params and files, got \['seed', 'system'\]"),
        (_no_default, "'files' must have a default"),
        (_stage_with(params=Thawed), "'params' must be a frozen dataclass, got .*Thawed"),
        (_stage_with(params=Any), "'params' must be a frozen dataclass, got typing.Any"),
        (_stage_with(files=Counted, default=3), "'files' must have a default"),
        (_params(sed=int), "field 'sed' of its params must be one of the sections"),
        (_params(reward=SystemConfiguration), "section 'reward' must be annotated .*Choice"),
        (_params(seed=Any), "section 'seed' must be annotated .*int"),
        (_stage_with(params=WithDefault), "section 'seed' must have no default"),
        (_files(folder=(Path, Path("data/x"))), "field 'folder' .* must be a path with a role"),
        (
            _stage_with(files=WithoutDefault, default=WithoutDefault(Path("data/x"))),
            "path 'folder' must have a default .*got no default",
        ),
        (_files(folder=(Out, Path("../x"))), "path 'folder' must have a default inside"),
        (_files(folder=(Out, Path("/x"))), "path 'folder' must have a default inside"),
        (_files(a=(Dep, Path("data/x")), b=(Out, Path("data/x"))), "must name each path once"),
    ],
)
def test_a_signature_that_breaks_the_rule_is_refused(function: Any, message: str):
    with pytest.raises(ConfigurationError, match=message) as refusal:
        stage()(function)

    assert function.__name__ in str(refusal.value)
