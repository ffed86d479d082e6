"""`export`: a checkpoint as a folder that transformers, PEFT and vLLM load, with a model card."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from alfworld_rl.backends import BACKENDS, BackendConfig, open_backend
from alfworld_rl.backends.base import Checkpoint, Weights, WeightsSource
from alfworld_rl.commands.common import CommandConfig, Text
from alfworld_rl.config import option
from alfworld_rl.config.workspace import home
from alfworld_rl.errors import AlfworldRLError, UsageError
from alfworld_rl.evaluation.results import Results, read_results
from alfworld_rl.files import atomic_write, read_jsonl, writable


class ExportConfig(CommandConfig):
    """A checkpoint as a folder for other programs."""

    checkpoint: Text = option(..., "URI of the checkpoint, of either kind", positional=True, metavar="URI")
    folder: Path = option(..., "folder to write, which must be empty or not there yet", positional=True, metavar="DIR")
    base_url: str | None = option(None, "tinker backend: address of the server", metavar="URL")
    results: tuple[Path, ...] = option((), "results files of this checkpoint, whose scores go into the model card")


CONFIG = ExportConfig


def run(config: ExportConfig) -> Path:
    """Write the folder and return its path; whole or not at all.

    Raises UsageError for a backend that gives no weights away and for a folder that is in use, before anything is
    asked of a service.
    """
    checkpoint, folder = Checkpoint.parse(config.checkpoint), config.folder.expanduser()
    if checkpoint.scheme not in BACKENDS:
        raise UsageError(f"{config.checkpoint} is of no backend; there are {', '.join(BACKENDS.names())}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty; name a folder that is")
    if problem := writable(folder.parent):
        raise UsageError(problem)
    results = [_of_checkpoint(read_results(path), checkpoint) for path in config.results]
    made_of = BackendConfig(backend=checkpoint.scheme, base_url=config.base_url)
    backend = open_backend(made_of, runs_dir=home() / "runs")
    try:
        if not isinstance(backend, WeightsSource):
            raise UsageError(f"the backend {checkpoint.scheme} gives no weights away, so they cannot be exported")
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            weights = backend.download(str(checkpoint), partial)
            atomic_write(partial / "README.md", model_card(checkpoint, weights, results, home() / "runs"))
            partial.chmod(0o755)
            partial.replace(folder)
        except OSError as error:
            raise AlfworldRLError(f"{folder} cannot be written ({error.strerror or error})") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        backend.close()
    kind = f"a LoRA adapter of rank {weights.lora_rank} on {weights.base_model}" if weights.lora_rank else "a model"
    print(f"{folder}: {kind}")
    return folder


def model_card(checkpoint: Checkpoint, weights: Weights, results: Sequence[Results], runs: Path) -> str:
    """What the weights are, in the hub's form: a head of YAML and text for people."""
    head = [f"base_model: {weights.base_model}", "tags:", "- alfworld", "- reinforcement-learning"]
    head += ["library_name: peft"] if weights.lora_rank else ["library_name: transformers"]
    found = _origin(checkpoint, runs)
    lines = ["---", *head, "---", "", f"# {found[0] if found else checkpoint.run}, {checkpoint.name}", ""]
    adapter = f"A LoRA adapter of rank {weights.lora_rank} on" if weights.lora_rank else "All weights, trained from"
    lines += [
        f"{adapter} `{weights.base_model}`, an agent for text-only ALFWorld.",
        "",
        f"- checkpoint: `{checkpoint}`",
    ]
    if found is not None:
        lines += [f"- run: {found[0]}", f"- update: {found[1]}"]
    if results:
        lines += ["", "| split | games | success | 95% interval |", "| --- | --- | --- | --- |"]
        for result in results:
            for split, score in result.scores.items():
                low, high = score.interval
                lines.append(f"| {split} | {score.games} | {score.success_rate:.1%} | {low:.1%} to {high:.1%} |")
    lines += ["", "Written by alfworld-agent-rl. The agent's prompts are part of what it learned: play it by the same"]
    lines += ["settings as it was trained with, which `settings.json` in its run folder holds."]
    return "\n".join(lines) + "\n"


def _origin(checkpoint: Checkpoint, runs: Path) -> tuple[str, int] | None:
    """The run that saved a checkpoint, and after which update, where its folder is on this computer."""
    for file in sorted(runs.glob("*/checkpoints.jsonl")):
        for line in read_jsonl(file):
            if line.get("uri") == str(checkpoint):
                return file.parent.name, int(line["update"])
    return None


def _of_checkpoint(results: Results, checkpoint: Checkpoint) -> Results:
    if results.model_path != str(checkpoint):
        raise UsageError(f"{results.path} is of {results.model_path or results.base_model}, not of {checkpoint}")
    return results
