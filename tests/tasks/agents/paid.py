"""Does what the task asks, and says what that cost."""

import re
import sys
from pathlib import Path

prompt = sys.stdin.read()
Path(re.search(r"^- `(.+)`$", prompt, re.MULTILINE)[1]).write_text("word\n")
print('{"type": "result", "total_cost_usd": 0.03, "usage": {"input_tokens": 900, "output_tokens": 100}}')
