"""Files that are whole or absent, and locks that go with their process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.files import append_jsonl, atomic_write, file_lock, read_json, read_jsonl, writable, write_jsonl


def test_atomic_write_leaves_the_old_content_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    atomic_write(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AlfworldRLError, match=r"state\.json cannot be written \(No space left on device\)"):
        atomic_write(path, "new")
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("state.json", "old")]


def test_a_torn_last_line_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_jsonl(path, {"a": 1})
    append_jsonl(path, {"a": "é"})
    with path.open("a") as file:
        file.write('{"a": 3')
    assert read_jsonl(path) == [{"a": 1}, {"a": "é"}]


def test_a_line_broken_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n{"a\n{"a": 3}\n')
    with pytest.raises(AlfworldRLError, match="line 2 is not JSON"):
        read_jsonl(path)


def test_one_process_holds_a_lock_and_a_killed_one_holds_none(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    code = (
        "import sys, pathlib; from alfworld_rl.files import file_lock\n"
        "with file_lock(pathlib.Path(sys.argv[1]), 'x'): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="run a is in use by another process"), file_lock(lock, "run a"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert lock.exists()
        with file_lock(lock, "run a"):
            assert lock.exists()
    assert not lock.exists()


def test_lines_are_written_in_one_piece_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_jsonl(path, {"old": True})
    write_jsonl(path, [{"text": "a\nb\u2028c"}, {"text": "é"}])
    assert read_jsonl(path) == [{"text": "a\nb\u2028c"}, {"text": "é"}]
    assert read_jsonl(tmp_path / "nothing.jsonl") == []
    path.write_text('{"a": 1}\n[1]\n')
    with pytest.raises(AlfworldRLError, match="line 2 is not a JSON object"):
        read_jsonl(path)


@pytest.mark.parametrize("content", [None, "{", "[1]", "[" * 100_000])
def test_a_json_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "state.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AlfworldRLError, match=r"state\.json"):
        read_json(path)


def test_a_folder_is_made_or_said_why_not(tmp_path: Path) -> None:
    assert writable(tmp_path / "a" / "b") is None
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    assert "cannot be made" in str(writable(tmp_path / "file" / "b"))
