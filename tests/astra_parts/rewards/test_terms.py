import math
import statistics
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from each_row import each_row
from tiny_training import assert_same_state, configured, trainer_of, weights_of

from astra_core.config import Choice
from astra_core.errors import ConfigurationError, PluginError
from astra_core.registry import build, find
from astra_core.reward import ALL_SIGNALS
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt
from astra_parts.rewards.score_terms import ProbeScore
from astra_parts.rewards.terms import ConstraintOptions, Multiplier, RunningScale, TermsReward
from astra_parts.testing import check_reward, tiny_graph, tiny_node, tiny_prompts, tiny_system

ROOT = Path(__file__).parents[3]
NODES = (
    tiny_node(0.0, score=0.8, probe_score=0.5, target_logprobs=(-3.0, -5.0), probe_text="so kind"),
    tiny_node(0.0, score=0.1, probe_score=0.9, target_logprobs=(-3.0, -1.0), probe_text="why now"),
    tiny_node(0.0, score=0.5, probe_text="so bad"),
)
GRAPHS = [tiny_graph(*NODES), tiny_graph(NODES[1])]
EVERY = {
    "reply": {},
    "probe_score": {},
    "likelihood": {"options": {"under": "reference", "floor": "relative"}},
    "kl": {},
    "novelty": {},
    "word_novelty": {},
    "embedding_novelty": {},
    "diversity": {},
    "gibberish": {},
    "length": {},
    "goal": {},
}


def options_of(**record):
    return TermsReward.Options.read(record, where="reward options")


def reward_of(**record):
    return TermsReward(options_of(**record))


def rewards(reward, graphs=GRAPHS):
    return [node.reward for graph in reward.assign(graphs) for node in graph.nodes()]


def test_its_default_is_the_default_reward():
    plain, terms = AdversarialReward(AdversarialReward.Options()), reward_of()
    for _ in range(3):
        assert rewards(plain) == pytest.approx(rewards(terms), abs=1e-12)
        plain.remember(plain.assign(GRAPHS))
        terms.remember(terms.assign(GRAPHS))


def test_a_term_counts_as_much_as_its_weight_and_null_is_its_own():
    term = {"weight": None}

    assert [0.8, 0.1, 0.5, 0.1] == rewards(reward_of(terms={"reply": term}))
    assert [1.6, 0.2, 1.0, 0.2] == rewards(reward_of(terms={"reply": {"weight": 2.0}}))


def test_a_label_may_differ_from_the_term_and_one_term_come_twice():
    terms = {"worst": {"name": "reply", "options": {"of": "max"}}, "mean": {"name": "reply"}}
    reward = reward_of(terms=terms)

    assert [1.6, 0.2, 1.0, 0.2] == pytest.approx(rewards(reward))
    assert {"worst", "mean", "worst_value", "mean_value"} == set(reward.remember(GRAPHS))


def test_every_term_is_logged_as_it_counted_and_as_it_is():
    reward = reward_of(terms={"reply": {"weight": 2.0}, "probe_score": {}})
    figures = reward.remember(reward.assign(GRAPHS))

    assert {
        "reply": 0.75,
        "reply_value": 0.375,
        "probe_score": -0.3 * 0.575,
        "probe_score_value": 0.575,
    } == pytest.approx(figures)
    assert figures["reply"] + figures["probe_score"] == pytest.approx(
        sum(rewards(reward)) / len(rewards(reward))
    )


def test_a_normalised_term_counts_deviations_from_the_mean_so_far():
    plain = reward_of(terms={"reply": {}})
    scaled = reward_of(terms={"reply": {"normalise": True, "weight": 2.0}})
    assert rewards(scaled) == pytest.approx([2.0 * value for value in rewards(plain)])
    scaled.remember(scaled.assign(GRAPHS))
    values = rewards(plain)
    mean = sum(values) / 4
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 4)

    assert [2.0 * (value - mean) / deviation for value in values] == pytest.approx(rewards(scaled))


def held(**changes):
    constraint = {"term": "reply", "at_least": 0.9, "initial": 1.0, "step_size": 0.5} | changes
    return reward_of(terms={"reply": {}, "novelty": {"weight": 1.0}}, constraint=constraint)


def test_a_constraint_weights_its_term_by_the_multiplier():
    reward, free = held(), reward_of(terms={"novelty": {"weight": 1.0}})
    novelties = rewards(free)
    scores = [0.8, 0.1, 0.5, 0.1]

    expected = [(new + score) / 2 for new, score in zip(novelties, scores, strict=True)]
    assert expected == pytest.approx(rewards(reward))
    figures = reward.remember(reward.assign(GRAPHS))
    assert (1.0, 0.525) == pytest.approx((figures["multiplier"], figures["shortfall"]))
    assert 1.2625 == pytest.approx(float(reward.state()["multiplier"]))


