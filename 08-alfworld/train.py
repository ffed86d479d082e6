"""Train an agent by reinforcement learning: `alfworld-rl train`, run from the repository root."""

import sys

from alfworld_rl.cli import main

sys.exit(main(command="train"))
