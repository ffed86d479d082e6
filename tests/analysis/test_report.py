"""What a report says: its numbers, what it reads from messages, and the house as it was worked out from texts."""

import base64
import json
import re
import zlib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from report_files import games, play, write_results, write_run

from alfworld_rl.agents.calls import read_action
from alfworld_rl.analysis.report.house import House, goal_of
from alfworld_rl.analysis.report.turns import detail
from alfworld_rl.cli import main
from alfworld_rl.evaluation.record import ResultRow
from alfworld_rl.world import Game, World

Games = list[tuple[str, str, Game]]


@pytest.fixture(scope="module")
def some_games(tmp_path_factory: pytest.TempPathFactory) -> Games:
    return games(tmp_path_factory.mktemp("games"), 24)


class _Scripts(HTMLParser):
    """The scripts of a page by id, and every element's name."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.elements: list[str] = []
        self._open: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self._open = dict(attrs).get("id") or "program" if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.scripts[self._open] = self.scripts.get(self._open, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._open = None


def read_page(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """The index and the details of a page."""
    page = _Scripts()
    page.feed(path.read_text(encoding="utf-8"))
    packed = json.loads(page.scripts["details"])
    details = [json.loads(zlib.decompress(base64.b64decode(one))) for one in packed]
    return json.loads(page.scripts["index"]), details


def report(*inputs: Any, output: Path) -> tuple[dict[str, Any], list[Any]]:
    assert main(["report", *map(str, inputs), "-o", str(output)]) == 0
    return read_page(output)


# --- the house


def _commands(game: Game, view: Any, random: Random) -> str:
    """Something that a player may say: mostly admissible, else a command that need not be possible."""
    if random.random() < 0.6:
        return random.choice(view.actions)
    thing, place = random.choice(game.objects), random.choice(game.receptacles)
    patterns = ("go to {p}", "open {p}", "close {p}", "take {t} from {p}", "move {t} to {p}", "heat {t} with {p}")
    return random.choice(patterns).format(t=thing, p=place)


@pytest.mark.parametrize("seed", range(4))
def test_the_house_is_what_the_world_says_of_all_that_was_seen(some_games: Games, seed: int) -> None:
    random = Random(seed)
    looked_into = 0
    for _, _, game in some_games:
        world, house = World(game), House()
        places: dict[str, Any] = {}
        hand: list[str] = []
        change = house.start(world.reset().text)
        assert set(change["places"]) == set(game.receptacles)
        for _ in range(60):
            change = house.answer(world.step(_commands(game, world.view, random)).text)
            places |= change.get("places", {})
            hand = change.get("hand", hand)
            facts = world.facts
            assert hand == [fact[1] for fact in facts if fact[0] == "holds"]
            for name, known in places.items():
                truth = {fact[1] for fact in facts if fact[0] == "inreceptacle" and fact[2] == name}
                assert set(known["items"]) <= truth
                assert set(known["items"]) == truth or not known["seen"]
                if known["open"] is not None:
                    assert known["open"] == (("opened", name) in facts)
        looked_into += sum(known["seen"] for known in places.values())
    assert looked_into > 100


def test_states_of_objects_follow_what_was_done_and_examined() -> None:
    house = House()
    house.start("You are in the middle of a room. Looking quickly around you, you see a fridge 1, and a microwave 1.")
    assert house.answer("You heat the egg 1 using the microwave 1.")["states"] == {"egg 1": ["hot"]}
    assert house.answer("You cool the egg 1 using the fridge 1.")["states"] == {"egg 1": ["cold"]}
    assert house.answer("You turn on the desklamp 1.")["states"] == {"desklamp 1": ["on"]}
    assert house.answer("This is a cool and clean mug 2.")["states"] == {"mug 2": ["cold", "clean"]}
    assert house.answer("Nothing happens.") == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_reason_for_a_refusal_never_forbids_what_the_world_allows(some_games: Games, seed: int) -> None:
    random = Random(seed)
    reasons: set[str] = set()
    for _, _, game in some_games:
        world, house = World(game), House()
        house.start(world.reset().text)
        for _ in range(60):
            command = _commands(game, world.view, random)
            reason = house.why_refused(command)
            # Receptacles may share a place, which no text tells before one looks around.
            if command in world.view.actions and reason != "not standing there":
                assert reason == ""
            if command not in world.view.actions:
                reasons.add(reason)
            house.answer(world.step(command).text)
    assert {"already there", "not standing there", "not in the hand"} <= reasons


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("go to desk 1", "already there"),
        ("go to desk 9", "no such place"),
        ("go somewhere", "no such command"),
        ("take", "no such command"),
        ("open drawer 1", "not standing there"),
        ("take pen 1 from desk 1", "not seen there"),
        ("move pen 1 to desk 1", "not in the hand"),
    ],
)
def test_why_a_command_was_refused(command: str, reason: str) -> None:
    house = House()
    house.start("You are in the middle of a room. Looking quickly around you, you see a desk 1, and a drawer 1.")
    house.answer("You arrive at desk 1. On the desk 1, you see a mug 1, and a book 2.")
    assert house.why_refused(command) == reason


def test_the_goal_is_read_from_a_game_s_name_and_never_guessed() -> None:
    name = "valid_seen/pick_cool_then_place_in_recep-Apple-None-CounterTop-14/trial_T2019"
    assert goal_of(name) == {"object": "apple", "place": "countertop"}
    assert goal_of("my game") == {}


# --- messages


def row(messages: list[Any], **more: Any) -> ResultRow:
    line = {"game_id": "g", "split": "s", "won": False, "messages": messages} | more
    return ResultRow.from_json(line, "here")


def turns(*messages: tuple[str, Any], **more: Any) -> list[dict[str, Any]]:
    full = [{"role": role, "content": content} for role, content in messages]
    found: list[dict[str, Any]] = detail(row(full, **more))["turns"]
    return found


CALL = "<tool_call>\n<function=alfworld_step>\n<parameter=action>\nlook\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("said", "thought", "words", "action"),
    [
        (CALL, None, None, "look"),
        (f"<think>\nHmm, <b>.\n</think>\nI look. {CALL}", "Hmm, <b>.", "I look.", "look"),
        ("Thought: I should look.\nAction: look", "I should look.", None, "look"),
        ("THOUGHT: a\nACTION: go to desk 1", "a", None, "go to desk 1"),
        ("> go to desk 1", None, None, "go to desk 1"),
        ("I do not know\nwhat to do.", None, "I do not know\nwhat to do.", None),
        (f"{CALL}\nand on", None, None, None),
        ("<think>cut", "cut", None, None),
    ],
)
def test_what_a_message_says(said: str, thought: str | None, words: str | None, action: str | None) -> None:
    (turn,) = turns(("user", "opening"), ("assistant", said), ("tool", "answer"))
    assert (turn.get("thought"), turn.get("words"), turn.get("action")) == (thought, words, action)
    assert turn["raw"] == said
    assert turn["kind"] == ("f" if action is None else "o")


def test_calls_and_thoughts_in_fields_of_their_own_are_read() -> None:
    call = {"type": "function", "function": {"name": "alfworld_step", "arguments": '{"action": "look"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm."}
    (turn,) = detail(row([{"role": "user", "content": [{"type": "text", "text": "hi"}]}, message]))["turns"]
    assert (turn["action"], turn["thought"]) == ("look", "Hm.")


def test_refusals_and_repetitions_are_told_apart() -> None:
    look, away = ("assistant", "look"), ("assistant", "go to moon 1")
    found = turns(
        ("user", "o"),
        look,
        ("user", "A."),
        look,
        ("user", "A."),
        look,
        ("user", "B."),
        away,
        ("user", "Nothing happens."),
    )
    assert [turn["kind"] for turn in found] == ["o", "r", "o", "x"]
    assert [turn.get("again", 0) for turn in found] == [0, 1, 2, 0]
    assert found[-1]["why"] == "no such place"


def test_what_the_row_says_of_acceptance_goes_before_what_the_texts_say() -> None:
    said = (("user", "o"), ("assistant", "look"), ("tool", "Nothing happens."))
    assert turns(*said, accepted=[True])[0]["kind"] == "o"
    assert turns(*said)[0]["kind"] == "x"


@pytest.mark.parametrize("shown", ["full", "changes"])
def test_commands_on_offer_are_those_of_the_world_however_they_were_listed(some_games: Games, shown: str) -> None:
    random = Random(1)
    for game_id, task_type, game in some_games[:6]:
        played = detail(row_of(play(game_id, task_type, game, random, skill=0.5, shown=shown)))
        world = World(game)
        assert played["opening"]["commands"] == list(world.reset().actions)
        for turn in played["turns"]:
            assert turn["commands"] == list(world.step(turn["action"]).actions)
            assert turn["observation"] == world.view.text


def said(line: dict[str, Any]) -> list[str]:
    """The actions of a trajectory."""
    return [str(read_action(one["content"])) for one in line["messages"] if one["role"] == "assistant"]


def row_of(line: dict[str, Any]) -> ResultRow:
    return ResultRow.from_json(line, "here")


# --- numbers, files, errors


def test_the_overview_counts_and_compares(some_games: Games, tmp_path: Path) -> None:
    random = Random(5)
    bad = [play(*game, random, skill=0.5) for game in some_games]
    good = [play(*game, random, skill=1.0) for game in some_games]
    files = [write_results(tmp_path / f"{name}.jsonl", rows) for name, rows in (("bad", bad), ("good", good))]
    index, details = report(*files, output=tmp_path / "page.html")

    assert [one["label"] for one in index["results"]] == ["bad", "good"]
    assert len(index["games"]) == len(details) == len(some_games)
    for result, rows in zip(index["results"], (bad, good), strict=True):
        everything = result["scores"][0]
        assert everything["success"] == pytest.approx(sum(one["won"] for one in rows) / len(rows))
        low, high = everything["interval"]
        assert low <= everything["success"] <= high
        assert sum(result["stops"].values()) == len(rows)
        assert result["within"][-1] == pytest.approx(everything["success"])
        assert sum(score["games"] for score in result["scores"] if score["what"] == "type") == len(rows)
        refused = Counter(
            action for one in rows for action, ok in zip(said(one), one["accepted"], strict=True) if not ok
        )
        assert [times for _, times, *_ in result["refused"]] == [count for _, count in refused.most_common(10)]
        assert all(refused[action] == times for action, times, *_ in result["refused"])
    (pair,) = index["pairs"]
    won = [(before["won"], after["won"]) for before, after in zip(bad, good, strict=True)]
    assert (pair["gained"], pair["lost"]) == (won.count((False, True)), won.count((True, False)))
    assert pair["success"]["difference"] == pytest.approx((pair["gained"] - pair["lost"]) / len(won))
    assert 0 < pair["success"]["p"] <= 1

    place = {game["id"]: number for number, game in enumerate(index["games"])}
    for line in good:
        replayed = details[place[line["game_id"]]][1]["turns"]
        assert [turn["action"] for turn in replayed] == said(line)


def test_several_samples_of_a_game_stand_together(some_games: Games, tmp_path: Path) -> None:
    random = Random(2)
    rows = [play(*game, random, skill=0.6, sample=sample) for game in some_games[:4] for sample in range(3)]
    index, _ = report(write_results(tmp_path / "a.jsonl", rows), output=tmp_path / "page.html")
    assert [[one["sample"] for one in game["plays"]] for game in index["games"]] == [[0, 1, 2]] * 4
    assert index["results"][0]["scores"][0]["games"] == 4


def test_a_run_shows_its_metrics_and_kept_trajectories(some_games: Games, tmp_path: Path) -> None:
    random = Random(4)
    rows = [play(*game, random, skill=skill) for game in some_games[:6] for skill in (1.0, 0.3)]
    folder = write_run(tmp_path / "run", rows)
    index, details = report(folder, output=tmp_path / "page.html")
    assert index["updates"] == [1, 2, 3, 4, 5, 6]
    assert index["metrics"]["reward/mean"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert "update" not in index["metrics"]
    for game in index["games"]:
        best, worst = game["plays"]
        assert best["reward"] >= worst["reward"]
    turn = details[0][0]["turns"][0]
    assert turn["advantage"] == 0.5
    assert len(turn["tokens"]) == len(turn["logprobs"])


def test_a_run_is_found_by_name_and_its_page_lies_in_it(
    some_games: Games, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "08-alfworld" / "runs" / "mine", [])
    assert main(["report", "mine"]) == 0
    assert (folder / "report.html").is_file()
    assert (folder / "report.html").as_uri() in capsys.readouterr().out


def test_an_unfinished_run_and_one_without_trajectories_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    index, details = report(folder, output=tmp_path / "page.html")
    assert (index["updates"], index["games"], details) == ([], [], [])


def test_files_of_other_programs_are_shown(tmp_path: Path) -> None:
    few = {"type": "trajectory", "game_id": "x", "split": "test", "won": True}
    alone = {"metrics": {f"eval/a/{key}": 1 for key in ("games", "success_rate", "invalid_actions_mean")}}
    index, details = report(
        f"Few={write_results(tmp_path / 'a.jsonl', [few])}",
        f"Summary={write_results(tmp_path / 'b.jsonl', [], **alone)}",
        output=tmp_path / "page.html",
    )
    assert [one["label"] for one in index["results"]] == ["Few", "Summary"]
    assert index["results"][1]["scores"][0]["success"] == 1
    assert index["pairs"] == []
    assert details == [[{}]]


def test_the_same_files_give_the_same_page(some_games: Games, tmp_path: Path) -> None:
    rows = [play(*game, Random(1), skill=0.8) for game in some_games[:3]]
    file = write_results(tmp_path / "a.jsonl", rows)
    report(file, output=tmp_path / "1.html")
    report(file, output=tmp_path / "2.html")
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


def test_numbers_that_json_lacks_do_not_break_the_page(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "look"}]
    line = {"type": "trajectory", "game_id": "g", "split": "s", "won": True, "messages": messages}
    line["step_logprobs"] = [[float("nan"), float("-inf")]]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (line, {"type": "summary", "base_model": "m"})))
    _, details = report(file, output=tmp_path / "page.html")
    assert details[0][0]["turns"][0]["logprobs"] == [None, None]


def test_no_text_of_a_file_reaches_the_page_as_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--<script>"
    line = {"type": "trajectory", "game_id": evil, "split": evil, "won": True, "task": evil, "task_type": evil}
    messages = [{"role": "user", "content": evil}, {"role": "assistant", "content": evil}]
    plain = write_results(
        tmp_path / "plain.jsonl", [line | {"game_id": "g", "split": "s", "task": "", "task_type": ""}]
    )
    hostile = write_results(tmp_path / "a.jsonl", [line | {"messages": messages}], base_model=evil)
    pages = []
    for file, output in ((plain, tmp_path / "1.html"), (f"{evil.replace('/', '')}={hostile}", tmp_path / "2.html")):
        report(file, output=output)
        page = _Scripts()
        page.feed(output.read_text(encoding="utf-8"))
        pages.append(page)
    assert pages[0].elements == pages[1].elements
    assert pages[0].scripts["program"] == pages[1].scripts["program"]


def test_the_program_never_makes_markup_of_text() -> None:
    assets = Path(__file__).parents[2] / "src" / "alfworld_rl" / "analysis" / "report" / "assets"
    program = "".join(path.read_text(encoding="utf-8") for path in assets.glob("*.js"))
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(|new Function|fetch\("
    assert re.findall(forbidden, program) == []


def test_the_page_lets_nothing_load(tmp_path: Path) -> None:
    line = {"type": "trajectory", "game_id": "x", "split": "test", "won": True}
    report(write_results(tmp_path / "a.jsonl", [line]), output=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (["missing.jsonl"], "missing.jsonl is missing"),
        (["a/x.jsonl", "b/x.jsonl"], "two results are called x"),
        (["folder"], "is no run folder"),
        (["folder", "a/x.jsonl"], "give either one run folder or only files"),
    ],
)
def test_what_cannot_be_shown_is_refused_and_nothing_is_written(
    inputs: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = {"type": "trajectory", "game_id": "x", "split": "test", "won": True}
    for name in ("a", "b", "folder"):
        (tmp_path / name).mkdir()
        if name != "folder":
            write_results(tmp_path / name / "x.jsonl", [line])
    assert main(["report", *inputs, "-o", "page.html"]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
