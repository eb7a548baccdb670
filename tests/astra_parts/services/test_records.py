import json
from pathlib import Path

from each_row import each_row

from astra_parts.services.records import record_of

CASES = json.loads(
    (Path(__file__).parents[2] / "vectors" / "nexrl_datums.json").read_text("utf-8")
)["cases"]


@each_row("case", CASES)
def test_records_are_those_of_the_vectors(case):
    own = case["trajectory"]
    advantages = own["tok"] if "tok" in own else [own["adv"]]
    # Of the second case they are shifted already.
    logprobs = [0.0] * (len(own["tokens"]) - len(own["lp"])) + own["lp"]
    found = record_of(own["tokens"], own["lm"], logprobs=logprobs, advantages=advantages)
    expected = case.get("expected_datums", case.get("peer_output"))
    if not expected:
        assert found is None
        return
    (wanted,) = expected
    inputs = wanted["loss_fn_inputs"]

    assert wanted["input_tokens"] == list(found.inputs)
    assert inputs["target_tokens"] == list(found.targets)
    assert inputs["logprobs"] == list(found.logprobs)
    assert inputs["loss_mask"] == list(found.mask)
    if "peer_output" in case:
        # Theirs gives the first trained token's advantage to the second.
        assert [0.25, 0.0, 0.125] == list(found.advantages)
    else:
        assert inputs["advantages"] == list(found.advantages)
