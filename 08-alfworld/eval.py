"""Measure how often a model wins: `alfworld-rl eval`, run from the repository root."""

import sys

from alfworld_rl.cli import main

sys.exit(main(command="eval"))
