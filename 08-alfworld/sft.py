"""Warm start from demonstrations: `alfworld-rl sft`, run from the repository root."""

import sys

from alfworld_rl.cli import main

sys.exit(main(command="sft"))
