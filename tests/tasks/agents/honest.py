"""Does what the task asks: writes the one file that it may touch. Arguments: words, or `commit`."""

import re
import subprocess
import sys
from pathlib import Path

prompt = sys.stdin.read()
path = Path(re.search(r"^- `(.+)`$", prompt, re.MULTILINE)[1])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(f"word {' '.join(sys.argv[1:])}\n")
if "commit" in sys.argv:
    subprocess.run(["git", "add", "-A"], check=True)
    subprocess.run(["git", "commit", "-qm", "written"], check=True)
print("written")
