from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.reading import CachedReading
from astra_core.engine.steps.stepper import Stepper, round_up
from astra_parts.testing import tiny_language_model


@each_row(("count", "rounded"), [(1, 1), (2, 2), (3, 3), (5, 6), (6, 6), (7, 8), (200, 256)])
def test_numbers_of_rows_are_few(count, rounded):
    assert rounded == round_up(count)


def test_a_step_that_cannot_be_recorded_is_told_and_runs_as_written(logged):
    model = tiny_language_model(0).model
    values = CachedReading(model, [[1, 2]], [0], room=0).values
    stepper = Stepper(model, captures=True)
    generation = GenerationConfiguration(max_new_tokens=4)
    for rows in (1, 2):
        step = stepper.step(values, generation, num_rows=rows, num_slots=8, rules=((0,), (), None))
        step.advance()

    assert 1 == len([own for own in logged if "cannot be recorded" in own])


def test_a_step_is_kept_until_the_memory_under_it_grows():
    model = tiny_language_model(0).model
    values = CachedReading(model, [[1, 2]], [0], room=0).values
    stepper = Stepper(model, captures=False)

    def step(rows, slots, **options):
        generation = GenerationConfiguration(max_new_tokens=4, **options)
        return stepper.step(
            values, generation, num_rows=rows, num_slots=slots, rules=((0,), (), None)
        )

    first = step(7, 100)
    assert first is step(8, 128)
    assert first is not step(8, 128, top_k=3)
    assert first is not step(4, 40)
    assert first is step(8, 128)
    step(16, 128)
    assert first is not step(8, 128)
