"""Where a run's trainer comes from."""

from alfworld_rl.backends.base import Backend, Trainer
from alfworld_rl.runs.folder import Record


def open_trainer(
    backend: Backend, record: Record, *, base_model: str, init_from: str | None, lora_rank: int, seed: int
) -> Trainer:
    """The state that the run saved last, else the checkpoint it starts from, else new weights on the base model."""
    if record.saved is not None:
        return backend.resume_trainer(record.saved.state_uri)
    if init_from is not None:
        return backend.trainer_from(init_from, seed=seed)
    return backend.new_trainer(base_model, lora_rank=lora_rank, seed=seed)
