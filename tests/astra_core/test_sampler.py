from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import chain

import pytest
from each_row import each_row

from astra_core.errors import DataError, PluginError, RolloutError
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt, runs_of
from astra_core.sampler import rolled_out, rolled_out_in_pieces
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system


@cache
def shared_system():
    return tiny_system()


def sampler(count, *, seed=0):
    return TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=1),
        system=shared_system(),
        prompts=tiny_prompts(count),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )


@each_row("count", [1, 3, 7, 10])
def test_every_prompt_comes_once_before_any_comes_twice(count):
    own = sampler(7)
    drawn = [prompt for iteration in range(7) for prompt in own.episodes(iteration, count)]

    for start in range(0, len(drawn), 7):
        assert set(own.prompts) == set(drawn[start : start + 7])
    assert {count} == set(Counter(drawn).values())


def test_episodes_are_a_function_of_seed_and_iteration_alone():
    own = sampler(7)

    assert own.episodes(3, 4) == sampler(7).episodes(3, 4)
    assert own.episodes(3, 4) != own.episodes(4, 4)
    assert [own.episodes(i, 4) for i in range(3)] != [
        sampler(7, seed=1).episodes(i, 4) for i in range(3)
    ]


def test_passes_over_the_prompts_differ_in_order():
    own = sampler(7)

    assert own.episodes(0, 7) != own.episodes(1, 7)


def test_a_text_stands_for_the_prompt_that_it_is_of():
    own = TreeSampler(
        TreeSampler.Options(),
        system=shared_system(),
        prompts=["why now"],
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=0,
    )

    assert (Prompt.of("why now"),) == own.prompts


def test_episodes_need_a_prompt():
    with pytest.raises(DataError, match="at least one prompt"):
        sampler(0).episodes(0, 2)


def test_a_prompt_that_is_run_once_is_its_own_run():
    own = sampler(5)

    assert own.episodes(2, 3) == own.runs(2, 3)


def test_each_episode_is_run_as_often_as_asked():
    own = sampler(5)
    own.runs_per_prompt = 3

    assert runs_of(own.episodes(2, 2), 3) == own.runs(2, 2)


def said(graphs):
    return [[node.probe_ids for node in graph.nodes()] for graph in graphs]


def test_runs_of_a_prompt_are_independent_and_the_first_is_that_of_a_single_run():
    own = sampler(2)
    alone = own.roll_out(own.prompts, iteration=1)
    graphs = own.roll_out(runs_of(own.prompts, 3), iteration=1)

    assert [0, 1, 2] * 2 == [graph.run_id for graph in graphs]
    assert said(alone) == said(graphs[::3])
    assert 6 == len({str(turns) for turns in said(graphs)})
    # Whatever else is rolled out beside it.
    (again,) = own.roll_out([replace(own.prompts[1], run_id=2)], iteration=1)
    assert said(graphs[5:]) == said([again])


class Curriculum(TreeSampler):
    """Easy prompts first: those up to a difficulty that grows with the iteration."""

    def episodes(self, iteration, count):
        easy = [p for p in self.prompts if p.metadata.get("difficulty", 0) <= iteration]
        return tuple(easy[place % len(easy)] for place in range(count))


def test_a_sampler_may_choose_prompts_by_their_metadata():
    levels = [2, 0, 1, 0]
    prompts = [
        replace(p, metadata={"difficulty": level})
        for p, level in zip(tiny_prompts(4), levels, strict=True)
    ]
    reward = AdversarialReward(AdversarialReward.Options())
    parts = {"system": shared_system(), "prompts": prompts, "reward": reward, "seed": 0}
    own = Curriculum(Curriculum.Options(tree_width=1, tree_depth=1), **parts)

    assert [0, 0, 0, 0] == [p.metadata["difficulty"] for p in own.episodes(0, 4)]
    assert [0, 1, 0, 0] == [p.metadata["difficulty"] for p in own.episodes(1, 4)]
    assert [2, 0, 1, 0] == [p.metadata["difficulty"] for p in own.episodes(2, 4)]
    graphs = own.roll_out(own.episodes(2, 4), iteration=2)
    assert levels == [graph.prompt.metadata["difficulty"] for graph in graphs]


@each_row(
    ("chosen", "got"),
    [
        (lambda _: (), "tuple without any"),
        (lambda _: None, "None without any"),
        (lambda prompts: [own.text for own in prompts], "Prompts from episodes, got str"),
        (lambda prompts: prompts[9], "must not fail in episodes, got IndexError"),
    ],
)
def test_what_a_sampler_chooses_are_prompts(chosen, got):
    class Choosing(TreeSampler):
        def episodes(self, *_):
            return chosen(self.prompts)

    reward = AdversarialReward(AdversarialReward.Options())
    own = Choosing(system=shared_system(), prompts=tiny_prompts(2), reward=reward, seed=0)
    with pytest.raises(PluginError, match=f"sampler '.*Choosing' .*{got}"):
        own.runs(0, 2)


def test_pieces_are_the_graphs_of_all_prompts_at_once():
    own = sampler(5)
    pieces = list(rolled_out_in_pieces(own, own.prompts, iteration=1, at_once=2))

    assert [2, 2, 1] == [len(piece) for piece in pieces]
    assert said(rolled_out(own, own.prompts, iteration=1)) == said(chain.from_iterable(pieces))
    assert 0.05 == own.max_failed_fraction


FAILED = tiny_node(0.0, failure="no answer")
UNJUDGED = tiny_node(0.0, response_scores=(None,), response_unjudged=("http 401",))


class Failing(TreeSampler):
    """Each prompt is one turn; those of the last prompts are bad."""

    bad = FAILED

    def roll_out(self, prompts, *, iteration):
        del iteration
        graphs = [
            tiny_graph(tiny_node(0.1) if self.prompts.index(p) < 8 else self.bad, prompt=p)
            for p in prompts
        ]
        self.refuse_many_failures(graphs)
        return graphs


@each_row(
    ("bad", "allowed", "error", "said"),
    [
        (FAILED, 0.2, None, ""),
        (FAILED, 0.19, RolloutError, r"2 of 10 turns failed .* first: no answer"),
        (UNJUDGED, 0.2, None, ""),
        (UNJUDGED, 0.19, DataError, r"2 of 10 replies unjudged \(20%\).* first: http 401"),
    ],
)
def test_what_is_lost_is_a_share_of_all_pieces(bad, allowed, error, said):
    config = shared_system().config.model_copy(update={"max_unjudged_fraction": allowed})
    own = Failing(
        Failing.Options(),
        system=replace(shared_system(), config=config),
        prompts=tiny_prompts(10),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=0,
        max_failed_fraction=allowed,
    )
    own.bad = bad
    pieces = rolled_out_in_pieces(own, own.prompts, iteration=0, at_once=2)
    if error is None:
        assert 5 == len(list(pieces))
    else:
        with pytest.raises(error, match=said):
            list(pieces)
