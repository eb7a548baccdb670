import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

# Says that it watches, then what came of it.
WATCHER = """
import time
from flows.servers.lifeline import at_end_of_lifeline
at_end_of_lifeline(lambda: print("over", flush=True))
print("watching", flush=True)
time.sleep(float({seconds}))
"""
# Starts the watcher on a pipe and is killed.
OWNER = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_end_of_the_starter_is_noticed_also_when_it_is_killed():
    command = [sys.executable, "-c", OWNER, WATCHER.format(seconds=1.5)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert "watching\n" == owner.stdout.readline()
    owner.stdin.write("now\n")
    owner.stdin.flush()

    assert "over\n" == owner.stdout.readline()
    assert -9 == owner.wait()


def test_while_the_starter_lives_nothing_happens():
    command = [sys.executable, "-c", WATCHER.format(seconds=0.3)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said = child.stdout.read()
    child.stdin.close()
    child.wait()

    assert "watching\n" == said
