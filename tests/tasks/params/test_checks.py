from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from ruamel.yaml import YAML

from astra_core.errors import AuthorizationError, ConfigurationError
from astra_core.executor import LocalExecutor
from astra_core.samplers.tree import TreeSampler
from tasks.__main__ import main
from tasks.params.checks import check_params
from tasks.params.overlay import owner_of
from tasks.params.schema import Params, read_record

ROOT = Path(__file__).parents[3]
PARAMS = ROOT / "params.yaml"


def test_the_defaults_can_be_used():
    check_params(Params())


def test_a_step_of_a_hardening_has_a_limit_of_its_own():
    check_params(Params.model_validate({"flow": {"timeouts_s": {"hardening": 60.0}}}))


# Where in params.yaml, what is written there, and what the one line must say.
MISTAKES = [
    ("training.batchsize", 8, "training.batchsize is not a known key; did you mean 'batch_size'?"),
    ("trainning", {}, "trainning is not a known key; did you mean 'training'?"),
    ("training.early_stopping.patients", 3, "did you mean 'patience'?"),
    ("training.batch_size", "16", "training.batch_size: input should be a valid integer"),
    ("training.batch_size", 0, "training.batch_size: input should be greater than or equal to 1"),
    ("training.lr", -1.0, "training.lr: input should be greater than 0, got -1.0"),
    (
        "training.precision",
        "fp16",
        "training.precision: input should be 'device', 'auto', 'fp32' or 'bf16'",
    ),
    ("training.metric", "loss", "metric must name an evaluation metric"),
    ("seed", -1, "seed: input should be greater than or equal to 0"),
    ("seed", None, "seed: input should be a valid integer, got None"),
    ("system", 3, "system: "),
    ("prompts.source", "web", "prompts.source: input should be 'builtin', 'file' or 'hub'"),
    ("prompts.source", "file", "path must name a file when source is 'file'"),
    ("prompts.source", "hub", "dataset and revision (a commit hash) must be given"),
    ("models.target.source", "hub", "repository and revision must be given"),
    ("prompts", {"source": "file", "path": "no/such.csv"}, "prompts.path must name a file, got"),
    ("models.target", {"source": "folder", "path": "no"}, "models.target.path must name a Hugging"),
    ("system.scorer.name", "profanty", "unknown scorer 'profanty'"),
    ("system.scorer.name", "profanty", "did you mean 'profanity'?"),
    ("system.scorer.name", "no_such_module:Scorer", "must be importable, got ModuleNotFoundError"),
    ("system.scorer.name", "json:nothing", "must be importable, got AttributeError"),
    ("system.scorer.name", "json:dumps", "must be a class, got function"),
    ("system.spelling", "base64", "must have a target that gives log-probabilities of a probe"),
    ("system.spelling", "base46", "system.spelling must be one of base64, hex, rot13"),
    ("evaluation.second_judge", "profanty", "unknown scorer 'profanty'"),
    ("evaluation.second_judge", "profanity", "must be another judge than system.scorer, got the"),
    ("evaluation.calibration", "no/such.json", "evaluation.calibration must name a file, got"),
    ("evaluation.benign_prompts", "no.csv", "evaluation.benign_prompts must name a file, got"),
    ("evaluation.second_threshold", 2.0, "evaluation.second_threshold: input should be less"),
    ("promotion.require_confirmation", True, "must have an evaluation.second_judge, got null"),
    ("training.algorithm.name", "ppoo", "unknown algorithm 'ppoo'"),
    ("system.target", "endpont", "did you mean 'endpoint'?"),
    ("system.target", {"name": "endpoint", "options": {"model": "m"}}, "options.base_url must"),
    ("system.target", ["causal_lm"], "targets must be at least two, got 1; write one without a"),
    ("system.target", ["causal_lm", "endpont"], "system.target.1: unknown target 'endpont'"),
    ("system.target", ["causal_lm", "scripted"], "must have a target that gives log-probabilities"),
    ("system.target", "scripted", "must have a target that gives log-probabilities of a probe"),
    ("reward", {"name": "terms", "options": {"terms": {"kll": {}}}}, "unknown term 'kll'"),
    ("prompts.goal_column", "Behavior", "'hub' with goal_column, got 'builtin'"),
    ("reward", {"name": "terms", "options": {"terms": {"goal": {}}}}, "must have prompts with a g"),
    ("training.optimizer.name", "adamm", "unknown optimizer 'adamm'"),
    ("training.schedule.name", "slow", "unknown schedule 'slow'"),
    ("training.trainer.name", "mine", "unknown trainer 'mine'"),
    ("rollouts.sampler.name", "treee", "did you mean 'tree'?"),
    ("reward.name", "greedy", "unknown reward 'greedy'"),
    ("training.algorithm.options", {"betta": 1.0}, "options.betta is not a known key"),
    ("rollouts.sampler.options", {"tree_width": 0}, "options.tree_width: input should be greater"),
    ("system.roles", ["A b"], "system.roles.0: string should match pattern"),
    ("system.roles", ["a", "b", "c"], "system.roles must name at most as many turns"),
    ("system.agents", {"presser": {}}, "agents must be named in roles, got 'presser'"),
    ("training.agents", {"presser": {}}, "training.agents must name agents of system.roles"),
    ("training.agents", {"presser": {"lr": 0.0}}, "training.agents.presser.lr: input should be"),
    ("flow.timeouts_s", {"trainning": 60.0}, "flow.timeouts_s must name stages, got 'trainning'"),
]


