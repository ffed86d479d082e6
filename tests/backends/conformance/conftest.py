"""The backends that the suite is for. A fourth one is a function here and its name in `BACKENDS`."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from alfworld_rl.backends.base import Backend

MODEL = "alfworld-tiny"
Reopen = Callable[[], Backend]
"""Opens the backend once more, as another program would that finds the same checkpoints."""


@contextmanager
def local(folder: Path) -> Iterator[tuple[str, Reopen]]:
    from alfworld_rl.backends.local import LocalBackend

    yield MODEL, lambda: LocalBackend(folder, device="cpu")


@contextmanager
def trio(folder: Path) -> Iterator[tuple[str, Reopen]]:
    import pytrio

    from alfworld_rl.backends.local import builtin
    from alfworld_rl.backends.trio import TrioBackend
    from trio_server import API_KEY, LearningEngine, Model, Service, TrioServer
    from trio_server import MODEL as NAME

    with TrioServer(Service(LearningEngine(folder, MODEL), [Model(NAME, builtin.path(MODEL))])) as server:
        pytrio.configure(home=str(folder), base_url=server.url, api_key=API_KEY, retry_initial_delay_seconds=0.02)
        yield NAME, lambda: TrioBackend(max_in_flight=4)


@contextmanager
def skyrl(folder: Path) -> Iterator[tuple[str, Reopen]]:
    from alfworld_rl.backends.tinker import TinkerBackend
    from skyrl_server import CannotSetUpError, SkyRLServer, set_up

    try:
        set_up()
    except CannotSetUpError as error:
        pytest.skip(f"SkyRL cannot be set up here: {error}")
    with SkyRLServer(folder, MODEL) as server:
        yield MODEL, lambda: TinkerBackend(server.url)


BACKENDS = [
    pytest.param(local, id="local"),
    pytest.param(trio, id="trio"),
    pytest.param(skyrl, id="skyrl", marks=pytest.mark.skyrl),
]


@pytest.fixture(scope="session", params=BACKENDS)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Reopen]]:
    """The name of the base model there, and how to open the backend."""
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
    with request.param(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture
def base_model(service: tuple[str, Reopen]) -> str:
    return service[0]


@pytest.fixture
def reopen(service: tuple[str, Reopen]) -> Iterator[Reopen]:
    with ExitStack() as closing:

        def again() -> Backend:
            backend = service[1]()
            closing.callback(backend.close)
            return backend

        yield again


@pytest.fixture
def backend(reopen: Reopen) -> Backend:
    return reopen()
