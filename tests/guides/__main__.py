"""``python -m tests.guides`` writes the rows of docs/coming-from.md; ``--check`` compares them.

``--list`` prints all rows instead, also those that work.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from guide_rows import PAGE, lines, rendered

if "--list" in sys.argv:
    sys.stdout.write("\n".join(lines(is_whole=True)) + "\n")
    sys.exit()
written = PAGE.read_text("utf-8")
if "--check" not in sys.argv:
    PAGE.write_text(rendered(written), "utf-8")
sys.exit("--check" in sys.argv and written != rendered(written))
