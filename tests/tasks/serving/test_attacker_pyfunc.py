"""The model beside its weights, without MLflow around it; as it is served: ``test_serving.py``."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from each_row import each_row
from registry_project import write_checkpoint
from tiny_chats import chat_model

from astra_core.config import AttackerConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.models.attacker_format import AttackerTemplate
from astra_core.models.chat_template import dated
from astra_core.rollout import Prompt
from tasks.tracking.store import quiet_pyfunc

CONTEXTS = ["you are a dog .", "why", "what are you"]
TABLE = pd.DataFrame({"context": CONTEXTS})
LIKELIEST = {"temperature": 0.0, "max_new_tokens": 8}


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


@pytest.mark.real
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


@each_row(
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


@each_row("given", [[1], [None], ["a", []], pd.DataFrame({"context": [0.5]})])
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


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    """A chat model of 512 positions, saved as it is registered."""
    folder = tmp_path_factory.mktemp("chat")
    chat_model(4).save(folder)
    return folder


def chat(pyfunc, folder, **changes):
    """The served model of a templated attacker, and how it reads in training."""
    from mlflow.pyfunc.model import PythonModelContext

    told = AttackerConfiguration(
        format="template", **{"instruction": "{goal}: {prompt}", **changes}
    )
    config = {"attacker": told.model_dump(mode="json"), "max_context_tokens": 400}
    own = pyfunc.AttackerModel()
    own.load_context(PythonModelContext({"checkpoint": str(folder)}, config))
    return own, AttackerTemplate(chat_model(4), told)


TALK = {
    "prompt": "you are late",
    "goal": "a quarrel",
    "messages": [
        {"role": "user", "content": "why are you"},
        {"role": "assistant", "content": "no, never"},
    ],
}


@each_row("changes", [{}, {"system_prompt": "be bold"}, {"instruction": "{goal} {conversation}"}])
def test_a_templated_attacker_reads_what_it_read_in_training(pyfunc, chat_folder, changes):
    own, trained = chat(pyfunc, chat_folder, **changes)
    prompt = Prompt.of(TALK["prompt"], {"goal": TALK["goal"]})
    said = [Message(each["role"], each["content"]) for each in TALK["messages"]]
    talk = Conversation(prompt).say(*said)

    for limit in (400, 130):
        own._max_context_tokens = limit
        expected = trained.rendering(talk, limit).token_ids
        assert list(expected) == own._context_ids(json.dumps(TALK), 5)
    plain = trained.rendering(Conversation(Prompt.of("you are late")), 400).token_ids
    assert list(plain) == own._context_ids("you are late", 5)
    assert set(trained.model.end_ids) == set(own._end_ids())


def test_a_templated_attacker_writes_what_the_trained_one_says(pyfunc, chat_folder):
    own, trained = chat(pyfunc, chat_folder)
    (found,) = own.predict(None, pd.DataFrame({"context": [json.dumps(TALK)]}), LIKELIEST)
    ids = torch.tensor([own._context_ids(json.dumps(TALK), 8)])
    model = trained.model
    with torch.inference_mode():
        output = model.model.generate(
            ids, do_sample=False, max_new_tokens=8, min_new_tokens=1, pad_token_id=0
        )

    assert model.decode(output[0, ids.shape[1] :].tolist()) == found


def test_reasoning_is_left_out_of_what_is_served(pyfunc, chat_folder):
    own, trained = chat(pyfunc, chat_folder)
    own._context_ids("why", 5)
    for text in ("<think>well</think>so", "<think>well", "so"):
        ids = trained.model.encode(text)
        assert trained.thought(ids).text == own._text_of(list(ids))


@each_row(
    "said",
    [
        {"messages": []},
        {"prompt": "a", "messages": [{"role": "user", "content": "b"}]},
        {"prompt": "a", "messages": [{"role": "user"}, {"role": "assistant"}]},
        {"prompt": "a", "messages": 3},
    ],
)
def test_a_conversation_that_cannot_be_read_is_refused(pyfunc, chat_folder, said):
    own, _ = chat(pyfunc, chat_folder)
    with pytest.raises(ValueError, match="a conversation must have a prompt and messages"):
        own._context_ids(json.dumps(said), 5)


def test_without_a_template_auto_serves_by_separator(pyfunc, checkpoint):
    from mlflow.pyfunc.model import PythonModelContext

    told = AttackerConfiguration(format="auto").model_dump(mode="json")
    own = pyfunc.AttackerModel()
    own.load_context(PythonModelContext({"checkpoint": checkpoint}, {"attacker": told}))

    assert own._separator_ids() == own._context_ids("why", 5)[-1:]


@each_row("template", ["plain", "{{ strftime_now('%d %b %Y') }}"])
def test_a_template_that_asks_for_the_day_gets_that_of_the_training(pyfunc, template):
    assert dated(template) == pyfunc.dated(template)
