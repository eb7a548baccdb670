"""Benchmarks of speed and of the quality of results.

Threads wait as they do in a stage. torch reads the setting when it is loaded, so it is set here.
"""

from tasks.machine.thread_waits import set_thread_waits

set_thread_waits(0)
