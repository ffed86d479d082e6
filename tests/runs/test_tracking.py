"""SwanLab gets what metrics.jsonl gets, and `disabled` does not even import it."""

import subprocess
import sys
from pathlib import Path

import pytest

from alfworld_rl.errors import UsageError
from alfworld_rl.runs.tracking import check_swanlab, tracking


def test_disabled_does_not_import_swanlab(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from alfworld_rl.runs.tracking import *\n"
        "with tracking('disabled', project='p', name='n', config={}, folder=pathlib.Path(sys.argv[1])) as tracker:\n"
        "    tracker.log({'a/b': 1.0}, 1)\n"
        "sys.exit('swanlab' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert list(tmp_path.iterdir()) == []


def test_offline_keeps_the_metrics_here(tmp_path: Path) -> None:
    with tracking("offline", project="p", name="n", config={"seed": 1}, folder=tmp_path) as tracker:
        tracker.log({"reward/mean": 0.5}, 1)
    (data,) = (tmp_path / "swanlog").glob("run-*/*.swanlab")
    assert b"reward/mean" in data.read_bytes()


def test_online_without_a_key_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
    monkeypatch.setenv("SWANLAB_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    with pytest.raises(UsageError, match="swanlab login"):
        check_swanlab("online")
    monkeypatch.setenv("SWANLAB_API_KEY", "k")
    check_swanlab("online")
