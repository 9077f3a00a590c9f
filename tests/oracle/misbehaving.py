"""A plugin whose kernels misbehave on any machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from pagegate.cases.registry import find_kernel, register


def _attend(arguments):
    return find_kernel("unified").load()(**arguments)


@register("aborts")
def aborts(**arguments):
    """Ends the process."""
    os.abort()


@register("sleeps")
def sleeps(**arguments):
    """Never answers."""
    time.sleep(3600)


@register("leaves_a_child")
def leaves_a_child(**arguments):
    """Never answers, and has started a process of its own; its id is in the file PAGEGATE_TEST_CHILD."""
    child = subprocess.Popen(["sleep", "3600"])
    Path(os.environ["PAGEGATE_TEST_CHILD"]).write_text(str(child.pid))
    time.sleep(3600)


@register("exits")
def exits(**arguments):
    """Ends the process as if all were well."""
    sys.exit(0)


@register("raises")
def raises(**arguments):
    """Fails in an ordinary way."""
    raise ZeroDivisionError("one over zero")


@register("talks")
def talks(**arguments):
    """Prints to stdout, where the protocol is."""
    print("not JSON")
    return _attend(arguments)


@register("off_at_window")
def off_at_window(**arguments):
    """Wrong by a little, but only with a sliding window."""
    out, lse = _attend(arguments)
    if arguments.get("sliding_window"):
        out *= 1.1
    return out, lse


@register("not_today")
def not_today(**arguments):
    """Declines everything."""
    raise NotImplementedError("not today")
