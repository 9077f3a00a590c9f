"""The gate on this machine's GPUs: A/A gates over the pr tier, and two planted slowdowns; one command.

    python tests/gpu/gating.py OUT [--gates 20] [--gpus 1] [--limit 570] [--only aa|planted] [--changes 1.5 0.5]

1. Extra work is planted in the inner loop of large Q-blocks (tests/gpu/planted.py). How many steps make the wanted
   slowdown of pre_b8_q1024 is found by a long measurement of both kernels in turns; what they do to each affected row
   is measured beforehand, too.
2. Gates: `pagegate gate --base ./copy --head ./copy` each in a process of its own, one at a time per GPU; those with a
   planted slowdown first.
3. What was red where, how long a gate takes, and the A/A noise of each row (noise.json for baselines/<role>/).

Nothing is started that would not end before the limit. Writes OUT/{gating.json,noise.json,gate_*.html,gate_*.md,
samples.json.gz}; exit 1 when an A/A gate is red, the larger change is missed or red elsewhere, or the smaller is red.
"""

import argparse
import gzip
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib import util
from pathlib import Path

HERE = Path(__file__).parent
TARGET = "pre_b8_q1024"
FIRST_GUESS_S = 150.0


def load_planted():
    spec = util.spec_from_file_location("planted", HERE / "planted.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calibrate(changes, folder):
    """Steps for each wanted change of TARGET, and what they do to each affected row. Runs in a process of its own."""
    import torch

    from pagegate.cases.workloads import find_workloads
    from pagegate.measure.sampler import Plan, sample
    from pagegate.measure.timing import stopwatch

    planted = load_planted()
    made = {}

    def kernel(steps):
        if steps not in made:
            made[steps] = planted.planted_kernel(Path(folder) / f"steps_{steps}", steps)
        return made[steps]

    def change(name, steps, turns):
        """Of the median over turns; each turn with buffers of its own, base and planted one after the other."""
        (row,) = find_workloads("pr", name)
        logs = []
        for turn in range(turns):
            medians = {}
            for which in (0, steps) if turn % 2 == 0 else (steps, 0):
                watch = stopwatch(kernel(which), row.case, "graph", placement_seed=turn)
                medians[which] = sample(watch, Plan(warm_s=0.05, target=0.0005, budget_s=0.15)).median
                del watch
                torch.cuda.empty_cache()
            logs.append(math.log(medians[steps] / medians[0]))
        return math.expm1(statistics.median(logs))

    seen = {steps: change(TARGET, steps, 3) for steps in (4, 16)}
    found = {}
    for wanted in changes:
        for _ in range(4):
            below = max((s for s in seen if seen[s] <= wanted), default=0)
            above = min((s for s in seen if seen[s] > wanted), default=None)
            if above is None:
                steps = 2 * max(seen)
            else:
                low = seen.get(below, 0.0)
                share = (wanted - low) / max(seen[above] - low, 1e-6)
                steps = max(1, round(below + share * (above - below)))
            if steps in seen:
                break
            seen[steps] = change(TARGET, steps, 3)
        steps = min(seen, key=lambda s: abs(seen[s] - wanted))
        truth = {name: change(name, steps, 7) for name in planted.AFFECTED}
        found[str(wanted)] = {"steps": steps, "truth": truth}
    return {"tried": {str(s): seen[s] for s in sorted(seen)}, "changes": found}


def run_gate(folder, name, base, head, gpu, deadline):
    """One gate; what of its JSON is needed, or None when there was no time left to end it."""
    out = folder / name
    words = [
        sys.executable,
        "-m",
        "pagegate",
        "gate",
        "--base",
        f"./{base}",
        "--head",
        f"./{head}",
        "--no-check",
    ]
    words += ["--json", f"{out}.json", "--markdown", f"{out}.md", "--html", f"{out}.html", "--budget", "8m"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    device = visible[gpu] if len(visible) > gpu and visible[gpu] else str(gpu)
    root = HERE.parents[1]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": device,
        "PYTHONPATH": os.pathsep.join(
            [str(root / "suite"), str(root / "kernels"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    started = time.monotonic()
    # a group of its own, so that its workers end with it
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=max(1.0, deadline - started))
    except subprocess.TimeoutExpired:
        process.send_signal(2)  # its own clean-up ends its workers
        process.communicate()
        print(f"{name}: ended at the limit", flush=True)
        return None
    wall = time.monotonic() - started
    if not Path(f"{out}.json").exists():
        print(f"{name}: exit {process.returncode}\n{said[-1500:]}", flush=True)
        return {
            "name": name,
            "code": process.returncode,
            "wall_s": wall,
            "rows": [],
            "counts": {},
            "seconds": {},
        }
    data = json.loads(Path(f"{out}.json").read_text())
    keep = ("counts", "outcome", "failures", "notes", "seconds", "environment", "rules")
    found = {key: data[key] for key in keep} | {"name": name, "code": process.returncode, "wall_s": wall}
    kept = (
        "workload",
        "kernel",
        "quantity",
        "digest",
        "verdict",
        "reasons",
        "why",
        "figures",
        "confirmation",
        "log_ratios",
        "base_s",
        "head_s",
    )
    found["rows"] = [{key: row[key] for key in kept if key in row} for row in data["rows"]]
    phases = ", ".join(f"{phase} {spent:.0f}" for phase, spent in data["seconds"].items())
    print(f"{name}: exit {process.returncode} in {wall:.0f} s ({phases}), {data['counts']}", flush=True)
    for row in data["rows"]:
        if row["verdict"] != "SAME":
            print(f"    {row['verdict']} {row['workload']}: {'; '.join(row['reasons'])}", flush=True)
            for line in row["why"]:
                print(f"        {line}", flush=True)
    return found


def run_all(folder, jobs, gpus, deadline):
    """Jobs in order on several GPUs; those that would not end in time are not started."""
    waiting, results, walls = queue.Queue(), [], []
    for job in jobs:
        waiting.put(job)

    def lane(gpu):
        while True:
            needed = max(walls, default=FIRST_GUESS_S)
            if time.monotonic() + needed > deadline:
                return
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            found = run_gate(folder, *job, gpu, deadline)
            if found:
                walls.append(found["wall_s"])
                results.append(found)

    threads = [threading.Thread(target=lane, args=(gpu,)) for gpu in range(gpus)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def save_noise(gates, out):
    """Of all A/A rounds of each row."""
    from pagegate.regress import noise

    rounds, digests = {}, {}
    for row in (row for gate in gates for row in gate["rows"] if "log_ratios" in row):
        name = f"{row['workload']} {row['kernel']} {row['quantity']}"
        rounds.setdefault(name, []).extend(row["log_ratios"])
        digests[name] = row["digest"]
    if not rounds:
        return {}
    measured = {name: noise.measured_noise(values, digests[name]) for name, values in rounds.items()}
    path = out / "noise.json"
    path.unlink(missing_ok=True)
    noise.save(path, measured, gates[0]["environment"]["gpu"], "tests/gpu/gating.py")
    return measured


def judge(gates, truth):
    """Prints the table; whether everything holds."""
    ok = True
    aa = [gate for gate in gates if gate["name"].startswith("aa")]
    red = sum(gate["code"] == 3 for gate in aa)
    broken = sum(gate["code"] not in (0, 3, 4) for gate in aa)
    if aa:
        walls = sorted(gate["wall_s"] for gate in aa)
        undecided = sum(gate["code"] == 4 for gate in aa)
        print(
            f"\nA/A: {len(aa)} gates, {red} red, {undecided} undecided, {broken} failed; wall "
            f"{walls[0]:.0f} to {walls[-1]:.0f} s, median {statistics.median(walls):.0f} s"
        )
        ok = red == broken == 0
    for gate in gates:
        if gate["name"].startswith("planted"):
            wanted = gate["name"].split("_")[1]
            rows = {row["workload"]: row for row in gate["rows"]}
            slower = {name for name, row in rows.items() if row["verdict"] == "SLOWER"}
            known = truth["changes"][wanted]["truth"]
            print(f"\nplanted {100 * float(wanted):g} %: exit {gate['code']} in {gate['wall_s']:.0f} s")
            for name, change in known.items():
                row = rows.get(name, {})
                measured = math.expm1(row["figures"]["change"]) if row.get("figures") else math.nan
                print(
                    f"  {name:<18} beforehand {100 * change:+.2f} %, gate {100 * measured:+.2f} % "
                    f"{row.get('verdict')}"
                )
            elsewhere = slower - set(known)
            if elsewhere:
                print(f"  red elsewhere: {', '.join(sorted(elsewhere))}")
            floor = gate.get("rules", {}).get("floor", 0.01)
            # beyond what the measurement beforehand can be wrong by
            must = {name for name, change in known.items() if change > floor + 0.003}
            may = {name for name, change in known.items() if change > floor - 0.003}
            missed, wrong = must - slower, slower - may
            print(
                f"  missed: {', '.join(sorted(missed)) or 'none'}; wrongly red: {', '.join(sorted(wrong)) or 'none'}"
            )
            ok = ok and not missed and not wrong and gate["code"] in (0, 3, 4)
    return ok


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--gates", type=int, default=20)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, default=570.0, help="seconds of all of it")
    parser.add_argument("--changes", type=float, nargs="+", default=[1.5, 0.5], help="percent")
    parser.add_argument("--only", choices=("aa", "planted"))
    parser.add_argument("--calibrate", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    changes = [change / 100 for change in options.changes]
    if options.calibrate:
        (options.calibrate / "calibration.json").write_text(json.dumps(calibrate(changes, options.calibrate)))
        return 0
    began = time.monotonic()
    deadline = began + options.limit - 10
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pagegate-gating-") as scratch:
        folder = Path(scratch)
        planted = load_planted()
        planted.copy_kernels(folder / "base", 0)
        jobs, truth = [], {}
        if options.only != "aa":
            words = [sys.executable, __file__, str(options.out), "--calibrate", str(folder), "--changes"]
            subprocess.run([*words, *map(str, options.changes)], check=True)
            truth = json.loads((folder / "calibration.json").read_text())
            print(f"calibrated in {time.monotonic() - began:.0f} s: {truth}", flush=True)
            for change in changes:
                name = f"change_{change}"
                planted.copy_kernels(folder / name, truth["changes"][str(change)]["steps"])
                jobs.append((f"planted_{change}", "base", name))
        if options.only != "planted":
            jobs += [(f"aa_{number:02d}", "base", "base") for number in range(options.gates)]
        gates = run_all(folder, jobs, options.gpus, deadline)
        ok = judge(gates, truth)
        measured = save_noise([gate for gate in gates if gate["name"].startswith("aa")], options.out)
        for name, row in sorted(measured.items(), key=lambda item: -item[1].scatter):
            print(
                f"  noise {name:<40} {100 * row.scatter:.2f} % per round, worst {100 * row.worst:.2f} %, {row.rounds}"
            )
        (options.out / "gating.json").write_text(json.dumps({"truth": truth, "gates": gates}, indent=1))
        for name in [job[0] for job in jobs][:2]:
            for suffix in ("md", "html"):
                if (folder / f"{name}.{suffix}").exists():
                    (options.out / f"gate_{name}.{suffix}").write_text(
                        (folder / f"{name}.{suffix}").read_text()
                    )
        first = folder / f"{jobs[0][0]}.json"
        if first.exists():
            (options.out / "samples.json.gz").write_bytes(gzip.compress(first.read_bytes()))
    ran = sum(gate["name"].startswith("aa") for gate in gates)
    print(
        f"\n{len(gates)} of {len(jobs)} gates ({ran} A/A) in {time.monotonic() - began:.0f} s: {'OK' if ok else 'BROKEN'}"
    )
    return 0 if ok and len(gates) == len(jobs) else 1


if __name__ == "__main__":
    raise SystemExit(main())