def test_a_constraint_that_is_met_lets_go_of_its_term():
    reward = held(at_least=-1.0, step_size=10.0)
    reward.remember(reward.assign(GRAPHS))
    free = reward_of(terms={"novelty": {"weight": 1.0}})
    free.remember(free.assign(GRAPHS))

    assert rewards(free) == pytest.approx(rewards(reward))


def test_nodes_carry_the_mean_of_the_novelties():
    both = reward_of(terms={"novelty": {}, "word_novelty": {"options": {"extra_words": ["bad"]}}})
    one = reward_of(terms={"reply": {}})
    text = tiny_graph(tiny_node(0.0, probe_text="so gluzzle", novelty=0.25))

    (given,) = both.assign([text])
    # Five n-grams: "^ so" alone is free of the invented word.
    assert (1.0 + 1 / 5) / 2 == pytest.approx(given.children[0].novelty)
    assert 0.25 == one.assign([text])[0].children[0].novelty


def test_a_failed_turn_earns_nothing_and_is_in_no_figure():
    failed = tiny_node(0.0, tiny_node(0.0, score=0.5), failure="TargetError", score=math.nan)
    reward = reward_of(terms={"reply": {"normalise": True}})
    (graph,) = reward.assign([tiny_graph(failed)])

    assert [0.0, 0.5] == [node.reward for node in graph.nodes()]
    assert 0.5 == reward.remember([graph])["reply"]
    only = tiny_graph(tiny_node(0.0, failure="TargetError"))
    assert {} == reward.remember(reward.assign([only]))


def test_all_terms_together_keep_the_contract():
    terms = {label: own | {"normalise": True} for label, own in EVERY.items()}

    check_reward("terms", terms=terms, constraint={"term": "reply", "at_least": 0.5})


def test_a_copy_for_an_evaluation_learns_nothing_from_the_training():
    system = tiny_system()
    prompts = [Prompt(own.prompt_id, own.text, {"goal": "so bad"}) for own in tiny_prompts(2)]
    reward = reward_of(terms=EVERY)
    reward.prepare(system, prompts)
    copy = deepcopy(reward)
    before = rewards(copy)
    reward.remember(reward.assign(GRAPHS))

    assert before == rewards(copy)
    assert before != rewards(reward)


CHANGES = {"training_steps": 3, "num_episodes_per_experience": 2, "evaluate": "none"}
MEMORIES = ("novelty", "word_novelty", "embedding_novelty")


def resumable():
    terms = {label: {"weight": 1.0, "normalise": True} for label in ("reply", *MEMORIES)}
    terms["likelihood"] = EVERY["likelihood"]
    return reward_of(terms=terms, constraint={"term": "reply", "at_least": 0.9})


def cut_and_resumed(folder):
    cut = trainer_of(configured(**CHANGES), folder, reward=resumable())
    next(report for report in cut.steps() if report.training_step == 2)
    resumed = trainer_of(configured(**CHANGES), folder, reward=resumable())
    resumed.resume()
    return resumed


@pytest.mark.real
def test_a_resumed_run_ends_with_the_same_bytes_and_needs_the_state_of_its_reward(
    tmp_path, monkeypatch
):
    whole = trainer_of(configured(**CHANGES), tmp_path / "whole", reward=resumable())
    expected = [report.row() for report in whole.steps()]
    resumed = cut_and_resumed(tmp_path / "cut")
    done = resumed.progress.step

    assert 0 < done < len(expected)
    assert expected[done:] == [report.row() for report in resumed.steps()]
    assert weights_of(whole) == weights_of(resumed)
    assert_same_state(whole.store.newest(), resumed.store.newest())
    # Otherwise the above could not fail.
    monkeypatch.setattr(TermsReward, "load_state", lambda *_: None)
    resumed = cut_and_resumed(tmp_path / "forgetful")
    resumed.train()

    assert weights_of(whole) != weights_of(resumed)


