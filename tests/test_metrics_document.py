"""docs/metrics.md has every metric that the commands write, and no other."""

import json
import re
from pathlib import Path

import pytest

from alfworld_rl.cli import main
from alfworld_rl.games import generate
from alfworld_rl.runs.cost import SHIPPED_PRICES

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")

SAME = "--backend local --base-model alfworld-tiny-start --admissible-commands none --max-assistant-tokens 12"
LEARN = "--data-root g --lora-rank 0 --max-trajectory-tokens 4000 --max-episode-steps 8 --eval-games 2 --quiet"
TRAIN = "--max-steps 2 --games-per-batch 3 --group-size 3 --kl-coef 0.01 --eval-every 1 --prices prices.toml"
SFT = "--max-steps 4 --batch-tokens 300 --dagger-rounds 1 --dagger-games 2 --swanlab-mode disabled"
EVAL = "--data-root g --max-episode-steps 3 --samples-per-game 2 --output e.jsonl --quiet"


def names(text: str) -> set[str]:
    """The first column of every table."""
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


ALWAYS, SOMETIMES = (names(part) for part in PAGE.split("## Only sometimes"))


def stands_for(documented: str, name: str) -> bool:
    pattern = re.sub(r"<[^>]+>", "[^/]+", re.escape(documented).replace(r"\ ", " "))
    return re.fullmatch(pattern, name) is not None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics of a training run, an imitation run and an evaluation."""
    found: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("workspace"))
        Path("08-alfworld").mkdir()
        prices = SHIPPED_PRICES.read_text(encoding="utf-8").replace("Qwen/Qwen3.5-4B", "alfworld-tiny-start")
        Path("prices.toml").write_text(prices, encoding="utf-8")
        generate(Path("g"), train=120, valid_seen=2, valid_unseen=2, seed=1)
        assert main(f"train {SAME} {LEARN} {TRAIN} --run-name t".split()) == 0
        assert main(f"sft {SAME} {LEARN} {SFT} --run-name s".split()) == 0
        assert main(f"eval {SAME} {EVAL}".split()) == 0
        for run in ("t", "s"):
            for line in Path(f"08-alfworld/runs/{run}/metrics.jsonl").read_text().splitlines():
                found |= json.loads(line).keys()
        found |= json.loads(Path("e.jsonl").read_text().splitlines()[-1])["metrics"].keys()
    return found


def test_every_metric_that_is_written_is_documented(written: set[str]) -> None:
    documented = ALWAYS | SOMETIMES
    assert {name for name in written if not any(stands_for(one, name) for one in documented)} == set()


def test_every_metric_that_is_documented_is_written(written: set[str]) -> None:
    assert {one for one in ALWAYS if not any(stands_for(one, name) for name in written)} == set()
