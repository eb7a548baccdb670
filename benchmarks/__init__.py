"""Benchmarks of speed and of the quality of results.

Threads wait as they do in a stage. torch reads the setting when it is loaded, so it is set here.
"""

import os

from tasks.machine.environment import THREADS

for _name, _value in THREADS.items():
    os.environ.setdefault(_name, _value)
