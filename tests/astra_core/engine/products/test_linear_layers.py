import pytest
import torch
from each_row import each_row
from transformers.pytorch_utils import Conv1D

from astra_core.engine.products.linear_layers import linear_layers, matrix_of, replaced_forwards


class Adapter(torch.nn.Linear):
    pass


def test_linear_layers_are_those_that_only_multiply():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), Adapter(3, 3), Conv1D(4, 3), torch.nn.GELU())

    assert [model[0], model[2]] == linear_layers(model)


@each_row("layer", [torch.nn.Linear(2, 3), Conv1D(3, 2)])
def test_the_matrix_of_a_layer_is_what_its_rows_are_multiplied_by(layer):
    rows = torch.randn(4, 2)

    torch.testing.assert_close(layer(rows), rows @ matrix_of(layer) + layer.bias)


def test_forwards_are_replaced_inside_of_the_body_only():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    rows = torch.randn(3, 2)
    expected = first(rows)

    def fail():
        with replaced_forwards({first: torch.neg}):
            assert torch.equal(-rows, first(rows))
            assert "forward" not in vars(second)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(expected, first(rows))


def test_a_scope_in_another_brings_back_what_it_found():
    layer, rows = torch.nn.Linear(2, 2), torch.randn(3, 2)
    with replaced_forwards({layer: torch.neg}):
        with replaced_forwards({layer: torch.abs}):
            assert torch.equal(rows.abs(), layer(rows))
        assert torch.equal(-rows, layer(rows))
    assert "forward" not in vars(layer)
