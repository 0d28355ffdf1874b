"""Writes a file of its own and a line of docs/shared.md, at which others write as well."""

import re
import sys
import time
from pathlib import Path

prompt = sys.stdin.read()
name = re.match(r"# (T-\d+)", prompt)[1]
Path(f"docs/{name.lower()}.md").write_text("word\n")
shared = Path("docs/shared.md")
text = shared.read_text()
time.sleep(0.2)
shared.write_text(text + f"{name}\n")
