"""Planted slowdowns: what they cost on this GPU, beside what `compiled` says of them.

    python tests/gpu/compiled_slowdowns.py OUT [--plant NAME ...] [--no-gpu]

Kernels are patched copies of ours (tests/compiled/plants.py), launched as the planner chooses. Each is timed
in turns with ours: graph times, the median over ROUNDS of the ratio of medians, and the rounds' range. Writes
OUT/slowdowns.{md,json}. About a minute on 16 cores. --no-gpu: only what `compiled` says of sm_90.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib import util
from pathlib import Path

ROUNDS = 3
HERE = Path(__file__).resolve()
TARGET = "sm_90"


def plants_module():
    spec = util.spec_from_file_location("plants", HERE.parents[1] / "compiled" / "plants.py")
    module = util.module_from_spec(spec)
    sys.modules["plants"] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def rows_of(plant):
    from pagegate.cases.workloads import find_workloads

    return {row.name: row.case for row in find_workloads("pr", plant.timed)}


def said(module, plants, plugin):
    """(plant, workload) -> verdict and reasons of `compiled`."""
    from pagegate.compiled import comparing
    from pagegate.compiled.table import Toolchain, compile_table

    cases = {name: case for plant in plants for name, case in rows_of(plant).items()}
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as cache:
        toolchain = Toolchain(plugins=(str(plugin),), cache=Path(cache), workers=max(2, cores // 2))
        names = [plant.name for plant in (module.UNPLANTED, *plants)]
        table = compile_table(TARGET, cases, names, toolchain)
    found = {}
    for plant in plants:
        for workload in rows_of(plant):
            base, head = (module.side_of(table, name, [workload]) for name in ("unplanted", plant.name))
            findings = comparing.compare(base, head)
            found[plant.name, workload] = {
                "said": comparing.overall(findings),
                "reasons": [f"{f.verdict} {f.rule}: {f.reason}" for f in findings],
            }
    return found


def warm(plugin, name, workloads):
    """Fill Triton's cache on disk, so that many kernels compile at once."""
    import torch

    from pagegate.cases.content import make_content
    from pagegate.cases.inputs import Placement, place
    from pagegate.cases.registry import find_kernel, load_plugin
    from pagegate.cases.workloads import find_workloads

    load_plugin(plugin)
    for workload in workloads:
        (row,) = find_workloads("pr", workload)
        inputs = place(make_content(row.case, torch.device("cuda")), Placement(dead="large"))
        try:
            find_kernel(name).call(inputs, out=torch.empty_like(inputs.q))
            torch.cuda.synchronize()
        except Exception as error:  # what cannot launch is said where it is timed
            print(f"{name} {workload}: {type(error).__name__}: {error}", file=sys.stderr)


def started_warming(module, plants, plugin):
    every = sorted({workload for plant in plants for workload in rows_of(plant)})
    jobs = {plant.name: list(rows_of(plant)) for plant in plants} | {module.UNPLANTED.name: every}
    words = [sys.executable, str(HERE), "unused", "--plugin", str(plugin), "--warm"]
    return [subprocess.Popen([*words, name, *workloads]) for name, workloads in jobs.items()]


def watch_of_ours(workload):
    from pagegate.cases.registry import find_kernel
    from pagegate.cases.workloads import find_workloads
    from pagegate.measure.timing import stopwatch

    (row,) = find_workloads("pr", workload)
    return stopwatch(find_kernel("unplanted"), row.case, "graph")


def timed(name, ours, case):
    """Ratios of the planted kernel's time to ours, round by round; or why it cannot be launched."""
    import torch

    from pagegate.cases.registry import find_kernel
    from pagegate.measure.machine import read_machine
    from pagegate.measure.sampler import Plan, sample
    from pagegate.measure.timing import stopwatch

    plan, ratios, base = Plan(warm_s=0.03, target=0.001, budget_s=0.08), [], []
    try:
        planted = stopwatch(find_kernel(name), case, "graph")
        for number in range(ROUNDS):
            order = (ours, planted) if number % 2 == 0 else (planted, ours)
            medians = {watch: sample(watch, plan, read_machine).median for watch in order}
            ratios.append(medians[planted] / medians[ours])
            base.append(medians[ours])
    except Exception as error:
        torch.cuda.synchronize()
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"ratio": statistics.median(ratios), "ratios": ratios, "ours_s": statistics.median(base)}


def slowdown(row):
    if "ratio" not in row:
        return row.get("error", "not timed")
    low, high = (100 * (f(row["ratios"]) - 1) for f in (min, max))
    return f"{100 * (row['ratio'] - 1):+.1f} % ({low:+.1f} to {high:+.1f})"


def first_reason(row):
    """Without the verdict and the rule before it; all of them are in the JSON."""
    return [reason.split(": ", 1)[1] for reason in row["reasons"][:1]] or [""]


def write(out, rows):
    """Both files."""
    lines = ["| plant | workload | ours, us | slowdown (range of rounds) | compiled | its first reason |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        ours = f"{1e6 * row['ours_s']:.1f}" if "ours_s" in row else ""
        cells = [row["plant"], row["workload"], ours, slowdown(row), row["said"], *first_reason(row)]
        lines.append("| " + " | ".join(cells) + " |")
    (out / "slowdowns.md").write_text("\n".join(lines) + "\n")
    (out / "slowdowns.json").write_text(json.dumps(rows, indent=1))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--plant", action="append")
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--warm", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--plugin", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        return warm(options.plugin, options.warm[0], options.warm[1:])
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    module = plants_module()
    plants = [plant for plant in (*module.PLANTS, *module.TIMED) if plant.timed]
    plants = [plant for plant in plants if options.plant is None or plant.name in options.plant]
    with tempfile.TemporaryDirectory() as folder:
        plugin = module.plugin_of(plants, Path(folder))
        warming = [] if options.no_gpu else started_warming(module, plants, plugin)
        found = said(module, plants, plugin)
        for process in warming:
            process.wait()
        print(f"compiled after {time.monotonic() - started:.0f} s", flush=True)
        from pagegate.cases.registry import load_plugin

        load_plugin(str(plugin))
        ours, rows = cache(watch_of_ours), []
        for plant in plants:
            for workload, case in rows_of(plant).items():
                row = {"plant": plant.name, "workload": workload, **found[plant.name, workload]}
                rows.append(row | ({} if options.no_gpu else timed(plant.name, ours(workload), case)))
                print(plant.name, workload, slowdown(rows[-1]), row["said"], *row["reasons"][:1], flush=True)
                write(options.out, rows)
    print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
