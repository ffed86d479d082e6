"""`eval --backend openai` against a service on loopback: what it sends, how it reads, what it makes of failures."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_models import call
from alfworld_rl.agents.calls import TOOL
from alfworld_rl.analysis.compare import mismatches
from alfworld_rl.backends import BackendConfig, open_backend
from alfworld_rl.backends.base import BackendError, SamplingError
from alfworld_rl.backends.local import LocalBackend
from alfworld_rl.backends.openai import ChatService, CompletionsService
from alfworld_rl.cli import main
from alfworld_rl.commands.eval import EvalConfig
from alfworld_rl.commands.eval import run as evaluate
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.results import read_results
from alfworld_rl.files import read_jsonl
from alfworld_rl.games import discover, generate
from alfworld_rl.types import SamplingParams, TrainingStart
from alfworld_rl.world import Game, World
from openai_server import FOR_GOOD, Fault, Json, OpenAIServer

KEY = "sk-a-key-that-nobody-may-see"
PARAMS = SamplingParams(max_tokens=16, seed=2**40 + 7)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    generate(root, train=2, valid_seen=3, valid_unseen=3, seed=3)
    return root


@pytest.fixture(scope="module")
def known(data_root: Path) -> dict[str, tuple[str, ...]]:
    """The walkthrough of every game by its first observation."""
    games = [
        Game.load(one.path) for split in ("valid_seen", "valid_unseen") for one in discover(data_root, split).games
    ]
    return {World(game).reset().observation: tuple(game.walkthrough) for game in games}


@pytest.fixture(autouse=True)
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "08-alfworld").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path / "results.jsonl"


def native(action: str, *, name: str = "alfworld_step", number: int = 0, **more: Any) -> Json:
    function = {"name": name, "arguments": json.dumps({"action": action})}
    return {"content": None, "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}], **more}


class Expert:
    """Wins each game as its file says, by native calls where tools are offered, else in text.

    `slips` is what it says at a turn before the walkthrough goes on.
    """

    def __init__(
        self, known: Mapping[str, tuple[str, ...]], slips: Mapping[int, Json] | None = None, **more: Any
    ) -> None:
        self.known = known
        self.slips = slips or {}
        self.more = more

    def __call__(self, body: Json) -> Json:
        opening = body["messages"][1]["content"]
        commands = next(commands for seen, commands in self.known.items() if seen in opening)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn in self.slips:
            return self.slips[turn]
        command = commands[turn - sum(slip < turn for slip in self.slips)]
        said = native(command, number=turn) if body.get("tools") else {"content": f"So be it.\n{call(command)}"}
        return {**said, **self.more}


@pytest.fixture
def server(known: dict[str, tuple[str, ...]]) -> Any:
    with OpenAIServer(Expert(known), key=KEY) as server:
        yield server


def run(server: OpenAIServer, data_root: Path, output: Path, *, retries: int | None = None, **changes: Any) -> Json:
    small = {"max_episode_steps": 60, "max_trajectory_tokens": 60_000, "concurrency": 3, "base_model": "m"}
    values = {"backend": "openai", "base_url": server.url, "data_root": data_root, "output": output, **small, **changes}
    config = EvalConfig.from_flat(values)
    if retries is None:
        return dict(evaluate(config))
    return dict(evaluate(config, open_backend=lambda one, **_: ChatService(one.base_url, max_retries=retries)))


def rows(output: Path) -> list[Json]:
    return [line for line in read_jsonl(output) if line["type"] == "trajectory"]


def test_native_calls_play_the_same_game_as_everybody(server: OpenAIServer, data_root: Path, output: Path) -> None:
    summary = run(server, data_root, output)
    assert summary["metrics"]["eval/all/success_rate"] == 1
    assert summary["metrics"]["eval/all/games"] == 6
    for row in rows(output):
        assert [message["role"] for message in row["messages"]] == [
            "system",
            "user",
            *["assistant", "tool"] * row["steps"],
        ]
        assert row["accepted"] == [True] * row["steps"]
    assert all(body["tools"] == [TOOL] and body["model"] == "m" for body in server.requests)
    first = server.requests[0]
    assert {"temperature": 0.01, "max_tokens": 2048}.items() <= first.items()
    assert 0 <= first["seed"] < 2**31
    assert len({body["seed"] for body in server.requests}) == len(server.requests)


def test_tokens_are_the_services_own_counts(server: OpenAIServer, data_root: Path, output: Path) -> None:
    usage = run(server, data_root, output)["usage"]
    assert usage["prefill"] == sum(prompt for prompt, _ in server.counted)
    assert usage["sampled"] == sum(written for _, written in server.counted)
    assert all(0 < row["sampled_tokens"] < row["prefill_tokens"] for row in rows(output))


def test_calls_in_text_are_explained_and_read(server: OpenAIServer, data_root: Path, output: Path) -> None:
    summary = run(server, data_root, output, tool_calls="text")
    assert summary["metrics"]["eval/all/success_rate"] == 1
    assert all("tools" not in body for body in server.requests)
    assert "A call has this form" in server.requests[0]["messages"][0]["content"]
    assert {message["role"] for body in server.requests for message in body["messages"][2:]} == {"assistant", "user"}


def test_results_say_how_the_service_was_asked(server: OpenAIServer, data_root: Path, output: Path) -> None:
    summaries = [
        run(server, data_root, output.with_name(f"{number}.jsonl"), **asked)
        for number, asked in enumerate(
            [{}, {"tool_calls": "text"}, {"send_reasoning": True}, {"extra_body": '{"a": 1}'}]
        )
    ]
    assert len({summary["protocol"] for summary in summaries}) == 4
    assert [summary["format"] for summary in summaries] == ["chat-native", "chat-text", "chat-native", "chat-native"]
    assert all(summary["settings"]["token_exact"] is False for summary in summaries)
    with pytest.raises(UsageError, match="--tool-calls was"):
        run(server, data_root, output.with_name("1.jsonl"), resume_output=True)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_kept_and_sent_back_only_when_told(
    known: dict[str, tuple[str, ...]], data_root: Path, output: Path, name: str
) -> None:
    more = {name: "The drawer, I think.", "reasoning_details": [{"type": "reasoning.text", "text": "The drawer"}]}
    with OpenAIServer(Expert(known, **more)) as server:
        run(server, data_root, output)
        assert all(message[name] == more[name] for row in rows(output) for message in row["messages"][2::2])
        assert all(row["thought_tokens"] == 4 * row["steps"] for row in rows(output))
        assert not any(more.keys() & message.keys() for body in server.requests for message in body["messages"])
        server.requests.clear()
        run(server, data_root, output.with_name("back.jsonl"), send_reasoning=True)
        said = [m for body in server.requests for m in body["messages"] if m["role"] == "assistant"]
        assert said
        assert all(more.items() <= message.items() for message in said)


def test_a_thought_in_the_text_is_recorded_and_not_sent_back(
    known: dict[str, tuple[str, ...]], data_root: Path, output: Path
) -> None:
    thought = f"<think>\nIf I say {call('look')}?\n</think>\n\n"
    expert = Expert(known)

    def reply(body: Json) -> Json:
        return {"content": thought + expert(body)["content"]}

    with OpenAIServer(reply) as server:
        assert run(server, data_root, output, tool_calls="text")["metrics"]["eval/all/success_rate"] == 1
    assert all(message["content"].startswith(thought) for row in rows(output) for message in row["messages"][2::2])
    said = [m["content"] for body in server.requests for m in body["messages"] if m["role"] == "assistant"]
    assert all(text.startswith("So be it.") for text in said)


TWO_CALLS = {"content": "", "tool_calls": [native("look", number=1)["tool_calls"][0], native("look")["tool_calls"][0]]}
BROKEN = {"id": "c", "type": "function", "function": {"name": "alfworld_step", "arguments": '{"action": "look'}}


@pytest.mark.parametrize(
    "slip",
    [
        {"content": ""},
        {"content": None},
        {"content": "I would rather talk."},
        {"content": call("look")},  # in text, where calls are native
        TWO_CALLS,
        {"content": None, "tool_calls": [BROKEN]},
        {"content": None, "tool_calls": [{"function": {"arguments": None}}]},
        {"content": None, "tool_calls": ["rubbish"]},
        native("look", name="another_tool"),
        native("fly to the moon"),
        {"content": [{"type": "text", "text": "Parts, "}, {"type": "text", "text": "too."}]},
    ],
)
def test_a_message_that_is_no_call_does_nothing_and_the_game_goes_on(
    known: dict[str, tuple[str, ...]], data_root: Path, output: Path, slip: Json
) -> None:
    with OpenAIServer(Expert(known, {1: slip})) as server:
        summary = run(server, data_root, output)
    assert summary["metrics"]["eval/all/success_rate"] == 1
    assert summary["metrics"]["eval/all/invalid_actions_mean"] == 1
    for row in rows(output):
        assert row["accepted"] == [index != 1 for index in range(row["steps"])]
        answer = next(message for message in row["messages"][5:] if message["role"] in ("user", "tool"))
        assert answer["content"].startswith("Nothing happens.")


def test_a_call_that_the_service_names_counts_though_text_was_asked_for(
    known: dict[str, tuple[str, ...]], data_root: Path, output: Path
) -> None:
    expert = Expert(known)
    with OpenAIServer(lambda body: expert({**body, "tools": [TOOL]})) as server:
        assert run(server, data_root, output, tool_calls="text")["metrics"]["eval/all/success_rate"] == 1


def test_a_message_that_the_limit_cuts_off_ends_the_trajectory(data_root: Path, output: Path) -> None:
    with OpenAIServer(lambda body: {"message": native("look"), "finish_reason": "length"}) as server:
        run(server, data_root, output)
    assert {(row["stop_reason"], row["steps"], tuple(row["accepted"])) for row in rows(output)} == {
        ("token_limit", 1, (False,))
    }


def test_the_limit_of_a_trajectory_is_judged_by_the_services_counts(data_root: Path, output: Path) -> None:
    with OpenAIServer(lambda body: native("look", number=len(body["messages"]))) as server:
        run(server, data_root, output, max_trajectory_tokens=600, max_assistant_tokens=500)
        lengths = {
            body["messages"][1]["content"]: sum(counts)
            for body, counts in zip(server.requests, server.counted, strict=True)
        }
        left = [body["max_tokens"] for body in server.requests]
    assert {row["stop_reason"] for row in rows(output)} == {"token_limit"}
    assert all(length >= 600 for length in lengths.values())
    assert min(left) < 500


def test_samples_of_a_game_have_their_own_seeds(server: OpenAIServer, data_root: Path, output: Path) -> None:
    summary = run(server, data_root, output, samples_per_game=2)
    assert summary["metrics"]["eval/all/pass@2"] == 1
    assert len({body["seed"] for body in server.requests}) == len(server.requests)
    assert sum(row["prefill_tokens"] for row in rows(output)) == sum(prompt for prompt, _ in server.counted)


def test_extra_body_adds_changes_and_leaves_out(server: OpenAIServer, data_root: Path, output: Path) -> None:
    extra = {"temperature": 1, "max_tokens": None, "max_completion_tokens": 99, "reasoning_effort": "low"}
    run(server, data_root, output, extra_body=json.dumps(extra))
    for body in server.requests:
        assert {"temperature": 1, "max_completion_tokens": 99, "reasoning_effort": "low"}.items() <= body.items()
        assert "max_tokens" not in body


def test_what_passes_is_waited_for(server: OpenAIServer, data_root: Path, output: Path) -> None:
    run(server, data_root, output)
    server.faults.extend(
        [Fault(500, "oops"), Fault(cut=True), Fault(503), Fault(429, wait_s=0.9, headers={"retry-after": "1"})]
    )
    run(server, data_root, output.with_name("again.jsonl"), concurrency=1)
    assert not server.faults
    assert server.too_early == 0
    assert output.read_bytes() == output.with_name("again.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(500, {"error": {"message": "the parser fell over"}}, FOR_GOOD), "status 500 .the parser fell over"),
        (Fault(500, "<html>bad gateway</html>", FOR_GOOD), "status 500"),
        (Fault(429, {"error": {"message": "slow down"}}, FOR_GOOD), "status 429 .slow down"),
        (Fault(400, {"error": {"message": "too long"}}), "status 400 .too long"),
        (Fault(cut=True), "could not be reached"),
        (Fault(200, '{"choices": [{"mess'), "not JSON"),
        (Fault(200, "[]"), "no object"),
        (Fault(200, {"choices": []}), "no chat completion"),
        (Fault(200, {"error": {"message": "upstream died"}}), "upstream died"),
        (Fault(200, {"choices": [{"message": {"content": "hi"}}]}), "usage"),
    ],
)
def test_one_failed_request_fails_one_game_and_it_is_played_again(
    server: OpenAIServer, data_root: Path, output: Path, known: dict[str, tuple[str, ...]], fault: Fault, said: str
) -> None:
    run(server, data_root, output.with_name("whole.jsonl"))
    victim = list(known)[2]

    def fault_of(body: Json) -> Fault | None:
        return fault if victim in body["messages"][1]["content"] and len(body["messages"]) > 4 else None

    server.fault_of = fault_of
    with pytest.raises(AlfworldRLError, match=rf"1 of 6 games were not played to their end .*{said}.*--resume-output"):
        run(server, data_root, output, retries=0)
    assert len(rows(output)) == 5
    server.fault_of = lambda body: None
    run(server, data_root, output, resume_output=True)
    assert output.read_bytes() == output.with_name("whole.jsonl").read_bytes()


def test_the_cost_ceiling_holds_and_counts_failed_games(server: OpenAIServer, data_root: Path, output: Path) -> None:
    run(server, data_root, output)
    dearest = max(row["prefill_tokens"] for row in rows(output))
    prices = output.with_name("prices.toml")
    prices.write_text(
        'date = "today"\nsource = "a test"\ncurrency = "EUR"\n'
        "[per_million_tokens]\nprefill = 1000000\ncached = 1000000\nsampled = 0\ntrained = 0\n"
    )
    costly = {"prices": prices, "max_cost": 1.2 * dearest, "concurrency": 1, "overwrite_output": True}
    with pytest.raises(AlfworldRLError, match=r"reached --max-cost .*EUR.*--resume-output"):
        run(server, data_root, output, **costly)
    assert 1 <= len(rows(output)) < 6
    server.fault_of = lambda body: Fault(200, "{}") if len(body["messages"]) > 6 else None
    with pytest.raises(AlfworldRLError, match="reached --max-cost"):
        run(server, data_root, output, **{**costly, "max_cost": 1.0})


def test_a_refused_key_ends_the_run_in_a_sentence_that_does_not_hold_it(
    server: OpenAIServer,
    data_root: Path,
    output: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-wrong-one")
    arguments = ["eval", "--backend", "openai", "--base-model", "m", "--base-url", server.url]
    code = main([*arguments, "--data-root", str(data_root), "--output", str(output), "--debug"])
    shown = "".join(capsys.readouterr())
    assert code == 1
    assert "the service refuses the key in OPENAI_API_KEY (Incorrect API key provided: ***)" in shown
    assert "sk-a-wrong-one" not in shown
    assert not server.seen
    assert not output.exists()


def test_a_key_that_is_refused_later_ends_the_run_too(server: OpenAIServer, data_root: Path, output: Path) -> None:
    refused = Fault(401, {"error": {"message": f"expired: {KEY}"}})
    server.fault_of = lambda body: refused if len(server.requests) > 30 else None
    with pytest.raises(AlfworldRLError, match=r"refuses the key .*expired: \*\*\*.*--resume-output"):
        run(server, data_root, output)
    written = "".join(path.read_text() for path in output.parent.glob("*") if path.is_file())
    assert KEY not in written


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault(400, {"error": {"message": "max_tokens is not supported"}}),
            "max_tokens is not supported.*--extra-body",
        ),
        (Fault(404, {"error": {"message": "no model m"}}), "no model m.*--base-model"),
        (Fault(403, {"error": {"message": "not yours"}}), "not yours"),
        (Fault(402, {"error": {"message": "no credit"}}), "cannot pay.*no credit"),
        (Fault(429, {"error": {"message": "broke", "code": "insufficient_quota"}}, FOR_GOOD), "cannot pay.*broke"),
    ],
)
def test_what_no_request_can_pass_ends_the_run_at_once(
    server: OpenAIServer, data_root: Path, output: Path, fault: Fault, said: str
) -> None:
    server.fault_of = lambda body: fault
    with pytest.raises(BackendError, match=said):
        run(server, data_root, output, concurrency=1)
    assert len(server.seen) == 1
    assert not output.exists()


def test_no_server_and_no_key_are_said_before_anything(
    data_root: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer() as gone:
        pass
    with pytest.raises(BackendError, match=r"nothing answers at http://127.0.0.1:\d+/v1 .*--base-url"):
        run(gone, data_root, output)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        open_backend(BackendConfig(backend="openai", base_model="m"), runs_dir=output.parent)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"base_model": None}, "--backend openai needs --base-model"),
        ({"base_url": "ftp://127.0.0.1"}, "--base-url must be an address"),
        ({"base_url": "http://me:secret@127.0.0.1/v1"}, "--base-url must not hold a user or a password"),
        ({"extra_body": "[1]"}, "--extra-body must be a JSON object"),
        ({"format": "react"}, "--format cannot be chosen"),
        ({"thinking": "on"}, "--thinking cannot be chosen"),
        ({"model_path": "local://a/sampler_weights/b"}, "is no model of the service"),
    ],
)
def test_what_cannot_be_is_refused(
    server: OpenAIServer, data_root: Path, output: Path, values: Json, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        run(server, data_root, output, **values)
    assert not server.seen


@pytest.mark.parametrize("command", ["train", "sft"])
def test_training_refuses_it_in_a_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--backend", "openai", "--base-model", "m"]) == 2
    said = capsys.readouterr().err
    assert "--backend openai can be measured but not trained, for it gives no gradients; take --backend" in said
    assert said.count("\n") == 1


def test_no_trainer_and_no_sampler_of_messages(server: OpenAIServer) -> None:
    backend = ChatService(server.url)
    with pytest.raises(UsageError, match="not trained"):
        backend.trainer(TrainingStart(base_model="m"), lora_rank=8, seed=0)
    with pytest.raises(UsageError, match="messages"):
        backend.sampler("m")


def test_a_length_that_the_server_names_is_checked(data_root: Path, output: Path) -> None:
    with OpenAIServer(models=[{"id": "m", "max_model_len": 4096}]) as server:
        with pytest.raises(UsageError, match="sequences of 4096 tokens"):
            run(server, data_root, output)
        assert not server.seen


def test_a_client_outlives_its_event_loop(server: OpenAIServer, known: dict[str, tuple[str, ...]]) -> None:
    model = ChatService(server.url).chat_model("m")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": next(iter(known))}]
    replies = [asyncio.run(model.chat(messages, [TOOL], PARAMS)) for _ in range(2)]
    assert replies[0] == replies[1]
    assert replies[0].usage.prefill > 0


# Token ids in and out, as vLLM and SGLang do it.


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return LocalBackend(tmp_path_factory.mktemp("runs")).sampler("alfworld-tiny")


def vllm(local: Any, change: Callable[[Json], None] = lambda answer: None) -> Callable[[Json], Json]:
    """What vLLM answers, by its documented fields, with the local engine as its engine."""

    def complete(body: Json) -> Json:
        assert body["return_token_ids"]
        params = SamplingParams(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            top_p=body.get("top_p", 1),
            seed=body["seed"],
            stop=tuple(body.get("stop", ())),
        )
        sampled = asyncio.run(local.sample(body["prompt"], params, n=body["n"]))
        choices = [
            {
                "index": index,
                "text": local.tokenizer.decode(one.tokens, skip_special_tokens=True),
                "finish_reason": one.stop_reason,
                "logprobs": {"token_logprobs": list(one.logprobs)},
                "token_ids": list(one.tokens),
                "prompt_token_ids": body["prompt"],
            }
            for index, one in enumerate(sampled.completions)
        ]
        counts = {"prompt_tokens": sampled.usage.prefill, "completion_tokens": sampled.usage.sampled}
        answer = {"object": "text_completion", "choices": choices[::-1], "usage": counts}
        change(answer)
        return answer

    return complete


TINY = {"max_episode_steps": 8, "max_assistant_tokens": 32, "admissible_commands": "none", "temperature": 0}


def test_a_served_model_is_measured_exactly_as_a_local_one(local: Any, data_root: Path, output: Path) -> None:
    config = {"data_root": data_root, "max_trajectory_tokens": 8000, "backend": "local", **TINY}
    here = evaluate(EvalConfig.from_flat({**config, "output": output}))
    served = output.with_name("served.jsonl")
    with OpenAIServer(complete=vllm(local)) as server:
        there = run(
            server,
            data_root,
            served,
            api="completions",
            tokenizer=str(_folder()),
            base_model="alfworld-tiny",
            **TINY | {"max_trajectory_tokens": 8000},
        )
    assert rows(output) == rows(served)
    assert here["protocol"] == there["protocol"]
    assert "token_exact" not in there["settings"]
    assert mismatches({"here": read_results(output), "there": read_results(served)}) == []


def _folder() -> Path:
    from alfworld_rl.backends.local import builtin

    return builtin.path("alfworld-tiny")


def sample(server: OpenAIServer, *, texts: bool = False, n: int = 2) -> Any:
    sampler = CompletionsService(server.url, texts=texts, tokenizer=str(_folder())).sampler("m")
    prompt = sampler.tokenizer.encode("<|im_start|>user\nlook<|im_end|>\n", add_special_tokens=False)
    return asyncio.run(sampler.sample(prompt, PARAMS, n=n))


def test_completions_come_with_ids_and_logprobs_in_their_order(local: Any) -> None:
    with OpenAIServer(complete=vllm(local)) as server:
        sampled = sample(server)
        assert server.seen[0]["n"] == 2
    prompt = local.tokenizer.encode("<|im_start|>user\nlook<|im_end|>\n", add_special_tokens=False)
    seed = server.seen[0]["seed"]
    expected = asyncio.run(local.sample(prompt, SamplingParams(max_tokens=16, seed=seed), n=2))
    assert [one.tokens for one in sampled.completions] == [one.tokens for one in expected.completions]
    assert sampled.completions[0].logprobs == pytest.approx(expected.completions[0].logprobs)
    assert sampled.usage.sampled == expected.usage.sampled


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda answer: answer["choices"][0].pop("token_ids"), BackendError, "no token ids.*--api"),
        (lambda answer: answer["choices"][0].update(prompt_token_ids=[1]), BackendError, "other tokens than were sent"),
        (lambda answer: answer["choices"][0].update(logprobs=None), SamplingError, "logprobs"),
        (lambda answer: answer.update(choices=None), SamplingError, "no completion"),
        (lambda answer: answer.pop("usage"), SamplingError, "usage"),
    ],
)
def test_an_answer_that_is_not_exact_is_refused(
    local: Any, change: Callable[[Json], None], kind: type[Exception], said: str
) -> None:
    with OpenAIServer(complete=vllm(local, change)) as server, pytest.raises(kind, match=said):
        sample(server)


@pytest.mark.parametrize(
    ("counts", "kind", "said"),
    [
        ((1, 0), BackendError, "read 7 tokens where ours are 6.*--tokenizer"),
        ((0, 3), SamplingError, "nobody knows which"),
    ],
)
def test_texts_are_taken_only_where_the_counts_agree(
    local: Any, counts: tuple[int, int], kind: type[Exception], said: str
) -> None:
    def complete(body: Json) -> Json:
        prompt = local.tokenizer.encode(body["prompt"], add_special_tokens=False)
        usage = {"prompt_tokens": len(prompt) + wrong[0], "completion_tokens": 2 + wrong[1]}
        return {"choices": [{"text": "look", "finish_reason": "stop"}], "usage": usage}

    wrong = (0, 0)
    with OpenAIServer(complete=complete) as server:
        right = sample(server, texts=True)
        assert [one.tokens for one in right.completions] == [
            (*local.tokenizer.encode("look", add_special_tokens=False), local.tokenizer.eos_token_id)
        ] * 2
        assert len({body["seed"] for body in server.seen}) == 2
        wrong = counts
        with pytest.raises(kind, match=said):
            sample(server, texts=True)
