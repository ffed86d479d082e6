"""What errors tell a person to type, in a checkout and where the package is installed."""

import pytest

from alfworld_rl import errors


def test_in_a_checkout_uv_does_it() -> None:
    assert errors.checkout() is not None
    assert errors.installing("local") == "uv sync --inexact --extra local"
    assert errors.running("trio login") == "uv run trio login"
    assert errors.running_with("local", "alfworld-rl quickstart") == "uv run --extra local alfworld-rl quickstart"


def test_elsewhere_what_the_extra_consists_of_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "checkout", lambda: None)
    command = errors.installing("local")
    assert "pip install" in command
    # Not its name: a package that came as a file has none that an index knows.
    assert "torch==" in command
    assert "alfworld-agent-rl" not in command
    assert errors.running("trio login") == "trio login"


def test_elsewhere_a_program_that_is_not_there_is_installed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "checkout", lambda: None)
    assert errors.running_with("alfworld", "no-such-program x").endswith(" && no-such-program x")
    assert errors.running_with("alfworld", "sh -c true") == "sh -c true"
