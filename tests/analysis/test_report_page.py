"""The report in a real browser: what a person sees, clicks and types, by mouse, keyboard and screen reader."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from report_files import games, play, write_results, write_run

from alfworld_rl.cli import main

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: uv sync --group browser")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

# Playwright's synchronous interface runs an event loop of its own, which pytest-asyncio must not see.
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it, or name it in CHROMIUM")

EVIL = """</script><script>document.title="broken"</script><img src=x onerror='document.title="broken"'><b>bold</b>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three reports: two results, a training run, and a file that tries to break out."""
    folder = tmp_path_factory.mktemp("reports")
    some = games(folder / "games", 16)
    random = Random(9)
    weak = [play(*game, random, skill=0.45) for game in some]
    strong = [play(*game, random, skill=1.0, shown="changes") for game in some]
    for line in weak[:3]:
        line["messages"][2]["content"] = "<think>\nWhere can it zirkon be?\n</think>\n" + line["messages"][2]["content"]
    weak[0]["step_logprobs"] = [[-0.1, -2.0]] * weak[0]["steps"]
    weak[0]["step_tokens"] = [["go", " on"]] * weak[0]["steps"]
    names = dict.fromkeys(("game_id", "split", "task_type", "task", "stop_reason"), EVIL)
    evil = {
        "type": "trajectory",
        **names,
        "won": False,
        "steps": 1,
        "messages": [
            {"role": "system", "content": EVIL},
            {"role": "user", "content": f"{EVIL}\n\nAdmissible commands:\n{EVIL}"},
            {"role": "assistant", "content": f"<think>{EVIL}</think>{EVIL}\nAction: {EVIL}"},
            {"role": "user", "content": f"{EVIL} You are carrying: a mug 1."},
        ],
        "step_logprobs": [[-1.0]],
        "step_tokens": [[EVIL]],
    }
    inputs = {
        "results": [write_results(folder / "weak.jsonl", weak), write_results(folder / "strong.jsonl", strong)],
        "run": [write_run(folder / "run", [row for pair in zip(strong, weak, strict=True) for row in pair])],
        "evil": [write_results(folder / "evil.jsonl", [evil], base_model=EVIL, model_path=EVIL, settings={EVIL: EVIL})],
    }
    made = {}
    for name, files in inputs.items():
        made[name] = folder / f"{name}.html"
        assert main(["report", *map(str, files), "-o", str(made[name])]) == 0
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Window:
    """A page that is open; it notes what goes wrong in it and what it asks for."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page = page
        self.file = file
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str = "") -> "Window":
        self.page.goto(self.file.as_uri() + address)
        self.page.wait_for_selector("html[data-ready]")
        return self

    def texts(self, selector: str) -> list[str]:
        found: list[str] = [text.strip() for text in self.page.locator(selector).all_inner_texts()]
        return found

    def index(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("JSON.parse(document.getElementById('index').textContent)")
        return found

    def address(self) -> dict[str, str]:
        found: dict[str, str] = self.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")
        return found


@pytest.fixture
def window(request: pytest.FixtureRequest, pages: dict[str, Path], chromium: Any) -> Iterator[Any]:
    """Opens a report in a fresh window; at the end nothing may have gone wrong and nothing been asked for."""
    opened: list[Window] = []

    def open_window(name: str = "results", address: str = "", **options: Any) -> Window:
        page = chromium.new_context(viewport={"width": 1280, "height": 900}, **options).new_page()
        page.set_default_timeout(10_000)
        opened.append(Window(page, pages[name]).open(address))
        return opened[-1]

    yield open_window
    for one in opened:
        assert one.problems == []
        assert {url.partition("#")[0] for url in one.requests} == {one.file.as_uri()}
        one.page.context.close()


def rows(window: Window) -> int:
    count: int = window.page.locator("table.games tbody tr").count()
    return count


def address_of(game: str, **more: Any) -> str:
    from urllib.parse import urlencode

    return "#" + urlencode({"game": game, **more})


def test_the_overview_says_who_won_how_much(window: Any) -> None:
    one = window()
    index = one.index()
    for result in index["results"]:
        said = re.search(rf"{result['label']} wins ([\d.]+)% of 16 games", one.page.inner_text(".lead"))
        assert said is not None
        assert float(said[1]) == pytest.approx(100 * result["scores"][0]["success"], abs=0.051)
    assert one.texts("#results tbody th b") == ["weak", "strong"]
    assert one.page.locator("#pairs tbody tr").count() == 1
    assert one.page.locator("#success tbody tr").count() == len(index["results"][0]["scores"])
    assert rows(one) == 16
    assert "All 16 games" in one.page.inner_text("#count")


def test_games_that_changed_hands_come_first(window: Any) -> None:
    one = window()
    flipped = [game["id"] for game in one.index()["games"] if len({play["won"] for play in game["plays"]}) == 2]
    assert 0 < len(flipped) < 16
    marks = one.page.locator("table.games tbody tr").evaluate_all("all => all.map(e => e.className)")
    assert marks == ["flipped"] * len(flipped) + [""] * (16 - len(flipped))


def test_filters_choose_games_and_stand_in_the_address(window: Any) -> None:
    one = window()
    games = one.index()["games"]
    task_type = games[0]["type"]
    one.page.select_option("select[name=type]", task_type)
    assert rows(one) == sum(game["type"] == task_type for game in games)
    assert one.address() == {"type": task_type}
    one.page.select_option("select[name=outcome]", "only1-0")
    chosen = [game for game in games if [play["won"] for play in game["plays"]] == [False, True]]
    assert rows(one) == sum(game["type"] == task_type for game in chosen)
    one.page.select_option("select[name=type]", "")
    assert rows(one) == len(chosen)
    # The address alone gives the same view to someone else.
    other = window(address=one.page.evaluate("location.hash"))
    assert rows(other) == len(chosen)
    assert other.page.input_value("select[name=outcome]") == "only1-0"
    other.page.click("text=Clear")
    assert rows(other) == 16


def test_text_is_searched_in_tasks_and_actions_and_when_asked_in_all_that_was_said(window: Any) -> None:
    one = window()
    games = one.index()["games"]
    one.page.fill("input[name=q]", "GO TO NOWHERE")
    expected = sum(any("go to nowhere" in play["actions"] for play in game["plays"]) for game in games)
    assert 0 < expected < 16
    assert rows(one) == expected
    one.page.fill("input[name=q]", "zirkon")
    assert rows(one) == 0
    one.page.check("input[name=deep]")
    playwright.expect(one.page.locator("table.games tbody tr")).to_have_count(3)


def test_numbers_of_the_overview_lead_to_their_games(window: Any) -> None:
    one = window()
    one.page.locator("#success tr.type a").first.click()
    task_type = min(game["type"] for game in one.index()["games"])
    assert one.address() == {"type": task_type}
    assert one.page.input_value("select[name=type]") == task_type
    assert rows(one) == sum(game["type"] == task_type for game in one.index()["games"])


def test_a_click_replays_a_game_turn_by_turn(window: Any) -> None:
    one = window()
    game = next(game for game in one.index()["games"] if game["plays"][1]["won"])
    one.page.goto(one.file.as_uri() + address_of(game["id"], play=1))
    one.page.wait_for_selector(".turns")
    actions = game["plays"][1]["actions"].split("\n")
    assert one.texts(".turn code.action") == actions
    assert one.page.inner_text("h1") == game["task"]
    assert one.page.locator(".turn.current").get_attribute("data-turn") == "0"
    one.page.keyboard.press("j")
    one.page.keyboard.press("ArrowRight")
    assert one.page.locator(".turn.current").get_attribute("data-turn") == "2"
    assert one.address()["turn"] == "2"
    one.page.keyboard.press("k")
    assert one.page.locator(".turn.current").get_attribute("data-turn") == "1"
    one.page.keyboard.press("End")
    assert one.address()["turn"] == str(len(actions))
    one.page.keyboard.press("Escape")
    one.page.wait_for_selector("table.games")
    assert "game" not in one.address()


def test_commands_on_offer_are_those_before_the_turn_and_mark_the_one_that_was_taken(window: Any) -> None:
    one = window()
    game = next(game for game in one.index()["games"] if game["plays"][1]["won"])
    one.page.goto(one.file.as_uri() + address_of(game["id"], play=1))
    for turn, action in enumerate(game["plays"][1]["actions"].split("\n"), 1):
        cell = one.page.locator(f".turn[data-turn='{turn}']")
        cell.locator("summary", has_text="command").click()
        assert cell.locator(".offered .taken").inner_text().startswith(action)


def test_refused_and_repeated_actions_are_marked(window: Any) -> None:
    one = window()
    game = next(game for game in one.index()["games"] if "x" in game["plays"][0]["kinds"])
    turn = game["plays"][0]["kinds"].index("x") + 1
    one.page.goto(one.file.as_uri() + address_of(game["id"], turn=turn))
    current = one.page.locator(".turn.current")
    assert current.get_attribute("data-turn") == str(turn)
    assert "refused" in current.inner_text()


def test_thoughts_are_folded_and_probabilities_of_tokens_are_shown(window: Any) -> None:
    one = window()
    game = one.index()["games"][0]
    one.page.goto(one.file.as_uri() + address_of(game["id"]))
    first = one.page.locator(".turn[data-turn='1']")
    thought = first.locator("details.thought")
    assert not thought.locator("p").is_visible()
    thought.locator("summary").click()
    assert "zirkon" in thought.inner_text()
    assert "12%" in first.locator(".badge.chance").inner_text()
    first.locator("summary", has_text="tokens").click()
    first.locator(".tokens").wait_for()
    assert [text.split() for text in one.texts(".turn[data-turn='1'] .tokens > span")] == [["go", "90%"], ["on", "14%"]]


def test_the_house_shows_what_the_agent_knows_at_each_turn(window: Any) -> None:
    one = window()
    for game in one.index()["games"]:
        actions = game["plays"][1]["actions"].split("\n")
        take = next((number for number, action in enumerate(actions, 1) if action.startswith("take")), None)
        if take is not None and actions[take - 2].startswith("go to"):
            break
    thing, place = re.fullmatch(r"take (.+) from (.+)", actions[take - 1]).groups()
    one.page.goto(one.file.as_uri() + address_of(game["id"], play=1, turn=take - 1))
    one.page.wait_for_selector(".house")
    assert f"In hand: {thing}" not in one.page.inner_text(".hand")
    assert one.page.locator(".tile.here .name").text_content() == place
    assert thing in one.page.inner_text(".tile.here .items")
    one.page.keyboard.press("j")
    assert f"In hand: {thing}" in one.page.inner_text(".hand")
    assert one.page.locator(".tile.here .gone").inner_text().startswith(thing)
    one.page.keyboard.press("Home")
    assert one.page.locator(".tile.visited").count() == 0


def test_reading_on_moves_the_turn_along(window: Any) -> None:
    one = window()
    game = max(one.index()["games"], key=lambda game: game["plays"][0]["steps"])
    one.page.goto(one.file.as_uri() + address_of(game["id"], turn=1))
    one.page.wait_for_selector(".turn.current[data-turn='1']")
    one.page.wait_for_timeout(400)  # until a jump no longer counts as reading
    one.page.mouse.move(400, 500)
    one.page.mouse.wheel(0, 20_000)
    one.page.wait_for_selector(f".turn.current[data-turn='{game['plays'][0]['steps']}']")


def test_two_results_stand_beside_each_other_and_part_where_they_differ(window: Any) -> None:
    one = window()
    game = next(
        game
        for game in one.index()["games"]
        if game["plays"][0]["actions"].split("\n")[0] != game["plays"][1]["actions"].split("\n")[0]
    )
    one.page.click(f"table.games a[href*='beside=1'][href*='{game['id'].rsplit('_', 1)[-1]}']")
    one.page.wait_for_selector(".panes-2")
    assert one.texts(".heads b") == ["weak", "strong"]
    assert one.page.locator(".house").count() == 2
    assert "differ from the first turn" in one.page.inner_text(".parted")
    one.page.keyboard.press("b")
    one.page.wait_for_selector(".panes-1")


def test_the_next_game_is_the_next_of_the_table_as_it_was_filtered(window: Any) -> None:
    one = window(address="#outcome=mixed&sort=longest")
    order = one.page.locator("table.games tbody th a").evaluate_all(
        "all => all.map(e => new URLSearchParams(e.hash.slice(1)).get('game'))"
    )
    one.page.locator("table.games tbody th a").first.click()
    for expected, key in zip((*order[:3], order[1]), "nnpp", strict=True):
        playwright.expect(one.page.locator("p.fine code")).to_have_text(expected)
        one.page.keyboard.press(key)


def test_it_can_be_used_by_keyboard_alone(window: Any) -> None:
    one = window()
    one.page.keyboard.press("/")
    one.page.wait_for_selector("input[name=q]:focus")
    one.page.keyboard.type("put")
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("?")
    assert one.page.locator("dialog.help").is_visible()
    one.page.keyboard.press("Escape")
    assert not one.page.locator("dialog.help").is_visible()
    one.page.locator("table.games tbody th a").first.focus()
    opened = one.page.evaluate("document.activeElement.textContent")
    one.page.keyboard.press("Enter")
    one.page.wait_for_selector(".turns")
    assert one.page.evaluate("document.activeElement.id") == "game-title"
    one.page.keyboard.press("Escape")
    one.page.wait_for_selector("table.games")
    assert one.page.evaluate("document.activeElement.textContent") == opened


def test_colours_follow_the_system_and_can_be_chosen(window: Any) -> None:
    def paper(one: Window) -> str:
        found: str = one.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return found

    light, dark = window(color_scheme="light"), window(color_scheme="dark")
    assert paper(light) != paper(dark)
    light.page.keyboard.press("t")
    light.page.keyboard.press("t")
    assert paper(light) == paper(dark)


@pytest.mark.parametrize("name", ["results", "run"])
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_nothing_stands_in_a_screen_reader_s_way(window: Any, name: str, theme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: uv sync --group browser")
    one = window(name, color_scheme=theme)
    one.page.set_viewport_size({"width": width, "height": 900})
    games = one.index()["games"]
    game = next((game for game in games if len(game["plays"]) > 1 and "x" in game["plays"][-1]["kinds"]), games[0])
    for address in ("", address_of(game["id"], turn=2), address_of(game["id"], beside=1, turn=2)):
        one.page.goto("about:blank")
        one.open(address)
        for fold in one.page.locator("details:not([open]) > summary").all()[:30]:
            if fold.is_visible():
                fold.click()
        found = axe.Axe().run(one.page).response["violations"]
        told = [f"{item['id']}: {node['html'][:200]}" for item in found for node in item["nodes"][:3]]
        assert told == []
    one.requests = [url for url in one.requests if url != "about:blank"]


@pytest.mark.parametrize("name", ["results", "run"])
def test_it_fits_a_phone(window: Any, name: str) -> None:
    one = window(name)
    one.page.set_viewport_size({"width": 360, "height": 740})
    game = one.index()["games"][0]["id"]
    for address in ("", address_of(game), address_of(game, beside=1)):
        one.page.goto("about:blank")
        one.open(address)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= 360
    one.requests = [url for url in one.requests if url != "about:blank"]


def test_a_run_shows_curves_and_the_best_beside_the_worst(window: Any) -> None:
    one = window("run")
    titles = one.texts("#curves figcaption h3")
    assert {"Reward", "Success in training", "How trajectories ended", "Time of an update"} <= set(titles)
    assert "6 updates of m" in one.page.inner_text(".lead")
    one.page.locator("#curves summary", has_text="more metric").click()
    one.page.locator("#curves .small").wait_for()
    assert "made/up" in one.texts("#curves .small h3")
    one.page.locator("#curves .chart").first.hover()
    assert "update" in one.page.inner_text("#hover")
    one.page.locator("table.games tbody th a").first.click()
    one.page.wait_for_selector(".panes-2")
    best, worst = one.page.locator(".heads > div").all_inner_texts()
    assert "advantage +0.50" in best
    assert "advantage \u22120.50" in worst
    assert "+0.50" in one.page.locator(".turn[data-turn='1'] .badge.up").first.inner_text()


def test_nothing_breaks_out(window: Any) -> None:
    one = window("evil")
    title = one.page.title()
    assert "broken" not in title
    one.page.locator("table.games tbody th a").click()
    one.page.wait_for_selector(".turns")
    for fold in one.page.locator("details > summary").all():
        if fold.is_visible():
            fold.click()
    assert one.page.inner_text("h1") == EVIL
    assert EVIL in one.page.inner_text(".turn[data-turn='1']")
    assert one.page.locator("main img, main b:text('bold'), main script").count() == 0
    assert one.page.title() == f"{EVIL} \u00b7 {title}"


def test_a_game_that_is_not_there_is_said(window: Any) -> None:
    one = window(address="#game=%3Cb%3Enowhere&turn=x")
    assert "no game <b>nowhere" in one.page.inner_text("[role=alert]")
