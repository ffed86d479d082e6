"""Every command of the document, as it is written there, by a person who has an account: on a loopback PyTRIO.

The repository is copied, so that `uv sync` makes an environment of its own; HOME is a new folder, so that `trio login`
is needed and what it writes goes nowhere else. Only the number of games is smaller than in the document. Two things
cannot be reached and have stand-ins: the files that alfworld-download fetches, and SwanLab's cloud (`swanlab login`
is left out, and `--swanlab-mode online` reports to a module that writes down what it is told).
"""

import json
import os
import pty
import re
import shutil
import subprocess
import termios
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from alfworld_rl.backends.local import builtin
from alfworld_rl.games import GameRef, discover
from alfworld_rl.world import Game
from e2e.document import DOCUMENT, command, commands
from trio_server import API_KEY, MODEL, LearningEngine, Model, ScriptedEngine, Service, TrioServer
from trio_server.engines import walkthroughs

REPOSITORY = Path(__file__).resolve().parents[2]
STUBS = Path(__file__).parent / "stubs"
GAMES = {"train": 8, "valid_seen": 3, "valid_unseen": 2}
FOLDER = builtin.path("alfworld-tiny")


class Person:
    """Runs commands in a shell at the root of their copy of the repository."""

    def __init__(self, home: Path, root: Path, environment: dict[str, str]) -> None:
        self.home, self.root, self.environment = home, root, environment

    def run(self, text: str, *, stub: str = "", answer: str = "", fails: int = 0) -> str:
        """What the command prints; `answer` is typed at its terminal, `fails` the exit code that it has to have."""
        environment = self.environment | ({"PYTHONPATH": str(STUBS / stub)} if stub else {})
        terminal, stdin = pty.openpty()
        try:
            process = subprocess.Popen(
                ["bash", "-c", text],
                cwd=self.root,
                env=environment,
                stdin=stdin if answer else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if answer:
                _wait_for_a_question(process, terminal)
                os.write(terminal, answer.encode())
            output, _ = process.communicate(timeout=900)
        finally:
            os.close(terminal)
            os.close(stdin)
        assert process.returncode == fails, f"{text}\nexited with {process.returncode}:\n{output[-6000:]}"
        assert API_KEY not in output
        return output


def _wait_for_a_question(process: "subprocess.Popen[str]", terminal: int) -> None:
    """Until the program reads keys one by one; what is typed before that is thrown away."""
    while process.poll() is None and termios.tcgetattr(terminal)[3] & termios.ICANON:
        time.sleep(0.05)


@pytest.fixture
def document() -> str:
    if not DOCUMENT.is_file():
        pytest.skip(f"the document is not here: {DOCUMENT}")
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.fixture
def games(real_games: Path) -> list[GameRef]:
    """A few games of each split, those that are won in the fewest steps."""

    def steps(game: GameRef) -> tuple[int, str]:
        return len(Game.load(game.path).walkthrough), game.game_id

    return [
        game
        for split, number in GAMES.items()
        for game in sorted(discover(real_games, split).games[:: 25 if split == "train" else 6], key=steps)[:number]
    ]


@pytest.fixture
def service() -> Service:
    return Service(ScriptedEngine(FOLDER), [Model(MODEL, FOLDER)])


@pytest.fixture
def person(tmp_path: Path, service: Service, games: Sequence[GameRef], real_games: Path) -> Iterator[Person]:
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH, and every command of the document begins with it")
    root, home, downloads = tmp_path / "alfworld-agent-rl", tmp_path / "home", tmp_path / "downloads"
    left = shutil.ignore_patterns(".*cache", ".venv", ".git", "__pycache__")
    output = {"datasets", "runs", "eval_results"}

    def ignored(folder: str, names: list[str]) -> set[str]:
        return left(folder, names) | (output & set(names) if Path(folder).name == "08-alfworld" else set())

    # With the lock file, if uv has made one: without it uv builds some of alfworld's dependencies again.
    shutil.copytree(REPOSITORY, root, ignore=ignored)
    home.mkdir()
    _pack(downloads, games, real_games)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTRIO_", "SWANLAB_"))}
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "ALFWORLD_DATA"):
        environment.pop(name, None)
    kept = {
        "UV_CACHE_DIR": _said("uv", "cache", "dir"),
        "UV_PYTHON_INSTALL_DIR": _said("uv", "python", "dir"),
        "PYENV_ROOT": environment.get("PYENV_ROOT", str(Path.home() / ".pyenv")),
        "XDG_CONFIG_HOME": environment.get("XDG_CONFIG_HOME", str(Path.home() / ".config")),
    }
    with TrioServer(service) as server:
        environment |= kept | {
            "HOME": str(home),
            "TMPDIR": str(tmp_path),
            "UV_PROJECT_ENVIRONMENT": str(tmp_path / "environment"),
            # `trio login` is found where an activated environment would have it.
            "PATH": f"{tmp_path / 'environment' / 'bin'}:{environment['PATH']}",
            "PYTRIO_BASE_URL": server.url,
            "DOWNLOADS": str(downloads),
            "SWANLAB_STUB": str(tmp_path / "swanlab.jsonl"),
            "SWANLAB_API_KEY": "logged-in",
        }
        yield Person(home, root, environment)


