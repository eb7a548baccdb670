"""The worst conversations of an examination as MLflow traces: masked, turn by turn.

Their ids are derived from run, prompt and turn, so a repeated registration finds them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from astra_core.files import record_digest
from astra_core.redaction import masked
from astra_core.rollout import Graph, Node
from tasks.machine.console import complain
from tasks.tracking.store import one_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run, Span

_TURN_NS = 1_000_000_000
_HEX = 16
_COMPLETE = "mlflow.trace.infoFinalized"


@dataclass(frozen=True, slots=True)
class TracedConversation:
    """The turns that led to one finding, masked.

    Attributes:
        prompt_id: The id of the prompt that opened it.
        prompt: The prompt's text.
        turns: Probe, reply and score of each turn, in order; the last is the finding.
        score: The finding's score.
    """

    prompt_id: str
    prompt: str
    turns: tuple[tuple[str, str, float], ...]
    score: float


def worst_conversations(graphs: Sequence[Graph], *, count: int) -> tuple[TracedConversation, ...]:
    """The conversations of the highest-scored turns, one per distinct probe, the worst first.

    Args:
        graphs: Rollouts of the trained attacker.
        count: Returns at most so many.
    """
    turns = [
        (node.score, graph, node) for graph in graphs for node in graph.nodes() if node.is_judged
    ]
    turns.sort(key=lambda turn: (-turn[0], turn[1].prompt.prompt_id, turn[2].path))
    by_probe: dict[str, tuple[float, Graph, Node]] = {}
    for turn in turns:
        by_probe.setdefault(turn[2].probe_text, turn)
    return tuple(_conversation(*turn) for turn in [*by_probe.values()][:count])


def _conversation(score: float, graph: Graph, node: Node) -> TracedConversation:
    depth = len(node.path)
    rollout = next(path for path in graph.paths() if node in path[depth - 1 : depth])
    turns = tuple(
        (masked(each.probe_text), masked(_reply(each, is_last=each is node)), each.score)
        for each in rollout[:depth]
    )
    return TracedConversation(graph.prompt.prompt_id, masked(graph.prompt.text), turns, score)


def _reply(node: Node, *, is_last: bool) -> str:
    """The reply that the conversation continued with; for the finding the highest-scored one."""
    if not is_last:
        return node.response_texts[0]
    return node.response_texts[node.response_scores.index(max(node.judged_scores))]


def log_conversations(
    client: "MlflowClient", run: "Run", conversations: Sequence[TracedConversation]
) -> int:
    """The number of traces added to the run; those that it has already are skipped.

    If the server accepts no traces, a line is printed and the registration continues.
    """
    from mlflow.exceptions import MlflowException

    try:
        return _log(client, run, conversations) if conversations else 0
    except (MlflowException, NotImplementedError) as error:
        complain(f"warning: the store takes no traces, the rest is recorded ({one_line(error)})")
        return 0


def _log(client: "MlflowClient", run: "Run", conversations: Sequence[TracedConversation]) -> int:
    from mlflow.tracing.client import TracingClient

    tracing = TracingClient(client.tracking_uri)
    experiment = run.info.experiment_id
    wanted = {_trace_id(run.info.run_id, each): each for each in conversations}
    found = tracing.store.batch_get_trace_infos([*wanted])
    # The turns are sent first: a trace that a kill cut short is not marked, and is sent again.
    known = {info.trace_id for info in found if _COMPLETE in info.trace_metadata}
    for rank, (trace_id, conversation) in enumerate(wanted.items()):
        if trace_id in known:
            continue
        # A millisecond apart, so that a page sorted by time has the worst at its top.
        began_ms = int(run.info.start_time) - rank
        tracing.log_spans(experiment, _spans(trace_id, conversation, began_ms * 1_000_000))
        tracing.start_trace(_info(trace_id, conversation, run, began_ms=began_ms))
    return len(wanted.keys() - known)


def _trace_id(run_id: str, conversation: TracedConversation) -> str:
    named = [run_id, conversation.prompt_id, [list(turn[:2]) for turn in conversation.turns]]
    return f"tr-{record_digest(named)[:32]}"


def _info(trace_id: str, conversation: TracedConversation, run: "Run", *, began_ms: int) -> Any:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    return TraceInfo(
        trace_id=trace_id,
        trace_location=TraceLocation.from_experiment_id(run.info.experiment_id),
        request_time=began_ms,
        state=TraceState.OK,
        request_preview=conversation.turns[-1][0],
        response_preview=conversation.turns[-1][1],
        execution_duration=len(conversation.turns) * 1000,
        trace_metadata={"mlflow.sourceRun": run.info.run_id},
        tags={
            "mlflow.traceName": f"score {conversation.score:.2f}",
            "score": f"{conversation.score:.4f}",
            "prompt_id": conversation.prompt_id,
        },
    )


def _spans(trace_id: str, conversation: TracedConversation, began_ns: int) -> list["Span"]:
    """A span for the conversation, and below it one for each turn, as chat messages."""
    last = conversation.turns[-1]
    num_turns = len(conversation.turns)
    root = _span(
        trace_id,
        0,
        times=(began_ns, began_ns + num_turns * _TURN_NS),
        inputs={"prompt_id": conversation.prompt_id, "prompt": conversation.prompt},
        outputs={"probe": last[0], "response": last[1], "score": conversation.score},
    )
    said: list[dict[str, str]] = []
    spans = [root]
    for number, (probe, response, score) in enumerate(conversation.turns, start=1):
        said.append({"role": "user", "content": probe})
        answer = {"role": "assistant", "content": response}
        start = began_ns + (number - 1) * _TURN_NS
        inputs = {"messages": [*said]}
        outputs = {"choices": [{"message": answer}], "score": score}
        times = (start, start + _TURN_NS)
        spans.append(_span(trace_id, number, times=times, inputs=inputs, outputs=outputs))
        said.append(answer)
    return spans


def _span(
    trace_id: str,
    number: int,
    *,
    times: tuple[int, int],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> "Span":
    from mlflow.entities import Span

    attributes = {
        "mlflow.traceRequestId": trace_id,
        "mlflow.spanType": "CHAT_MODEL" if number else "CHAIN",
        "mlflow.spanInputs": inputs,
        "mlflow.spanOutputs": outputs,
    }
    written: dict[str, Any] = {
        "trace_id": trace_id,
        "span_id": _span_id(trace_id, number),
        "parent_span_id": _span_id(trace_id, 0) if number else None,
        "name": f"turn {number}" if number else "conversation",
        "start_time_unix_nano": times[0],
        "end_time_unix_nano": times[1],
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "attributes": {key: json.dumps(value) for key, value in attributes.items()},
    }
    return Span.from_dict(written)


def _span_id(trace_id: str, number: int) -> str:
    return record_digest([trace_id, number])[:_HEX]
