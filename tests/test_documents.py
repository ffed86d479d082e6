"""What in the documents is made from the code is as it would be made."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_made_documents_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "make.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
