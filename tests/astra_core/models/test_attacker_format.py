from dataclasses import replace

import pytest
from each_row import each_row
from tiny_chats import OPENED, PROMPTS, chat_config, chat_model, chat_system, with_settings
from tiny_training import configured

from astra_core.algorithms.dpo import DPO
from astra_core.config import AttackerConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.models.attacker_format import AttackerTemplate, attacker_format
from astra_core.models.chat_format import SeparatorFormat
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_language_model

PROMPT = Prompt.of("they are late", {"goal": "a quarrel", "category": "rude"})
INSTRUCTION = "{category}: {goal} about {prompt}"
TEXTS = "why are you", "no, never", "you said it", "so what"


def said(model, *texts):
    found = Conversation(PROMPT)
    for index, text in enumerate(texts):
        role = "assistant" if index % 2 else "user"
        found = found.say(Message(role, text, (*model.encode(text), 0), model.vocabulary))
    return found


def format_of(model, **settings):
    config = AttackerConfiguration(format="template", **{"instruction": INSTRUCTION, **settings})
    return AttackerTemplate(model, config)


def turns(*texts):
    roles = ("user", "assistant")
    return "".join(f"<|im_start|>{roles[n % 2]}\n{t}<|im_end|>\n" for n, t in enumerate(texts))


TOLD = "rude: a quarrel about they are late"


@each_row("count", [0, 2, 4])
def test_what_the_attacker_says_is_its_own_turn_and_the_target_is_its_user(count):
    model = chat_model()
    own = format_of(model)
    read = own.rendering(said(model, *TEXTS[:count]), 400)
    expected = turns(TOLD, *TEXTS[:count]) + "<|im_start|>assistant\n"

    assert model.encode(expected) == read.token_ids
    assert 0 == read.truncated_tokens


def test_sampled_ids_are_spliced_and_never_encoded_again():
    model = chat_model()
    odd = (*model.encode("no"), *model.encode(" "))
    talk = Conversation(PROMPT).say(
        Message("user", "no", odd, model.vocabulary), Message("assistant", "so")
    )
    read = format_of(model).rendering(talk, 400).token_ids

    assert any(odd == read[at : at + len(odd)] for at in range(len(read)))


def test_every_setting_changes_what_is_read():
    model = chat_model()
    talk = said(model, *TEXTS[:2])
    variants = [
        {},
        {"system_prompt": "be bold"},
        {"instruction": None},
        {"instruction": "{prompt}"},
        {"instruction": "{goal}"},
        {"instruction": "{category}"},
        {"instruction": "{conversation}"},
    ]
    read = {format_of(model, **own).rendering(talk, 400).token_ids for own in variants}
    read.add(attacker_format(model, AttackerConfiguration()).rendering(talk, 400).token_ids)

    assert len(variants) + 1 == len(read)


def test_with_the_conversation_as_a_slot_there_is_one_message():
    model = chat_model()
    read = format_of(model, instruction="{goal}\n{conversation}").rendering(
        said(model, *TEXTS[:2]), 400
    )
    told = "a quarrel\nUser: why are you\nAssistant: no, never"

    assert model.encode(turns(told) + "<|im_start|>assistant\n") == read.token_ids


@each_row("instruction", [INSTRUCTION, "{goal}: {conversation}"])
def test_a_long_conversation_loses_its_oldest_turns_and_keeps_the_instruction(instruction):
    model = chat_model()
    own = format_of(model, instruction=instruction)
    whole, last = (own.rendering(said(model, *t), 400) for t in (TEXTS, TEXTS[2:]))
    cut = own.rendering(said(model, *TEXTS), len(whole.token_ids) - 1)

    assert last.token_ids == cut.token_ids
    assert len(whole.token_ids) - len(last.token_ids) == cut.truncated_tokens
    assert 7 == len(own.rendering(said(model, *TEXTS), 7).token_ids)


def test_auto_takes_the_template_where_there_is_one():
    auto = AttackerConfiguration(format="auto")

    assert isinstance(attacker_format(chat_model(), auto), AttackerTemplate)
    assert isinstance(attacker_format(tiny_language_model(), auto), SeparatorFormat)
    with pytest.raises(ConfigurationError, match=r"system\.attacker\.format must be 'separator'"):
        attacker_format(tiny_language_model(), AttackerConfiguration(format="template"))


def test_a_template_of_ones_own_makes_a_list_to_continue():
    model = tiny_language_model()
    lines = (
        "{% for m in messages %}{{ m.content }}{{ ' so ' * (m.role == 'assistant') }}{% endfor %}"
    )
    told = AttackerConfiguration(format="auto", template=lines, instruction="why {prompt}")
    own = attacker_format(model, told)
    ending = model.encode("so")[0]

    assert model.encode("why they are late") == own.rendering(Conversation(PROMPT), 99).token_ids
    assert ending in model.end_ids
    assert (*model.encode("why"), ending) == own.written_ids("why")
    assert lines == model.tokenizer.chat_template