def test_the_commands_of_the_document(
    document: str, person: Person, service: Service, games: Sequence[GameRef], tmp_path: Path
) -> None:
    ledger, root = service.ledger, person.root
    run: list[str] = []

    def as_written(*parts: str) -> str:
        run.append(command(document, *parts))
        return run[-1]

    # 1. Install and log in.
    person.run(as_written("uv sync"))
    person.run("python -c 'import alfworld, textworld'")
    person.run(as_written("trio login"), answer=f"{API_KEY}\n")
    run.append(command(document, "swanlab login"))
    assert API_KEY in (person.home / ".pytrio" / "config.toml").read_text()

    # 2. Download; without games the first thing that is said is how to get them.
    assert "alfworld-download" in person.run(command(document, "alfworld-smoke"), fails=2)
    person.run(as_written("alfworld-download"), stub="download")
    data_root = root / "08-alfworld" / "datasets" / "alfworld"
    for split, number in GAMES.items():
        assert len(discover(data_root, split).games) == number

    # 3. One update, for real.
    service.engine = LearningEngine(tmp_path / "engine")
    saved = _saved(person.run(as_written("alfworld-smoke"), stub="swanlab"))
    assert [kind for kind, _ in saved] == ["training_state", "sampler_weights"]
    assert len(ledger.first_prompts()) == 8
    _assert_nothing_was_made_up(service)
    assert not (tmp_path / "swanlab.jsonl").exists()

    # 4. The formal run. The script wins, or first says something that is no call of the tool.
    service.engine = ScriptedEngine(FOLDER, walkthroughs(data_root))
    service.forget_samplers()
    for records in (ledger.samples, ledger.trained, ledger.optimizer_steps):
        records.clear()
    service.faults.gather(64)  # the second turns of the 64 trajectories have to come together
    output = person.run(as_written("--max-steps 80"), stub="swanlab")
    saved = _saved(output)
    assert [kind for kind, _ in saved] == ["training_state", "sampler_weights"] * 4
    assert service.saved("training_state")[-4:] == [uri for kind, uri in saved if kind == "training_state"]
    assert service.saved("sampler_weights")[-4:] == [uri for kind, uri in saved if kind == "sampler_weights"]
    assert [checkpoint.step for checkpoint in service.checkpoints.values() if not checkpoint.temporary][-8:] == [
        step for step in (20, 40, 60, 80) for _ in range(2)
    ]
    assert len(ledger.optimizer_steps) == 80
    assert {parameters["learning_rate"] for _, parameters in ledger.optimizer_steps} == {1e-6}
    assert len(ledger.first_prompts()) == 80 * 8 * 8
    assert ledger.most_in_flight == 64
    _assert_nothing_was_made_up(service)
    metrics = [
        json.loads(line)
        for line in (root / "08-alfworld/runs/alfworld-agent-rl-qwen35-4b/metrics.jsonl").read_text().splitlines()
    ]
    assert [line["update"] for line in metrics] == list(range(1, 81))
    assert metrics[-1]["trainer/total_sampled_tokens"] == sum(len(sample.tokens) for sample in ledger.samples)
    assert metrics[-1]["trainer/total_trained_tokens"] == sum(len(datum.tokens_T) for datum in ledger.trained_data())
    told = [json.loads(line) for line in (tmp_path / "swanlab.jsonl").read_text().splitlines()]
    assert told[0]["mode"] == "online"
    assert [line["step"] for line in told if line["call"] == "log"] == list(range(1, 81))

    # 5. and 6. Evaluate the base model and two checkpoints, played by the built-in policy itself.
    service.engine = LearningEngine(tmp_path / "engine")
    service.forget_samplers()
    weights = dict(zip((20, 40, 60, 80), (uri for kind, uri in saved if kind == "sampler_weights"), strict=True))
    states = dict(zip((20, 40, 60, 80), (uri for kind, uri in saved if kind == "training_state"), strict=True))
    base, checkpoint = as_written("base-qwen35-4b-eval.jsonl"), as_written("checkpoint-80steps.jsonl")

    def of_step(step: int, uri: str) -> str:
        return checkpoint.replace("trio://RUN_ID/sampler_weights/WEIGHTS_NAME", uri).replace("80steps", f"{step}steps")

    person.run(base)
    for step in (40, 80):
        person.run(of_step(step, weights[step]))
    results = root / "08-alfworld" / "eval_results"
    _assert_bookkeeping(results / "base-qwen35-4b-eval.jsonl", None, games)
    for step in (40, 80):
        _assert_bookkeeping(results / f"checkpoint-{step}steps.jsonl", weights[step], games)
    before = (results / "checkpoint-80steps.jsonl").read_bytes()
    assert "--overwrite-output" in person.run(of_step(80, weights[80]), fails=2)
    assert "Saved sampler weights" in person.run(of_step(80, states[80]) + " --overwrite-output", fails=2)
    assert (results / "checkpoint-80steps.jsonl").read_bytes() == before
    assert "--overwrite-output" in document
    person.run(of_step(80, weights[80]) + " --overwrite-output")
    _assert_bookkeeping(results / "checkpoint-80steps.jsonl", weights[80], games)

    # 7. The figure.
    figure = root / "08-alfworld" / "images" / "alfworld_checkpoint_evaluation.png"
    figure.unlink(missing_ok=True)
    person.run(as_written("analysis.py"))
    assert figure.read_bytes().startswith(b"\x89PNG")

    assert run == commands(document)
    _assert_no_key_in(root)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _pack(downloads: Path, games: Sequence[GameRef], data_root: Path) -> None:
    """The files of ALFWorld's releases, with only these games in them."""
    downloads.mkdir()
    for name in ("json_2.1.1_json.zip", "json_2.1.1_pddl.zip"):
        zipfile.ZipFile(downloads / name, "w").close()
    (downloads / "mrcnn_alfred_objects_sep13_004.pth").write_bytes(b"")
    with zipfile.ZipFile(downloads / "json_2.1.2_tw-pddl.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for game in games:
            for file in game.path.parent.iterdir():
                archive.write(file, file.relative_to(data_root))


def _saved(output: str) -> list[tuple[str, str]]:
    """(kind, URI) of every `Saved` line, in order; the words and the kind have to agree."""
    kinds = {"state": "training_state", "sampler weights": "sampler_weights"}
    found = []
    for words, uri in re.findall(r"^Saved (state|sampler weights): (\S+)$", output, re.MULTILINE):
        assert re.fullmatch(rf"trio://[^/]+/{kinds[words]}/[^/]+", uri)
        found.append((kinds[words], uri))
    return found


def _assert_nothing_was_made_up(service: Service) -> None:
    service.ledger.check_training()
    assert all(record.total_active_tokens > 0 for record in service.ledger.trained)


def _assert_bookkeeping(path: Path, model_path: str | None, games: Sequence[GameRef]) -> None:
    *lines, summary = [json.loads(line) for line in path.read_text().splitlines()]
    expected = [game.game_id for game in games if game.split != "train"]
    assert sorted(line["game_id"] for line in lines) == sorted(expected)
    assert {line["type"] for line in lines} == {"trajectory"}
    assert summary["type"] == "summary"
    assert summary["base_model"] == MODEL
    assert summary["model_path"] == model_path
    for split in ("valid_seen", "valid_unseen"):
        played = [line for line in lines if line["split"] == split]
        assert summary["metrics"][f"eval/{split}/games"] == len(played) == GAMES[split]
        won = sum(line["won"] for line in played)
        assert summary["metrics"][f"eval/{split}/success_rate"] == pytest.approx(won / len(played))


def _assert_no_key_in(root: Path) -> None:
    for path in (root / "08-alfworld").rglob("*"):
        if path.is_file() and path.suffix in (".json", ".jsonl", ".toml", ".log", ".txt"):
            assert API_KEY not in path.read_text(encoding="utf-8"), path
