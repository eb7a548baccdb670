"""What a finding is called in catalogues of risks: one table, each row with its source.

A row without words is for every finding: somebody talked the target into what it must not say. One
with words is for findings in whose category a word begins with one of them.
"""

import re
from dataclasses import dataclass

from tasks.findings.archive import ArchivedFinding

_OWASP = "https://genai.owasp.org/llm-top-10/"
_ATLAS = "https://atlas.mitre.org/techniques/"
_HAZARDS = "https://mlcommons.org/ailuminate/methodology/"
_NIST = "https://doi.org/10.6028/NIST.AI.600-1"
_ACT = "https://eur-lex.europa.eu/eli/reg/2024/1689/oj"
_GARAK = "https://github.com/NVIDIA/garak/blob/main/garak/data/tags.misp.tsv"


@dataclass(frozen=True, slots=True)
class RiskTag:
    """One name of one catalogue.

    Attributes:
        tag: Catalogue with its edition, and number.
        name: In the words of the catalogue.
        source: Where it is defined.
        words: A category whose words begin so has the tag; none for every finding.
    """

    tag: str
    name: str
    source: str
    words: tuple[str, ...] = ()


TAGS = (
    RiskTag("owasp-llm-2026:LLM01", "Prompt Injection", _OWASP),
    RiskTag(
        "owasp-llm-2026:LLM02",
        "Sensitive Information Disclosure",
        _OWASP,
        ("privacy", "secret", "leak", "password", "personal"),
    ),
    RiskTag("owasp-llm-2026:LLM03", "Excessive Agency", _OWASP, ("agency", "tool use")),
    RiskTag("owasp-llm-2026:LLM04", "Supply Chain", _OWASP, ("supply chain",)),
    RiskTag("owasp-llm-2026:LLM05", "Data and Model Poisoning", _OWASP, ("poison", "backdoor")),
    RiskTag("owasp-llm-2026:LLM06", "Unbounded Consumption", _OWASP, ("consumption", "overload")),
    RiskTag("owasp-llm-2026:LLM07", "Misinformation", _OWASP, ("misinformation", "fake news")),
    RiskTag("owasp-llm-2026:LLM08", "Hidden Context Exposure", _OWASP, ("system prompt", "secret")),
    RiskTag(
        "owasp-llm-2026:LLM09",
        "Vector and Embedding Weaknesses",
        _OWASP,
        ("embedding", "retrieval"),
    ),
    RiskTag(
        "owasp-llm-2026:LLM10",
        "Improper Output Handling",
        _OWASP,
        ("output handling", "injected code"),
    ),
    RiskTag("mitre-atlas:AML.T0051", "LLM Prompt Injection", f"{_ATLAS}AML.T0051"),
    RiskTag("mitre-atlas:AML.T0054", "LLM Jailbreak", f"{_ATLAS}AML.T0054"),
    RiskTag("ailuminate-1.1:vcr", "Violent Crimes", _HAZARDS, ("violen", "terror")),
    RiskTag("ailuminate-1.1:ncr", "Non-Violent Crimes", _HAZARDS, ("fraud", "cybercrime", "drug")),
    RiskTag("ailuminate-1.1:src", "Sex-Related Crimes", _HAZARDS, ("sex crime", "sexual assault")),
    RiskTag("ailuminate-1.1:cse", "Child Sexual Exploitation", _HAZARDS, ("child sexual", "csam")),
    RiskTag("ailuminate-1.1:iwp", "Indiscriminate Weapons", _HAZARDS, ("weapon", "cbrn")),
    RiskTag("ailuminate-1.1:ssh", "Suicide & Self-Harm", _HAZARDS, ("suicide", "self-harm")),
    RiskTag("ailuminate-1.1:hte", "Hate", _HAZARDS, ("hate", "discriminat")),
    RiskTag("ailuminate-1.1:prv", "Privacy", _HAZARDS, ("privacy", "personal")),
    RiskTag("ailuminate-1.1:dfm", "Defamation", _HAZARDS, ("defam", "libel")),
    RiskTag("ailuminate-1.1:ipv", "Intellectual Property", _HAZARDS, ("copyright", "intellectual")),
    RiskTag("ailuminate-1.1:sxc", "Sexual Content", _HAZARDS, ("sexual content", "porn")),
    RiskTag("ailuminate-1.1:spc", "Specialized Advice", _HAZARDS, ("advice",)),
    RiskTag("garak:quality:Security:PromptStability", "Prompt Stability", _GARAK),
    RiskTag("garak:avid-effect:security:S0403", "Adversarial Example", _GARAK),
    RiskTag("garak:avid-effect:ethics:E0301", "Toxicity", _GARAK, ("tox", "insult", "profan")),
    RiskTag("nist-ai-600-1:2.9", "Information Security", _NIST),
    RiskTag(
        "nist-ai-600-1:2.3",
        "Dangerous, Violent, or Hateful Content",
        _NIST,
        ("violen", "hate", "tox", "insult", "weapon"),
    ),
    RiskTag("eu-ai-act:9", "Risk management system", _ACT),
    RiskTag("eu-ai-act:15", "Accuracy, robustness and cybersecurity", _ACT),
)


def tags_of(finding: ArchivedFinding) -> list[str]:
    """The tags of a finding, in the order of the table."""
    category = finding.category.lower()

    def has(word: str) -> bool:
        return bool(re.search(rf"(?<![^\W\d_]){re.escape(word)}", category))

    return [row.tag for row in TAGS if not row.words or any(map(has, row.words))]
