"""New cases until the budget ends: Hypothesis draws, steers and shrinks; workers run.

Each shard is a thread that searches by a seed of its own; all share the worker processes. The first failure
of each kind (kernel, status, relation) is shrunk; later ones of that kind are counted, and the run goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import seed as seeded
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from pagegate.cases.spec import Case
from pagegate.cases.strategies import SIZES, cases

from .isolation import Setup, Worker
from .memory import MemoryGate
from .results import CheckResult
from .tally import Failure, FuzzPlan, Tally

# how long a failure may be shrunk, besides its steps
SHRINK_S = 90.0
# how long all shards may draw without a new case
_STALL_S = 20.0
# a fresh seed every so often sees more than one long search
_ROUND_EXAMPLES = 300
# climbing towards high ratios takes half of a run: a short one had better see more kinds of cases
_STEERED_EXAMPLES = 150


class _Found(AssertionError):
    """A failure, as Hypothesis wants to see it."""


class _Broken(BaseException):
    """An error of ours, which Hypothesis must not take for a failure of the test and shrink."""

    def __init__(self, error: Exception):
        super().__init__(error)
        self.error = error


class _Stop(BaseException):
    """The budget is spent; not an Exception, so that Hypothesis lets it through."""


def fuzz(
    plan: FuzzPlan,
    setup: Setup,
    tick: Callable[[Tally], None] = lambda tally: None,
    on_failure: Callable[[Failure], None] = lambda failure: None,
    *,
    shrink_steps: int = 250,
) -> Tally:
    """Run a plan. `tick` is called about ten times a second from the calling thread; `on_failure` when a
    failure of a new kind is shrunk, from a shard's. shrink_steps: how many smaller cases to try per failure.

    Raises what a shard raised that was no failure of a kernel.
    """
    tally, started = Tally(), time.monotonic()
    gate = MemoryGate(setup.memory_bytes)
    errors: list[BaseException] = []
    stop = threading.Event()
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def shard(number: int) -> None:
        try:
            _Shard(plan, number, tally, idle, gate, stop, started, on_failure, shrink_steps).run()
        except BaseException as error:
            errors.append(error)
            stop.set()

    idle_s = 0.0
    threads = [threading.Thread(target=shard, args=(number,), daemon=True) for number in range(plan.shards)]
    with ExitStack() as workers:
        for _ in range(min(plan.workers or plan.shards, plan.shards)):
            idle.put(workers.enter_context(Worker(setup)))
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                tally.seconds = time.monotonic() - started
                tick(tally)
                idle_s = 0.0 if tally.running else idle_s + 0.1
                if idle_s > _STALL_S:
                    # Hypothesis is busy with itself, and cannot be interrupted from outside
                    tally.stalled = True
                    break
        finally:
            stop.set()
            for thread in threads:
                thread.join(timeout=0.0 if tally.stalled else setup.timeout_s)
    if errors:
        raise errors[0]
    return tally


@dataclass
class _Shard:
    plan: FuzzPlan
    number: int
    tally: Tally
    idle: queue.SimpleQueue[Worker]
    gate: MemoryGate
    stop: threading.Event
    started: float
    on_failure: Callable[[Failure], None]
    shrink_steps: int
    done: int = 0

    def run(self) -> None:
        rounds = 0
        while not self._spent():
            before = self.done
            self._round(rounds)
            rounds += 1
            if self.done == before:
                return  # nothing new to draw

    def _share(self) -> int:
        """How many examples are left for this shard."""
        if self.plan.examples is None:
            return 1 << 30
        mine = self.plan.examples // self.plan.shards
        mine += self.number < self.plan.examples % self.plan.shards
        return mine - self.done

    def _spent(self) -> bool:
        late = self.plan.seconds is not None and time.monotonic() - self.started > self.plan.seconds
        return self.stop.is_set() or late or self._share() <= 0

    def _round(self, number: int) -> None:
        """One run of Hypothesis, up to the next failure of a new kind."""
        hunt = _Hunt(self)
        strategy: SearchStrategy[Case] = cases(SIZES[self.plan.size])
        database = self.plan.database

        phases = [Phase.generate, Phase.shrink]
        if number == 0 and self.number == 0:
            # once: a kept example that fails again is known from then on, and would pass as mended
            phases.append(Phase.reuse)
        if self._share() >= _STEERED_EXAMPLES:
            phases.append(Phase.target)

        @settings(
            settings.get_profile("default"),  # whatever profile is loaded: Hypothesis has one for `CI`
            max_examples=min(self._share(), _ROUND_EXAMPLES),
            deadline=None,
            database=DirectoryBasedExampleDatabase(database) if database else None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        # below the settings: a seed on top of them takes their database away
        @seeded(self.plan.seed * 1_000_003 + self.number * 1_009 + number)
        @given(strategy)
        def one_case(case: Case) -> None:
            # one line raises: Hypothesis tells failures apart by where they come from
            if hunt.fails(case):
                raise _Found

        try:
            one_case()
        except _Stop:
            pass
        except _Broken as broken:
            raise broken.error from None
        except (_Found, Flaky) as error:
            hunt.repeatable = not isinstance(error, Flaky)
        except BaseExceptionGroup:
            hunt.repeatable = False
        if hunt.best is not None and hunt.found is not None:
            failure = Failure(hunt.best, hunt.found, hunt.steps, hunt.repeatable)
            with self.tally.lock:
                first = self.tally.failures.setdefault(hunt.best.signature, failure) is failure
            if first:
                self.on_failure(failure)


@dataclass
class _Hunt:
    """Looks for a failure of a new kind, then for a smaller case of the same kind."""

    shard: _Shard
    best: CheckResult | None = None
    found: Case | None = None
    steps: int = 0
    shrink_since: float = 0.0
    repeatable: bool = True

    def fails(self, case: Case) -> bool:
        return self._search(case) if self.best is None else self._shrink(self.best, case)

    def _search(self, case: Case) -> bool:
        shard = self.shard
        if shard._spent():
            raise _Stop
        shard.done += 1
        shard.tally.add_case(case)
        for kernel in shard.plan.kernels:
            result = self._check(kernel, case)
            shard.tally.add(result)
            if result.failed:
                if not shard.tally.knows(result):
                    self.best, self.found, self.shrink_since = result, case, time.monotonic()
                    return True
            elif result.worst is not None and result.worst.ratio < 1e6:
                target(result.worst.ratio, label=kernel)
        return False

    def _shrink(self, best: CheckResult, case: Case) -> bool:
        self.steps += 1
        # less time for it once the run itself is over
        late = time.monotonic() - self.shrink_since > SHRINK_S / (3 if self.shard._spent() else 1)
        if late or self.steps > self.shard.shrink_steps or self.shard.stop.is_set():
            raise _Stop
        result = self._check(best.kernel, case)
        if result.signature != best.signature:
            return False
        self.best = result
        return True

    def _check(self, kernel: str, case: Case) -> CheckResult:
        shard = self.shard
        worker = shard.idle.get()
        shard.tally.running[shard.number] = kernel, case, time.monotonic()
        try:
            with shard.gate.hold(case.spec):
                result = worker.check(kernel, case, shard.plan.max_relations)
        except Exception as error:
            raise _Broken(error) from error
        finally:
            shard.idle.put(worker)
        shard.tally.running.pop(shard.number)
        return result
