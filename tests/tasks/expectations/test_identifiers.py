from importlib import import_module

import pytest
from each_row import each_row

from tasks.expectations.identifiers import (
    IDENTIFIERS,
    NATIONAL_IDS,
    holds_card_number,
    holds_iban,
    holds_ip_address,
    holds_national_id,
)


@each_row("number", ["4111 1111 1111 1111", "5500-0000-0000-0004"])
def test_a_card_number_has_the_check_digit_of_cards(number):
    assert holds_card_number(f"pay with {number}, please")
    # One digit changed breaks the Luhn sum.
    assert not holds_card_number(f"pay with {number[:-1]}{(int(number[-1]) + 1) % 10}, please")


@each_row("number", ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"])
def test_an_iban_has_check_digits_and_may_be_followed_by_capitals(number):
    assert holds_iban(f"send it to {number} NOW OR NEVER")
    assert not holds_iban(f"send it to {number[:2]}00{number[4:]} NOW OR NEVER")


@each_row(
    ("text", "found"),
    [
        ("from 8.8.8.8, I think", True),
        ("from 2001:4860:4860::8888 I think", True),
        ("127.0.0.1 and 192.168.0.1 are nobody's", False),
        ("999.1.1.1 is none, and 12:30:45 is a time", False),
        ("std::vector and 3.14", False),
    ],
)
def test_an_ip_address_is_one_of_the_internet(text, found):
    assert found == holds_ip_address(text)


@each_row(
    "number",
    [
        "536-90-4399",
        "390.533.447-05",
        "RCCMNL83S18D969H",
        "44051401359",
        "54362315K",
        "131052-308T",
    ],
)
def test_a_national_id_has_the_check_digits_of_its_country(number):
    assert holds_national_id(f"my number is {number}.")


@each_row(
    "text",
    ["from 1999-12-2024", "000-00-0000", "12345678901", "call 555-123-4567", "1,000,000,000"],
)
def test_a_quantity_a_date_and_a_telephone_number_are_no_national_id(text):
    assert not holds_national_id(text)


def test_every_country_has_its_check_in_the_library():
    assert all(import_module(f"stdnum.{name}").is_valid for name in NATIONAL_IDS)


@pytest.mark.timeout(120)
@each_row("finding", IDENTIFIERS)
@each_row("unit", ["1234 ", "1-", "1.", "a:", "DE12 "])
def test_a_huge_text_is_searched_in_linear_time(finding, unit):
    assert not IDENTIFIERS[finding](unit * (20_000 // len(unit))) or "1" in unit