def _mistaken(place: str, value: Any) -> dict[str, Any]:
    record = read_record(PARAMS)
    owner, key = owner_of(record, place)
    owner[key] = value
    return record


@each_row(("place", "value", "words"), MISTAKES)
def test_a_mistake_is_one_clear_line(tmp_path, monkeypatch, place, value, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refusal:
        check_params(Params.read(_mistaken(place, value), where=""))

    assert words in str(refusal.value)
    assert 1 == len(str(refusal.value).splitlines())


def test_a_device_that_is_not_there_is_refused_by_the_check(monkeypatch):
    params = Params.read({"machine": {"device": "cuda"}}, where="")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match=r"machine\.device must be 'cpu' or 'auto'"):
        check_params(params)

    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    check_params(params)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("training.batchsize", 8, "did you mean 'batch_size'?"),
        ("prompts", {"source": "file", "path": "no/such.csv"}, "prompts.path must name a file"),
        ("training.algorithm.options", {"betta": 1.0}, "options.betta is not a known key"),
    ],
)
def test_the_command_says_it_in_one_line_and_exits_2(check, tmp_path, place, value, words):
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(_mistaken(place, value), file)
    status, out, err = check(tmp_path)

    assert 2 == status
    assert words in err
    assert 1 == len(err.splitlines())
    assert not out


def test_the_command_passes_params_yaml(check):
    status, said, complained = check(ROOT)

    assert (0, "") == (status, complained)
    assert said.startswith("first duel: 200 prompts, power 46% at a gain of 10 points\n")
    assert said.endswith("params.yaml is usable\n")


def test_a_rule_that_ends_nothing_is_reported_in_one_line(check, tmp_path):
    with (tmp_path / "params.yaml").open("w") as file:
        record = _mistaken("training.evaluate", "none")
        record["training"]["early_stopping"] = {"patience": 3}
        YAML().dump(record, file)
    status, _, err = check(tmp_path)

    assert 0 == status
    assert err.startswith("warning: training.early_stopping.patience of 3 ends nothing")
    assert 1 == len(err.splitlines())


def test_the_command_misses_a_file_that_is_not_there(check, tmp_path):
    status, _, err = check(tmp_path)

    assert 2 == status
    expected = "error: params.yaml must exist, got no such file; run from the project's root\n"
    assert expected == err


@pytest.fixture
def check(restored, monkeypatch, capfd):
    """``python -m tasks --check`` in a folder: its status, and what it writes."""

    def run(folder: Path) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        return main(["--check"]), *capfd.readouterr()

    return run


def test_a_metric_with_a_typo_is_found_before_weights_load():
    params = Params.read({"training": {"metric": "eval/attack_succes_rate"}}, where="")
    with pytest.raises(ConfigurationError, match=r"did you mean 'eval/attack_success_rate'\?"):
        check_params(params)


@each_row("metric", ["eval/score_mean_low", "eval/self_bleu", "eval/reward_mean"])
def test_any_metric_of_an_evaluation_can_choose_the_best(metric):
    check_params(Params.read({"training": {"metric": metric}}, where=""))


URL = "http://127.0.0.1:1/v1"
REMOTE = {
    "trainer": {"name": "remote", "options": {"address": URL, "base_model": "m"}},
    "max_grad_norm": None,
}
VLLM = {"trainer": {"name": "vllm", "options": {"base_url": URL}}}


@each_row(
    ("changes", "line"),
    [
        (
            {"training": {"trainer": "leader_follower"}},
            "must have agents with weights of their own, got 'presser' that shares",
        ),
        (
            {"training": {"trainer": {"name": "leader_follower", "options": {"leader": "x"}}}},
            "options.leader must be one of the agents that learn ['opener', 'presser'], got 'x'",
        ),
        (
            {"system": {}, "training": {"trainer": "leader_follower"}},
            "must have two agents that learn, got []",
        ),
        ({"machine": {"num_processes": 2}}, "machine.num_processes must be 1 for several agents"),
        ({"training": VLLM | {"lora": {}}}, "system.roles must be empty for trainer 'vllm', got"),
        ({"system": {}, "training": REMOTE}, "kl.max_per_experience_nats must be null for trainer"),
        ({"system": {}, "training": VLLM}, "training.lora must be given for trainer 'vllm'"),
        (
            {"training": {"agents": {"presser": {"schedule": {"name": "slow"}}}}},
            "unknown schedule 'slow'",
        ),
        (
            {"training": {"agents": {"presser": {"warmup_steps": 3}}}},
            "training.agents.presser.warmup_steps must be null",
        ),
        (
            {"rollouts": {"sampler": {"name": f"{__name__}:OneVoice"}}},
            "rollouts.sampler must play the roles",
        ),
    ],
)
def test_what_several_agents_cannot_have_is_one_line_before_weights_load(changes, line):
    record = {"system": {"roles": ["opener", "presser"]}, **changes}
    with pytest.raises(ConfigurationError) as caught:
        check_params(Params.read(record, where=""))

    assert line in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


