import json
from collections.abc import Mapping

import pytest
from each_row import each_row
from played_service import PlayedService, adapters_of

from astra_core.config import GenerationConfiguration
from astra_core.errors import AuthorizationError, BudgetError, ConfigurationError, TrainingError
from astra_core.models.folders import POINTER, require_folder
from astra_core.models.language_model import LanguageModel
from astra_parts.services.pointer import (
    ServicePointer,
    bring,
    leave_pointer,
    parameters_digest,
    read_pointer,
    speak_from,
)
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.testing import tiny_language_model

WHERE = {"address": "http://127.0.0.1:1", "base_model": "tiny"}
SHORT = GenerationConfiguration(max_new_tokens=4, min_new_tokens=0)
CONTEXTS, KEYS = [(3, 4)], [[b"1" * 16, b"2" * 16]]


@pytest.fixture
def service(monkeypatch):
    """What every pointer of the trainer remote leads to; its weights are not the base's."""
    service = PlayedService()
    other = tiny_language_model(2).model.state_dict()
    service.published["a/b"] = other
    service.begin()
    service.base.model.load_state_dict(other)
    service.save("state")
    connected = staticmethod(lambda *_, **__: service)
    monkeypatch.setattr(RemoteTrainer, "connected", connected)
    return service


def pointer(model=None, **changes):
    base = parameters_digest(model or tiny_language_model(1))
    own = {"trainer": "remote", "options": WHERE, "path": "a/b", "state": "state", "base": base}
    return ServicePointer(**{**own, **changes})


def said(model):
    found = model.continuations(CONTEXTS, KEYS, SHORT)
    return [each.token_ids for each in found[0].utterances]


def test_the_folder_has_a_pointer_and_no_weights(tmp_path):
    tiny_language_model(1).save(tmp_path)
    leave_pointer(pointer(), tmp_path)

    assert pointer() == read_pointer(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    with pytest.raises(
        ConfigurationError, match=r"must hold weights, got a pointer .*astra export"
    ):
        require_folder(tmp_path)
    with pytest.raises(ConfigurationError, match="pointer"):
        LanguageModel.load(tmp_path)


def test_a_folder_with_weights_has_no_pointer(tmp_path):
    assert read_pointer(tmp_path) is None


@each_row("text", ["{", "[]", '{"trainer": "remote"}'])
def test_a_damaged_pointer_is_reported(text, tmp_path):
    (tmp_path / POINTER).write_text(text)

    with pytest.raises(ConfigurationError, match=POINTER):
        read_pointer(tmp_path)


def test_the_model_speaks_with_the_services_weights_and_nothing_is_asked_twice(service, tmp_path):
    model = tiny_language_model(1)
    untrained = said(model)
    speak_from(pointer(), model, kept=tmp_path / "kept")
    trained = said(model)
    again = tiny_language_model(1)
    speak_from(pointer(), again, kept=tmp_path / "kept")

    assert untrained != trained
    assert trained == said(again)
    assert 2 == service.asked["draw"]


def test_what_a_limit_does_not_cover_is_not_asked_and_what_was_answered_is_kept(service, tmp_path):
    kept, model = tmp_path / "kept", tiny_language_model(1)
    # Two draws of 2 tokens of context and at most 4 more.
    speak_from(pointer(), model, kept=kept, max_tokens=11)
    with pytest.raises(
        BudgetError, match=r"max_service_tokens must cover .* got 11, of which 0 are .* for 12 more"
    ):
        said(model)
    assert 0 == service.asked["draw"]
    speak_from(pointer(), model, kept=kept, max_tokens=12)
    trained = said(model)
    asked = service.asked["draw"]
    with pytest.raises(BudgetError, match="max_service_tokens must cover"):
        model.elsewhere.score(CONTEXTS, [(5, 6)] * len(CONTEXTS))

    speak_from(pointer(), model, kept=kept, max_tokens=1)
    assert trained == said(model)
    assert asked == service.asked["draw"]


def test_weights_that_the_service_has_unloaded_are_published_again(service, tmp_path):
    model = tiny_language_model(1)
    service.unloaded = {"a/b"}
    speak_from(pointer(), model, kept=tmp_path / "kept")

    assert 2 == len(said(model))
    assert 1 == service.asked["publish"]


def test_a_model_with_other_weights_is_refused(service, tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"must have the weights .* that those at the serv"
    ):
        speak_from(pointer(), tiny_language_model(2), kept=tmp_path / "kept")


def test_a_host_that_is_not_authorised_is_not_asked():
    options: Mapping[str, str] = {**WHERE, "address": "https://elsewhere.example"}

    with pytest.raises(AuthorizationError, match="authorization must name the host elsewhere"):
        pointer(options=options).service()


def test_a_service_that_does_not_sample_fails_the_trial(service):
    pointer().try_out(CONTEXTS, max_tokens=4)
    service.unloaded = {"a/b"}
    pointer().try_out(CONTEXTS, max_tokens=4)

    assert 1 == service.asked["publish"]
    service.fails = range(1, 100)
    with pytest.raises(TrainingError, match="busy"):
        pointer().try_out(CONTEXTS, max_tokens=4)


def test_weights_are_brought_where_the_service_gives_them_out(service):
    model = tiny_language_model(1)
    before = parameters_digest(model)
    with pytest.raises(TrainingError, match="must give its weights out"):
        bring(pointer(), model)
    assert before == parameters_digest(model)
    service.archives["a/b"] = adapters_of(model)
    bring(pointer(), model)

    assert before != parameters_digest(model)


def test_the_pointer_says_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", "secret-value")
    leave_pointer(pointer(options={**WHERE, "key_env": "A_KEY"}), tmp_path)

    assert "A_KEY" == json.loads((tmp_path / POINTER).read_text())["options"]["key_env"]
    assert "secret-value" not in (tmp_path / POINTER).read_text()
