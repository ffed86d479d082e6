"""A trajectory's messages -> its turns, as a page replays them.

Written for the results of this program, and tolerant of others': chat messages with or without a tool role, calls as
text or under "tool_calls", ReAct's "Action:" lines, thoughts in <think> tags or in a field of their own.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from alfworld_rl.agents.calls import CALL_OPENS, read_action
from alfworld_rl.agents.texts import APPEARED, COMMANDS_HEADER, NOTHING_HAPPENS, VANISHED
from alfworld_rl.analysis.report.house import House, goal_of, room_of
from alfworld_rl.evaluation.record import ResultRow

#: One character a turn, for the strip that shows a whole trajectory at a glance.
DONE, REPEATED, REFUSED, NO_ACTION = "o", "r", "x", "f"

_THOUGHT = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL)
_REACT_ACTION = re.compile(r"^[ \t>*]*action(?: input)?[*]*:[ \t]*(\S.*?)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_REACT_THOUGHT = re.compile(r"^\s*(?:thought|think)s?:\s*", re.IGNORECASE)
#: How AgentGym and AgentBench list commands.
_LISTED = re.compile(r"\n\s*AVAILABLE ACTIONS:\s*(.+?)\s*$", re.IGNORECASE | re.DOTALL)


def detail(row: ResultRow) -> dict[str, Any]:
    """What the page shows of one trajectory, empty where the row has no messages.

    - system: the instructions; opening: "text", "commands" on offer, and "house", what it tells of it (see `House`).
    - turns: each has "kind" (a character, above), "raw" (the message as written), and as far as there are any
      "thought", "words" (said beside thought and call), "action", "again" (how often this action was taken before),
      "why" (it was refused), "observation", "commands" (on offer after it), "house" (what the answer changed), "cut"
      (by a token limit), "advantage", and "logprobs" and "tokens" with one entry a token.
    - goal, room: see `goal_of` and `room_of`.
    """
    messages = [one for one in row.messages if isinstance(one, dict)]
    first = next((number for number, one in enumerate(messages) if one.get("role") == "assistant"), len(messages))
    if not messages:
        return {}
    head, house = messages[:first], House()
    opening = "\n\n".join(_content(one) for one in head if one.get("role") != "system")
    text, listed = _split_commands(opening, None)
    change = house.start(text)
    turns = _turns(messages[first:], house, listed, row.accepted)
    for name, key in (("step_logprobs", "logprobs"), ("step_tokens", "tokens"), ("advantages", "advantage")):
        values = _list(row.more.get(name))
        if len(values) == len(turns):
            for turn, value in zip(turns, values, strict=True):
                turn[key] = value
    if turns and "observation" not in turns[-1] and row.stop_reason == "token_limit":
        turns[-1]["cut"] = True
    system = "\n\n".join(_content(one) for one in head if one.get("role") == "system")
    found = {
        "system": system,
        "opening": _without_nothing({"text": text, "commands": listed, "house": change}),
        "goal": goal_of(row.game_id),
        "room": room_of(change.get("places", {})),
        "turns": turns,
    }
    return _without_nothing(found) | {"turns": turns}


def kinds(turns: Sequence[Mapping[str, Any]]) -> str:
    """A character a turn: done, the same again with the same answer, refused, or no action at all."""
    return "".join(turn["kind"] for turn in turns)


def _turns(
    messages: Sequence[Mapping[str, Any]], house: House, listed: list[str] | None, accepted: Sequence[bool]
) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    answers: dict[str, list[str]] = {}
    for number, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        end = next(
            (later for later in range(number + 1, len(messages)) if messages[later].get("role") == "assistant"),
            len(messages),
        )
        turn = _said(message)
        action = turn.get("action")
        answer = "\n\n".join(_content(one) for one in messages[number + 1 : end])
        kind = NO_ACTION if action is None else DONE
        if number + 1 < end:
            text, listed = _split_commands(answer, listed)
            turn |= {"observation": text, "commands": listed, "house": house.answer(text)}
            # Where the row does not tell which actions were accepted, the game's own words do.
            known = accepted[len(turns)] if len(turns) < len(accepted) else not text.startswith(NOTHING_HAPPENS)
            if action is not None and not known:
                kind, turn["why"] = REFUSED, house.why_refused(action)
            if action is not None:
                earlier = answers.setdefault(_plain(action), [])
                if kind == DONE and text in earlier:
                    kind = REPEATED
                turn["again"] = len(earlier)
                earlier.append(text)
        turns.append(_without_nothing(turn) | {"kind": kind})
    return turns


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    raw = _content(message)
    thought = next((text for key in ("reasoning_content", "reasoning") if (text := _text(message.get(key)))), "")
    said = raw
    for found in _THOUGHT.finditer(raw):
        thought = f"{thought}\n\n{found[1].strip()}".strip()
        said = said.replace(found[0], "")
    calls = _list(message.get("tool_calls"))
    if calls:
        action, words = _native(calls), said
        raw = raw or json.dumps(calls, ensure_ascii=False)
    elif CALL_OPENS in said:
        action, words = read_action(said), said.partition(CALL_OPENS)[0]
    elif lines := list(_REACT_ACTION.finditer(said)):
        action, words = lines[-1][1], said[: lines[-1].start()]
    else:
        # A line by itself is a command; more is words, and no action can be made out.
        only = said.strip()
        action, words = (only.lstrip("> "), "") if only and "\n" not in only and len(only) < 100 else (None, said)
    if _REACT_THOUGHT.match(words):
        thought, words = f"{thought}\n\n{_REACT_THOUGHT.sub('', words).strip()}".strip(), ""
    return {"raw": raw, "thought": thought, "words": words.strip(), "action": action}


def _native(calls: Sequence[Any]) -> str | None:
    """The action of the one call of a service's own kind; None where there is another number of them."""
    call = calls[0].get("function", calls[0]) if len(calls) == 1 and isinstance(calls[0], dict) else None
    if not isinstance(call, dict):
        return None
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    action = arguments.get("action") if isinstance(arguments, dict) else None
    return action if isinstance(action, str) else None


def _split_commands(text: str, before: list[str] | None) -> tuple[str, list[str] | None]:
    """The observation, and the commands that are on offer after it; None where the text does not say."""
    observation, header, listed = text.partition(f"\n\n{COMMANDS_HEADER}\n")
    if header:
        return observation, listed.split("\n")
    if (found := _LISTED.search(text)) is not None:
        return text[: found.start()], [one.strip() for one in found[1].split(",")]
    if before is None:
        return text, None
    observation, blank, changes = text.partition("\n\n")
    lines = changes.split("\n") if blank else []
    if lines and all(line.startswith((APPEARED, VANISHED)) for line in lines):
        gone = {line.removeprefix(VANISHED) for line in lines if line.startswith(VANISHED)}
        new = [line.removeprefix(APPEARED) for line in lines if line.startswith(APPEARED)]
        return observation, sorted([*(one for one in before if one not in gone), *new])
    return text, before


def _content(message: Mapping[str, Any]) -> str:
    """A message's text; parts of other kinds than text are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return _text(content)


def _plain(action: str) -> str:
    return " ".join(action.split()).lower()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is empty; a page of thousands of turns is smaller for it."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {}, 0)}
