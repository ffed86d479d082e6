"""Checkpoints on disk: `<runs_dir>/<run>/{training_state,sampler_weights}/<name>/`.

A checkpoint holds PEFT's adapter files (or, when all weights are trained, what `save_pretrained` writes), a
`checkpoint.json` that says what they belong to, and for a training state the optimizer's moments as safetensors.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError

from alfworld_rl.backends.base import BackendError, Checkpoint, CheckpointError
from alfworld_rl.files import fsync, portable

SCHEME = "local"
RECORD = "checkpoint.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Record:
    """What a checkpoint's weights belong to. `lora_rank` 0: they are all of the model's weights."""

    base_model: str
    lora_rank: int
    seed: int
    optimizer_steps: int


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """The checkpoints under one folder of runs. No name or URI reaches outside of it."""

    runs_dir: Path

    @contextmanager
    def writing(self, checkpoint: Checkpoint, record: Record) -> Iterator[Path]:
        """A folder to write into, which takes its place under the final name at the end, whole or not at all."""
        target = self._folder(checkpoint)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f".{checkpoint.name}.", dir=target.parent))
            try:
                yield folder
                (folder / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
                folder.chmod(0o755)
                for path in folder.iterdir():
                    fsync(path)
                if target.exists():  # a resumed run writes the checkpoints after its last record again
                    replaced = folder.with_name(folder.name + ".old")
                    target.rename(replaced)
                    folder.rename(target)
                    shutil.rmtree(replaced)
                else:
                    folder.rename(target)
                fsync(target.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, SafetensorError) as error:  # safetensors has an error of its own for a full disk
            reason = getattr(error, "strerror", None) or error
            raise BackendError(
                f"the checkpoint {target} could not be written ({reason}); "
                "free some space or choose a folder that can be written"
            ) from error

    def delete(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint, whole or not at all; one that is not there is no error."""
        folder = self._folder(checkpoint)
        with suppress(FileNotFoundError):
            removed = Path(tempfile.mkdtemp(prefix=f".{checkpoint.name}.", dir=folder.parent)) / "deleted"
            try:
                folder.rename(removed)
            finally:
                shutil.rmtree(removed.parent, ignore_errors=True)

    def open(self, checkpoint: Checkpoint) -> tuple[Path, Record]:
        """The folder and record of a saved checkpoint. Raises CheckpointError when there is none."""
        folder = self._folder(checkpoint)
        try:
            return folder, Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
        except FileNotFoundError:
            there = [f"{checkpoint.kind}/{path.name}" for path in sorted(folder.parent.glob("[!.]*"))]
            known = f"that run has {', '.join(there)}" if there else f"nothing of that kind is under {folder.parent}"
            raise CheckpointError(f"there is no checkpoint {checkpoint}; {known}") from None
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"the checkpoint {checkpoint} in {folder} is damaged ({error}); use another"
            ) from error

    def parse(self, uri: str) -> Checkpoint:
        """Raises CheckpointError for a URI that is not one of the local backend's."""
        checkpoint = Checkpoint.parse(uri)
        if checkpoint.scheme != SCHEME:
            raise CheckpointError(
                f"{uri!r} is a checkpoint of the {checkpoint.scheme!r} backend; the local backend opens "
                f"{SCHEME}:// URIs only (--backend {checkpoint.scheme} opens this one)"
            )
        self._folder(checkpoint)
        return checkpoint

    def _folder(self, checkpoint: Checkpoint) -> Path:
        for part in (checkpoint.run, checkpoint.name):
            if not _NAME.fullmatch(part) or not portable(part):
                raise CheckpointError(
                    f"{part!r} cannot name a run or a checkpoint; use letters, digits, '.', '_' and '-', "
                    "a letter or digit first, and no name that a system keeps for itself"
                )
        return self.runs_dir / checkpoint.run / checkpoint.kind / checkpoint.name
