"""A real server, `transformers serve`, on loopback: a served model plays the very games that it plays in this process.

Its chat endpoint reads calls by a `response_template`. A folder of a Qwen3 model that has none is read as if it wrote
JSON, and the built-in policy's calls, which are XML, are answered with status 500: see the last test. So the copies
that are spoken to in messages have a template: one that reads calls, one that reads nothing and gives the text.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alfworld_rl.agents.calls import asked_action
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.openai import ChatService
from alfworld_rl.commands.eval import EvalConfig
from alfworld_rl.commands.eval import run as evaluate
from alfworld_rl.errors import AlfworldRLError
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import generate

FOLDER = builtin.path("alfworld-tiny")
START_PATIENCE_S = 240

CONTENT = {"close_pattern": r"\s*<\|im_end\|>", "content": "text"}
READS_CALLS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": CONTENT,
    },
}
READS_NOTHING = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {"content": CONTENT},
}


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=2, valid_seen=10, valid_unseen=10, seed=5)
    return root


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [Path(sys.executable).parent / "transformers", "serve", "--host", "127.0.0.1", "--port", str(port)]
    # One thread each: threads that wait for each other in so small a model only take turns.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "--device", "cpu", "--dtype", "float32"], stdout=output, stderr=output, env=environment
        )
    try:
        patience = time.monotonic() + START_PATIENCE_S
        while not _answers(f"http://127.0.0.1:{port}/health"):
            if server.poll() is not None or time.monotonic() > patience:
                pytest.fail(f"transformers serve did not start: {log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def copied(folder: Path, response_template: dict[str, Any] | None = None, *, tools: bool = True) -> str:
    shutil.copytree(FOLDER, folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"response_template": response_template}))
    if not tools:
        template = folder / "chat_template.jinja"
        template.write_text("{%- set tools = none -%}\n" + template.read_text())
    return str(folder)


def play(data_root: Path, name: str, **values: Any) -> dict[str, list[tuple[str | None, bool]]]:
    """What was asked for in every game, step by step, and whether it was done."""
    tiny = {"temperature": 0, "max_episode_steps": 8, "max_assistant_tokens": 32, "admissible_commands": "none"}
    output = Path(f"{name}.jsonl")
    config = {**tiny, "max_trajectory_tokens": 8000, "data_root": data_root, "output": output, **values}
    evaluate(EvalConfig.from_flat(config))
    return {
        row["game_id"]: [
            (asked_action(message), accepted)
            for message, accepted in zip(
                [message for message in row["messages"] if message["role"] == "assistant"], row["accepted"], strict=True
            )
        ]
        for row in read_jsonl(output)
        if row["type"] == "trajectory"
    }


@pytest.fixture(scope="module")
def here(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """How the built-in policy plays in this process."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("here")
        (home / "08-alfworld").mkdir()
        patch.chdir(home)
        return play(data_root, "here", backend="local", base_model="alfworld-tiny")


def test_in_the_text_of_its_tokens(url: str, data_root: Path, here: Any) -> None:
    served = {"backend": "openai", "base_url": url, "base_model": str(FOLDER)}
    there = play(data_root, "there", api="text-completions", **served)
    assert len(there) == 20
    assert there == here


def test_in_messages_with_native_calls(url: str, data_root: Path, here: Any, tmp_path: Path) -> None:
    model = copied(tmp_path / "reads-calls", READS_CALLS)
    there = play(data_root, "there", backend="openai", base_url=url, base_model=model)
    assert len(there) == 20
    assert there == here


def test_in_messages_with_calls_in_text(url: str, data_root: Path, tmp_path: Path) -> None:
    """In this process, too, the model is then not shown a tool by its template, but told a form of calls."""
    few = {"max_episode_steps": 6}
    model = copied(tmp_path / "reads-nothing", READS_NOTHING)
    there = play(data_root, "there", backend="openai", base_url=url, tool_calls="text", base_model=model, **few)
    plain = copied(tmp_path / "plain", tools=False)
    here = play(data_root, "here", backend="local", base_model=plain, **few)
    assert len(there) == 20
    assert there == here


def test_what_its_parser_cannot_read_fails_games_and_not_the_run(url: str, data_root: Path, tmp_path: Path) -> None:
    config = EvalConfig.from_flat(
        {
            "backend": "openai",
            "base_url": url,
            "base_model": str(FOLDER),
            "tool_calls": "text",
            "data_root": data_root,
            "limit_per_split": 1,
            "output": tmp_path / "none.jsonl",
        }
    )
    with pytest.raises(AlfworldRLError, match=r"2 of 2 games were not played .*status 500"):
        evaluate(config, open_backend=lambda one, **_: ChatService(one.base_url, max_retries=0))
