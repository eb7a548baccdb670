"""Prints what a server of the Tinker protocol says of four records, and what we say, as JSON."""

import json
import sys

from astra_core.models.language_model import LanguageModel
from astra_parts.services.records import record_of
from astra_parts.services.service_losses import loss_on_record
from astra_parts.services.tinker_client import TinkerService
from astra_parts.services.training_service import Draw, ServiceLoss

CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
LOSSES = {"importance_sampling": {}, "ppo": CLIPS, "cispo": CLIPS, "cross_entropy": {}}


def main(url, model):
    service = TinkerService(url, base_model=model, rank=8, seed=1)
    local = LanguageModel.load(model)
    context = (*local.encode("you are late"), *local.separator_ids)
    draws = [Draw(context, seed, 8, local.end_ids) for seed in range(4)]
    records = []
    for at, drawn in enumerate(service.draw(draws, None)):
        before, moved = [0.0] * len(context), 0.5 if at % 2 else -0.5
        records.append(
            record_of(
                context + drawn.token_ids,
                [0] * len(context) + [1] * len(drawn.token_ids),
                logprobs=before + [each + moved for each in drawn.logprobs],
                advantages=[1.0 if at < 2 else -1.0],
            )
        )
    service.begin()
    found = {}
    for name, options in LOSSES.items():
        loss = ServiceLoss(name, options)
        data = [service._datum(record, loss) for record in records]
        output = service._training.forward_backward(data, name, options or None).result()
        rows = output.loss_fn_outputs
        theirs = [sum(row["elementwise_loss"].data) for row in rows]
        pairs = zip(records, rows, strict=True)
        ours = [loss_on_record(loss, record, row["logprobs"].data) for record, row in pairs]
        found[name] = (theirs, ours)
    # Its gradients would meet the next model that the server puts in this one's place.
    service._training.optim_step(service._types.AdamParams(learning_rate=0.0)).result()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
