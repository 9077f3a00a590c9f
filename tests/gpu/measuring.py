"""Whether the sampler can be trusted on this GPU; one command, about four minutes.

    python tests/gpu/measuring.py OUT [--kernel NAME ...] [--budget 0.4] [--quantity Q ...] [--only PART ...]

runs: `bench` over the pr tier twice, in fresh processes, for graph times: medians repeat.
do_bench: the same rows timed by triton.testing.do_bench, in a process of its own: medians agree.
slowed: kernels that do 3 % and 10 % more work by a wall clock: the sampler sees the same.
Writes OUT/*.json, prints what it found, and exits with 1 where a bound is broken.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from importlib import util
from pathlib import Path

PARTS = ("runs", "do_bench", "slowed")
LARGE_S = 20e-6
HERE = Path(__file__).parent


def bench(out, quantity, number, options):
    path = out / f"bench_{quantity}_{number}.json"
    words = [sys.executable, "-m", "pagegate", "bench", "--tier", "pr", "--quantity", quantity]
    words += ["--budget", str(options.budget), "--json", str(path)]
    for kernel in options.kernel:
        words += ["--kernel", kernel]
    started = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(
        f"bench {quantity} {number}: exit {done.returncode}, {time.monotonic() - started:.0f} s", flush=True
    )
    if done.returncode or (quantity, number) == ("graph", 2):
        print(done.stdout[-7000:], done.stderr[-2000:])
    return path


def medians(path):
    from pagegate.regress.results import load_results

    return {(r.workload, r.kernel): r.samples.median for r in load_results(path).rows if r.samples}


def judge(title, pairs, small, large, share):
    """pairs: name -> (first, second). Whether `share` of those over 20 us differ by `large` at most, and all
    by `small`; returns the summary."""
    off = {name: b / a - 1 for name, (a, b) in pairs.items()}
    big = [abs(off[name]) for name, (a, _) in pairs.items() if a > LARGE_S]
    within = sum(x <= large for x in big) / len(big) if big else 0.0
    worst = sorted(off, key=lambda name: -abs(off[name]))[:5]
    ok = bool(big) and within >= share and all(abs(x) <= small for x in off.values())
    print(f"\n{title}: {'OK' if ok else 'BROKEN'}")
    print(
        f"  {100 * within:.0f} % of {len(big)} rows over 20 us within {100 * large:g} %; median of all "
        f"{len(off)}: {100 * statistics.median(map(abs, off.values())):.2f} %"
    )
    for name in worst:
        print(f"  {' '.join(name):<32} {pairs[name][0] * 1e6:9.2f} us  {100 * off[name]:+.2f} %")
    ratios = {" ".join(name): round(b / a, 5) for name, (a, b) in pairs.items()}
    return {"ok": ok, "within": within, "ratios": ratios}


def repeat(out, options):
    found = {}
    for quantity in options.quantity:
        first, second = (medians(bench(out, quantity, number, options)) for number in (1, 2))
        pairs = {name: (first[name], second[name]) for name in first if name in second}
        found[f"runs_{quantity}"] = judge(f"two runs, {quantity}", pairs, 0.03, 0.007, 0.9)
    return found


def against_do_bench(out, options):
    ours = medians(bench(out, "kernel", 0, options))
    path = out / "do_bench.json"
    subprocess.run(
        [sys.executable, __file__, str(out), "--do-bench", str(path), *_kernels(options)], check=True
    )
    theirs = {tuple(name.split()): value for name, value in json.loads(path.read_text()).items()}
    pairs = {name: (ours[name], theirs[name]) for name in ours if name in theirs and ours[name] > LARGE_S}
    return {"do_bench": judge("do_bench over kernel", pairs, 0.03, 0.03, 1.0)}


def _kernels(options):
    return [word for kernel in options.kernel for word in ("--kernel", kernel)]


def do_bench(path, options):
    """Medians of triton.testing.do_bench; shares with the sampler only how inputs are made."""
    import torch
    from triton.testing import do_bench as bench_of_triton

    from pagegate.cases.content import make_content
    from pagegate.cases.inputs import Placement, place
    from pagegate.cases.registry import find_kernel
    from pagegate.cases.workloads import find_workloads

    found = {}
    for row in find_workloads("pr"):
        content = make_content(row.case, torch.device("cuda"))
        for name in options.kernel:
            kernel = find_kernel(name)
            if kernel.unsupported_reason(row.spec):
                continue
            inputs = place(content, Placement(seed=7, dead="large"))
            inputs.block_table.clamp_(0, inputs.k_cache.shape[0] - 1)
            launch = kernel.bind(inputs, out=torch.empty_like(inputs.q))
            median = bench_of_triton(launch, warmup=100, rep=250, return_mode="median") / 1e3
            found[f"{row.name} {name}"] = median
        torch.cuda.empty_cache()
    Path(path).write_text(json.dumps(found, indent=1))


def planted():
    """Ratios by a wall clock over trains of launches, and by the sampler, for +3 % and +10 %."""
    spec = util.spec_from_file_location("slowed_kernels", HERE / "slowed_kernels.py")
    slow = util.module_from_spec(spec)
    spec.loader.exec_module(slow)
    from pagegate.cases.workloads import find_workloads
    from pagegate.measure.sampler import Plan
    from pagegate.measure.timing import measure

    plan, found = Plan(target=0.001, budget_s=1.5), {}
    print("\nslowed on purpose (workload, extra steps; by wall clock; by the sampler)")
    for name in ("dec_b64_c4096", "mha_b16_c4096"):
        (row,) = find_workloads("pr", name)
        for wanted in (0.03, 0.10):
            extra, truth = calibrate(slow.slowed, row.case, wanted)
            seen = {}
            for quantity in ("graph", "kernel"):
                base, more = (measure(slow.slowed(e), row.case, quantity, plan).median for e in (0, extra))
                seen[quantity] = more / base - 1
            ok = all(abs(value - truth) <= 0.01 for value in seen.values()) and abs(truth - wanted) <= 0.01
            words = ", ".join(f"{q} {100 * value:+.2f} %" for q, value in seen.items())
            print(f"  {name} {extra}: {100 * truth:+.2f} %; {words}: {'OK' if ok else 'BROKEN'}", flush=True)
            found[f"slowed_{name}_{wanted}"] = {"ok": ok, "truth": truth, "extra": extra} | seen
    return found


def calibrate(kernel_of, case, wanted):
    """Steps of extra work that slow a train of launches by about `wanted`, and by how much they do."""
    extra = 2000
    for _ in range(8):
        slower = train(kernel_of, case, extra) - 1
        if abs(slower - wanted) < 0.002:
            break
        extra = max(1, round(extra * min(4.0, max(0.25, wanted / max(slower, 1e-4)))))
    return extra, slower


def train(kernel_of, case, extra, rounds=5):
    """Time of a launch with extra work over one without: a host's clock around trains, in turns."""
    import torch

    from pagegate.cases.content import make_content
    from pagegate.cases.inputs import Placement, place

    inputs = place(make_content(case, torch.device("cuda")), Placement(dead="large"))
    out = torch.empty_like(inputs.q)
    launches = [kernel_of(e).bind(inputs, out=out) for e in (0, extra)]
    times = ([], [])
    for number in range(rounds + 1):
        for launch, into in zip(launches, times, strict=True):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(150):
                launch()
            torch.cuda.synchronize()
            if number:  # the first round warms up
                into.append(time.perf_counter() - started)
    return statistics.median(times[1]) / statistics.median(times[0])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", action="append")
    parser.add_argument("--budget", type=float, default=0.4)
    parser.add_argument("--quantity", action="append", choices=("graph", "kernel"))
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--do-bench", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.kernel = options.kernel or ["naive", "unified", "torch_sdpa"]
    options.quantity = options.quantity or ["graph"]
    if options.do_bench:
        do_bench(options.do_bench, options)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    parts = options.only or PARTS
    found = {}
    if "runs" in parts:
        found |= repeat(options.out, options)
    if "do_bench" in parts:
        found |= against_do_bench(options.out, options)
    if "slowed" in parts:
        found |= planted()
    (options.out / "measuring.json").write_text(json.dumps(found, indent=1))
    broken = [name for name, part in found.items() if not part["ok"]]
    print(f"\nbroken: {', '.join(broken) or 'nothing'}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
