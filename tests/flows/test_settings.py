import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_parts.testing import tiny_language_model
from flows.settings import _preset_files, as_if, change_params, changed_params, migrate_params
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[2]


SMALL = """\
seed: 0  # of everything
models:
  reference: null
system:
  target: {name: causal_lm, options: {}}
training:
  lr: 1e-3
  max_grad_norm: 1.0
"""


@pytest.fixture
def params(tmp_path):
    """A small file: to read and write the whole of params.yaml takes a tenth of a second."""
    path = tmp_path / "params.yaml"
    path.write_text(SMALL, "utf-8")
    return path


@pytest.fixture
def whole(tmp_path):
    return Path(shutil.copy(ROOT / "params.yaml", tmp_path))


def test_a_value_changes_and_every_comment_stays(whole):
    before = whole.read_text().splitlines()
    changes = change_params(["training.lr=1e-4"], whole)
    after = whole.read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]

    assert 1e-4 == read_params(whole).training.lr
    assert ["training.lr: "] == [line[:13] for line in changes]
    assert changes[0].endswith("-> 1e-4")
    assert 1 == len(changed)
    assert changed[0][0].partition("#")[2] == changed[0][1].partition("#")[2]


def test_the_comment_above_a_section_stays_when_the_section_before_is_replaced(whole):
    before = whole.read_text("utf-8")
    changes = ["reward={name: terms, options: {terms: {reply: {}}}}", "validation.min_prompts=5"]
    change_params(changes, whole)
    after = whole.read_text("utf-8")

    assert _sections_below_headings(before) == _sections_below_headings(after)
    assert 5 == read_params(whole).validation.min_prompts


def _sections_below_headings(text):
    lines = text.splitlines()
    return [pair for pair in pairwise(lines) if pair[0].startswith("#")]


def test_the_same_value_changes_nothing(params):
    before = params.read_bytes()

    assert [] == change_params(["seed=0"], params)
    assert before == params.read_bytes()


def test_a_section_that_is_null_is_opened(params):
    change_params(["models.reference.source=builtin"], params)

    assert "builtin" == read_params(params).models.reference.source


def test_null_is_written_as_null(params):
    change_params(["prompts.text_column=x", "training.max_grad_norm=null"], params)

    assert "max_grad_norm: null" in params.read_text()
    assert read_params(params).training.max_grad_norm is None


@each_row(
    "text",
    [
        "Say this: {{prompt}}",
        "The goal: {{goal}}. The user: {{prompt}}",
        "Ask #1: say it",
        "Say what #1 says",
        "Begin with it: [now",
        "Say:this",
    ],
)
def test_a_sentence_is_read_as_text_and_quoted_where_yaml_needs_it(params, text):
    params.write_text(SMALL, "utf-8")
    system = "system.target.options.system_prompt"
    assignments = ["system.target.options.format=auto", f"{system}={text}"]
    lines = change_params(assignments, params)

    assert text == read_params(params).system.target.options["system_prompt"]
    assert text in lines[1]
    assert [] == change_params(assignments, params)


def test_another_name_keeps_the_options_that_the_new_plug_in_has_too(params, monkeypatch):
    monkeypatch.chdir(params.parent)
    told = "options: {system_prompt: Be kind., format: template}"
    params.write_text(SMALL.replace("options: {}", told), "utf-8")
    server = ["name=endpoint", "options.base_url=http://127.0.0.1:8000/v1", "options.model=mine"]
    assignments = [f"system.target.{own}" for own in server]
    with as_if(assignments):
        tried = read_params().system.target
    lines = change_params([*assignments, "reward={name: terms, options: {terms: {reply: {}}}}"])
    target = read_params().system.target

    kept = {"system_prompt": "Be kind.", "model": "mine"}
    assert {"base_url": "http://127.0.0.1:8000/v1", **kept} == target.options
    assert target == tried
    assert lines[1] == "system.target.options: without format, not known there"


def test_one_word_before_a_colon_and_braces_stay_a_mapping(params):
    for text in ("name: grpo", "{name: grpo}"):
        change_params(["training.algorithm=" + text], params)
        assert "grpo" == read_params(params).training.algorithm.name


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("training.lrr=1", "training.lrr is not a known key; did you mean 'lr'?"),
        ("training.lr=0", "training.lr: input should be greater than 0, got 0; see 'astra params"),
        ("training.lr", "--set must read section.key=value, got 'training.lr'"),
        ("training..lr=1", "--set must read section.key=value"),
        ("seed.x=1", "seed.x must lead to a value, got one value at 'seed'"),
        ("seed=[1", "value of seed must be plain YAML, got '[1'"),
        ("system.scorer.name=detoxfy", "detoxfy"),
        ("flow.timeouts_s={trainin: 5}", "flow.timeouts_s must name stages, got 'trainin'"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(params, assignment, message):
    before = params.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        change_params(["training.batch_size=3", assignment], params)

    assert message in str(caught.value)
    assert before == params.read_bytes()


def test_without_a_file_the_way_out_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="run from the project's root"):
        change_params([], tmp_path / "params.yaml")


def test_values_for_one_command_leave_the_file_as_it_is(params):
    before = params.read_bytes()
    found = changed_params(["training.lr=0.5"], params, sections=("training",))

    assert 0.5 == found.training.lr
    assert before == params.read_bytes()


def test_a_section_that_the_command_does_not_read_is_refused(params):
    with pytest.raises(ConfigurationError, match="--set must change training here, got prompts"):
        changed_params(["prompts.source=file"], params, sections=("training",))
    with pytest.raises(ConfigurationError, match="trainin is not a known"):
        changed_params(["trainin.lr=1"], params, sections=("training",))


