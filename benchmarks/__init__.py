"""What is fast, how good the result is, and how either is measured.

Threads wait as they do in a stage. They read how when torch is loaded, so it is said here, before.
"""

import os

from tasks.machine.environment import THREADS

for _name, _value in THREADS.items():
    os.environ.setdefault(_name, _value)