class OneVoice(TreeSampler):
    """Does not ask who plays."""

    gives = frozenset({"siblings", "reference"})


def test_two_agents_can_be_used():
    system = {"roles": ["opener", "presser"], "agents": {"presser": {"model": "own"}}}
    check_params(Params.read({"system": system}, where=""))


@each_row(
    ("header", "column", "is_usable"),
    [("text,goal", None, True), ("text,aim", None, False), ("text,aim", "aim", True)],
)
def test_a_reward_that_asks_for_goals_looks_into_the_file(tmp_path, header, column, is_usable):
    (tmp_path / "goals.csv").write_text(f"{header}\nwhy now,so bad\n", "utf-8")
    record = {
        "prompts": {"source": "file", "path": str(tmp_path / "goals.csv"), "goal_column": column},
        "reward": {"name": "terms", "options": {"terms": {"goal": {}}}},
    }
    params = Params.read(record, where="")
    if is_usable:
        check_params(params)
    else:
        with pytest.raises(ConfigurationError, match="must have prompts with a goal, got none"):
            check_params(params)


@each_row(("can_score", "weight"), [(True, 0.1), (False, 0.0), (False, 0.1)])
def test_a_target_that_gives_no_log_probabilities_is_refused_before_anything_runs(
    monkeypatch, tmp_path, can_score, weight
):
    from astra_core.targets.causal_lm import CausalLM

    # Where nothing has been checked before.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CausalLM, "can_score", can_score)
    params = Params.read(
        {"reward": {"name": "adversarial", "options": {"nll_weight": weight}}}, where=""
    )
    if can_score or not weight:
        check_params(params)
    else:
        with pytest.raises(ConfigurationError, match="must have a target that gives log-prob"):
            check_params(params)


def test_there_is_one_target():
    record = read_record(PARAMS)
    record["system"]["target"] = "scripted"
    record["reward"]["options"] = {"nll_weight": 0.0}
    check_params(Params.read(record, where=""))
    record["models"]["target"] = {"source": "hub", "repository": "a/b", "revision": "0" * 40}

    with pytest.raises(ConfigurationError, match=r"models\.target must be left as it is where"):
        check_params(Params.read(record, where=""))


@each_row("target", ["scripted", ["causal_lm", "scripted"]])
def test_a_teacher_without_weights_or_one_of_several_cannot_be_distilled(target):
    record = read_record(PARAMS)
    record["system"]["target"] = target
    record["reward"]["options"] = {"nll_weight": 0.0}
    record["training"]["algorithm"] = {"name": "distillation", "options": {"teacher": "target"}}

    with pytest.raises(ConfigurationError, match="must share the attacker's tokenizer"):
        check_params(Params.read(record, where=""))


def test_a_host_that_is_not_authorised_is_refused_by_the_check():
    record = read_record(PARAMS)
    options = {"base_url": "https://example.org/v1", "model": "m"}
    record["system"]["target"] = {"name": "endpoint", "options": options}

    with pytest.raises(AuthorizationError, match=r"must name the host example\.org, got none"):
        check_params(Params.read(record, where=""))


@each_row(
    ("machine", "message"),
    [
        ({}, "machine.prompts_per_shard must be at least 1 with executor 'processes', got 0"),
        (
            {"prompts_per_shard": 4, "num_processes": 2},
            "machine.num_processes must be 1 with executor 'processes', got 2",
        ),
    ],
)
def test_workers_need_shards_and_no_rival(machine, message):
    record = {"executor": {"name": "processes"}, "machine": machine}

    with pytest.raises(ConfigurationError, match=message):
        check_params(Params.read(record, where=""))


class Patient(LocalExecutor):
    """Of one's own, in this process: without shards nothing would ask for it."""


def test_an_executor_of_ones_own_needs_shards_wherever_it_works():
    record = {"executor": {"name": f"{__name__}:Patient"}, "machine": {"num_processes": 2}}

    with pytest.raises(ConfigurationError, match=r"prompts_per_shard must be at least 1 with exec"):
        check_params(Params.read(record, where=""))
    record["machine"]["prompts_per_shard"] = 4
    check_params(Params.read(record, where=""))
    check_params(Params.read({"executor": "local"}, where=""))


def test_an_option_of_an_executor_is_checked():
    record = {"executor": {"name": "processes", "options": {"num_worker": 2}}}

    with pytest.raises(ConfigurationError, match="num_workers"):
        check_params(Params.read(record, where=""))
