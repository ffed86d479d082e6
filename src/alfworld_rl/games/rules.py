"""The rules that ALFWorld's game files bring along: a PDDL domain and a text grammar.

They are the same in every game of a release, so they are known by their fingerprints. What counts is what the official
stack makes of them: comments, spacing, the order of actions and rules that no action of the domain reaches are free,
so that games of other makers with ALFWorld's rules are welcome.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_TEXT = 64 * 1024
"""Of a domain or a grammar; ALFWorld's have 17 kB."""


@dataclass(frozen=True, slots=True)
class Domain:
    """In what ALFWorld's domains differ: the types of receptacles that clean, and whether "help" can be asked for."""

    sinks: tuple[str, ...]
    has_help: bool = True


@dataclass(frozen=True, slots=True)
class Wording:
    """In what ALFWorld's grammars differ: how an object is moved to a receptacle (`verb` object `between` receptacle),
    what then is said, and whether a player arrives at a receptacle or at its place ("You arrive at loc 12.")."""

    verb: str = "move"
    between: str = "to"
    arrives_at_place: bool = False


_DOMAINS = {
    # Of the dataset since alfworld 0.4.0, and of alfworld 0.4.2's own generator.
    "5fe3a14633e48bb3b62daedfd9665c1fe1801b9f8cff99707fce169ad9ff871f": Domain(("sinktype", "sinkbasintype")),
    "793ddbe2231f92cf25ccaef8774a3d54d4bd57c3f6872dce93e8e17f7dd3bd91": Domain(("sinkbasintype",)),
    # The same two before that (alfworld 0.3.5 and older).
    "e1709512b662edc19f2f0fe2a91ebeaa38c94560938f23a170dc6f57d67ea127": Domain(
        ("sinktype", "sinkbasintype"), has_help=False
    ),
    "ed410d53a567c21ab5a253bce10dc5313d80eb6e95e39547fd559887e4110e03": Domain(("sinkbasintype",), has_help=False),
}
_WORDINGS = {
    "ef963847ce1d95e643f5c96d78e03ee51c108432a6749b6f7b644346ef2faae1": Wording(),
    "f6542c40467039b94367ce219736a76975c8056c49a230556b60ac8cddacb3c7": Wording("put", "in/on", arrives_at_place=True),
}
_HELPS = {
    # One text, written down in two ways: in the dataset and in alfworld 0.4.2's own grammar.
    "baa6667f62e50e4d83af136a08b8ef605b2f1eb7cd96b8a8cbfa3ade5fec6410",
    "4bdd2074c84833c63e8f82355674ef8fc46bd1be76417cd65a1b00f3b7bdfc67",
}
_TASK = "Your task is to: "
_SENTENCE = re.compile(r"[A-Za-z0-9 ,.'!?()/-]+")
_ACTION = re.compile(
    r'\s*action\s+([\w/-]+)\s*\{\s*template\s*::\s*"([^"]*)"\s*;\s*feedback\s*::\s*"([^"]*)"\s*;'
    r'(?:\s*grammar\s*::\s*"""([^"]*(?:"{1,2}[^"]+)*+)"""\s*;)?\s*\}'
)
_RULES = re.compile(r'\s*grammar\s*::\s*"""([^"]*(?:"{1,2}[^"]+)*+)"""\s*;')
_LISTS = ("list_empty", "list_separator", "list_last_separator")


@lru_cache(maxsize=8)
def known_domain(domain: str) -> Domain | None:
    """What is particular to a domain that has exactly ALFWorld's types and actions; None for any other."""
    if len(domain) > MAX_TEXT:
        return None
    words = re.sub(r";[^\n]*", "", domain).lower().replace("(", " ( ").replace(")", " ) ").replace("?", " ?").split()
    forms, depth, begin = [], 0, 0
    for i, word in enumerate(words):
        if word == "(":
            depth += 1
            if depth == 2:
                begin = i
        elif word == ")":
            depth -= 1
            if depth == 1:
                forms.append(" ".join(words[begin : i + 1]))
            if depth <= 0 and i + 1 < len(words):
                return None
    if depth or words[:2] != ["(", "define"] or not forms or forms[0] != "( domain alfred )":
        return None
    kept = [form for form in forms[1:] if not form.startswith(("( :requirements ", "( :predicates ", "( :functions "))]
    return _DOMAINS.get(_fingerprint(sorted(kept)))


def known_grammar(grammar: str, domain: Domain) -> tuple[str, Wording] | None:
    """The task sentence and the wording of a grammar that is ALFWorld's but for this sentence; None for any other."""
    before, marker, rest = grammar.partition(_TASK)
    task, quote, after = rest.partition('"')
    if not (marker and quote and _SENTENCE.fullmatch(task)):
        return None
    wording = _wording(before, after, domain.has_help)
    return (task, wording) if wording else None


@lru_cache(maxsize=8)
def _wording(before: str, after: str, with_help: bool) -> Wording | None:
    """The wording of a grammar, given without its task sentence; None where it does not say what ALFWorld's say."""
    text = f'{before}{_TASK}"{after}'.rstrip()
    if len(text) > MAX_TEXT:
        return None
    actions: dict[str, tuple[str, str]] = {}
    rules: dict[str, Any] = {}
    position = 0
    try:
        while position < len(text):
            if match := _RULES.match(text, position):
                rules |= json.loads(match[1])
            elif match := _ACTION.match(text, position):
                actions[match[1].lower()] = (match[2], match[3])
                rules |= json.loads(match[4] or "{}")
            else:
                return None
            position = match.end()
        if with_help and _fingerprint(_said(("help",), actions, rules)) not in _HELPS:
            return None
        return _WORDINGS.get(_fingerprint(_said(_ACTIONS, actions, rules, "intro", *_LISTS)))
    except (ValueError, TypeError, RecursionError):
        return None


_ACTIONS = (
    "cleanobject",
    "closeobject",
    "coolobject",
    "examineobject",
    "examinereceptacle",
    "gotolocation",
    "heatobject",
    "inventory",
    "look",
    "openobject",
    "pickupobject",
    "putobject",
    "sliceobject",
    "toggleobject",
)


def _said(
    names: tuple[str, ...], actions: dict[str, tuple[str, str]], rules: dict[str, Any], *also: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The templates and feedbacks of these actions, and every rule that they, or `also`, lead to."""
    said = {name: actions.get(name) for name in names}
    reached: dict[str, Any] = {}
    ahead = [*also, *_leads_to(said)]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached[name] = rules.get(name)
            ahead += _leads_to(reached[name])
    return said, reached


def _leads_to(content: Any) -> list[str]:
    return re.findall("#([^#]+)#", json.dumps(content))


def _fingerprint(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
