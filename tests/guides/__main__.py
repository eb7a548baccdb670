"""``python -m tests.guides`` writes the table of docs/coming-from.md; ``--check`` compares it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from guide_rows import PAGE, rendered

written = PAGE.read_text("utf-8")
if "--check" not in sys.argv:
    PAGE.write_text(rendered(written), "utf-8")
sys.exit("--check" in sys.argv and written != rendered(written))
