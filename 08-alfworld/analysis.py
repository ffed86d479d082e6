"""Draw and compare results: `alfworld-rl analysis`, run from the repository root."""

import sys

from alfworld_rl.cli import main

sys.exit(main(command="analysis"))
