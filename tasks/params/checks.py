"""The whole check of params.yaml before any weights load.

It covers plug-in names and options, what one section asks of another, and the files that are named.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from astra_core.config import MachineConfiguration
from astra_core.errors import ConfigurationError
from astra_core.models.spelling import speller
from astra_core.registry import BUILT_INS, Found, find
from astra_core.scorers.of_probes import text_scorer_choice
from astra_core.settings.agents import check_agents
from tasks.machine.console import complain
from tasks.params.builtin_limits import check_builtin
from tasks.params.columns import check_columns, check_sizes, known_columns
from tasks.params.inputs import check_inputs
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import FlowConfiguration, Params
from tasks.params.targets import MIXTURE, has_weights, targets_of
from tasks.params.templates import check_templates, check_weight_names, template_left_out
from tasks.params.verdicts import is_known, remember, verdict_key
from tasks.pipeline.names import PROMOTION, STAGE_NAMES
from tasks.tracking.sinks import check_sinks


@dataclass(frozen=True, slots=True)
class Setup:
    """What params.yaml asks for: its values, and the plug-ins that they name."""

    params: Params
    executor: Found
    sampler: Found
    target: Found
    reward: Found
    trainer: Found
    algorithm: Found

    @classmethod
    def of(cls, params: Params) -> Self:
        """The setup, after every plug-in is found and its options are read.

        Raises ConfigurationError if a plug-in is unknown, or an option is unknown or out of range.
        """
        system, training = params.system, params.training
        found = cls(
            params,
            executor=find("executor", params.executor),
            sampler=find("sampler", params.rollouts.sampler),
            target=find("target", system.target),
            reward=find("reward", params.reward),
            trainer=find("trainer", training.trainer),
            algorithm=find("algorithm", training.algorithm),
        )
        targets_of(system.target)
        # Nothing else that is checked depends on these.
        second = params.evaluation.second_judge
        for judge in (system.scorer, text_scorer_choice(system), *([second] if second else [])):
            find("scorer", judge)
        for other in params.evaluation.transfer.values():
            find("target", other.target_of(system.target))
        if system.spelling is not None:
            speller(system.spelling)
        find("optimizer", training.optimizer)
        schedules = [own.schedule for own in training.agents.values()]
        for schedule in filter(None, (training.schedule, *schedules)):
            find("schedule", schedule)
        check_sinks(params.tracking)
        return found


def check_params(params: Params, *, is_kept: bool = False) -> None:
    """Checks that plug-ins, options, metric, device and named files can be used; loads no weights.

    Its ConfigurationError says what cannot be used, and the way out.
    """
    key = verdict_key(params)
    if key is not None and is_known(key):
        return
    _check_all(params)
    if key is not None and is_kept:
        remember(key)


def _check_all(params: Params) -> None:
    setup = Setup.of(params)
    _check_executor(setup)
    _check_list(setup)
    _check_metric(setup)
    check_builtin(params)
    check_sizes(params)
    _check_flow(params.flow)
    _check_device(params.machine)
    check_inputs(params)
    _check_belief(params)
    _check_target(setup)
    check_templates(params)
    check_columns(params)
    check_weight_names(params)
    _check_needs(setup)
    _check_signals(setup)
    _check_agents(setup)


def tell_warnings(params: Params) -> None:
    """Prints a line on standard error about each setting that can be used and hardly meant."""
    from astra_core.algorithm import off_policy
    from astra_core.training.selection.evaluation_scheme import idle_rule

    options = find("algorithm", params.training.algorithm).options
    lines = idle_rule(params.training), off_policy(options, params.system.probe)
    for line in (*lines, template_left_out(params)):
        if line:
            complain(f"warning: {line}")


def _check_executor(setup: Setup) -> None:
    """Checks that the executor has shards to hand out."""
    name, machine = setup.executor.name, setup.params.machine
    is_here = setup.executor.plugin.is_here
    if is_here and name in BUILT_INS["executor"]:
        return
    if machine.num_processes > 1 and not is_here:
        msg = (
            f"machine.num_processes must be 1 with executor '{name}', got {machine.num_processes}; "
            "one of the two has the workers"
        )
        raise ConfigurationError(msg)
    if not machine.prompts_per_shard:
        msg = (
            f"machine.prompts_per_shard must be at least 1 with executor '{name}', got 0; set it "
            "to the prompts that one worker rolls out at once, such as 8"
        )
        raise ConfigurationError(msg)


def _check_belief(params: Params) -> None:
    """Checks that what the evaluation names beside the judge can be used."""
    second = params.evaluation.second_judge
    if second is not None:
        if second == params.system.scorer:
            msg = (
                "evaluation.second_judge must be another judge than system.scorer, got the same "
                f"'{second.name}'; its agreement with itself says nothing"
            )
            raise ConfigurationError(msg)
    elif params.promotion.require_confirmation:
        msg = (
            "promotion.require_confirmation must have an evaluation.second_judge, got null; "
            "name a second judge"
        )
        raise ConfigurationError(msg)
    if params.evaluation.calibration is not None:
        from tasks.records.calibration import usable_calibration

        usable_calibration(params.evaluation.calibration, threshold=params.evaluation.threshold)
    if isinstance(params.evaluation.benign_prompts, Path):
        from tasks.sources.requests import read_requests

        read_requests(params.evaluation.benign_prompts)


def _check_list(setup: Setup) -> None:
    """Checks that several targets are measured by nothing that takes only one."""
    for key in ("transfer", "calibration"):
        if setup.target.name == MIXTURE and getattr(setup.params.evaluation, key):
            msg = (
                f"evaluation.{key} must be left out where system.target is a list, got one; "
                "name one target, or leave it out"
            )
            raise ConfigurationError(msg)


def _check_target(setup: Setup) -> None:
    """Checks that there is one target: weights, or something that has none."""
    name, source = setup.target.name, setup.params.models.target
    if has_weights(setup.params.system.target) or source == ModelSource():
        return
    msg = (
        f"models.target must be left as it is where system.target is '{name}', which has no "
        f"weights, got source '{source.source}'; remove it (--set "
        "models.target='{source: builtin}' does), or set system.target to causal_lm"
    )
    raise ConfigurationError(msg)


def _check_needs(setup: Setup) -> None:
    params, algorithm, options = setup.params, setup.algorithm.plugin, setup.algorithm.options
    given = set(setup.sampler.plugin.gives)
    # Reading tokenizers takes a second, so it waits for an algorithm that asks.
    asks = "shared_tokenizer" in algorithm.needs_with(options)
    has_one = setup.target.name != MIXTURE and has_weights(params.system.target)
    if not asks or (has_one and not _tokenizers_differ(params.models)):
        given.add("shared_tokenizer")
    if params.rollouts.runs_per_prompt > 1:
        given.add("runs")
    algorithm.check_needs(options, setup.sampler.options, gives=given)


def _check_signals(setup: Setup) -> None:
    from astra_core.reward import ALL_SIGNALS, check_signals

    reward, options = setup.reward.plugin, setup.reward.options
    gives = set(ALL_SIGNALS)
    if "reference" not in setup.sampler.plugin.gives:
        gives.discard("reference")
    system = setup.params.system
    scores = all(own.plugin.can_score for own in targets_of(system.target).values())
    if system.spelling is not None or not scores:
        gives.discard("target_logprobs")
    # Reading a file takes a while, so it waits for a reward that asks.
    if "goal" in reward.needs_with(options):
        known = known_columns(setup.params.prompts)
        if known is not None and "goal" not in known:
            gives.discard("goal")
    check_signals(setup.reward.name, reward, options, gives=gives)


def _check_agents(setup: Setup) -> None:
    params = setup.params
    trainer = setup.trainer
    trainer.plugin.check_system(trainer.options, params.system, params.training)
    check_agents(
        params.system.roles,
        params.system.agents,
        params.training.agents,
        depth=getattr(setup.sampler.options, "tree_depth", None),
        plays_roles="roles" in setup.sampler.plugin.gives,
        num_processes=params.machine.num_processes,
    )


def _tokenizers_differ(models: ModelsConfiguration) -> bool:
    """Whether two tokenizers are known to differ; before loading, only local folders show it."""
    folders = {model.path for model in (models.attacker, models.target) if model.path}
    if len(folders) < 2 or {models.attacker.source, models.target.source} != {"folder"}:
        return False
    from astra_core.models.tokenizers import tokenizer_digest

    return len({tokenizer_digest(folder) for folder in folders}) > 1


def _check_metric(setup: Setup) -> None:
    from astra_core.evaluator import require_metric
    from astra_core.training.learner import configs_of
    from astra_core.training.selection.evaluation_scheme import check_schedule

    trainer, training = setup.trainer.plugin, setup.params.training
    require_metric(training.metric, declared=getattr(trainer, "metric_names", ()))
    for own in configs_of(training):
        check_schedule(own, trainer)


def _check_flow(flow: FlowConfiguration) -> None:
    known = [*STAGE_NAMES, PROMOTION, "hardening"]
    for name in flow.timeouts_s:
        if name not in known:
            msg = f"flow.timeouts_s must name stages, got '{name}'; stages are {known}"
            raise ConfigurationError(msg)


def _check_device(machine: MachineConfiguration) -> None:
    if machine.device == "cuda":
        from astra_core.models.pretrained import device_for

        device_for(machine.device)
