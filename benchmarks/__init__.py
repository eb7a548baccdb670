"""What is fast, how good the result is, and how either is measured."""

import os

# A thread of OpenMP that has nothing to do spins, and takes the core from the one it waits for: on
# a machine that does other work too, two threads then take three times as long. To have an effect
# this must stand before torch is imported; it concerns all ways that are compared alike.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
