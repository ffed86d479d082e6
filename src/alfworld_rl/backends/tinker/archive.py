"""The archive that a server packs an adapter into, made the folder that PEFT and vLLM load."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

from alfworld_rl.backends.base import CheckpointError, Weights

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_MODULE = re.compile(r"\.([^.]+)\.lora_[AB](?:\.[^.]+)?$")


def unpack(archive: bytes, folder: Path) -> Weights:
    """Write the adapter of a tar archive into `folder`. Raises CheckpointError where it holds none.

    SkyRL 0.4.0 leaves out of the configuration which modules the adapter is for, without which PEFT loads nothing of
    it; the names of the tensors say it.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                # By their last names: no path of an archive leads anywhere.
                if member.isfile() and (file := tar.extractfile(member)) is not None:
                    found[Path(member.name).name] = file.read()
        config: dict[str, Any] = json.loads(found[CONFIG])
        names = tensor_names(found[TENSORS])
    except (tarfile.TarError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(
            f"the server's archive holds no LoRA adapter ({error!r}); use another checkpoint"
        ) from error
    config["target_modules"] = sorted({match[1] for name in names if (match := _MODULE.search(name))})
    config["task_type"] = "CAUSAL_LM"
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    (folder / TENSORS).write_bytes(found[TENSORS])
    return Weights(str(config["base_model_name_or_path"]), int(config["r"]))


def tensor_names(safetensors: bytes) -> list[str]:
    """The names of the tensors in a safetensors file: a length of 8 bytes, then as much JSON, then the numbers."""
    length = int.from_bytes(safetensors[:8], "little")
    header = json.loads(safetensors[8 : 8 + length])
    return [name for name in header if name != "__metadata__"]
