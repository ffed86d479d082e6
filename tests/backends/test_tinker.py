"""The tinker backend as far as it needs no server: what it sends, what it says when there is none, what it unpacks.

With a server, tests/backends/conformance and tests/skyrl do the rest.
"""

import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from alfworld_rl.backends.base import BackendError, Checkpoint, CheckpointError, Weights
from alfworld_rl.backends.batch import loss_metrics, total_weight
from alfworld_rl.backends.local import builtin
from alfworld_rl.backends.local.losses import token_losses
from alfworld_rl.backends.tinker import TinkerBackend
from alfworld_rl.backends.tinker.archive import unpack
from alfworld_rl.backends.tinker.data import Row, rows
from alfworld_rl.backends.tinker.service import ANY_KEY, HOSTED_URL, Connection
from alfworld_rl.backends.tinker.tokenizers import Vocabulary
from alfworld_rl.errors import UsageError
from alfworld_rl.types import Datum, LossName, LossSpec

KEY = "tml-a-secret-key"


def datum(length: int, trained: int, seed: int) -> Datum:
    random = np.random.default_rng(seed)
    mask_T = np.arange(length) >= length - trained
    return Datum(
        random.integers(0, 100, length).astype(np.int32),
        random.integers(0, 100, length).astype(np.int32),
        mask_T,
        np.where(mask_T, -random.random(length), 0).astype(np.float32),
        np.where(mask_T, random.normal(size=length), 0).astype(np.float32),
    )


DATA = [datum(9, 2, 0), datum(30, 11, 1), datum(5, 5, 2)]  # the last has no position that is not trained on


# --- what is sent


def token_loss(row: Row) -> np.ndarray:
    """Any loss that is linear in the advantage: a number for the position, times it."""
    return row.advantages_T * np.sin(np.arange(len(row.tokens_T)) + row.tokens_T[0])


def mean_of_tokens(data: list[Datum]) -> float:
    total = sum(
        float((one.advantages_T * np.sin(np.arange(len(one.tokens_T)) + one.tokens_T[0])).sum()) for one in data
    )
    return total / sum(int(one.mask_T.sum()) for one in data)


def mean_of_sequences(sent: list[Row]) -> float:
    """What SkyRL's JAX engine makes of token losses."""
    return float(np.mean([(row.weights_T * token_loss(row)).sum() / row.weights_T.sum() for row in sent]))  # type: ignore[operator, union-attr]


def sum_of_tokens(sent: list[Row]) -> float:
    """What the hosted service and SkyRL's torch engines make of them."""
    return float(sum((token_loss(row) * (1 if row.weights_T is None else row.weights_T)).sum() for row in sent))


@pytest.mark.parametrize("data", [DATA, DATA[:1], DATA[2:], [*DATA, *DATA[1:]]])
def test_every_server_computes_the_mean_over_all_tokens(data: list[Datum]) -> None:
    expected = pytest.approx(mean_of_tokens(data), rel=1e-5)
    divisor = total_weight(data, LossSpec("ppo"))
    balanced = rows(data, divisor, weighted=True)
    assert mean_of_sequences(balanced) == expected
    assert sum_of_tokens(balanced) == expected
    assert sum_of_tokens(rows(data, divisor, weighted=False)) == expected


def test_what_is_sent_is_what_was_sampled() -> None:
    for one, row in zip(DATA, rows(DATA, 18.0, weighted=True), strict=True):
        length = len(one.tokens_T)
        assert np.array_equal(row.tokens_T[:length], one.tokens_T)
        assert np.array_equal(row.targets_T[:length], one.targets_T)
        assert np.array_equal(row.logprobs_T[:length], one.logprobs_T)
        # SkyRL's torch engines shift by themselves: the next token has to be the target.
        assert length == len(row.tokens_T) or row.tokens_T[length] == one.targets_T[-1]
        assert not row.advantages_T[length:].any()
        assert not row.advantages_T[:length][~one.mask_T].any()