@each_row(
    ("record", "message"),
    [
        ({"terms": {"replies": {}}}, "unknown term 'replies'"),
        ({"terms": {"reply": {"wait": 1}}}, "terms.reply.wait is not a known key"),
        ({"terms": {"reply": {"options": {"off": "max"}}}}, r"term 'reply' options\.off is not a"),
        ({"terms": {"Reply!": {"name": "reply"}}}, "should match pattern"),
        ({"terms": {}}, "at least 1 item"),
        (
            {"constraint": {"term": "kl", "at_least": 0.5}},
            "constraint.term must be one of the terms, got 'kl'; there are",
        ),
        ({"constraint": {"term": "reply"}}, "constraint.at_least must be given"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_built(record, message):
    with pytest.raises(ConfigurationError, match=message) as refused:
        find("reward", Choice(name="terms", options=record))
    assert "\n" not in str(refused.value)


def test_it_needs_what_its_terms_need_unless_they_count_nothing():
    every = options_of(terms=EVERY)
    without = options_of(terms=EVERY | {"goal": {"weight": 0.0}, "kl": {"weight": 0.0}})

    assert {"reference", "goal"} == TermsReward.needs_with(every)
    assert {"reference"} == TermsReward.needs_with(without)
    assert {"target_logprobs"} == TermsReward.needs_with(options_of())
    assert TermsReward.needs_with(every) < ALL_SIGNALS


class Shy(ProbeScore):
    def values(self, turns):
        return [0.0] * (len(turns) - 3)


class Wild(ProbeScore):
    def values(self, turns):
        return [math.nan for _ in turns]


@each_row(("term", "message"), [(Shy, "1 for 4"), (Wild, "finite numbers")])
def test_a_term_that_gives_something_else_is_named(term, message, monkeypatch):
    reward = reward_of(terms={"probe_score": {}})
    monkeypatch.setattr(reward._parts[0], "term", term(term.Options()))

    with pytest.raises(PluginError, match=message):
        reward.assign(GRAPHS)


def test_a_term_of_ones_own_is_named_by_its_file(tmp_path):
    (tmp_path / "shouting.py").write_text(
        "from astra_parts.rewards.term import Term\n"
        "class Shouting(Term):\n"
        "    def values(self, turns):\n"
        "        return [float(turn.text.isupper()) for turn in turns]\n",
        "utf-8",
    )
    name = f"{tmp_path / 'shouting.py'}:Shouting"
    reward = reward_of(terms={"loud": {"name": name, "weight": 3.0}})

    loud = tiny_graph(tiny_node(0.0, probe_text="WHY"), tiny_node(0.0))
    assert [3.0, 0.0] == rewards(reward, [loud])


def test_values_merged_batch_by_batch_have_the_mean_and_variance_of_all():
    batches = [[1.0, 2.0, 4.0], [], [8.0], [-3.0, 0.5]]
    every = [value for batch in batches for value in batch]
    scale = RunningScale()
    for batch in batches:
        scale.add(batch)

    expected = (3.0 - statistics.fmean(every)) / statistics.pstdev(every)
    assert expected == pytest.approx(scale.standardise(3.0), rel=1e-12)


def test_a_value_is_itself_until_two_are_known():
    scale = RunningScale()
    scale.add([5.0])

    assert 7.0 == scale.standardise(7.0)
    scale.add([7.0])
    assert 1.0 == pytest.approx(scale.standardise(7.0))


def test_a_value_far_away_counts_ten_deviations_and_no_more():
    scale = RunningScale()
    scale.add([1.0, 1.0, 1.0])

    assert [10.0, -10.0, 0.0] == [scale.standardise(value) for value in (2.0, 0.0, 1.0)]


def multiplier(**changes):
    options = {"term": "reply", "at_least": 0.4, "step_size": 0.5, "initial": 1.0, **changes}
    return Multiplier(ConstraintOptions(**options))


def test_it_grows_below_the_level_and_falls_above_it():
    held = multiplier()
    found = []
    for mean in (0.2, 0.2, 0.9):
        held.move(mean)
        found.append(held.weight)

    # Half of 0.2 twice, then half of minus 0.5.
    assert [1.1, 1.2, 0.95] == pytest.approx(found)
    assert 0.3 == pytest.approx(held.shortfall(0.1))


def test_it_stays_between_nothing_and_the_largest():
    for mean, expected in ((5.0, 0.0), (-90.0, 3.0)):
        held = multiplier(largest=3.0)
        held.move(mean)
        assert expected == held.weight


@each_row("change", [{"at_least": 0.9}, {"step_size": 1.0}, {"initial": 2.0}, {"largest": 0.5}])
def test_every_option_moves_it_elsewhere(change):
    held, other = multiplier(), multiplier(**change)
    for each in (held, other):
        each.move(0.2)

    assert held.weight != other.weight


def test_the_presets_rank_probes_as_their_authors_would():
    """A rude probe pays under astprompter, an invented word is not worth a new one elsewhere."""
    rude = tiny_node(0.0, score=0.5, probe_score=0.9, probe_text="you look calm")
    clean = tiny_node(0.0, score=0.5, probe_score=0.0, probe_text="you look calm")
    invented = tiny_node(0.0, score=0.5, probe_score=0.0, probe_text="gluzzle frobbish")
    gains = {}
    for name in ("default", "astprompter", "curiosity"):
        record = yaml.safe_load((ROOT / "params" / f"{name}.yaml").read_text("utf-8"))["reward"]
        check_reward(record["name"], **record.get("options", {}))
        reward = build("reward", Choice.read(record, where="reward"))
        reward.prepare(tiny_system(1), tiny_prompts(2))
        (graph,) = reward.assign([tiny_graph(rude, clean, invented)])
        first, second, third = (node.reward for node in graph.children)
        gains[name] = (first - second, third - second)

    assert gains["default"][0] < 0.0 < gains["astprompter"][0]
    assert gains["curiosity"][0] == pytest.approx(0.0)
    assert gains["curiosity"][1] < gains["default"][1]
