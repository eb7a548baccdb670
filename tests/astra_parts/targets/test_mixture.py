from dataclasses import replace

import pytest

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    SystemConfiguration,
)
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError, TargetError
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Failure, Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import LED_AGAINST, Surroundings, led_against
from astra_core.targets.causal_lm import CausalLM
from astra_parts.targets.mixture import Mixture
from astra_parts.testing import check_target, tiny_language_model, tiny_prompts, tiny_system

HARSH = {"name": "scripted", "label": "harsh", "options": {"otherwise": ["how bad"]}, "weight": 2}
MILD = {"name": "scripted", "label": "mild", "options": {"otherwise": ["so good"]}}
CONFIG = tiny_system().config


def mixture(*targets, config=CONFIG, **more):
    read = SystemConfiguration.model_validate({"target": list(targets)})
    return build("target", read.target, surroundings=Surroundings(config, **more))


class Down(Mixture):
    """A target that can make no call."""

    def respond(self, *_, **__):
        msg = "nobody there"
        raise TargetError(msg)


def asked(target, *names):
    plain = tiny_prompts(len(names))
    prompts = [led_against(own, name) for own, name in zip(plain, names, strict=True)]
    said = [Conversation(own).say(Message("user", "why")) for own in prompts]
    keys = [[derive_key(0, "reply", at)] for at in range(len(names))]
    return target.respond(said, keys, CONFIG.response)


def sampler(target, *, seed=3, prompts=None, **options):
    return TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=1, **options),
        system=tiny_system(target=target),
        prompts=prompts or tiny_prompts(6),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )


def test_a_mixture_of_rules_and_a_model_holds_the_contract_of_a_target(tmp_path):
    tiny_language_model().save(tmp_path / "target")

    check_target(
        mixture(MILD, "causal_lm", config=SystemConfiguration(), folder=tmp_path / "target")
    )


def test_each_conversation_is_answered_by_the_target_that_its_prompt_names():
    answers = asked(mixture(HARSH, MILD), "mild", "harsh", "mild")

    assert ["so good", "how bad", "so good"] == [own.replies[0].text for own in answers]


def test_weights_are_shares_and_part_of_the_digest_as_are_labels():
    even = mixture({**HARSH, "weight": 1}, MILD)
    other = mixture({**HARSH, "label": "rude"}, MILD)

    assert {"harsh": 2 / 3, "mild": 1 / 3} == mixture(HARSH, MILD).weights
    assert 3 == len({mixture(HARSH, MILD).digest(), even.digest(), other.digest()})


def test_a_draw_depends_on_seed_iteration_and_prompt_and_not_on_order_or_number():
    target, prompts = mixture(HARSH, MILD), tiny_prompts(400)

    def drawn(prompts=prompts, *, seed=3, iteration=1):
        found = target.draw(prompts, seed=seed, iteration=iteration)
        return {own.prompt_id: own.metadata[LED_AGAINST] for own in found}

    whole = drawn()
    assert whole == drawn(prompts[::-1])
    assert {**drawn(prompts[:150]), **drawn(prompts[150:])} == whole
    assert whole != drawn(seed=4)
    assert whole != drawn(iteration=2)
    # A share of 2 in 3 of 400: four standard deviations are 38.
    assert sum(name == "harsh" for name in whole.values()) == pytest.approx(267, abs=38)


def test_all_runs_of_a_prompt_and_all_turns_of_a_tree_meet_one_target():
    own = sampler(mixture(HARSH, MILD))
    own.runs_per_prompt = 2
    graphs = own.roll_out(own.runs(0, 6), iteration=0)
    said = [{text for node in graph.nodes() for text in node.response_texts} for graph in graphs]

    assert {1} == {len(texts) for texts in said}
    assert said[::2] == said[1::2]
    assert {"harsh", "mild"} == {graph.prompt.metadata[LED_AGAINST] for graph in graphs}
    assert all(
        ({"how bad"} if graph.prompt.metadata[LED_AGAINST] == "harsh" else {"so good"}) == texts
        for graph, texts in zip(graphs, said, strict=True)
    )


def test_a_tree_is_the_same_alone_as_among_others():
    own = sampler(mixture(HARSH, MILD))
    runs = own.runs(2, 6)

    def told(graphs):
        return [[(own.probe_ids, own.response_texts) for own in graph.nodes()] for graph in graphs]

    apart = [graph for prompt in runs[::-1] for graph in own.roll_out([prompt], iteration=2)]
    assert told(own.roll_out(runs, iteration=2)) == told(apart[::-1])


def test_what_names_no_target_is_drawn_by_its_prompt_and_first_probe():
    target = mixture(HARSH, MILD)

    def answered(texts):
        said = [Conversation(Prompt.of("")).say(Message("user", text)) for text in texts]
        keys = [[derive_key(0, "reply")] for _ in texts]
        found = target.respond(said, keys, CONFIG.response)
        return [own.replies[0].text for own in found]

    texts = [f"request {number}" for number in range(300)]
    assert answered(texts)[::-1] == answered(texts[::-1])
    assert answered(texts).count("how bad") == pytest.approx(200, abs=33)


def test_a_part_that_can_make_no_call_fails_its_own_conversations():
    target = mixture(HARSH, MILD)
    target._parts["mild"] = Down(target.options, surroundings=target.surroundings)

    told, lost = asked(target, "harsh", "mild")
    assert "how bad" == told.replies[0].text
    assert isinstance(lost, Failure)
    assert "mild" in lost.reason
    with pytest.raises(TargetError, match="nobody there"):
        asked(target, "mild")


