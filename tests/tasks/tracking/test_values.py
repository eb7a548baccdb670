import math
from hashlib import sha256

import numpy as np
from each_row import each_row

from tasks.params.schema import Params
from tasks.tracking.values import MAX_TAG, MAX_VALUE, clean_key, cut, finite_numbers, flatten


def test_finite_keeps_the_numbers_that_a_chart_can_show():
    metrics = {
        "a/int": 2,
        "a/bool": True,
        "a/numpy": np.float32(0.5),
        "a/spelled": "0.25",
        "a/nan": math.nan,
        "a/inf": -math.inf,
        "a/none": None,
        "a/text": "no number",
        "a/list": [1.0],
    }

    assert {"a/int": 2.0, "a/bool": 1.0, "a/numpy": 0.5, "a/spelled": 0.25} == finite_numbers(
        metrics
    )


def test_finite_cleans_the_names():
    assert {"train/a_b_": 1.0} == finite_numbers({"train/a(b)": 1.0})


def test_flatten_names_every_value_by_its_path():
    params = {"seed": 0, "training": {"algorithm": {"name": "dpo"}, "lr": 1e-3}, 7: [1, "two"]}

    assert {
        "seed": "0",
        "training.algorithm.name": "dpo",
        "training.lr": "0.001",
        "7": '[1, "two"]',
    } == dict(flatten(params))


@each_row(("value", "text"), [({}, "{}"), ([], "[]"), (None, "null"), (True, "true"), ("", "")])
def test_flatten_leaves_no_value_out(value, text):
    assert [("a.b", text)] == list(flatten({"a": {"b": value}}))


def test_flatten_of_nothing_is_nothing():
    assert [] == list(flatten({}))


def test_flatten_reads_sections_as_params_yaml_has_them():
    flat = dict(flatten(Params()))

    assert flat == dict(flatten(Params().model_dump(mode="json")))
    assert "dpo" == flat["training.algorithm.name"]


def test_flatten_spells_what_json_cannot_hold():
    assert [("path", "{1, 2}")] == [
        (name, text.strip('"')) for name, text in flatten({"path": {1, 2}})
    ]


def test_cut_leaves_what_fits():
    assert "a" * MAX_VALUE == cut("a" * MAX_VALUE, MAX_VALUE)


@each_row("limit", [MAX_VALUE, MAX_TAG])
def test_cut_keeps_different_texts_different(limit):
    some, other = (cut("a" * limit + end, limit) for end in "xy")

    assert limit == len(some) == len(other)
    assert some != other
    assert some.endswith(sha256(("a" * limit + "x").encode()).hexdigest())
    assert some.startswith("a" * (limit - 100))


def test_clean_key_leaves_what_the_store_takes():
    from mlflow.utils.validation import _validate_metric_name

    allowed = "train/loss-mean 1.2:a_b"
    cleaned = clean_key("größe/50%(p95)\n" + "x" * 400)

    assert allowed == clean_key(allowed)
    assert "gr__e/50__p95__" + "x" * 235 == cleaned
    _validate_metric_name(cleaned)
