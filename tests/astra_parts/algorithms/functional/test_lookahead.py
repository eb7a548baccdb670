import pytest
import torch
from each_row import each_row

from astra_parts.algorithms.functional.lookahead import lookahead_gradient


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def gradient(losses, x, y, lr):
    pieces = {name: [own] if callable(own) else own for name, own in losses.items()}
    weights = {"leader": {"x": x}, "follower": {"y": y}}
    return lookahead_gradient(pieces, weights, leader="leader", lr=lr)["x"]


def x_of(weights):
    return weights["leader"]["x"]


def y_of(weights):
    return weights["follower"]["y"]


@each_row("lr", [0.0, 0.1, 0.5, 1.0])
def test_in_a_quadratic_game_it_is_the_gradient_that_algebra_gives(lr):
    # F = (y - a x)^2 / 2 has the step y' = y - lr (y - a x); L = (x - 1)^2 / 2 + b x y.
    a, b = 3.0, 0.7
    x, y = leaf(0.4), leaf(-0.2)
    losses = {
        "leader": lambda w: 0.5 * (x_of(w) - 1).pow(2).sum() + b * (y_of(w) * x_of(w)).sum(),
        "follower": lambda w: 0.5 * (y_of(w) - a * x_of(w)).pow(2).sum(),
    }
    moved = -0.2 - lr * (-0.2 - a * 0.4)
    expected = (0.4 - 1) + b * moved + b * 0.4 * lr * a

    assert expected == pytest.approx(float(gradient(losses, x, y, lr)))


def test_with_a_step_of_one_newton_step_it_is_stackelbergs_gradient():
    # F = y^2 / 2 - x y: its best response y*(x) = x is one step of size 1 from anywhere, so the
    # leader's gradient is that of L(x, y*(x)) = (x + y*)^2 - y* = 4 x^2 - x, which is 8 x - 1.
    losses = {
        "leader": lambda w: ((x_of(w) + y_of(w)).pow(2) - y_of(w)).sum(),
        "follower": lambda w: (0.5 * y_of(w).pow(2) - x_of(w) * y_of(w)).sum(),
    }

    for start in (-2.0, 0.3):
        assert 8 * 0.25 - 1 == pytest.approx(float(gradient(losses, leaf(0.25), leaf(start), 1.0)))


def test_a_weight_that_a_loss_does_not_use_has_no_part_in_it():
    x, y = leaf(0.25), leaf(0.3)
    losses = {
        "leader": [lambda w: (x_of(w) + y_of(w)).pow(2).sum()],
        "follower": [lambda w: (0.5 * y_of(w).pow(2) - x_of(w) * y_of(w)).sum()],
    }
    weights = {"leader": {"x": x, "idle": leaf(1.0, 2.0)}, "follower": {"y": y, "idle": leaf(3.0)}}
    found = lookahead_gradient(losses, weights, leader="leader", lr=1.0)

    # The follower answers with y' = x, so the leader's loss is 4 x^2.
    assert 8 * 0.25 == pytest.approx(float(found["x"]))
    assert [0.0, 0.0] == found["idle"].tolist()


# Rows: the leader's action; columns: the follower's. Payoffs of a game in which committing pays.
LEADER = torch.tensor([[2.0, 4.0], [1.0, 3.0]], dtype=torch.float64)
FOLLOWER = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)


def bimatrix(payoffs):
    def loss(weights):
        p, q = torch.sigmoid(x_of(weights)), torch.sigmoid(y_of(weights))
        mine, theirs = torch.cat([p, 1 - p]), torch.cat([q, 1 - q])
        return -(mine @ payoffs @ theirs)

    return loss


BIMATRIX = {"leader": bimatrix(LEADER), "follower": bimatrix(FOLLOWER)}


@each_row("lr", [0.05, 2.0])
def test_in_a_bimatrix_game_it_is_the_derivative_by_finite_differences(lr):
    y0, x0, step = 0.3, -0.4, 1e-6

    def foreseen(x):
        y = leaf(y0)
        weights = {"leader": {"x": torch.tensor([x], dtype=torch.float64)}, "follower": {"y": y}}
        (slope,) = torch.autograd.grad(BIMATRIX["follower"](weights), y)
        weights["follower"] = {"y": y.detach() - lr * slope}
        return BIMATRIX["leader"](weights).item()

    expected = (foreseen(x0 + step) - foreseen(x0 - step)) / (2 * step)

    assert expected == pytest.approx(float(gradient(BIMATRIX, leaf(x0), leaf(y0), lr)), rel=1e-6)


def test_a_leader_that_foresees_commits_where_one_that_does_not_falls_into_the_trap():
    # Row 1 dominates; the follower then plays column 1 and the leader gets 2. Committed to row 2,
    # it meets column 2 and gets 3.
    def played(lr):
        x, y = leaf(0.0), leaf(0.0)
        for _ in range(400):
            slope = gradient(BIMATRIX, x, y, lr)
            x = (x.detach() - 0.5 * slope).requires_grad_()
            weights = {"leader": {"x": x}, "follower": {"y": y}}
            (inner,) = torch.autograd.grad(BIMATRIX["follower"](weights), y)
            y = (y.detach() - 2.0 * inner).requires_grad_()
        return -BIMATRIX["leader"]({"leader": {"x": x}, "follower": {"y": y}}).item()

    assert 2.0 == pytest.approx(played(0.0), abs=0.1)
    assert played(8.0) > 2.5


def test_pieces_add_up_and_a_step_of_nothing_is_the_leaders_own_gradient():
    torch.manual_seed(0)
    data = torch.randn(12, 4, dtype=torch.float64)
    x, y = leaf(*data[0].tolist()), leaf(*data[1].tolist())

    def part(rows, sign):
        return lambda w: sign * torch.tanh(rows @ (x_of(w) * y_of(w))).pow(2).sum()

    def halves(count):
        rows = data[2:].split(count)
        return {
            "leader": [part(own, 1.0) for own in rows],
            "follower": [part(own, -0.5) for own in rows],
        }

    whole = gradient(halves(10), x, y, 0.3)
    for count in (1, 3):
        torch.testing.assert_close(whole, gradient(halves(count), x, y, 0.3))
    weights = {"leader": {"x": x}, "follower": {"y": y}}
    (own,) = torch.autograd.grad(halves(10)["leader"][0](weights), x)
    torch.testing.assert_close(own, gradient(halves(10), x, y, 0.0))


def test_a_follower_that_the_leader_does_not_sway_adds_only_where_it_moves_to():
    x, y = leaf(0.5), leaf(2.0)
    losses = {"leader": lambda w: (x_of(w) * y_of(w)).sum(), "follower": lambda w: y_of(w).sum()}

    assert 2.0 - 0.1 == pytest.approx(float(gradient(losses, x, y, 0.1)))
