"""The table of everything that params.yaml can name, and its resolver.

A plug-in is a class with a nested ``Options`` section (frozen pydantic). A built-in is known by a
short name; a user's own by import path ``package.module:Class`` or by its file,
``path/to/file.py:Class``. Options are validated by the class's own model before any weight loads;
entries are text, so that naming a plug-in imports nothing else.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from astra_core.config import Choice, Section
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import suggestion
from astra_core.extensions.calls import path_of, plugin_call
from astra_core.extensions.plugin_class import find_omission
from astra_core.extensions.plugin_files import is_file_name, load_named

BUILT_INS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "algorithm": {
            "dpo": "astra_core.algorithms.dpo:DPO",
            "trajectory_balance": "astra_parts.algorithms.trajectory_balance:TrajectoryBalance",
            "reinforce": "astra_parts.algorithms.reinforce:REINFORCE",
            "rloo": "astra_parts.algorithms.rloo:RLOO",
            "grpo": "astra_parts.algorithms.grpo:GRPO",
            "ppo": "astra_parts.algorithms.ppo:PPO",
            "expert_iteration": "astra_parts.algorithms.expert_iteration:ExpertIteration",
            "sft": "astra_parts.algorithms.sft:SFT",
            "distillation": "astra_parts.algorithms.distillation:Distillation",
        },
        "sampler": {"tree": "astra_core.samplers.tree:TreeSampler"},
        "target": {
            "causal_lm": "astra_core.targets.causal_lm:CausalLM",
            "endpoint": "astra_parts.targets.endpoint:Endpoint",
            "command": "astra_parts.targets.command:Command",
            "scripted": "astra_parts.targets.scripted:Scripted",
            # Written as a list in ``system.target``.
            "mixture": "astra_parts.targets.mixture:Mixture",
        },
        "scorer": {
            "profanity": "astra_core.scorers.profanity:ProfanityScorer",
            "phrases": "astra_parts.scorers.phrases:PhraseScorer",
            "regex": "astra_parts.judges.regex:RegexJudge",
            "classifier": "astra_parts.judges.classifier:ClassifierJudge",
            "guard": "astra_parts.judges.guard:GuardJudge",
            "llm_judge": "astra_parts.judges.llm_judge:LlmJudge",
            "endpoint_judge": "astra_parts.judges.endpoint_judge:EndpointJudge",
            "embedding_similarity": "astra_parts.judges.embedding_similarity:SimilarityJudge",
            "ensemble": "astra_parts.judges.ensemble:EnsembleJudge",
            "refusal": "astra_parts.judges.refusal:RefusalScorer",
            "secret": "astra_parts.judges.secret:SecretJudge",
            "program": "astra_parts.judges.program:ProgramJudge",
        },
        "reward": {
            "adversarial": "astra_core.rewards.adversarial:AdversarialReward",
            "stress_testing": "astra_parts.rewards.stress_testing:StressTestingReward",
            "terms": "astra_parts.rewards.terms:TermsReward",
        },
        # The terms of the reward ``terms``.
        "term": {
            "reply": "astra_parts.rewards.score_terms:ReplyScore",
            "probe_score": "astra_parts.rewards.score_terms:ProbeScore",
            "likelihood": "astra_parts.rewards.likelihood_terms:Implausibility",
            "kl": "astra_parts.rewards.likelihood_terms:KLToReference",
            "novelty": "astra_parts.rewards.novelty_terms:NgramNovelty",
            "word_novelty": "astra_parts.rewards.novelty_terms:WordNovelty",
            "embedding_novelty": "astra_parts.rewards.novelty_terms:EmbeddingNovelty",
            "diversity": "astra_parts.rewards.novelty_terms:Diversity",
            "gibberish": "astra_parts.rewards.text_terms:Gibberish",
            "length": "astra_parts.rewards.score_terms:Length",
            "goal": "astra_parts.rewards.text_terms:GoalSimilarity",
        },
        "trainer": {
            "trainer": "astra_core.training.trainer:Trainer",
            "leader_follower": "astra_parts.agents.leader_follower:LeaderFollower",
            "text": "astra_parts.services.text_trainer:TextTrainer",
            "remote": "astra_parts.services.remote_trainer:RemoteTrainer",
            "vllm": "astra_parts.engines.vllm_trainer:VllmTrainer",
        },
        "optimizer": {
            "adam": "astra_core.training.optimization.optimizers:Adam",
            "adamw": "astra_core.training.optimization.optimizers:AdamW",
            "sgd": "astra_parts.optimizers:SGD",
            "rmsprop": "astra_parts.optimizers:RMSprop",
            "adagrad": "astra_parts.optimizers:Adagrad",
        },
        "schedule": {
            "transformers": "astra_core.training.optimization.optimizers:TransformersSchedule",
            "annealing": "astra_parts.schedules.annealing:AnnealingSchedule",
            "plateau": "astra_parts.schedules.plateau:PlateauSchedule",
            "torch": "astra_parts.schedules.torch_schedules:TorchSchedule",
        },
        "executor": {
            "local": "astra_core.executor:LocalExecutor",
            "processes": "astra_parts.executors.processes:ProcessesExecutor",
            "ray": "astra_parts.executors.on_ray:RayExecutor",
        },
        # The pipeline also has mlflow.
        "sink": {
            "csv": "astra_parts.sinks.csv_file:CsvSink",
            "tensorboard": "astra_parts.sinks.tensorboard:TensorBoardSink",
            "wandb": "astra_parts.sinks.wandb:WandbSink",
        },
    }
)
# The base class of each kind of plug-in; of two either will do.
BASES: Mapping[str, str] = MappingProxyType(
    {
        "algorithm": "astra_core.algorithm:Algorithm",
        "sampler": "astra_core.sampler:Sampler",
        "target": "astra_core.target:Target",
        "scorer": "astra_core.scorer:Scorer astra_core.judge:Judge",
        "reward": "astra_core.reward:Reward",
        "term": "astra_parts.rewards.term:Term",
        "trainer": "astra_core.training.trainer:Trainer",
        "optimizer": "astra_core.training.optimization.optimizers:OptimizerPlugin",
        "schedule": "astra_core.training.optimization.optimizers:SchedulePlugin",
        "sink": "astra_parts.sink:Sink",
        "executor": "astra_core.executor:Executor",
    }
)
# The declaration on the class that is read before anything is built.
_DECLARED = {"sampler": "gives", "algorithm": "needs", "reward": "needs", "term": "needs"}


def resolve(kind: str, name: str) -> type[Any]:
    """The class that ``name`` means among the plug-ins of ``kind``.

    Raises:
        ConfigurationError: No built-in has this name, or the import path leads to no such class.
    """
    table = BUILT_INS[kind]
    if name not in table and not (":" in name or is_file_name(name)):
        msg = (
            f"unknown {kind} '{name}'; built-ins are {sorted(table)}, "
            f"or give an import path such as 'plugins.mine:Class'{suggestion(name, table)}"
        )
        raise ConfigurationError(msg)
    found = load_named(kind, name, built_in=table.get(name))
    problem = "" if name in table else _problem(kind, found)
    if problem:
        msg = f"{kind} '{name}' {problem}"
        raise ConfigurationError(msg)
    plugin: type[Any] = found
    return plugin


def _problem(kind: str, found: Any) -> str:
    """Why an object cannot be a plug-in of this kind; empty if it can."""
    if not isinstance(found, type):
        return f"must be a class, got {type(found).__name__}; name the class itself"
    wanted = " or ".join(path.replace(":", ".") for path in BASES[kind].split())
    if not issubclass(found, bases_of(kind)):
        bases = ", ".join(each.__name__ for each in found.__mro__[1:])
        return f"must be a subclass of {wanted}, got one of {bases}; derive it"
    if inspect.isabstract(found):
        missing = sorted(vars(found)["__abstractmethods__"])
        return f"must implement {missing}, got an abstract class; see {wanted}"
    options = getattr(found, "Options", NoOptions)
    if not (isinstance(options, type) and issubclass(options, Section)):
        return f"must have Options that are a Section of astra_core.config, got {_kind(options)}"
    declared: Any = getattr(found, _DECLARED.get(kind, ""), frozenset())
    if not isinstance(declared, AbstractSet):
        return f"must declare {_DECLARED[kind]} as a frozenset, got {_kind(declared)}"
    return find_omission(kind, found)


def bases_of(kind: str) -> tuple[type[Any], ...]:
    """The classes from one of which a plug-in of this kind must be derived."""
    paths = [path.partition(":") for path in BASES[kind].split()]
    return tuple(getattr(importlib.import_module(name), attribute) for name, _, attribute in paths)


def _kind(thing: Any) -> str:
    return f"class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


@dataclass(frozen=True, slots=True)
class Found:
    """A plug-in that a choice names, with its options read."""

    kind: str
    name: str
    plugin: type[Any]
    options: Any

    def build(self, **parts: Any) -> Any:
        """The plug-in, constructed as ``Class(options, **parts)``."""
        with plugin_call(self.kind, self.name, "its construction"):
            return self.plugin(self.options, **parts)


def find(kind: str, choice: Choice) -> Found:
    """The plug-in that a choice names, and its options.

    Raises ConfigurationError if the plug-in is unknown, or an option is unknown or out of range;
    PluginError if the plug-in's own check failed.
    """
    plugin = resolve(kind, choice.name)
    options: type[Section] = getattr(plugin, "Options", NoOptions)
    with plugin_call(kind, choice.name, "reading its options"):
        where, given = f"{kind} '{choice.name}' options", choice.options_for(plugin)
        try:
            return Found(kind, choice.name, plugin, options.read(given, where=where))
        except ConfigurationError as error:
            if given == choice.options:
                raise
            options.read(choice.options, where=where)  # a mistake of one's own is told alone
            added = {key: own for key, own in given.items() if key not in choice.options}
            msg = f"{error}; the choice's defaults add {added}: set 'defaults: published'"
            raise ConfigurationError(msg) from None


def build(kind: str, choice: Choice, **parts: Any) -> Any:
    """The plug-in that a choice names, constructed; see ``find`` and ``Found.build``."""
    return find(kind, choice).build(**parts)


def function_of(name: str) -> Callable[..., Any]:
    """The function that an import path, or a file and a name in it, means."""
    found = load_named("function", name, form=", as my.module:grade or my/file.py:grade")
    if not callable(found) or isinstance(found, type):
        msg = f"function '{name}' must be a function, got {_kind(found)}; name another"
        raise ConfigurationError(msg)
    called: Callable[..., Any] = found
    return called


def name_of(kind: str, plugin: type[Any]) -> str:
    """The name of a class in ``params.yaml``: its built-in name, or its import path."""
    path = path_of(plugin)
    return next((name for name, own in BUILT_INS[kind].items() if own == path), path)


class NoOptions(Section):
    """The options of a plug-in that has none."""
