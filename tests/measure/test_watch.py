"""The comparison of the host's clock with the device's, on a device that is simulated: a queue and a clock."""

from types import SimpleNamespace

import pytest

from pagegate.errors import UsageError
from pagegate.measure import gpu
from pagegate.measure.sampler import Plan, sample

KERNEL_S = 9e-6


class Device:
    """Work starts when the host has enqueued it and the work before it is done."""

    def __init__(self):
        self.host = 100.0
        self.done = 0.0
        self.spun = []

    def enqueue(self, seconds, host_s):
        self.host += host_s
        self.done = max(self.host, self.done) + seconds

    def sleep(self, cycles):
        self.spun.append(cycles)
        self.enqueue(cycles * 0.5e-9, 2e-6)

    def synchronize(self):
        self.host = max(self.host, self.done)

    def event(self, enable_timing):
        assert enable_timing
        made = SimpleNamespace(at=None)

        def record():
            self.enqueue(0.0, 1e-6)
            made.at = self.done

        made.record = record
        made.elapsed_time = lambda later: (later.at - made.at) * 1e3
        return made


@pytest.fixture
def device(monkeypatch):
    made = Device()
    cuda = SimpleNamespace(Event=made.event, synchronize=made.synchronize, _sleep=made.sleep)
    monkeypatch.setattr(gpu, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu, "time", SimpleNamespace(perf_counter=lambda: made.host))
    return made


class Watch(gpu._Watch):
    quantity = "kernel"

    def take(self, count):
        return self._time([self._spin] * count)


def two_launches(device, host_s):
    """A kernel and its reduction, each enqueued in `host_s`."""

    def launch():
        device.enqueue(KERNEL_S, host_s)
        device.enqueue(KERNEL_S, host_s)

    return launch


def test_events_alone_count_the_hosts_delay(device):
    """The trap: 18 us of kernels, and a host that needs 30 us for each launch."""
    watch = Watch(two_launches(device, 30e-6))
    (launch,) = watch._time([lambda: None])
    assert launch.late
    assert launch.seconds > 2 * KERNEL_S + 20e-6


def test_behind_a_spin_the_kernels_time_is_left(device):
    watch = Watch(two_launches(device, 20e-6))
    (launch,) = watch.take(1)
    assert not launch.late
    assert launch.seconds == pytest.approx(2 * KERNEL_S)


def test_a_host_between_its_start_and_its_end_is_late_too(device):
    """The device waits for the second kernel only: the start event alone would look fine."""
    watch = Watch(two_launches(device, 50e-6))
    (launch,) = watch.take(1)
    assert launch.late
    assert launch.seconds > 2 * KERNEL_S


def test_the_spin_grows_until_the_host_is_ahead(device):
    watch = Watch(two_launches(device, 150e-6))
    samples = sample(watch, Plan(warm_s=0.01, budget_s=1.0), now=lambda: device.host)
    assert samples.median == pytest.approx(2 * KERNEL_S)
    assert max(samples.seconds) == pytest.approx(2 * KERNEL_S)
    assert samples.refused > 0
    assert device.spun[0] == 100_000
    assert device.spun[-1] > 400_000


def test_a_spin_has_an_end(device):
    watch = Watch(two_launches(device, 0.1))
    with pytest.raises(UsageError, match="found all .* launches late"):
        sample(watch, Plan(warm_s=0.01, budget_s=5.0), now=lambda: device.host)
    assert device.spun[-1] <= 20_000_000
