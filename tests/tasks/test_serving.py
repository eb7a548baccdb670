"""The registered attacker, loaded as anybody would load it: by its alias, with MLflow alone."""

import json
import subprocess
import sys
import warnings
from collections import Counter

import pandas as pd
import pytest
from each_row import each_row
from registry_project import enter_project, register, write_note, write_project

from tasks.serving.smoke import why_unusable
from tasks.tracking.registry.versions import CANDIDATE, checkpoint_folder
from tasks.tracking.store import connect, quiet_pyfunc

pytestmark = pytest.mark.real  # a stage, or what one serves, on files

CONTEXTS = ["you are a dog .", "why", "what are you"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        enter_project(folder, patch)
        write_project(folder)
        register(system={"max_context_tokens": 16, "probe": {"max_new_tokens": 5}})
    return folder


@pytest.fixture(scope="module")
def model(project):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        client = connect()
        version = client.get_model_version_by_alias("attacker", CANDIDATE)
        with checkpoint_folder(client, version) as folder:
            return quiet_pyfunc().load_model(str(folder.parent.parent))


def test_the_alias_loads_without_this_project_and_without_warnings(project):
    """A fresh process, elsewhere, that knows the store and nothing of our packages."""
    script = (
        "import sys, mlflow\n"
        f"mlflow.set_tracking_uri('sqlite:///{project}/mlflow.db')\n"
        "model = mlflow.pyfunc.load_model('models:/attacker@candidate')\n"
        "print(model.predict(['you are'], params={'seed': 1, 'max_new_tokens': 3}))\n"
        "assert 'tasks' not in sys.modules and 'astra_core' not in sys.modules\n"
    )
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    quiet |= {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(project)} | quiet,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['")
    assert "Warning" not in done.stderr


def test_a_seed_gives_the_same_probes(model):
    first = model.predict(CONTEXTS, params={"seed": 7})

    assert first == model.predict(CONTEXTS, params={"seed": 7})
    assert first != model.predict(CONTEXTS, params={"seed": 8})
    assert [str] * 3 == [type(probe) for probe in first]


def test_a_probe_does_not_depend_on_the_rows_beside_it(model):
    together = model.predict(CONTEXTS, params={"seed": 7})
    alone = [model.predict([text], params={"seed": 7})[0] for text in CONTEXTS]

    assert together == alone


def test_equal_contexts_get_probes_of_their_own(model):
    probes = model.predict(["you are"] * 8, params={"seed": 7})

    assert len(set(probes)) > 1


def test_a_table_is_as_good_as_a_list(model):
    table = pd.DataFrame({"context": CONTEXTS})

    assert model.predict(CONTEXTS, params={"seed": 3}) == model.predict(table, params={"seed": 3})


def test_the_defaults_are_the_sampling_settings_of_the_system(model):
    defaults = {param.name: param.default for param in model.metadata.signature.params.params}

    assert defaults == {
        "max_new_tokens": 5,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 0,
    }
    assert max(len(probe.split()) for probe in model.predict(CONTEXTS)) <= 5


def test_temperature_zero_takes_the_likeliest_token(model):
    params = {"temperature": 0.0, "max_new_tokens": 4}

    cold = [model.predict(["you are"], params=params | {"seed": seed})[0] for seed in range(4)]

    assert len(set(cold)) == 1


def test_top_p_and_top_k_keep_only_the_likeliest(model):
    greedy = model.predict(["you are"], params={"temperature": 0.0, "max_new_tokens": 3})

    assert greedy == model.predict(["you are"], params={"top_p": 1e-6, "max_new_tokens": 3})
    assert greedy == model.predict(["you are"], params={"top_k": 1, "max_new_tokens": 3})


def test_probes_are_drawn_from_the_models_own_distribution(model):
    """The share of each first token over 2000 draws, against the softmax of the model."""
    import torch

    inner = model.unwrap_python_model()
    ids = torch.tensor([inner._context_ids("you are", 1)])
    logits = inner._model(ids).logits[0, -1].clone()
    logits[inner._end_ids()] = -torch.inf  # At least one token before the end.
    expected = logits.softmax(dim=0)

    probes = model.predict(["you are"] * 2000, params={"max_new_tokens": 1})

    counts = Counter(probes)
    for index, share in enumerate(expected.tolist()):
        word = inner._tokenizer.decode([index], skip_special_tokens=True).strip()
        if word and share > 0:
            # Three and a half standard errors of a binomial share over 2000 draws are 0.04 at most.
            assert pytest.approx(share, abs=0.04) == counts[word] / 2000


def test_a_long_context_keeps_its_newest_tokens(model):
    inner = model.unwrap_python_model()

    ids = inner._context_ids("you " * 100 + "dog .", 5)

    assert len(ids) == 16
    assert inner._tokenizer.decode(ids).endswith("you dog . <eos>")


def test_the_context_is_the_one_that_training_saw(model):
    """Conversation and separator as the core's own language model encodes them."""
    from astra_core.models.language_model import LanguageModel

    inner = model.unwrap_python_model()
    core = LanguageModel(inner._model, inner._tokenizer)

    for text in CONTEXTS:
        expected = core.opening_ids + core.closed_ids(core.encode(text))
        assert list(expected) == inner._context_ids(text, 5)
    assert list(core.end_ids) == inner._end_ids()


@each_row("params", [{"temperature": -1.0}, {"top_p": 0.0}, {"max_new_tokens": 0}, {"top_k": -1}])
def test_params_out_of_range_are_refused(model, params):
    with pytest.raises(ValueError, match="params must lie in their ranges, got"):
        model.predict(CONTEXTS, params=params)


def test_no_warning_is_raised_while_it_writes(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(CONTEXTS)


def test_a_caller_may_name_one_of_several_agents(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    write_project(tmp_path)
    agents = {"presser": {"instruction": "you are bad"}}
    note = {"roles": ["opener", "presser"], "agents": agents}
    (tmp_path / "models/attacker/agents.json").write_text(json.dumps(note), "utf-8")
    write_note(tmp_path / "models/attacker")
    register()
    client = connect()
    version = client.get_model_version_by_alias("attacker", CANDIDATE)
    with checkpoint_folder(client, version) as folder:
        model = quiet_pyfunc().load_model(str(folder.parent.parent))
    likeliest = {"temperature": 0.0, "max_new_tokens": 8}
    first, second = (
        model.predict(CONTEXTS, params={"agent": name, **likeliest}) for name in note["roles"]
    )

    assert first == model.predict(CONTEXTS, params=likeliest)
    assert first != second
    assert why_unusable(client, version) is None