def test_two_system_prompts_of_one_model_load_its_weights_once(tmp_path):
    tiny_language_model().save(tmp_path / "target")
    own = mixture("causal_lm", {"name": "causal_lm", "label": "b"}, folder=tmp_path / "target")
    parts = list(own._parts.values())

    assert isinstance(parts[0], CausalLM)
    assert parts[0].language_model is parts[1].language_model
    assert own.vocabulary == parts[0].vocabulary
    assert own.can_score
    with own.remembering(1 << 20):
        assert asked(own, "b", "causal_lm") == asked(own, "b", "causal_lm")


def test_local_models_in_a_list_decide_room_precision_threads_and_memory(tmp_path):
    tiny_language_model(2, max_positions=32).save(tmp_path / "target")
    other = {"name": "causal_lm", "label": "other", "options": {"dtype": "bfloat16"}}
    target = mixture(MILD, "causal_lm", other, folder=tmp_path / "target")
    same = mixture("causal_lm", {"name": "causal_lm", "label": "b"}, folder=tmp_path / "target")
    told = {"compile": True, "response": GenerationConfiguration(max_new_tokens=32)}
    config = CONFIG.model_copy(update={"compile": True})
    system = tiny_system(target=target, config=config)

    assert [2, 1] == [len(own.language_models) for own in (target, same)]
    assert all(own.plan.compiles_steps for own in target.language_models)
    last = target.language_models[-1]
    last.plan = replace(last.plan, num_threads=9)
    assert 9 == system.plan.num_threads
    with pytest.raises(ConfigurationError, match=r"system\.response\.max_new_tokens must be below"):
        tiny_system(target=target, config=config.model_copy(update=told))


def test_weights_of_a_list_and_of_the_attacker_are_in_memory_once(tmp_path):
    tiny_language_model().save(tmp_path / "one")
    config = CONFIG.model_copy(
        update={
            "target": SystemConfiguration.model_validate({"target": [MILD, "causal_lm"]}).target
        }
    )
    parts = dict.fromkeys(("attacker", "target", "reference"), tmp_path / "one")
    system = System.load(config, **parts)

    (speaker,) = system.target.language_models
    for model in (system.attacker, system.reference):
        pairs = zip(model.model.parameters(), speaker.model.parameters(), strict=True)
        assert all(own.data_ptr() == its.data_ptr() for own, its in pairs)


def test_an_evaluation_measures_each_target_and_their_weighted_mean():
    system = tiny_system(target=mixture(HARSH, MILD))
    config = EvaluationConfiguration(num_rollouts=2, depth=1, num_resamples=200)
    reward = AdversarialReward(AdversarialReward.Options())
    found = Evaluator(config, prompts=tiny_prompts(3), reward=reward, seed=3).evaluate(system)

    assert 3 == len(found.outcomes)
    assert 6 == len(found.graphs) == len(found.each)
    assert 1.0 == found.intervals["attack_success_rate_harsh"].value
    assert 0.0 == found.intervals["attack_success_rate_mild"].value
    assert 2 / 3 == pytest.approx(found.intervals["attack_success_rate"].value)
    assert [1.0] * 3 == [own.success_rate for own in found.against("harsh")]
    assert [2 / 3] * 3 == pytest.approx([own.success_rate for own in found.outcomes])
    # Each target hears probes of its own, so that what differs is not counted down.
    first, second = found.graphs[0], found.graphs[3]
    assert first.prompt.prompt_id == second.prompt.prompt_id
    assert [own.probe_ids for own in first.children] != [own.probe_ids for own in second.children]


def test_the_first_of_several_is_measured_as_it_would_be_alone():
    config = EvaluationConfiguration(num_rollouts=2, depth=2, num_resamples=200)
    reward = AdversarialReward(AdversarialReward.Options())
    own = Evaluator(config, prompts=tiny_prompts(3), reward=reward, seed=3)
    choice = Choice(name="scripted", options=HARSH["options"])
    alone = build("target", choice, surroundings=Surroundings(CONFIG))

    single = own.evaluate(tiny_system(target=alone)).outcomes
    assert single == own.evaluate(tiny_system(target=mixture(HARSH, MILD))).against("harsh")


def test_figures_are_sums_and_waiting_times_are_told_apart():
    target = mixture(HARSH, MILD)
    told = iter([{"calls": 3.0, "latency_p50_s": 1.0}, {"calls": 4.0, "latency_p50_s": 2.0}])
    for name, part in target._parts.items():
        target._parts[name] = replace_figures(part, next(told))

    assert {"calls": 7.0, "latency_p50_s_harsh": 1.0, "latency_p50_s_mild": 2.0} == target.figures()


def replace_figures(part, figures):
    class Counted(type(part)):
        def figures(self):
            return figures

    return Counted(part.options, surroundings=part.surroundings)


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ([MILD], "at least two, got 1"),
        ([MILD, MILD], "'mild' twice; give one 'label: NAME'"),
        ([MILD, {**HARSH, "weight": 0}], "greater than 0"),
        ([MILD, {**HARSH, "wieght": 1}], "did you mean 'weight'?"),
        ([MILD, {"name": "mixture", "options": {"targets": [MILD, HARSH]}}], "write one list"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_in_one_line(targets, says):
    with pytest.raises(ConfigurationError) as caught:
        mixture(*targets)

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
