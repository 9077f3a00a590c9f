"""The full graph on this machine's GPU: is it right, what does a step cost, and how the paper's ladder looks here.

    python tests/gpu/decoding.py OUT [--limit 240] [--only greedy|ladder|steps] [--model llama31_8b] [--rehearse]

greedy: 64 steps of greedy decoding by one graph choose, compute and write what eager launches do, bit for bit, with
the batch padded, sequences that end and begin, and lengths that grow over page, tile and segment edges.
ladder: kernel times (share of a graph's replay, cold L2) of each rung at batch 1, and whole steps with each.
steps: latency of a step, batch x context, for kernels and modes; what share attention is (by leaving it out).

Caches: as many layers' worth as fit into 24 GB, used in turn: between two uses of one lie the weights of several
layers, hundreds of MB, so L2 keeps nothing of it. OUT/decoding.json is written anew after each row. Nothing is begun
past the limit. --rehearse: the small model on any machine, each step once, no time worth reading. Exit 1 when greedy
differs, or when rows are missing.
"""

import argparse
import itertools
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel
from pagegate.errors import UsageError
from pagegate.files import write_json
from pagegate.measure.batch import Batch, Capacity, Running, grow
from pagegate.measure.decoder import MODES, Decoder
from pagegate.measure.model import MODELS, make_model
from pagegate.measure.sampler import Plan, sample

PARTS = ("greedy", "ladder", "steps")
PAGE = 16
CACHE_BYTES = 24e9
KERNELS = ("unified", "naive", "flash_attn_3")
CELLS = ((1, 4096), (8, 4096), (64, 4096), (1, 512), (8, 512), (64, 512), (1, 16384), (8, 16384), (64, 16384))
RUNGS = ("naive", "qblock", "split", "tiled", "unified")
LADDER_CONTEXTS = (512, 2048, 4096, 12800)
# arXiv 2511.11581, H100, Llama-3.1-8B, batch 1, prompt 500, end to end; shares of FlashAttention-3
PAPER = {
    "naive": "19.7 % of FA3",
    "qblock": "about 49 % of FA3 (x 2.5; its text says 2.1)",
    "split": "more than x 2 at 12,800 tokens",
    "tiled": "no figure of its own",
    "unified": "98.6 to 105.9 % of FA3 (static grid)",
    "full": "about x 1.06 (static grid with full graphs)",
}


@dataclass
class Run:
    """What all parts share; `rows` is what OUT/decoding.json holds."""

    options: argparse.Namespace
    device: torch.device
    model: object
    deadline: float
    found: dict = field(default_factory=lambda: {"greedy": [], "ladder": [], "steps": []})

    @property
    def shape(self):
        return self.model.shape

    def left(self):
        return self.deadline - time.monotonic()

    def add(self, part, row):
        self.found[part].append(row)
        write_json(self.options.out / "decoding.json", self.found)

    def capture(self):
        return (lambda piece: piece) if self.options.rehearse else None

    def measure(self, decoder, budget_s):
        """Seconds from the call of a step to its end, and how many samples."""
        if self.options.rehearse:
            decoder()
            return {"median_s": 1.0, "interval_s": [1.0, 1.0], "count": 1}
        from pagegate.measure.gpu import CallWatch
        from pagegate.measure.machine import read_machine

        plan = Plan(warm_s=0.05, target=0.003, budget_s=budget_s, batch=4)
        samples = sample(CallWatch(decoder), plan, read_machine)
        return {
            "median_s": samples.median,
            "interval_s": list(samples.interval),
            "count": len(samples.seconds),
            "throttled": samples.throttled,
        }


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def make_caches(run, pages, layers, fill=None):
    shape = (pages, PAGE, run.shape.num_kv_heads, run.shape.head_dim)

    def tensor():
        empty = torch.empty(shape, dtype=torch.bfloat16, device=run.device)
        return empty.normal_() if fill is None else empty.fill_(fill)

    return [(tensor(), tensor()) for _ in range(layers)]


def bits(tensor):
    return tensor.view(torch.int16)


# greedy


