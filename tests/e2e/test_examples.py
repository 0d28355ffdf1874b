"""Every example is a program that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.py"))
SAYS = {
    "same_bits.py": ["row 7 alone = row 7 of the batch: True"],
    "train_mlp.py": ["step 600", "equal True"],
    "look_at_a_plan.py": ["matmul", "measured"],
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_what_it_is_for(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[example.name]:
        assert words in done.stdout
    assert "False" not in done.stdout
