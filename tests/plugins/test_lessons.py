import pytest
from each_row import each_row
from tiny_chats import chat_system
from tiny_training import configured, sampler_of, weights_of

from astra_core.conversation import Conversation
from astra_core.errors import DataError
from astra_core.rollout import Prompt
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.algorithms.sft import SFT
from astra_parts.testing import tiny_system
from plugins.lessons import LessonsTrainer, read_lessons

LINES = '{"prompt": "you are", "probe": "so kind"}\n{"prompt": "why", "probe": "no"}\n'


def trainer_of(path, folder=None):
    system = tiny_system(1)
    choice = {"name": "plugins.lessons:LessonsTrainer", "options": {"path": str(path)}}
    return LessonsTrainer(
        configured(trainer=choice, training_steps=4, batch_size=1, lr=0.02),
        sampler_of(system),
        SFT(SFT.Options(), system=system),
        store=CheckpointStore(folder) if folder else None,
    )


@pytest.mark.real
def test_the_attacker_learns_to_say_what_was_written(tmp_path):
    (tmp_path / "lessons.jsonl").write_text(LINES, encoding="utf-8")
    trainer = trainer_of(tmp_path / "lessons.jsonl")
    attacker = trainer.sampler.system.attacker
    context, probe = (
        attacker.closed_ids(attacker.encode("why")),
        attacker.closed_ids(attacker.encode("no")),
    )

    def likelihood():
        return sum(attacker.continuation_logprobs([context], [probe])[0])

    before = likelihood()
    reports = list(trainer.steps())

    assert 4 * 2 == len(reports)
    assert likelihood() > before + 1.0


@pytest.mark.real
def test_a_stopped_run_continues_bit_for_bit(tmp_path):
    (tmp_path / "lessons.jsonl").write_text(LINES, encoding="utf-8")
    whole = trainer_of(tmp_path / "lessons.jsonl")
    whole.train()
    cut = trainer_of(tmp_path / "lessons.jsonl", tmp_path / "checkpoints")
    for report in cut.steps():
        if report.training_step == 3:
            break
    again = trainer_of(tmp_path / "lessons.jsonl", tmp_path / "checkpoints")

    assert again.resume()
    again.train()
    assert weights_of(whole) == weights_of(again)


@each_row("text", ['{"prompt": "so"}', "[", '"so"', None])
def test_what_is_no_lesson_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "lessons.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="must hold lines with prompt and probe"):
        read_lessons(tmp_path / "lessons.jsonl", tiny_system())


def test_a_templated_attacker_reads_and_writes_lessons_by_its_template(tmp_path):
    (tmp_path / "lessons.jsonl").write_text(LINES, encoding="utf-8")
    system = chat_system()
    nodes = [step.node for step in read_lessons(tmp_path / "lessons.jsonl", system)]
    (context,) = system.player(0).contexts([Conversation(Prompt.of("why"))], 400)

    assert context == nodes[1].context
    assert system.attacker.encode("no<|im_end|>") == nodes[1].probe_ids