@pytest.mark.parametrize("name", ["ppo", "importance_sampling", "cispo", "cross_entropy"])
def test_metrics_from_logprobs_are_those_of_the_local_engine(name: LossName) -> None:
    loss = LossSpec(name)
    data = [datum(40, 20, seed) for seed in range(3)]
    if name == "cross_entropy":
        data = [Datum(d.tokens_T, d.targets_T, d.mask_T, d.logprobs_T, np.abs(d.advantages_T)) for d in data]
    new = [np.where(one.mask_T, one.logprobs_T + np.sin(np.arange(40)) / 2, -1.0) for one in data]
    found = loss_metrics(data, new, loss, total_weight(data, loss))
    columns = [
        np.concatenate([getattr(one, part)[one.mask_T] for one in data]) for part in ("logprobs_T", "advantages_T")
    ]
    now_K = torch.tensor(np.concatenate([one[of.mask_T] for one, of in zip(new, data, strict=True)]))
    expected = token_losses(loss, now_K, *map(torch.tensor, columns))
    assert found["token_count"] == 60
    assert found["loss_sum"] == pytest.approx(float(expected.losses_K.sum()), rel=1e-5)
    assert found["loss_mean"] * total_weight(data, loss) == pytest.approx(found["loss_sum"])
    if name != "cross_entropy":
        assert found["clip_fraction"] == pytest.approx(float(expected.clipped_K.double().mean()))
        assert found["approx_kl"] > 0


def test_end_tokens_are_stops_and_go_as_texts_where_texts_are_asked_for() -> None:
    vocabulary = Vocabulary.of(str(builtin.path("alfworld-tiny")))
    assert vocabulary.stops(()) == [vocabulary.tokenizer.eos_token_id]
    assert vocabulary.stops(("\n",)) == ["\n", "<|im_end|>"]


# --- where no server is, or another


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_address_is_the_flag_s_then_the_environment_s_then_the_hosted_service_s(
    no_key: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="TINKER_API_KEY"):
        Connection.find(None)
    assert Connection.find("http://127.0.0.1:8000/") == Connection("http://127.0.0.1:8000", ANY_KEY)
    no_key.setenv("TINKER_API_KEY", KEY)
    assert Connection.find(None) == Connection(HOSTED_URL, KEY)
    assert Connection.find(None).hosted
    no_key.setenv("TINKER_BASE_URL", "http://cluster:8000")
    assert Connection.find(None) == Connection("http://cluster:8000", KEY)
    assert not Connection.find("http://other:1").hosted
    with pytest.raises(UsageError, match="http://"):
        Connection.find("cluster:8000")
    no_key.setenv("TINKER_API_KEY", "sk-of-another-service")
    with pytest.raises(UsageError, match="tml-") as error:
        Connection.find("http://other:1")
    assert "sk-of-another-service" not in str(error.value)


def test_a_server_that_is_not_there_is_said_at_once(no_key: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        with pytest.raises(BackendError, match="does not answer") as error:
            TinkerBackend(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert "own-cluster.md" in str(error.value)


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.dumps({"detail": f"the key {self.headers.get('X-API-Key')} is not known here"}).encode()
        status = 200 if self.path.endswith("healthz") else 401
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_refused_key_is_said_and_not_shown(no_key: pytest.MonkeyPatch, refusing: str) -> None:
    no_key.setenv("TINKER_API_KEY", KEY)
    with pytest.raises(BackendError, match="does not accept TINKER_API_KEY") as error:
        TinkerBackend(refusing)
    assert KEY not in str(error.value)


# --- checkpoints


def test_uris_are_spelled_as_the_tinker_api_does() -> None:
    state = Checkpoint.parse("tinker://model_1/weights/step-1")
    assert state == Checkpoint("tinker", "model_1", "training_state", "step-1")
    assert str(state) == "tinker://model_1/weights/step-1"
    assert str(Checkpoint.parse("tinker://model_1/sampler_weights/step-1")) == "tinker://model_1/sampler_weights/step-1"


def packed(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def test_an_archive_becomes_a_folder_that_peft_knows_the_modules_of(tmp_path: Path) -> None:
    modules = ("layers.0.mlp.up_proj", "layers.0.self_attn.q_proj", "layers.1.mlp.up_proj")
    names = [f"base_model.model.model.{module}.lora_{one}.weight" for module in modules for one in "AB"]
    tensors = save({name: np.zeros((2, 2), np.float32) for name in names})
    config = json.dumps({"base_model_name_or_path": "some/model", "r": 4, "target_modules": None}).encode()
    out = tmp_path / "out"
    out.mkdir()
    weights = unpack(packed({"../adapter_config.json": config, "/adapter_model.safetensors": tensors}), out)
    assert weights == Weights("some/model", 4)
    assert sorted(path.name for path in out.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert list(tmp_path.iterdir()) == [out]
    assert json.loads((out / "adapter_config.json").read_text())["target_modules"] == ["q_proj", "up_proj"]
    half = packed({"adapter_config.json": b"{", "adapter_model.safetensors": b""})
    for broken in (b"no archive", packed({"README": b""}), half):
        with pytest.raises(CheckpointError):
            unpack(broken, out)
