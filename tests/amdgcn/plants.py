"""Faults planted into assembly text, one at a time, in lines that were executed, and who notices them.

A kernel's plants are judged on several cases that run the same compiled text. Run as a script, this file
plants all of them and prints the score: `python tests/amdgcn/plants.py --target gfx942`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagegate.amdgcn import Coverage
from pagegate.amdgcn.text import Line

if __package__:
    from .attention import check_on, recorded, traced
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from attention import check_on, recorded, traced

# data on which masks and maxima decide, besides plain data
_PROFILES = ("", " profile=extreme dead=inf", " profile=forbidden")
# kernel -> cases that run the same text: decodes and drafts with their reduction, prompts
SUBJECTS: dict[str, list[list[str]]] = {
    "unified": [
        [f"q1s230_q8s400_q12s400_q12s20 h2/1 d64 fp16{profile}" for profile in _PROFILES],
        [f"q40s300_q9s20_q1s500 h2/1 d64 fp16{profile}" for profile in _PROFILES],
    ],
    "naive": [[f"q1s200_q6s70 h2/1 d64 fp16 window=150{profile}" for profile in _PROFILES]],
}
# why faults of a kind may change memory and still not the answer
REASONS = {
    "dropped mask": "keys let through are masked again by their scores",
    "LDS offset": "it moves zeros of a masked or padded part onto zeros",
    "lane shuffle": "a smaller maximum cancels between numerator and denominator",
    "dropped exec": "the lanes let through write what others write, or bytes that nobody reads",
}
# why others change nothing
IDLE = {
    "wait": "nothing that was in flight is used before the next wait",
    "barrier": "its sides share no byte",
    "dropped mask": "the lanes let through read what they are given anyway",
    "dropped exec": "the lanes let through write the same bytes as others",
    "lane shuffle": "only the other half of the butterfly is read",
    "matrix operands swapped": "both are zero",
    "LDS offset": "both places hold the same",
}


@dataclass(frozen=True)
class Plant:
    """digest: of the text it belongs to, as in Coverage."""

    kind: str
    kernel: str
    digest: str
    line: Line
    replacement: str

    def rewrite(self, text: str) -> str:
        """The text with this fault, if it is this one's."""
        if hashlib.sha256(text.encode()).hexdigest()[:12] != self.digest:
            return text
        rows = text.splitlines()
        rows[self.line.number - 1] = f"\t{self.replacement}"
        return "\n".join(rows) + "\n"

    def __str__(self) -> str:
        return f"{self.kind}, {self.kernel} {self.line} -> {self.replacement}"


@dataclass(frozen=True)
class Case:
    """A case that ran clean. trace: the digest of its memory; coverage: what it ran, by text."""

    line: str
    trace: bytes
    coverage: dict[str, Coverage]

    def runs(self, plant: Plant) -> bool:
        entry = self.coverage.get(plant.digest)
        return entry is not None and any(
            ran and line.number == plant.line.number
            for line, ran in zip(entry.lines, entry.executed, strict=True)
        )


def clean_cases(target: str, kernel: str, lines: list[str]) -> list[Case]:
    """Run the cases as they are; they must pass."""
    found = []
    for line in lines:
        with traced() as trace:
            result, session = check_on(target, kernel, line)
        report = session.report
        assert result.status == "PASSED" and not report.findings, f"{line}: {result.reason} {report.findings}"
        found.append(Case(line, trace.digest(), dict(report.coverage)))
    return found


def all_plants(cases: list[Case]) -> list[Plant]:
    """Every possible fault in every line that some case executed."""
    merged: dict[str, Coverage] = {}
    for case in cases:
        for digest, entry in case.coverage.items():
            merged[digest] = merged[digest].merged(entry) if digest in merged else entry
    found = []
    for coverage in merged.values():
        lines = [line for line, ran in zip(coverage.lines, coverage.executed, strict=True) if ran]
        for at, line in enumerate(lines):
            for kind, replacement in _faults(line, lines[at + 1 : at + 8]):
                if replacement != f"{line.mnemonic} {line.arguments}".strip():
                    found.append(Plant(kind, coverage.kernel, coverage.digest, line, replacement))
    return found


def sample(plants: list[Plant], each: int, barriers: int) -> list[Plant]:
    """So many of each kind in each kernel, and so many barriers."""
    chosen: list[Plant] = []
    for kind, kernel in dict.fromkeys((plant.kind, plant.kernel) for plant in plants):
        mine = [plant for plant in plants if (plant.kind, plant.kernel) == (kind, kernel)]
        random.Random(kind).shuffle(mine)
        chosen += mine[: barriers if kind == "barrier" else each]
    return chosen


def judge(target: str, kernel: str, plant: Plant, cases: list[Case]) -> str:
    """ "caught", "survived", or "without effect": every byte of memory stays the same in every case.

    A barrier is caught by a race alone. It has no effect if its sides share no byte that one of them
    changes: that is recorded anew then, apart from the shadow of the local memory.
    """
    changed: list[Case] = []
    concerned = [case for case in cases if case.runs(plant)]
    for case in concerned:
        with traced() as trace:
            result, session = check_on(target, kernel, case.line, plant.rewrite)
        if plant.kind == "barrier":
            if session.report.of_kind("race"):
                return "caught"
            continue
        if result.status != "PASSED" or session.report.findings:
            return "caught"
        if trace.digest() != case.trace:
            changed.append(case)
    if plant.kind == "barrier":
        for case in concerned:
            with recorded() as conflicts:
                check_on(target, kernel, case.line, plant.rewrite)
            if conflicts():
                return "survived"
    for case in changed:
        result, session = check_on(target, kernel, case.line, plant.rewrite, relations=None)
        if result.status != "PASSED" or session.report.findings:
            return "caught"
    return "survived" if changed else "without effect"


