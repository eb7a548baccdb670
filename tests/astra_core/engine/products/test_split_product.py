"""Three products of bf16 are one of fp32, where the processor and torch's library allow it."""

import pytest
import torch
from each_row import each_row

from astra_core.engine.products import split_product
from astra_core.engine.products.split_product import TOLERANCE, Halves, has_split_product, product

pytestmark = pytest.mark.routes

needs_library = pytest.mark.skipif(
    split_product._library_product() is None, reason="torch was built without MKL's product of bf16"
)


def play_processor(monkeypatch, *, has_unit=True, vectors="AVX512"):
    """Torch answers as on a processor with or without a matrix unit."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_unit)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)


@pytest.fixture(autouse=True)
def _asked_anew():
    has_split_product.cache_clear()
    yield
    has_split_product.cache_clear()


def error(found, left, right):
    exact = left.double() @ right.double()
    return float((found - exact).abs().max() / exact.abs().max())


def test_halves_add_up_to_the_number_but_for_its_last_bits():
    numbers = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    high, low = Halves.of(numbers)

    assert {torch.bfloat16} == {high.dtype, low.dtype}
    rest = (numbers.double() - high.double() - low.double()).abs()
    assert float((rest / numbers.abs()).max()) <= 2.0**-17
    # Without the low half eight bits are left.
    assert float(((numbers - high).abs() / numbers.abs()).max()) > 2.0**-10


@each_row("entries", [1, 7, 1 << 18])
@each_row(
    "numbers",
    [
        torch.linspace(-3.0, 5.0, 60).reshape(5, 12),
        torch.linspace(-3.0, 5.0, 60).reshape(5, 12).t(),
        torch.linspace(-3.0, 5.0, 60).reshape(5, 12)[1:4],
        torch.linspace(-3.0, 5.0, 60).reshape(5, 12)[:, ::2],
        torch.linspace(-3.0, 5.0, 60).reshape(5, 12)[:, 3:7].t(),
        torch.linspace(-3.0, 5.0, 6).expand(4, 6),
        torch.linspace(-3.0, 5.0, 6)[:, None].expand(6, 4),
        torch.linspace(-3.0, 5.0, 6)[None],
        torch.empty(0, 5),
        torch.empty(5, 0),
    ],
)
def test_halves_are_the_same_in_any_memory_order_and_however_many_rows_go_at_a_time(
    numbers, entries, monkeypatch
):
    monkeypatch.setattr(split_product, "_ENTRIES_PER_PASS", entries)
    high, low = Halves.of(numbers)

    assert torch.equal(numbers.to(torch.bfloat16), high)
    assert torch.equal((numbers - high.float()).to(torch.bfloat16), low)


@needs_library
@each_row("is_left_turned", [False, True])
@each_row("is_right_turned", [False, True])
@each_row("sizes", [(33, 70, 129), (1, 5, 1), (3, 1, 4), (200, 768, 64)])
def test_product_is_that_of_fp32_in_any_memory_order(is_left_turned, is_right_turned, sizes):
    rows, inner, columns = sizes
    numbers = torch.Generator().manual_seed(2)
    left = torch.randn(rows, inner, generator=numbers)
    right = torch.randn(inner, columns, generator=numbers)
    one = Halves.of(left.t().contiguous()).t() if is_left_turned else Halves.of(left)
    other = Halves.of(right.t().contiguous()).t() if is_right_turned else Halves.of(right)
    found = product(one, other)

    assert torch.float32 == found.dtype
    assert error(found, left, right) < TOLERANCE


@needs_library
def test_every_part_of_the_product_counts():
    left, right = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(3))
    one, other = Halves.of(left), Halves.of(right)
    nothing = torch.zeros_like(one.low)

    # Without a low half it is nearly that of bf16.
    assert error(product(Halves(one.high, nothing), other), left, right) > 20 * TOLERANCE
    assert error(product(one, Halves(other.high, nothing)), left, right) > 20 * TOLERANCE


@needs_library
def test_product_of_sizes_that_do_not_fit_says_so():
    one = Halves.of(torch.randn(3, 4))
    with pytest.raises(ValueError, match="inner sizes must be equal, got 4 and 3"):
        product(one, one)


@needs_library
def test_product_of_other_numbers_says_so():
    one = Halves(torch.zeros(2, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"halves must be bf16 on the CPU, got .*float32"):
        product(one, one)


@needs_library
def test_product_is_fp32_whatever_the_process_makes_by_default():
    left, right = torch.randn(2, 40, 40, generator=torch.Generator().manual_seed(4))
    expected = product(Halves.of(left), Halves.of(right))
    for dtype in (torch.bfloat16, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            assert torch.equal(expected, product(Halves.of(left), Halves.of(right)))
        finally:
            torch.set_default_dtype(torch.float32)


def test_split_products_are_not_used_without_a_matrix_unit(monkeypatch):
    play_processor(monkeypatch, has_unit=False)

    assert not has_split_product()


def test_split_products_are_not_used_where_the_library_lacks_them(monkeypatch):
    play_processor(monkeypatch)
    monkeypatch.setattr(split_product, "_library_product", lambda: None)

    assert not has_split_product()
    with pytest.raises(RuntimeError, match="ask has_split_product first"):
        product(Halves.of(torch.randn(2, 2)), Halves.of(torch.randn(2, 2)))


def test_a_library_that_cannot_be_loaded_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(split_product, "_LIBRARY", tmp_path / "nothing.so")

    assert split_product._library_product.__wrapped__() is None


def test_split_products_are_not_used_where_they_round(monkeypatch):
    play_processor(monkeypatch)
    monkeypatch.setattr(split_product, "_library_product", object)
    monkeypatch.setattr(
        split_product, "product", lambda left, right: (left.high @ right.high).float()
    )

    assert not has_split_product()


def test_split_products_are_used_where_the_numbers_are_right(monkeypatch):
    play_processor(monkeypatch)
    monkeypatch.setattr(split_product, "_library_product", object)
    monkeypatch.setattr(
        split_product, "product", lambda left, right: sum(left).float() @ sum(right).float()
    )

    # The sum of halves in bf16 is the high half again: that rounds, and is refused.
    assert not has_split_product()
    monkeypatch.setattr(
        split_product,
        "product",
        lambda left, right: (left.high.float() + left.low) @ (right.high.float() + right.low),
    )
    has_split_product.cache_clear()

    assert has_split_product()