def test_what_someone_wrote_ends_as_the_template_ends_it():
    model = chat_model()

    assert model.encode("why not<|im_end|>") == format_of(model).written_ids("why not")
    plain = SeparatorFormat(model)
    assert model.closed_ids(model.encode("why not")) == plain.written_ids("why not")


def test_reasoning_is_not_heard_and_an_unfinished_one_is_silence():
    model = chat_model()
    ids = model.encode("<think>well</think>so")
    own, opened = format_of(model), format_of(chat_model(template=OPENED))

    assert ("well", "so", model.encode("so")) == own.thought(ids)
    assert ("", ()) == own.thought(model.encode("<think>well"))[1:]
    assert "well" == own.thought(model.encode("well")).text
    assert ("", ()) == opened.thought(model.encode("well"))[1:]
    other = format_of(model, think_tags=("[", "]"))
    assert other.thought(model.encode("[well]so")).text == "so"


def grown(system, **shape):
    options = {"tree_width": 2, "tree_depth": 3, "num_responses": 2, **shape}
    sampler = sampler_of(system, **options)
    return sampler.roll_out(PROMPTS, iteration=0)


def sampler_of(system, **options):
    return TreeSampler(
        TreeSampler.Options(**options),
        system=system,
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )


def tokens(graphs):
    return [[(n.context_ids, n.probe_ids, n.response_ids) for n in g.nodes()] for g in graphs]


def logprobs(graphs):
    return [
        value
        for graph in graphs
        for node in graph.nodes()
        for own in (node.probe_logprobs, node.target_logprobs, node.reference_logprobs)
        for value in own
    ]


SYSTEMS = {
    "llama": dict,
    "gpt2": lambda: {"kind": "gpt2"},
    "one model": lambda: {"is_same": True},
    "told anew": lambda: {"config": chat_config(attacker={"instruction": "{conversation}?"})},
    "reasoning": lambda: {"template": OPENED},
    "a target by separator": lambda: {"format": "separator"},
    "cut": lambda: {"config": chat_config(max_context_tokens=250)},
}


@pytest.mark.real
@each_row("name", ["one model", "told anew", "cut"])
def test_what_is_remembered_changes_nothing_for_a_templated_attacker(name):
    assert_remembering_changes_nothing(name)


@pytest.mark.real
@each_row("name", ["llama", "gpt2", "reasoning", "a target by separator"])
def test_what_is_remembered_changes_nothing_either_for(name):
    assert_remembering_changes_nothing(name)


def assert_remembering_changes_nothing(name):
    system = chat_system(**SYSTEMS[name]())
    shape = {"num_responses": 1}
    plain, found = (grown(with_settings(system, prefix_cache_mib=mib), **shape) for mib in (0, 64))

    assert tokens(plain) == tokens(found)
    assert logprobs(plain) == pytest.approx(logprobs(found), abs=1e-4)
    nodes = [node for graph in found for node in graph.nodes()]
    read = system.reference.continuation_logprobs(
        [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
    )
    for node, own in zip(nodes, read, strict=True):
        assert pytest.approx(own, abs=1e-4) == node.reference_logprobs
        assert len(node.probe_mask) == len(node.probe_ids)
    if name == "cut":
        assert any(node.truncated_tokens for node in nodes)


@pytest.mark.real
@each_row("kind", ["llama", "gpt2"])
def test_a_packed_tree_has_the_log_probabilities_of_its_rows(kind):
    system = chat_system(kind=kind)
    nodes = [node for graph in grown(system) for node in graph.nodes()]
    model = system.attacker
    assert model.plan.packs_trees
    contexts, probes = ([getattr(n, k) for n in nodes] for k in ("context_ids", "probe_ids"))
    packed = model.continuation_logprobs(contexts, probes)
    abilities = replace(model.plan.abilities, takes_masks=False)
    model.plan = replace(model.plan, abilities=abilities)
    rows = model.continuation_logprobs(contexts, probes)

    for own, other, node in zip(packed, rows, nodes, strict=True):
        assert pytest.approx(other, abs=1e-4) == own
        assert pytest.approx(node.probe_logprobs, abs=1e-4) == own


@pytest.mark.real
@pytest.mark.real
def test_a_templated_attacker_learns_against_a_templated_target():
    system = chat_system()
    before = [weight.detach().clone() for weight in system.attacker.model.parameters()]
    config = configured(training_steps=1, num_episodes_per_experience=2, evaluate="none")
    algorithm = DPO(DPO.Options(margin=0.0), system=system)
    sampler = sampler_of(system, tree_width=3, tree_depth=2, num_responses=1)
    reports = list(Trainer(config, sampler, algorithm).steps())

    assert {1} == {report.training_step for report in reports}
    after = system.attacker.model.parameters()
    assert any((own != other).any() for own, other in zip(before, after, strict=True))


def test_the_default_template_of_a_tokenizer_is_not_read_unless_it_is_asked_for():
    config = chat_config(attacker={"format": "separator"})
    (graph, _) = grown(chat_system(config=config), tree_depth=1)

    assert all(0 == node.context_ids[-1] for node in graph.nodes())
