"""The model beside its weights, without MLflow around it; as it is served: ``test_serving.py``."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from registry_project import write_checkpoint

from tasks.tracking.store import quiet_pyfunc

CONTEXTS = ["you are a dog .", "why", "what are you"]
TABLE = pd.DataFrame({"context": CONTEXTS})


@pytest.fixture(scope="module")
def pyfunc():
    """The module; its import warns about type hints of MLflow's own."""
    quiet_pyfunc()
    from tasks.serving import attacker_pyfunc

    return attacker_pyfunc


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(write_checkpoint(tmp_path_factory.mktemp("attacker")))


@pytest.fixture
def loaded(pyfunc, checkpoint):
    """A model by its configuration."""
    from mlflow.pyfunc.model import PythonModelContext

    def load(**config):
        own = pyfunc.AttackerModel()
        own.load_context(PythonModelContext({"checkpoint": checkpoint}, config or None))
        return own

    return load


def test_without_a_configuration_a_model_writes_with_defaults(loaded):
    own = loaded()
    probes = own.predict(None, TABLE)

    assert own.predict(None, TABLE, {"temperature": 1.0}) == probes
    assert own.predict(None, TABLE, {"seed": 1}) != probes
    assert all(len(probe.split()) <= 24 for probe in probes)


def test_a_parameter_that_is_none_is_not_given(loaded):
    own = loaded(max_new_tokens=3)

    assert own._options({"max_new_tokens": None}) == own._options({})
    assert 3 == own._options({})["max_new_tokens"]


def test_a_separator_of_its_own_stands_between_turns_and_ends_a_probe(loaded):
    plain, own = loaded(), loaded(separator=".")
    end, dot = plain._separator_ids(), own._separator_ids()

    assert [0] == end
    assert 1 == len(dot) != end
    assert plain._context_ids("you are", 5)[-1:] == end
    assert own._context_ids("you are", 5)[-1:] == dot
    # A context that ends with the separator already has no second one.
    assert own._context_ids("you are .", 5) == own._context_ids("you are", 5)
    assert sorted({*end, *dot}) == own._end_ids()


def test_a_separator_of_several_tokens_ends_no_probe_by_one_of_them(loaded):
    own = loaded(separator="why you")

    assert 2 == len(own._separator_ids())
    assert [0] == own._end_ids()


def test_a_tokenizer_that_opens_texts_opens_contexts(loaded):
    from tokenizers.processors import TemplateProcessing

    own = loaded()
    assert [] == own._opening_ids()
    tokenizer = own._tokenizer
    tokenizer.add_special_tokens({"bos_token": "you"})
    assert [] == own._opening_ids()
    opening = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="you $A", special_tokens=[("you", opening)]
    )

    assert [opening] == own._opening_ids()
    assert opening == own._context_ids("are", 5)[0]


def test_what_cuts_all_but_the_likeliest_token_writes_it(loaded):
    own, context = loaded(max_new_tokens=6), pd.DataFrame({"context": ["you are"]})
    greedy = own.predict(None, context, {"temperature": 0.0})

    for params in ({"min_p": 1.0}, {"top_k": 1}, {"top_p": 1e-6}):
        assert greedy == own.predict(None, context, params)


def test_a_high_price_of_repetition_leaves_no_word_twice(loaded):
    params = {"temperature": 0.0, "repetition_penalty": 1e6}
    (probe,) = loaded(max_new_tokens=6).predict(None, pd.DataFrame({"context": ["."]}), params)

    words = probe.split()
    assert words
    assert len(words) == len(set(words))


@pytest.mark.parametrize("params", [{"min_p": 1.5}, {"min_p": -0.1}, {"repetition_penalty": 0.0}])
def test_params_out_of_range_are_refused(loaded, params):
    with pytest.raises(ValueError, match="params must lie in their ranges, got"):
        loaded().predict(None, TABLE, params)


