"""A gate's worker without a GPU: the real protocol, times drawn from what the side's paged_kernels says of itself.

`paged_kernels.BEHAVIOUR` is a dict: slower (workload name part -> factor), die_at, rubbish_at and fail_at (number of a
visit), hang_at, unsupported (workload digests' reasons), head_bias (factor of any head), ignores_plants. Its import may fail as that of any package may.
"""

import json
import os
import random
import signal
import sys
import time

from pagegate.cases.workloads import workloads
from pagegate.measure.environment import Environment
from pagegate.measure.samples import Reading, Samples
from pagegate.measure.subject import subject
from pagegate.regress.worker import private_stdout, serve

HERE = Environment("simulated GPU", "simulated", "1", "none", "2", "3", "3.11")
NAMES = {row.case: row.name for row in reversed(workloads())}  # the first of equal rows


class SimulatedSide:
    def __init__(self, channel):
        self.channel = channel
        self.visits = 0

    def begin(self):
        import paged_kernels

        self.path = paged_kernels.__file__
        self.behaviour = paged_kernels.BEHAVIOUR
        return {"subject": subject(), "environment": HERE.to_json()}

    def prepare(self, case, kernel, quantity, placement, least, extra):
        self.extra = 0.0 if self.behaviour.get("ignores_plants") else extra
        self.name, self.quantity = NAMES[case], quantity
        reason = self.behaviour.get("unsupported", {}).get(self.name)
        if reason:
            raise NotImplementedError(reason)
        side = "base" if "/base/" in self.path else "head"
        self.draws = random.Random(f"{side} {self.name} {placement}")
        self.place = self.draws.gauss(0, 0.002)

    def sample(self, launches):
        self.visits += 1
        for word, act in (
            ("die_at", self.die),
            ("rubbish_at", self.rubbish),
            ("fail_at", self.fail),
            ("hang_at", self.hang),
        ):
            if self.behaviour.get(word) == self.visits:
                act()
        factors = [f for part, f in self.behaviour.get("slower", {}).items() if part in self.name]
        bias = self.behaviour.get("head_bias", 1.0) if "/head/" in self.path else 1.0
        middle = 1e-4 * (factors or [1.0])[0] * (1 + self.place) * (1 + self.extra) * bias
        seconds = tuple(middle * (1 + self.draws.gauss(0, 0.003)) for _ in range(launches))
        return Samples(self.quantity, seconds, "budget", readings=(Reading(1980, 2600),)).to_json()

    def explain(self):
        launch = {
            "kernel": "unified_kernel",
            "variant": "v",
            "grid": [8, 1, 1],
            "options": {"TILE": 64},
            "registers": 128,
            "spills": 0,
            "shared": 1024,
            "instructions": {},
        }
        return {"launches": [launch | self.behaviour.get("launch", {})], "call_s": 3e-5}

    def die(self):
        print("out of luck", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def rubbish(self):
        self.channel.write("Segmentation fault (core not dumped)\n")
        self.channel.flush()

    def fail(self):
        raise RuntimeError("CUDA error: out of resources\nand more")

    def hang(self):
        time.sleep(3600)


if __name__ == "__main__":
    channel = private_stdout()
    print(json.dumps({"a kernel": "that prints"}), flush=True)
    serve(SimulatedSide(channel), sys.stdin, channel)
