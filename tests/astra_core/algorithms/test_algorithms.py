"""What holds for every algorithm alike, beyond the contract of ``check_algorithm``."""

import math

import pytest
import torch
from each_row import each_row, wide_but
from hostile_server import hostile_server
from tiny_training import configured, sampler_of, weights_of

from astra_core.config import Choice, SystemConfiguration
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import ConfigurationError
from astra_core.models.rows import pad_rows
from astra_core.registry import BUILT_INS, build, resolve
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_core.target import Surroundings
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.functional import aggregation
from astra_parts.targets.endpoint import Endpoint
from astra_parts.testing import tiny_graph, tiny_node, tiny_system

pytestmark = pytest.mark.routes

ALGORITHMS = list(BUILT_INS["algorithm"])
RATIO_ALGORITHMS = ["reinforce", "rloo", "grpo", "ppo", "distillation"]
# One of pairs and one of tokens.
QUICK = ("dpo", "grpo")
COMPARING = ["dpo", "trajectory_balance", "rloo", "grpo", "sft", "expert_iteration"]


def modes(name):
    """The algorithm's ways to count tokens; a pair is a unit by itself."""
    field = resolve("algorithm", name).Options.model_fields.get("aggregation")
    if field is None:
        return [{}]
    copies = field.annotation.__args__ if hasattr(field.annotation, "__args__") else ()
    return [{"aggregation": mode} for mode in copies or aggregation.Aggregation.__args__]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.real) for name in ALGORITHMS],
)
def test_the_cut_into_micro_batches_the_order_and_padding_change_no_gradient(
    name, experience, make_algorithm, gradient_of
):
    for options in modes(name):
        algorithm = make_algorithm(name, **options)
        steps = algorithm.flatten_all(experience)
        turned = steps[::-1]
        whole = gradient_of(algorithm, [algorithm.collate(steps)])
        # An uneven cut; a row alone needs no padding at all.
        cuts = (turned[:3], turned[3:4], turned[4:])
        parts = gradient_of(algorithm, [algorithm.collate(part) for part in cuts if part])

        # Small entries are what is left of sums of large terms, whose rounding is the processor's.
        size = float(whole.abs().max())
        torch.testing.assert_close(whole, parts, rtol=1e-3, atol=3e-5 * size)


# Rewards play no part in distillation.
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "distillation"])
def test_a_step_makes_the_better_sibling_likelier(name, make_algorithm, gradient_of, system):
    better, worse = (2, 3, 0), (6, 7, 0)
    nodes = []
    for ids, reward in ((better, 0.9), (worse, 0.1)):
        logprobs = system.attacker.continuation_logprobs([(4, 5, 0)], [ids])[0]
        nodes.append(tiny_node(reward, probe_ids=ids, probe_logprobs=logprobs))
    selected = {"k": 1} if name == "expert_iteration" else {}
    algorithm = make_algorithm(name, **selected)

    def lead():
        rows = pad_rows([(4, 5, 0)] * 2, [better, worse], pad_id=0)
        with torch.no_grad():
            sums = token_logprobs(algorithm.system.attacker.model, rows).sum(1)
        return float(sums[0] - sums[1])

    before = lead()
    gradient_of(algorithm, [algorithm.collate(algorithm.flatten_all([tiny_graph(*nodes)]))])
    with torch.no_grad():
        for parameter in algorithm.system.attacker.model.parameters():
            if parameter.grad is not None:
                parameter.sub_(1e-3 * parameter.grad)

    assert lead() > before


@pytest.mark.parametrize("name", RATIO_ALGORITHMS)
def test_in_the_first_update_the_ratio_to_the_policy_that_sampled_is_one(
    name, experience, make_algorithm
):
    algorithm = make_algorithm(name)
    # Not the hand-made graph, whose log-probabilities are invented.
    _, metrics = algorithm.step(algorithm.collate(algorithm.flatten_all(experience[:2])))

    assert 1.0 == pytest.approx(metrics["ratio"], abs=1e-5)
    assert 0.0 == pytest.approx(metrics["policy_kl_nats"], abs=1e-6)
    assert 0.0 == metrics.get("clipped", 0.0)