PRESETS = sorted(path.stem for path in (ROOT / "params").glob("*.yaml"))


@pytest.fixture
def with_presets(whole):
    shutil.copytree(ROOT / "params", whole.parent / "params")
    return whole


def test_a_preset_is_laid_over_the_file_and_one_line_says_so(with_presets):
    before = read_params(with_presets)
    (line,) = change_params([], with_presets, preset="curiosity")
    after = read_params(with_presets)

    assert "preset 'curiosity' (params/curiosity.yaml) sets reward" == line
    assert "terms" == after.reward.name
    assert "response_weight" not in after.reward.options
    assert before.training == after.training
    assert "# builtin | file | hub" in with_presets.read_text()


def test_a_preset_that_changes_nothing_says_nothing(with_presets):
    before = with_presets.read_bytes()

    assert [] == change_params([], with_presets, preset="default")
    assert before == with_presets.read_bytes()


def test_a_preset_changes_single_keys_and_values_of_the_command_line_come_after(with_presets):
    own = "training: {lr: 1e-5, early_stopping: {patience: 7}}\nseed: 4\n"
    own += "validation: {max_prompt_score: null}\n"
    (with_presets.parent / "params/mine.yaml").write_text(own)
    lines = change_params(["seed=5"], with_presets, preset="mine")
    found = read_params(with_presets)

    assert (1e-5, 7, 5) == (found.training.lr, found.training.early_stopping.patience, found.seed)
    assert 3 == found.training.epochs_per_experience
    assert found.validation.max_prompt_score is None
    expected = "preset 'mine' (params/mine.yaml) sets training.lr, training.early_stopping, seed"
    expected += ", validation.max_prompt_score"
    assert [expected, "seed: 4 -> 5"] == lines


# What a user must name, of the presets that need it.
OWN = {
    "local_chat": ["models.target.path"],
    "guard": ["system.scorer.options.path"],
    "demo": ["models.attacker.path", "models.target.path"],
}


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    model = tiny_language_model(3)
    model.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    model.tokenizer.save_pretrained(str(folder))
    model.model.save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize("name", PRESETS)
def test_a_shipped_preset_passes_the_checks_once_the_users_own_is_named(
    with_presets, chat_model, name
):
    own = [f"{key}={chat_model}" for key in OWN.get(name, ())]
    change_params(own, with_presets, preset=name)


@pytest.mark.parametrize("name", OWN)
def test_a_preset_says_in_one_line_what_is_still_to_be_named(with_presets, monkeypatch, name):
    monkeypatch.chdir(with_presets.parent)  # after `make demo` this project has my/smollm2
    with pytest.raises(ConfigurationError, match=r"my/(chat-model|guard|smollm2)") as caught:
        change_params([], with_presets, preset=name)

    assert "\n" not in str(caught.value)


def test_a_preset_replaces_all_options_of_a_choice_and_keeps_the_comments_beside_it(with_presets):
    before = with_presets.read_text()
    with_presets.write_text(before.replace("\nreward:", "\nreward:  # mine"), "utf-8")
    change_params([], with_presets, preset="astprompter")

    assert "\nreward:  # mine\n" in with_presets.read_text()
    assert read_params(with_presets).reward.options["joint_weight"] == 0.5
    change_params([], with_presets, preset="default")
    assert "joint_weight" not in read_params(with_presets).reward.options


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("brave", None, "--preset must name a file of the folder params, got 'brave'; known are ["),
        ("../params", None, "--preset must name a file of the folder params"),
        ("list", "[1]", "must hold keys of params.yaml, got list"),
        ("odd", "trainin: {lr: 1}", "trainin is not a known key"),
        ("wrong", "training: {lr: 0}", "training.lr: input should be greater than 0"),
    ],
)
def test_a_preset_that_cannot_be_used_is_one_line_and_nothing_is_written(
    with_presets, name, text, message
):
    if text is not None:
        (with_presets.parent / f"params/{name}.yaml").write_text(text)
    before = with_presets.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        change_params([], with_presets, preset=name)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert before == with_presets.read_bytes()


def test_the_presets_are_those_of_the_folder(with_presets, tmp_path):
    assert PRESETS == sorted(_preset_files(with_presets))
    assert {
        "default",
        "astprompter",
        "curiosity",
        "demo",
        "endpoint",
        "guard",
        "local_chat",
        "untuned",
    } == set(PRESETS)
    mine = tmp_path / "elsewhere/params/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.touch()
    found = _preset_files(tmp_path / "elsewhere/params.yaml")
    assert sorted(["mine", *PRESETS]) == sorted(found)


def test_a_file_of_an_earlier_version_is_rewritten_with_its_comments(params, tmp_path):
    before = SMALL + "promotion:\n  confidence: 0.95  # of the interval\n  horizon: 9  # nights\n"
    params.write_text(before, "utf-8")
    with pytest.raises(ConfigurationError, match=r"promotion\.confidence is a key of an earlier"):
        read_params(params)
    kept = tmp_path / "kept" / "params.yaml"
    lines = migrate_params(params, before=kept)

    assert 1 == len(lines)
    assert 9 == read_params(params).promotion.horizon
    assert "seed: 0  # of everything" in params.read_text("utf-8")
    assert "  horizon: 9  # nights" in params.read_text("utf-8")
    assert before == kept.read_text("utf-8")
    assert [] == migrate_params(params, before=kept)
