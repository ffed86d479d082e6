"""The commands, a file each: its `CONFIG` and its function `run`."""