def test_more_rows_than_a_batch_are_written_in_order(loaded):
    own = loaded(max_new_tokens=3)
    texts = [f"{CONTEXTS[i % 3]} {'dog ' * (i // 3)}" for i in range(70)]
    probes = own.predict(None, pd.DataFrame({"context": texts}))

    assert 70 == len(probes)
    assert probes[40] == own.predict(None, pd.DataFrame({"context": texts[40:41]}))[0]


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"context": ["a", "b"], "other": [1, 2]}),
        pd.DataFrame({"only": ["a", "b"]}),
        pd.Series(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        ["a", "b"],
        [["a"], ["b"]],
    ],
)
def test_texts_come_in_any_of_the_forms_that_servers_send(pyfunc, given):
    assert ["a", "b"] == pyfunc._texts(given)


def test_a_text_alone_is_one_context(pyfunc):
    assert ["a b"] == pyfunc._texts("a b")


@pytest.mark.parametrize("given", [[1], [None], ["a", []], pd.DataFrame({"context": [0.5]})])
def test_what_is_no_text_is_refused(pyfunc, given):
    with pytest.raises(ValueError, match="contexts must be texts, got"):
        pyfunc._texts(given)


def test_a_row_has_a_seed_by_its_text_and_how_often_it_came_before(pyfunc):
    seeds = pyfunc._row_seeds(["a", "b", "a"], 7)

    assert 3 == len(set(seeds))
    assert seeds[1:] == pyfunc._row_seeds(["b", "a", "a"], 7)[::2]
    assert seeds[0] != pyfunc._row_seeds(["a"], 8)[0]
    # What torch takes as a seed.
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_draw_is_the_token_in_whose_share_the_number_falls(pyfunc):
    shares = torch.tensor([[0.25, 0.0, 0.5, 0.25], [0.0, 0.0, 0.0, 1.0]])
    draw, counts = pyfunc._Draw([1, 2]), torch.zeros(2, 4)
    for _ in range(400):
        counts += draw(None, shares.log()).exp()

    assert 0.0 == counts[0, 1]
    assert [0.0, 0.0, 0.0, 400.0] == counts[1].tolist()
    # Four standard errors of a share of one half over 400 draws are 0.1.
    torch.testing.assert_close(shares[0], counts[0] / 400, atol=0.1, rtol=0.0)


def test_rows_draw_from_generators_of_their_own(pyfunc):
    flat = torch.zeros(1, 1000)
    alone = pyfunc._Draw([5])(None, flat)
    beside = pyfunc._Draw([4, 5])(None, flat.expand(2, -1))

    assert torch.equal(alone[0], beside[1])
    assert not torch.equal(beside[0], beside[1])


def test_each_agent_speaks_with_its_own_weights_and_instruction(pyfunc, tmp_path):
    from mlflow.pyfunc.model import PythonModelContext

    folder = write_checkpoint(tmp_path / "several")
    write_checkpoint(folder / "agents" / "presser", seed=5)
    agents = {"presser": {"model": "own"}, "closer": {"instruction": "you are bad"}}
    note = {"roles": ["opener", "presser", "closer"], "agents": agents}
    (folder / "agents.json").write_text(json.dumps(note), "utf-8")
    own = pyfunc.AttackerModel()
    own.load_context(PythonModelContext({"checkpoint": str(folder)}, None))
    likeliest = {"temperature": 0.0, "max_new_tokens": 8}
    probes = {n: own.predict(None, TABLE, {"agent": n, **likeliest}) for n in note["roles"]}

    assert 3 == len({tuple(found) for found in probes.values()})
    assert probes["opener"] == own.predict(None, TABLE, likeliest)
    end = own._separator_ids()
    told = own._tokenizer("you are bad")["input_ids"] + end
    plain = own._context_ids("why", 5, "opener")
    assert told + plain == own._context_ids("why", 5, "closer")
    # A long conversation is cut behind the instruction.
    cut = own._context_ids("dog " * 100, 5, "closer")
    assert (64 - 5, told) == (len(cut), cut[: len(told)])
    with pytest.raises(ValueError, match="agent='nobody'"):
        own.predict(None, TABLE, {"agent": "nobody"})
