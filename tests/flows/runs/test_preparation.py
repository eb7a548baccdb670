import json
import shutil
import traceback
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from flows.runs.preparation import check_early, params_checked_before, renew_pipeline, usable_params
from tasks.params.schema import Params, read_params
from tasks.params.verdicts import is_known, verdict_key
from tasks.pipeline.order import render

ROOT = Path(__file__).parents[3]


def set_value(old, new):
    """Replaces the first such line of params.yaml."""
    text = Path("params.yaml").read_text("utf-8")
    assert old in text
    Path("params.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")


def test_what_a_plug_in_says_is_in_no_chain_that_prefect_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spoken.py").write_text("raise RuntimeError('you stupid idiot')\n", "utf-8")
    Path("params.yaml").write_text("system: {scorer: {name: 'spoken:Scorer'}}\n", "utf-8")
    with pytest.raises(ConfigurationError, match="scorer 'spoken:Scorer' must be imp") as refused:
        usable_params()

    logged = "".join(traceback.format_exception(refused.value))
    assert "RuntimeError" in logged
    assert "idiot" not in logged
    assert params_checked_before() is None


def test_dvc_yaml_follows_the_files_that_params_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prompts = {"source": "file", "path": "mine.txt"}
    params = Params.model_validate_json(json.dumps({"prompts": prompts}))
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    renew_pipeline(params)

    assert render(params=params) == Path("dvc.yaml").read_text(encoding="utf-8")
    assert "mine.txt" in Path("dvc.yaml").read_text(encoding="utf-8")
    assert "dvc.yaml     rewritten" in capsys.readouterr().out
    renew_pipeline(params)
    assert "" == capsys.readouterr().out


def test_parameters_that_were_found_usable_are_known_until_they_change(
    tmp_path, monkeypatch, restored
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    assert params_checked_before() is None
    checked = usable_params()

    assert checked == params_checked_before()
    set_value("training_steps: 6", "training_steps: 5")
    assert params_checked_before() is None
    set_value("training_steps: 5", "training_steps: 6")
    assert checked == params_checked_before()
    Path(".astra/checked.json").write_text("{", "utf-8")
    assert params_checked_before() is None


def test_an_early_check_spares_the_next_one_and_tells_no_error(tmp_path, monkeypatch, restored):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    check_early()
    assert is_known(verdict_key(read_params()))
    set_value("seed: 0", "seed: 1")
    assert not is_known(verdict_key(read_params()))

    # A plug-in's file would be run twice.
    Path("mine.py").write_text("open('ran', 'w').close()\n", encoding="utf-8")
    own = "system: {scorer: {name: './mine.py:Mine'}}\n"
    Path("params.yaml").write_text(own, encoding="utf-8")
    check_early()
    assert not Path("ran").exists()
    Path("params.yaml").write_text("promotion: {require_confirmation: true}\n", encoding="utf-8")
    check_early()
    with pytest.raises(ConfigurationError, match="require_confirmation must have"):
        usable_params()
