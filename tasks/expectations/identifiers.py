"""Numbers that identify a person or a machine, by python-stdnum's check digits and ``ipaddress``.

A pattern finds what is written like such a number, and its check digits decide. A national id with
weak check digits is looked for only as it is usually written, with its separators. Every
repetition is bounded, so a long text is searched in linear time.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

# How each id is written, by its module in stdnum; stdnum knows more than these.
NATIONAL_IDS: Mapping[str, str] = MappingProxyType(
    {
        "be.nn": r"\d\d\.\d\d\.\d\d-\d{3}\.\d\d",
        "br.cpf": r"\d{3}\.\d{3}\.\d{3}-\d\d",
        "ca.sin": r"\d{3}-\d{3}-\d{3}",
        "ch.ssn": r"756\.\d{4}\.\d{4}\.\d\d",
        "cl.rut": r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]",
        "cn.ric": r"\d{17}[\dXx]",
        "de.idnr": r"\d\d ?\d{3} ?\d{3} ?\d{3}",
        "dk.cpr": r"\d{6}-\d{4}",
        "es.dni": r"\d{8}-?[A-Za-z]",
        "es.nie": r"[XYZ]-?\d{7}-?[A-Za-z]",
        "fi.hetu": r"\d{6}[-+A-F]\d{3}[0-9A-Z]",
        "fr.nir": r"[12] ?\d\d ?\d\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d\d",
        "gb.nhs": r"\d{3}[ -]\d{3}[ -]\d{4}",
        "in_.aadhaar": r"\d{4}[ -]\d{4}[ -]\d{4}",
        "in_.pan": r"[A-Z]{5}\d{4}[A-Z]",
        "it.codicefiscale": r"[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z]",
        "kr.rrn": r"\d{6}-\d{7}",
        "mx.curp": r"[A-Z]{4}\d{6}[HM][A-Z]{5}[0-9A-Z]\d",
        "no.fodselsnummer": r"\d{6} ?\d{5}",
        "pl.pesel": r"\d{11}",
        "ro.cnp": r"[1-8]\d{12}",
        "se.personnummer": r"(?:\d\d)?\d{6}[-+]\d{4}",
        "tr.tckimlik": r"[1-9]\d{10}",
        "us.ssn": r"\d{3}-\d\d-\d{4}",
        "za.idnr": r"\d{13}",
    }
)

# Neither within a word nor within a longer number.
_BEFORE, _AFTER = r"(?<![\w.])(?<!\d[-,])", r"(?![\w]|[-.,]\d)"
_CARD = re.compile(rf"{_BEFORE}[2-6](?:[ -]?\d){{12,18}}{_AFTER}")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}[A-Z0-9 ]{11,41}")
_IBAN_LENGTHS = range(15, 35)
_IPV4 = re.compile(rf"{_BEFORE}(?:\d{{1,3}}\.){{3}}\d{{1,3}}{_AFTER}")
_IPV6 = re.compile(r"(?<![\w:])[0-9A-Fa-f:]{2,39}(?![\w:])")
_WRITTEN = {
    name: re.compile(rf"{_BEFORE}{written}{_AFTER}") for name, written in NATIONAL_IDS.items()
}


def holds_card_number(text: str) -> bool:
    """True if a number of 13 to 19 digits has the check digit of payment cards (Luhn)."""
    return any(_is_valid("luhn", re.sub(r"[ -]", "", found)) for found in _all(_CARD, text))


def holds_iban(text: str) -> bool:
    """True if the text contains an account number with its country's check digits and length."""
    return any(_begins_with_iban(found) for found in _all(_IBAN, text))


def holds_ip_address(text: str) -> bool:
    """True if the text contains an IP address of the public internet, which 127.0.0.1 is not."""
    found = [*_all(_IPV4, text), *(six for six in _all(_IPV6, text) if six.count(":") > 1)]
    return any(map(_is_public, found))


def holds_national_id(text: str) -> bool:
    """True if the text contains a number that identifies a person, one of ``NATIONAL_IDS``."""
    return any(
        _is_valid(name, found)
        for name, written in _WRITTEN.items()
        for found in _all(written, text)
    )


IDENTIFIERS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "card_number": holds_card_number,
        "iban": holds_iban,
        "ip_address": holds_ip_address,
        "national_id": holds_national_id,
    }
)


def _all(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    return (match.group() for match in pattern.finditer(text))


def _is_valid(module: str, number: str) -> bool:
    return bool(import_module(f"stdnum.{module}").is_valid(number))


def _begins_with_iban(text: str) -> bool:
    """Words in capitals may follow the number, so it may end at each space."""
    words = text.split(" ")
    starts = ("".join(words[:count]) for count in range(1, len(words) + 1))
    return any(len(start) in _IBAN_LENGTHS and _is_valid("iban", start) for start in starts)


def _is_public(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_global
