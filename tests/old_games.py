"""Games as alfworld 0.2.2 to 0.3.5 shipped them, made from those of 0.4: another grammar and an older domain."""

import re
from typing import Any

#: What the texts of alfworld 0.3.5, alfred.pddl and alfred.twl2, hash to (sha256).
DOMAIN_HASH = "e64e8c0002648c403e05adedc25be5ea8b9863924f32cc7611051bed1f386e46"
GRAMMAR_HASH = "d955e6db384c68ac5797e881b795fd36d788e87a03547f9a87e48fbd7c5b361b"

_SINK = "                (receptacleType ?r SinkType)"


def old_domain(domain: str, *, sinks: bool = False) -> str:
    """There is no help; with `sinks` the line about sinks stands, as in the data set, else it is a comment."""
    old = re.sub(r"\(:action help\n.*?\n\)\n\n?", "", domain, flags=re.DOTALL)
    line, comment = _SINK, _SINK.replace("(", ";(")
    return old.replace(comment, line) if sinks else old if comment in old else old.replace(line, comment)


def old_grammar(grammar: str) -> str:
    """Objects are put in/on receptacles, the player arrives at places, and there is no help."""
    old = re.sub(r"\naction help \{\n.*?\n\}\n", "", grammar, flags=re.DOTALL)
    for new, before in (
        ("You arrive at {r.name}.", "You arrive at {lend.name}."),
        ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
        ('"move {o} to {r}"', '"put {o} in/on {r}"'),
    ):
        assert new in old
        old = old.replace(new, before)
    return old


def old_command(command: str) -> str:
    return re.sub(r"^move (.*) to (.*)$", r"put \1 in/on \2", command)


def as_before_0_4(game: dict[str, Any], *, sinks: bool = False) -> dict[str, Any]:
    """The JSON of a game file of 0.4 as an older release would have written it."""
    return game | {
        "pddl_domain": old_domain(game["pddl_domain"], sinks=sinks),
        "grammar": old_grammar(game["grammar"]),
        "walkthrough": [old_command(command) for command in game["walkthrough"]],
    }
