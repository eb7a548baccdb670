from copy import deepcopy

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_parts.rewards.likelihood_terms import Implausibility, KLToReference
from astra_parts.rewards.term import turns_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system

NODE = tiny_node(0.0, target_logprobs=(-3.0, -5.0, -4.0), reference_logprobs=(-1.0, -2.0, -6.0))


def term(**options):
    return Implausibility(Implausibility.Options(**options))


def value_of(*nodes, **options):
    return term(**options).values(turns_of([tiny_graph(*nodes)]))


@each_row(
    ("options", "expected"),
    [
        ({"nats": 3.0}, 1.0),
        ({"nats": 3.5}, 0.5),
        ({"nats": 4.5}, 0.0),
        ({"under": "reference", "nats": 3.0}, 0.0),
        ({"under": "reference", "nats": 1.0}, 2.0),
    ],
)
def test_only_what_is_less_likely_than_the_floor_counts(options, expected):
    assert [expected] == pytest.approx(value_of(NODE, **options))


def test_a_relative_floor_is_what_the_reference_says_after_the_same_opening():
    system = tiny_system()
    prompts = tiny_prompts(2)
    nodes = [
        tiny_node(0.0, context_ids=(2, 3 + at, 0), reference_logprobs=(-20.0,)) for at in (0, 1)
    ]
    turns = turns_of([tiny_graph(nodes[0]), tiny_graph(nodes[1])])
    found = {}
    for nats in (0.0, 1.5):
        relative = term(under="reference", floor="relative", nats=nats, num_samples=64)
        relative.prepare(system, prompts)
        found[nats] = relative.values(turns)

    # A floor between 0 and 20 nats that differs from prompt to prompt, and moves with the option.
    assert all(0.0 < value < 20.0 for value in found[0.0])
    assert found[0.0][0] != found[0.0][1]
    assert [value - 1.5 for value in found[0.0]] == pytest.approx(found[1.5])


def test_what_the_reference_says_itself_is_plausible_on_average():
    system = tiny_system()
    context = (2, 3, 0)
    keys = [[bytes([at]) * 16 for at in range(200)]]
    (said,) = system.reference.continuations([context], keys, system.config.probe)
    nodes = [
        tiny_node(
            0.0, context_ids=context, probe_ids=own.token_ids, reference_logprobs=own.logprobs
        )
        for own in said.utterances
    ]
    turns = turns_of([tiny_graph(*nodes)])
    relative = term(under="reference", floor="relative", nats=0.0, num_samples=200)
    relative.prepare(system, ())
    absolute = term(under="reference", nats=0.0)
    floor = absolute.values(turns)[0] - relative.values(turns)[0]
    mean = sum(sum(-lp for lp in own.logprobs) for own in said.utterances)
    mean /= sum(len(own.logprobs) for own in said.utterances)

    assert floor == pytest.approx(mean, rel=0.15)


def test_the_floor_of_a_prompt_is_the_same_whatever_else_is_asked():
    system = tiny_system()
    nodes = [
        tiny_node(0.0, context_ids=(2, 3 + at, 0), reference_logprobs=(-20.0,)) for at in (0, 1)
    ]
    options = {"under": "reference", "floor": "relative", "num_samples": 4}
    alone, together, copied = term(**options), term(**options), term(**options)
    for each in (alone, together, copied):
        each.prepare(system, ())
    (first,) = alone.values(turns_of([tiny_graph(nodes[0])]))
    both = together.values(turns_of([tiny_graph(nodes[0]), tiny_graph(nodes[1])]))

    assert first == pytest.approx(both[0], abs=1e-5)
    assert both == deepcopy(copied).values(turns_of([tiny_graph(nodes[0]), tiny_graph(nodes[1])]))


def test_the_number_of_samples_moves_a_relative_floor():
    system = tiny_system()
    found = []
    for count in (1, 16):
        relative = term(under="reference", floor="relative", num_samples=count)
        relative.prepare(system, ())
        found += relative.values(
            turns_of([tiny_graph(tiny_node(0.0, reference_logprobs=(-20.0,)))])
        )

    assert found[0] != found[1]


def test_a_relative_floor_under_the_target_is_refused():
    with pytest.raises(ConfigurationError, match="under the reference for a relative floor"):
        term(floor="relative")


def test_a_relative_floor_without_a_system_says_so():
    with pytest.raises(ConfigurationError, match="must know the system"):
        value_of(NODE, under="reference", floor="relative")


def test_it_needs_what_it_reads():
    options = Implausibility.Options

    assert {"target_logprobs"} == Implausibility.needs_with(options())
    assert {"reference"} == Implausibility.needs_with(options(under="reference"))


def test_the_kl_is_the_log_ratio_of_the_probe():
    node = tiny_node(
        0.0, probe_logprobs=(-1.0, -1.0), reference_logprobs=(-2.0, -1.5), probe_ids=(2, 0)
    )

    assert [1.5] == KLToReference(KLToReference.Options()).values(turns_of([tiny_graph(node)]))