def greedy(run):
    for name in ("unified", "naive"):
        if run.left() < 20:
            return
        started = time.monotonic()
        row = {"kernel": name, "steps": run.options.steps} | greedy_row(run, find_kernel(name))
        run.add("greedy", row | {"seconds": time.monotonic() - started})
        print(f"greedy {name}: full against eager, {row['steps']} steps: {row['verdict']}", flush=True)
        empty_cache(run)


def greedy_row(run, kernel):
    """Two decoders with caches and batches of their own; the first difference, or EQUAL."""
    lengths = (500, 1015, 13, 250, 4090) if not run.options.rehearse else (14, 30, 3)
    torch.manual_seed(11)
    needed = sum(-(-n // PAGE) for n in lengths) + 3 * len(lengths) + run.options.steps // 4
    pages = torch.randperm(needed).tolist()
    running = []
    for number, length in enumerate(lengths):
        count = -(-length // PAGE)
        running.append(Running((number + 1,), length, tuple(pages.pop() for _ in range(count))))
    longest = -(-(max(lengths) + run.options.steps) // PAGE)
    capacity = Capacity(8, 8, 1, longest, PAGE)
    first = make_caches(run, needed, run.shape.num_layers, float("nan"))
    for pair in first:
        for cache, seq in itertools.product(pair, running):
            flat = cache[list(seq.pages)].flatten(0, 1)
            flat[: seq.seq_len - 1].normal_()
            cache[list(seq.pages)] = flat.view(-1, *cache.shape[1:])
    second = [tuple(cache.clone() for cache in pair) for pair in first]
    decoders = []
    for mode, caches in (("eager", first), ("full", second)):
        batch = Batch(capacity, run.device)
        batch.fill(running)
        capture = run.capture() if mode == "full" else None
        decoders.append(Decoder(run.model, caches, batch, kernel, mode, capture))
    chosen, free = set(), pages
    for step in range(run.options.steps):
        for decoder in decoders:
            decoder.batch.fill(running)
            decoder()
        wait(run.device)
        live = len(running)
        eager, full = decoders
        if not bool(eager.logits[:live].isfinite().all()):
            return {"verdict": f"logits that are not finite at step {step}", "ok": False}
        if not torch.equal(bits(eager.logits[:live]), bits(full.logits[:live])):
            off = (eager.logits[:live].float() - full.logits[:live].float()).abs().max()
            return {"verdict": f"logits differ at step {step} by up to {float(off):.3g}", "ok": False}
        ids = eager.next_ids[:live].tolist()
        if ids != full.next_ids[:live].tolist():
            return {"verdict": f"tokens differ at step {step}", "ok": False}
        chosen |= set(ids)
        running = grow(running, ids, free, PAGE)
        if step == run.options.steps // 2:
            del running[2]  # its row goes to another sequence, and there is one more row of padding
        if step == 5 * run.options.steps // 8:
            running.append(Running((7,), 1, (free.pop(),)))
    for layer, pairs in enumerate(zip(first, second, strict=True)):
        for a, b in zip(*pairs, strict=True):
            if not torch.equal(bits(a), bits(b)):
                return {"verdict": f"caches differ in layer {layer}", "ok": False}
    grown = [seq.seq_len for seq in running]
    return {"verdict": "EQUAL", "ok": True, "lengths": [list(lengths), grown], "distinct_tokens": len(chosen)}


# steps


def batch_of(run, count, context, pages):
    """`count` decodes that see `context` keys each, in scattered pages."""
    each = -(-context // PAGE)
    batch = Batch(Capacity(count, count, 1, each, PAGE), run.device)
    batch.fill(
        [Running((number % 50,), context, tuple(pages[number * each :][:each])) for number in range(count)]
    )
    return batch


def room(run, cells):
    """Caches for all cells, and their pages in a random order."""
    most = max(count * -(-context // PAGE) for count, context in cells)
    layer_bytes = 4 * most * PAGE * run.shape.num_kv_heads * run.shape.head_dim
    layers = max(1, min(run.shape.num_layers, int(CACHE_BYTES // layer_bytes)))
    torch.manual_seed(12)
    return make_caches(run, most, layers), torch.randperm(most).tolist()


def one_step(run, kernel, caches, batch, mode, budget_s):
    """A row's figures, or why there are none."""
    if kernel is not None:
        shape = run.shape
        line = f"q1s512 h{shape.num_query_heads}/{shape.num_kv_heads} d{shape.head_dim}"
        reason = kernel.unsupported_reason(parse_case(line).spec)
        if reason:
            return {"status": "UNSUPPORTED", "reason": reason}
    try:
        decoder = Decoder(run.model, caches, batch, kernel, mode, run.capture() if mode != "eager" else None)
        return {"status": "MEASURED"} | run.measure(decoder, budget_s)
    except (RuntimeError, ValueError, NotImplementedError, UsageError) as error:
        return {"status": "FAILED", "reason": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def empty_cache(run):
    if run.device.type == "cuda":
        torch.cuda.empty_cache()


def steps(run):
    caches, pages = room(run, run.options.cells)
    bare = {}
    for count, context in run.options.cells:
        batch = batch_of(run, count, context, pages)
        jobs = [(None, mode) for mode in MODES if (count, mode) not in bare]
        jobs += list(itertools.product(KERNELS, MODES))
        for name, mode in jobs:
            if run.left() < 12:
                print("steps: ended at the limit", flush=True)
                return
            kernel = None if name is None else find_kernel(name)
            # by the context alone: without attention, a step does not depend on it
            figures = one_step(run, kernel, caches, batch, mode, run.options.budget)
            if name is None:
                bare[count, mode] = figures.get("median_s")
            row = {"batch": count, "context": context, "kernel": name or "no attention", "mode": mode}
            row |= {"cache_layers": len(caches)} | figures
            if name and "median_s" in figures and bare.get((count, mode)):
                row["attention_share"] = 1 - bare[count, mode] / figures["median_s"]
            run.add("steps", row)
            empty_cache(run)
        print_cell(run, count, context)


def print_cell(run, count, context):
    for name in ("no attention", *KERNELS):
        rows = {
            row["mode"]: row
            for row in run.found["steps"]
            if (row["batch"], row["kernel"]) == (count, name)
            if row["context"] == context or name == "no attention"
        }
        said = []
        for mode in MODES:
            row = rows.get(mode, {})
            text = (
                f"{mode} {1e3 * row['median_s']:9.3f} ms"
                if "median_s" in row
                else row.get("reason", "-")[:90]
            )
            if "attention_share" in row:
                text += f" ({100 * row['attention_share']:5.1f} % attention)"
            said.append(text)
        if len(set(said)) == 1:
            said = said[:1]
        print(f"b{count:<3} c{context:<6} {name:<13} {'   '.join(said)}", flush=True)


# ladder


def ladder(run):
    names = (*RUNGS, "flash_attn_3")
    kernel_times(run, names)
    cells = [(1, context) for context in LADDER_CONTEXTS]
    caches, pages = room(run, cells)
    order = sorted(LADDER_CONTEXTS, key=lambda context: context not in (4096, 12800))
    jobs = [(name, "full", context) for context in order for name in names]
    jobs += [("unified", mode, context) for context in order for mode in ("eager", "partial")]
    for name, mode, context in jobs:
        if run.left() < 12:
            print("ladder: ended at the limit", flush=True)
            break
        figures = one_step(run, find_kernel(name), caches, batch_of(run, 1, context, pages), mode, 0.5)
        run.add("ladder", {"what": "step", "kernel": name, "mode": mode, "context": context} | figures)
        empty_cache(run)
    print_ladder(run, names)


def kernel_times(run, names):
    shape = run.shape
    for context, name in itertools.product(LADDER_CONTEXTS, names):
        if run.left() < 12:
            return
        case = parse_case(f"q1s{context} h{shape.num_query_heads}/{shape.num_kv_heads} d{shape.head_dim}")
        kernel = find_kernel(name)
        row = {"what": "kernel", "kernel": name, "context": context}
        reason = kernel.unsupported_reason(case.spec)
        if reason:
            row |= {"status": "UNSUPPORTED", "reason": reason}
        elif run.options.rehearse:
            row |= {"status": "MEASURED", "median_s": 1.0}
        else:
            from pagegate.measure.timing import measure

            try:
                samples = measure(kernel, case, "graph", Plan(target=0.002, budget_s=0.5))
                row |= {
                    "status": "MEASURED",
                    "median_s": samples.median,
                    "interval_s": list(samples.interval),
                }
            except (RuntimeError, ValueError, NotImplementedError, UsageError) as error:
                row |= {"status": "FAILED", "reason": str(error).splitlines()[0]}
        run.add("ladder", row)


def ladder_seconds(run, what, name, context, mode=None):
    for row in run.found["ladder"]:
        if (row["what"], row["kernel"], row["context"], row.get("mode")) == (what, name, context, mode):
            return row.get("median_s", math.nan)
    return math.nan


def print_ladder(run, names):
    for what, mode, unit in (("kernel", None, 1e6), ("step", "full", 1e3)):
        heading = "us of one attention call" if what == "kernel" else "ms of one step, full graph"
        print(
            f"\nladder, {heading}: seconds, gain over the rung before, share of FlashAttention-3; the paper's"
        )
        before = None
        for name in names:
            said = []
            for context in LADDER_CONTEXTS:
                now = ladder_seconds(run, what, name, context, mode)
                gain = ladder_seconds(run, what, before, context, mode) / now if before else math.nan
                share = ladder_seconds(run, what, "flash_attn_3", context, mode) / now
                gained = "" if math.isnan(gain) or name == "flash_attn_3" else f" x{gain:.2f}"
                shared = "" if math.isnan(share) else f" {100 * share:.1f}%"
                said.append(f"c{context} {unit * now:.2f}{gained}{shared}")
            print(f"  {name:<13} {'; '.join(said)}   [{PAPER.get(name, '')}]", flush=True)
            before = name
    print("\nladder, unified: ms of one step by mode")
    for context in LADDER_CONTEXTS:
        times = {mode: ladder_seconds(run, "step", "unified", context, mode) for mode in MODES}
        said = "   ".join(f"{mode} {1e3 * value:.3f}" for mode, value in times.items())
        gain = times["partial"] / times["full"]
        print(f"  c{context:<6} {said}   full over partial x{gain:.3f}   [{PAPER['full']}]", flush=True)
    reasons = {
        row["reason"] for row in run.found["ladder"] if row["kernel"] == "flash_attn_3" and "reason" in row
    }
    for reason in reasons:
        print(f"  flash_attn_3: {reason[:300]}")


def environment(run):
    if run.options.rehearse:
        return {"rehearsal": True}
    from pagegate.measure.environment import current_environment

    return current_environment().to_json()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of all of it")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--model", choices=sorted(MODELS), default="llama31_8b")
    parser.add_argument("--steps", type=int, default=64, help="of greedy decoding")
    parser.add_argument("--budget", type=float, default=0.4, help="seconds of each step's samples")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    options.cells = CELLS if not options.rehearse else ((1, 40), (2, 20))
    if options.rehearse:
        global LADDER_CONTEXTS
        LADDER_CONTEXTS = (20, 40)
        options.model, options.steps = "small", min(options.steps, 8)
    device = torch.device("cuda" if torch.cuda.is_available() and not options.rehearse else "cpu")
    model = make_model(MODELS[options.model], torch.bfloat16, device)
    wait(device)
    print(f"{options.model}: weights in {time.monotonic() - began:.1f} s", flush=True)
    run = Run(options, device, model, began + options.limit)
    run.found |= {"environment": environment(run), "model": options.model, "paper": PAPER}
    for part in options.only or PARTS:
        started = time.monotonic()
        globals()[part](run)
        print(f"{part}: {time.monotonic() - started:.0f} s\n", flush=True)
    return judge(run)


def judge(run):
    parts = run.options.only or PARTS
    wrong = [row for row in run.found["greedy"] if not row["ok"]]
    missing = []
    if "greedy" in parts and len(run.found["greedy"]) < 2:
        missing.append("greedy")
    wanted = len(run.options.cells) * len(KERNELS) * len(MODES)
    rows = [row for row in run.found["steps"] if row["kernel"] != "no attention"]
    if "steps" in parts and len(rows) < wanted:
        missing.append(f"{wanted - len(rows)} of {wanted} steps")
    failed = [row for part in ("ladder", "steps") for row in run.found[part] if row["status"] == "FAILED"]
    for row in failed:
        print(f"FAILED {json.dumps(row)}")
    print(
        f"greedy {'OK' if not wrong else 'BROKEN'}; {len(failed)} failed; missing: {', '.join(missing) or 'nothing'}"
    )
    return 1 if wrong or missing or failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
