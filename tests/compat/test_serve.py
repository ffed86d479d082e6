"""The world as a service: OpenEnv's own client against the server, over loopback."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl import cli
from alfworld_rl.envs.alfworld import AlfworldFamily
from alfworld_rl.games import GameRef, discover, generate
from alfworld_rl.world import Game, View, World

pytest.importorskip("openenv", reason="OpenEnv is not installed (extra serve)")

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "serve.py"
Serve = Callable[..., str]


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    generate(root, train=3, valid_seen=2, valid_unseen=0, seed=5)
    return root


@pytest.fixture
def serve(data_root: Path) -> Iterator[Serve]:
    """Starts a server in a thread of its own with the limits that are given; its address."""
    with ExitStack() as servers:
        yield lambda **limits: servers.enter_context(running(data_root, **limits))


@contextmanager
def running(data_root: Path, **limits: Any) -> Iterator[str]:
    import uvicorn

    from alfworld_rl.compat.serve.openenv import Games, create_app

    family = AlfworldFamily(data_root)
    with family.pool() as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        games = Games({split: family.tasks(split) for split in ("train", "valid_seen")})
        app = create_app(games, pool, **limits)
        largest = limits.get("max_message_bytes", 65536)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws_max_size=largest))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def client(url: str) -> Any:
    from openenv import GenericEnvClient

    return GenericEnvClient(base_url=url, message_timeout_s=30).sync()


def games(data_root: Path, split: str = "train") -> tuple[GameRef, ...]:
    return discover(data_root, split).games


def shown(result: Any) -> tuple[str, list[str], int, bool]:
    said = result.observation
    return said["text"], said["admissible_commands"], said["score"], said["won"]


def seen(view: View) -> tuple[str, list[str], int, bool]:
    return view.observation, list(view.admissible_commands), view.score, view.won


def metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def post(url: str, content: bytes) -> tuple[int, Any]:
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_game_is_played_as_the_world_plays_it(serve: Serve, data_root: Path) -> None:
    url = serve()
    with client(url) as player:
        for index, game in enumerate(games(data_root)):
            world = World(Game.load(game.path))
            opening = player.reset(split="train", index=index)
            assert shown(opening) == seen(world.view)
            assert (opening.observation["game_id"], opening.reward, opening.done) == (game.game_id, None, False)
            rewards, dones = [], []
            commands = ("look", "no command", *world.game.walkthrough)
            for command in commands:
                result = player.step({"command": command})
                assert shown(result) == seen(world.step(command))
                rewards.append(result.reward)
                dones.append(result.done)
            assert rewards == [0.0] * (len(commands) - 1) + [1.0]
            assert dones == [False] * (len(commands) - 1) + [True]
            state = player.state()
            assert (state["step_count"], state["won"], state["task"]) == (len(commands), True, world.game.task)
    counted = metrics(url)
    assert counted["alfworld_resets_total"] == counted["alfworld_wins_total"] == 3
    assert counted["alfworld_steps_total"] == counted["alfworld_step_seconds_count"] > 9


def test_sessions_do_not_see_each_other(serve: Serve, data_root: Path) -> None:
    url = serve()
    game = Game.load(games(data_root)[0].path)
    with ExitStack() as open_clients:
        pairs = [(open_clients.enter_context(client(url)), World(game)) for _ in range(3)]
        for player, _ in pairs:
            player.reset(index=0)
        for step, command in enumerate(game.walkthrough):
            for number, (player, world) in enumerate(pairs):
                if step % (number + 1) == 0:  # each of them gets another part of the way
                    assert shown(player.step({"command": command})) == seen(world.step(command))
        assert metrics(url)["alfworld_sessions"] == 3


def test_which_game_a_reset_begins(serve: Serve, data_root: Path) -> None:
    with client(serve()) as player:
        ids = [game.game_id for game in games(data_root)]

        def begun(**wanted: Any) -> str:
            game_id: str = player.reset(**wanted).observation["game_id"]
            return game_id

        assert [begun(index=index) for index in range(3)] == ids
        assert begun(game_id=ids[2]) == ids[2]
        seeded = [begun(seed=seed) for seed in range(20)]
        assert seeded == [begun(seed=seed) for seed in range(20)]
        assert set(seeded) == set(ids)
        assert begun(split="valid_seen", seed=1) in [game.game_id for game in games(data_root, "valid_seen")]
        assert begun() in ids

        player.reset(index=0)
        for wanted, complaint in (
            ({"split": "valid_unseen"}, "this server has train, valid_seen"),
            ({"index": 3}, "from 0 to 2, not 3"),
            ({"game_id": "../../etc/passwd"}, "there is no game"),
            ({"max_episode_steps": -1}, "max_episode_steps must be a whole number"),
            ({"gamefile": "x"}, "not gamefile"),
        ):
            with pytest.raises(RuntimeError, match=complaint):
                player.reset(**wanted)
        assert player.step({"command": "look"}).observation["game_id"] == ids[0]  # it goes on


def test_task_routes(serve: Serve, data_root: Path) -> None:
    url = f"{serve()}/alfworld"
    with urllib.request.urlopen(f"{url}/splits") as answer:
        assert [split["name"] for split in json.load(answer)] == ["train", "valid_seen"]
    wanted = [
        {"id": game.game_id, "index": index, "split": "train", "task_type": game.task_type}
        for index, game in enumerate(games(data_root))
    ]
    assert post(f"{url}/tasks", b'{"split": "train"}')[1]["tasks"] == wanted
    assert post(f"{url}/num_tasks", b'{"split": "valid_seen"}')[1] == {"num_tasks": 2}
    assert post(f"{url}/task", b'{"split": "train", "index": 1}')[1] == {"task": wanted[1]}
    assert post(f"{url}/task_range", b'{"split": "train", "start": 1}')[1] == {"tasks": wanted[1:]}
    status, answer = post(f"{url}/num_tasks", b'{"split": "test"}')
    assert (status, answer["detail"]) == (400, "there is no split 'test'; this server has train, valid_seen")


def test_a_game_ends_after_its_steps(serve: Serve) -> None:
    with client(serve(max_episode_steps=2)) as player:
        player.reset(index=0)
        first, second = player.step({"command": "look"}), player.step({"command": "look"})
        assert (first.done, second.done, second.observation["truncated"]) == (False, True, True)
        player.reset(index=0, max_episode_steps=0)
        assert not any(player.step({"command": "look"}).done for _ in range(60))


async def test_messages_that_are_none(serve: Serve) -> None:
    from websockets.asyncio.client import connect

    url = serve()
    async with connect(url.replace("http", "ws") + "/ws") as raw:

        async def answer(message: str) -> dict[str, Any]:
            await raw.send(message)
            said: dict[str, Any] = json.loads(await raw.recv())
            return said

        early = await answer('{"type": "step", "data": {"command": "look"}}')
        assert early["data"]["message"].startswith("there is no game in this session: call reset first")
        assert (await answer('{"type": "reset", "data": {"index": 0}}'))["type"] == "observation"
        for message, code in (
            ("{", "INVALID_JSON"),
            ('{"type": "leave"}', "UNKNOWN_TYPE"),
            ('{"type": "step", "data": {}}', "VALIDATION_ERROR"),
            ('{"type": "step", "data": {"command": 5}}', "VALIDATION_ERROR"),
        ):
            said = await answer(message)
            assert (said["type"], said["data"]["code"]) == ("error", code)
        assert (await answer('{"type": "step", "data": {"command": "look"}}'))["type"] == "observation"
    assert post(f"{url}/step", b'{"action": {"command": "look"}}')[0] == 400


def test_no_more_sessions_than_are_allowed(serve: Serve) -> None:
    url = serve(max_sessions=2)
    with client(url) as first, client(url) as second:
        first.reset(index=0)
        second.reset(index=1)
        with client(url) as third, pytest.raises(RuntimeError, match="2/2 sessions active"):
            third.reset(index=0)
        second.close()
        with client(url) as third:
            assert third.reset(index=2).observation["text"]
        assert first.step({"command": "look"}).observation["text"]


async def test_a_message_that_is_too_large_ends_its_session_alone(serve: Serve) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    url = serve(max_message_bytes=2000)
    address = url.replace("http", "ws") + "/ws"
    async with connect(address) as good, connect(address) as large:
        await good.send('{"type": "reset", "data": {"index": 0}}')
        assert json.loads(await good.recv())["type"] == "observation"
        await large.send(json.dumps({"type": "step", "data": {"command": "look" * 1000}}))
        with pytest.raises(ConnectionClosed) as closed:
            await large.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await good.send('{"type": "step", "data": {"command": "look"}}')
        assert json.loads(await good.recv())["type"] == "observation"
    assert post(f"{url}/alfworld/tasks", json.dumps({"split": "x" * 3000}).encode())[0] == 413


async def test_an_idle_session_ends(serve: Serve) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    url = serve(idle_seconds=0.5, max_sessions=1)
    async with connect(url.replace("http", "ws") + "/ws") as idle:
        await idle.send('{"type": "reset", "data": {"index": 0}}')
        await idle.recv()
        with pytest.raises(ConnectionClosed) as closed:
            await idle.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4408, "idle for 0.5 s")
    counted = await asyncio.to_thread(metrics, url)
    assert (counted["alfworld_sessions"], counted["alfworld_sessions_expired_total"]) == (0, 1)

    def play() -> None:
        with client(url) as player:  # the only place is free again
            assert player.reset(index=0).observation["text"]

    await asyncio.to_thread(play)


@pytest.fixture
def command(data_root: Path) -> Iterator["subprocess.Popen[str]"]:
    arguments = [sys.executable, "-m", "alfworld_rl.cli", "serve", "--data-root", str(data_root), "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as server:
        yield server
        server.kill()


def test_the_command(command: "subprocess.Popen[str]", data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.stdout is not None
    line = command.stdout.readline()
    url = line.partition(" at ")[2].split()[0]
    assert line.startswith("Serving 3 train, 2 valid_seen games at http://127.0.0.1:")
    with client(url) as player:
        assert player.reset(split="valid_seen", index=1).observation["text"]
    taken = url.rpartition(":")[2]
    assert cli.main(["serve", "--data-root", str(data_root), "--port", taken]) == 2
    assert f"port {taken} (Address already in use); give another --host or --port" in capsys.readouterr().err
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 0


def test_the_example(serve: Serve) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "openenv_player.py"
    done = subprocess.run([sys.executable, example, serve(max_episode_steps=4)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n> ") == 4


def test_mistakes_are_named(
    data_root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["serve", "--data-root", str(data_root), "--splits", "valid_unseen"]) == 2
    assert "No games in" in capsys.readouterr().err
    assert cli.main(["serve", "--port", "70000", "--max-sessions", "0"]) == 2
    assert capsys.readouterr().err == (
        "error: --port must be at least 0 and at most 65535, not 70000; --max-sessions must be at least 1, not 0\n"
    )
    assert cli.main(["serve", "--data-root", str(data_root), "--max-sessions", "1000000000"]) == 2
    assert "open files, and the system allows" in capsys.readouterr().err
    monkeypatch.setattr("alfworld_rl.commands.serve.find_spec", lambda name: None)
    assert cli.main(["serve", "--data-root", str(data_root)]) == 2
    assert "uv sync --inexact --extra serve" in capsys.readouterr().err


def test_a_thousand_sessions_play_what_was_recorded(real_games: Path, recorded_plays: Path) -> None:
    """The official stack is tried too, behind the same server, by two sessions: it takes seconds for each."""
    official = "2" if find_spec("textworld") and find_spec("alfworld") else "0"
    command = [sys.executable, str(BENCHMARK), "--data-root", str(real_games), "--plays"]
    command += [str(path) for path in sorted(recorded_plays.glob("*.jsonl.xz"))]
    command += ["--sessions", "1000", "--steps", "5", "--official-sessions", official, "--official-steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("ours", "official"))]
    assert [(line[-6], line[-1]) for line in rows] == [("1,000", "0")] * 2 + [("2", "0")] * (official == "2")
