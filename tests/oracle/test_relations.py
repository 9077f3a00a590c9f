"""For each relation a kernel that is right within its budget and breaks exactly that relation."""

import pytest
import torch

from pagegate.cases.notation import parse_case
from pagegate.cases.registry import Kernel
from pagegate.oracle.checking import check
from pagegate.oracle.relations import RELATIONS, applicable

CPU = torch.device("cpu")
CASE = parse_case("q3s40_q1s33_q12s50 h4/2 d32 fp32")
NUDGE = 1 + 2**-22  # a last bit or two: far within any budget


def nudged(honest, when):
    """The honest kernel, its last bits moved by a factor that depends on what must not matter."""

    def kernel(**arguments):
        out = honest(**arguments)
        out[: int(arguments["cu_seqlens_q"][-1])] *= when(arguments)
        return out

    return kernel


def _counter():
    calls = iter(range(1000))
    return lambda arguments: NUDGE if next(calls) % 2 else 1.0


def _first_page_odd(arguments):
    return NUDGE if int(arguments["block_table"][0, 0]) % 2 else 1.0


def _high_page(arguments):
    return NUDGE if int(arguments["block_table"][0, 0]) > 40 else 1.0


def _dead_slot(arguments):
    last = arguments["k_cache"][arguments["block_table"][1, 2], 5, 0, 0]
    return 1.0 if bool(last.isnan()) else NUDGE


def _many_sequences(arguments):
    return NUDGE if arguments["seq_lens"].shape[0] > 3 else 1.0


def _padding(arguments):
    return NUDGE if arguments["q"].shape[0] > int(arguments["cu_seqlens_q"][-1]) else 1.0


def _order(arguments):
    return 1.0 if int(arguments["seq_lens"][0]) == 40 else NUDGE


def _future_key(arguments):
    """The largest key of a page of which early queries see a part."""
    page = arguments["k_cache"][arguments["block_table"][-1, 2]]
    return NUDGE if float(page.abs().max()) > 30 else 1.0


FAULTS = {
    "repeat": _counter,
    "permuted_pages": lambda: _first_page_odd,
    "high_pages": lambda: _high_page,
    "dead_slots": lambda: _dead_slot,
    "appended": lambda: _many_sequences,
    "reordered": lambda: _order,
    "padded": lambda: _padding,
    "forbidden_keys": lambda: _future_key,
}


def test_every_relation_has_its_fault():
    assert FAULTS.keys() == {r.name for r in RELATIONS if r.name != "graph_replay"}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_fault_breaks_its_relation(name, honest, kernel_of):
    broken = set()
    for seed in range(4):  # a page may keep its parity by chance
        case = parse_case(f"q3s40_q1s33_q12s50 h4/2 d32 fp32 seed={seed}")
        result = check(kernel_of(nudged(honest, FAULTS[name]())), case, CPU)
        assert result.status in ("BROKE_PROPERTY", "PASSED"), result.reason
        broken.add(result.relation)
    assert name in broken


def test_the_honest_kernel_breaks_none(honest, kernel_of):
    result = check(kernel_of(honest), CASE, CPU)
    assert result.status == "PASSED", result.reason
    assert set(result.relations) == FAULTS.keys()


def test_relations_that_reshape_need_a_plan(honest):
    free = Kernel("free", "", lambda: honest)
    names = {relation.name for relation in applicable(free, CASE.spec)}
    assert names == {r.name for r in RELATIONS} - {"appended", "padded"}


def test_very_large_problems_are_only_repeated(honest, kernel_of):
    spec = parse_case("64q1s8k h8/8 d128").spec
    assert [r.name for r in applicable(kernel_of(honest), spec)] == ["repeat"]