@pytest.mark.parametrize("name", RATIO_ALGORITHMS)
def test_later_the_ratio_is_still_to_the_policy_that_sampled(
    name, experience, make_algorithm, nudge
):
    algorithm = make_algorithm(name)
    steps = algorithm.flatten_all(experience[:2])
    nudge(algorithm.system)
    _, metrics = algorithm.step(algorithm.collate(steps))
    nodes = [step.node for step in steps]
    now = algorithm.system.attacker.continuation_logprobs(
        [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
    )
    ratios = [
        math.exp(new - old)
        for node, own in zip(nodes, now, strict=True)
        for new, old in zip(own, node.probe_logprobs, strict=True)
    ]

    assert sum(ratios) / len(ratios) == pytest.approx(metrics["ratio"], rel=1e-4)
    assert 1.0 != pytest.approx(metrics["ratio"], abs=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_rewards_and_single_turns_are_defined(name, make_algorithm):
    equal = tiny_graph(tiny_node(0.3), tiny_node(0.3))
    single = tiny_graph(tiny_node(0.3))
    for graphs in ([equal], [single], [equal, single]):
        algorithm = make_algorithm(name)
        steps = algorithm.flatten_all(graphs)
        figures = algorithm.remember(graphs)

        assert all(math.isfinite(figure) for figure in figures.values())
        if steps:
            loss, metrics = algorithm.step(algorithm.collate(steps))
            assert math.isfinite(float(loss.detach()))
            assert all(math.isfinite(metric) for metric in metrics.values())


@pytest.mark.parametrize("name", ["rloo", "grpo", "reinforce"])
def test_equal_rewards_move_nothing(name, make_algorithm, gradient_of):
    algorithm = make_algorithm(name, **({"kl": "none"} if name == "rloo" else {}))
    steps = algorithm.flatten_all([tiny_graph(tiny_node(0.3), tiny_node(0.3))])

    assert 0.0 == float(gradient_of(algorithm, [algorithm.collate(steps)]).abs().max())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_turns_without_a_trained_token_give_no_steps(name, make_algorithm):
    silent = [tiny_node(reward, probe_mask=(False,) * 3) for reward in (0.1, 0.9)]

    assert [] == list(make_algorithm(name).flatten_all([tiny_graph(*silent)]))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_empty_batch_has_no_weight_and_no_loss(name, make_algorithm):
    algorithm = make_algorithm(name)

    assert [] == list(algorithm.flatten_all([]))
    assert all(math.isfinite(figure) for figure in algorithm.remember([]).values())
    batch = algorithm.collate([])
    loss, metrics = algorithm.step(batch)

    assert (0.0, 0, 0.0) == (batch.weight, batch.num_tokens, float(loss.detach()))
    assert all(math.isfinite(metric) for metric in metrics.values())


@each_row("name", COMPARING)
def test_algorithms_that_compare_siblings_refuse_a_tree_without_them(name):
    plugin = resolve("algorithm", name)

    with pytest.raises(ConfigurationError, match="tree_width must be at least 2 for"):
        plugin.check_needs(plugin.Options(), TreeSampler.Options(tree_width=1))
    plugin.check_needs(plugin.Options(), TreeSampler.Options(tree_width=2))


@each_row("name", sorted(set(ALGORITHMS) - set(COMPARING)))
def test_the_others_are_served_by_a_single_path(name):
    plugin = resolve("algorithm", name)

    plugin.check_needs(plugin.Options(), TreeSampler.Options(tree_width=1))


@pytest.mark.parametrize("name", ["reinforce", "rloo", "grpo", "ppo"])
def test_every_node_is_a_step_also_an_only_child(name, make_algorithm, vector_cases, graph_of):
    for case in vector_cases("astra_ppo_flatten"):
        steps = make_algorithm(name).flatten_all([graph_of(case["graph"])])

        assert case["recommended_probes"] == [step.node.probe_text for step in steps]


@pytest.mark.parametrize("name", ["reinforce", "rloo", "grpo", "dpo", "trajectory_balance", "sft"])
def test_flat_groups_are_counted(name, experience, make_algorithm):
    options = {"baseline": "leave_one_out"} if name == "reinforce" else {}
    figures = make_algorithm(name, **options).remember([experience[2]])

    assert (1.0, 1.0) == (figures["groups"], figures["flat_groups"])


@pytest.mark.parametrize("baseline", ["none", "mean", "running"])
def test_a_baseline_that_compares_no_siblings_calls_no_group_flat(
    baseline, experience, make_algorithm
):
    figures = make_algorithm("reinforce", baseline=baseline).remember(experience)

    assert not {"groups", "flat_groups"} & set(figures)


@pytest.mark.real
@pytest.mark.parametrize("name", wide_but(ALGORITHMS, "grpo"))
def test_every_algorithm_learns_from_a_target_behind_a_server(name, tmp_path):
    local = tiny_system(1)
    reward = AdversarialReward(AdversarialReward.Options(nll_weight=0.0))
    with hostile_server() as server:
        options = Endpoint.Options(base_url=server.url, model="tiny", replies=tmp_path)
        target = Endpoint(options, surroundings=Surroundings(SystemConfiguration()))
        system = System.of(
            local.attacker, target, local.reference, scorer=local.scorer, config=local.config
        )
        algorithm = build("algorithm", Choice(name=name), system=system)
        config = configured(training_steps=2)
        trainer = Trainer(config, sampler_of(system, reward=reward), algorithm)
        before = weights_of(trainer)
        trainer.train()
        asked = len(server.requests)

    assert asked >= 2 * 2 * 3
    assert before != weights_of(trainer)