@dataclass
class Score:
    """Verdicts by kind, and what was not caught."""

    total: Counter[str]
    caught: Counter[str]
    idle: Counter[str]
    notes: list[str]

    @staticmethod
    def of(verdicts: list[tuple[Plant, str]]) -> Score:
        score = Score(Counter(), Counter(), Counter(), [])
        for plant, verdict in verdicts:
            score.total[plant.kind] += 1
            score.caught[plant.kind] += verdict == "caught"
            score.idle[plant.kind] += verdict == "without effect"
            if verdict == "survived":
                score.notes.append(f"survived: {plant}: {REASONS.get(plant.kind, 'no reason known')}")
            if verdict == "without effect":
                score.notes.append(f"without effect: {plant}: {IDLE.get(plant.kind, 'no reason known')}")
        return score

    @property
    def share(self) -> float:
        """Caught among those that changed anything."""
        return sum(self.caught.values()) / max(sum(self.total.values()) - sum(self.idle.values()), 1)

    @property
    def raw_share(self) -> float:
        return sum(self.caught.values()) / max(sum(self.total.values()), 1)

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{kind} {self.caught[kind]}/{count}"
            + (f" ({self.idle[kind]} without effect)" if self.idle[kind] else "")
            for kind, count in sorted(self.total.items())
        )
        return (
            f"{sum(self.caught.values())} of {sum(self.total.values())} planted faults caught "
            f"({100 * self.raw_share:.1f} %), {100 * self.share:.1f} % of those with an effect: {kinds}"
        )


def _faults(line: Line, following: list[Line]) -> Iterator[tuple[str, str]]:
    name, arguments = line.mnemonic, line.arguments
    if name == "s_barrier":
        yield "barrier", "s_nop 0"
    elif name == "s_waitcnt":
        yield "wait", "s_nop 0"
    elif name.startswith("v_mfma"):
        target, left, right, addend = (part.strip() for part in re.split(r",(?![^\[]*\])", arguments))
        yield "matrix operands swapped", f"{name} {target}, {right}, {left}, {addend}"
    elif name.endswith("_dpp"):
        yield "lane shuffle", f"{name} {_other_control(arguments)}"
    elif name.startswith(("ds_read", "ds_write")):
        yield "LDS offset", f"{name} {_other_offset(name, arguments)}"
    elif name == "s_mov_b32" and "0x7ffffffe" in arguments:
        yield "num_records", f"{name} {arguments.replace('0x7ffffffe', '-1')}"
    elif name.startswith("v_cndmask_b32") and _is_buffer_offset(arguments, following):
        # masked lanes get an offset past num_records: let them through
        mask = re.split(r",\s*", arguments)[-1]
        if "sdwa" not in name:
            full = re.sub(re.escape(mask) + r"$", "exec", arguments)
            yield "dropped mask", f"v_cndmask_b32_e64 {full}"
    elif name == "s_and_saveexec_b64":
        yield "dropped exec", f"s_mov_b64 {arguments.split(',')[0]}, exec"


_CONTROL = re.compile(r"quad_perm:\[[\d,]+\]|row_(sh[lr]|ror|newbcast|bcast):\d+|row_(half_)?mirror|wave_\w+")


def _other_control(arguments: str) -> str:
    """Each lane reads itself instead of its partner."""
    return _CONTROL.sub("quad_perm:[0,1,2,3]", arguments)


def _other_offset(name: str, arguments: str) -> str:
    pair = name.startswith(("ds_read2", "ds_write2"))
    word, step = ("offset0", 1) if pair else ("offset", 16)
    changed = re.sub(rf"{word}:(\d+)", lambda m: f"{word}:{int(m[1]) ^ step}", arguments)
    return changed if changed != arguments else f"{arguments} {word}:{step}"


def _is_buffer_offset(arguments: str, following: list[Line]) -> bool:
    register = arguments.split(",")[0]
    for line in following:
        if line.mnemonic.startswith(("buffer_load", "buffer_store")):
            return re.split(r",\s*", line.arguments)[1] == register
    return False


# all of them --------------------------------------------------------------------------------------


def _work(job: tuple[str, str, Plant, list[Case]]) -> tuple[Plant, str]:
    target, kernel, plant, cases = job
    return plant, judge(target, kernel, plant, cases)


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant every fault and print how many are caught.")
    parser.add_argument("--target", action="append", choices=("gfx942", "gfx950"))
    parser.add_argument("--kernel", action="append", choices=tuple(SUBJECTS))
    parser.add_argument(
        "--each", type=int, default=60, help="at most so many of each kind in each kernel (60); all barriers"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    verdicts: list[tuple[Plant, str]] = []
    started = time.monotonic()
    for target in options.target or ("gfx942", "gfx950"):
        for kernel in options.kernel or SUBJECTS:
            for lines in SUBJECTS[kernel]:
                cases = clean_cases(target, kernel, lines)
                jobs = [
                    (target, kernel, plant, cases)
                    for plant in sample(all_plants(cases), options.each, 1 << 30)
                ]
                with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
                    mine = list(pool.imap_unordered(_work, jobs, chunksize=4))
                verdicts += mine
                score = Score.of(mine)
                print(
                    f"{target} {kernel} [{lines[0]}] {time.monotonic() - started:.0f} s: {score}", flush=True
                )
                print(*(f"  {note}" for note in score.notes), sep="\n", flush=True)
    whole = Score.of(verdicts)
    print(f"all: {whole}")
    if options.json:
        data = {"share": whole.share, "raw_share": whole.raw_share, "notes": whole.notes}
        options.json.write_text(json.dumps(data, indent=2))
    return 0 if whole.share >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
