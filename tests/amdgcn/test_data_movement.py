"""Memory, atomic and cross-lane instructions against the pseudocode of AMD's documents, generated from the
tables. What the documents describe in words only is listed in UNCOVERED, with the test that covers it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pagegate.amdgcn.decode import decode
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.findings import Findings
from pagegate.amdgcn.instructions import SPECIAL
from pagegate.amdgcn.machine import LANES, Machine, Shape
from pagegate.amdgcn.memory import AddressSpace
from pagegate.amdgcn.operands import EXEC, M0
from pagegate.amdgcn.text import Line

from .pseudocode import Bytes, Registers, Storage
from .pseudonumbers import Value
from .test_instructions import pseudocode, run_documented

ADDRESS, DATA, RESULT, SECOND = 10, 20, 30, 40  # first vector registers of each operand
SIZE = 8192
OFFSET = 8
MEMORY = ("global_", "buffer_", "scratch_", "ds_", "s_load_")
SHUFFLES = ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32")
# patterns of names without pseudocode, and where they are tested instead
UNCOVERED = {
    r"v_mfma_.*": "the document gives one line of algebra: test_matrix multiplies through Triton",
    r"v_fma_mix.*": "not in the document's text: test_machine computes it",
    r"ds_read_b64_tr_.*": "not in the document's text: test_matrix loads transposed operands",
    r"global_load_lds_.*": "not in the document's text: test_machine loads to LDS",
    r"ds_swizzle_b32": "described by tables: test_machine compares with the lane formula",
    r"s_(nop|sleep|setprio|sched_barrier|icache_inv|code_end|inst_prefetch)": "no effect on results",
    r"buffer_(inv|wbl2)|s_dcache_(inv|wb)": "caches are not modelled",
    r"s_waitcnt": "described in words: test_machine",
}


def covered() -> list[str]:
    return sorted(n for n in SPECIAL if not any(re.fullmatch(p, n.partition("@")[0]) for p in UNCOVERED))


def of_memory() -> list[str]:
    return [name for name in covered() if name.startswith(MEMORY) and name not in SHUFFLES]


def test_nothing_is_left_out() -> None:
    """Each instruction is tested by a generated test here, or listed; a pattern that fits nothing is stale."""
    tested = {*of_memory(), *LANE_TESTS, *(name for name in SPECIAL if name.endswith("_saveexec_b64"))}
    assert set(covered()) == tested
    for name in covered():
        assert pseudocode(name) is not None, f"{name}: no pseudocode; list it in UNCOVERED with a reason"
    for pattern in UNCOVERED:
        assert any(re.fullmatch(pattern, name.partition("@")[0]) for name in SPECIAL), pattern


def vector(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def offsets_of(name: str) -> tuple[int, int]:
    """offset0 and offset1: no two lanes' places may overlap."""
    return (1, 9) if "st64" in name else (1, 3)


def spellings(name: str) -> list[str]:
    """The same instruction with every number of data registers; the decoder takes one of them."""
    found = []
    for count in (1, 2, 3, 4, 8, 16):
        data, result, offset = vector(DATA, count), vector(RESULT, count), f"offset:{OFFSET}"
        if name.startswith("s_load"):
            found.append(
                f"s[{24}:{23 + count}], s[2:3], {OFFSET:#x}" if count > 1 else f"s24, s[2:3], {OFFSET:#x}"
            )
        elif name.startswith("ds_"):
            first, second = offsets_of(name)
            two = f"offset0:{first} offset1:{second}" if "2" in name.split("_")[1] else offset
            if "_read" in name:
                found.append(f"{result}, v{ADDRESS} {two}")
            else:
                more = f", {vector(SECOND, count)}" if "write2" in name or "cmpst" in name else ""
                back = f"{result}, " if "_rtn_" in name else ""
                found.append(f"{back}v{ADDRESS}, {data}{more} {two}")
        elif name.startswith("buffer_"):
            # loads and atomics that return do so into the data register
            returns = " sc0" if "_atomic_" in name else ""
            found.append(f"{data}, v{ADDRESS}, s[4:7], 0 offen {offset}{returns}")
        elif name.startswith("scratch_"):
            words = f"{result}, v{ADDRESS}" if "load" in name else f"v{ADDRESS}, {data}"
            found.append(f"{words}, off {offset}")
        else:
            address = vector(ADDRESS, 2)
            if "_atomic_" in name:
                for back in (1, 2):
                    found.append(f"{vector(RESULT, back)}, {address}, {data}, off {offset} sc0")
            else:
                found.append(f"{result if 'load' in name else address}, "
                             f"{address if 'load' in name else data}, off {offset}")  # fmt: skip
    return found


def numbers_for(name: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Words that make sense to an instruction: floats where it adds floats."""
    if "bf16" in name:
        return rng.standard_normal(count * 2).astype(np.float32).view(np.uint16)[1::2].copy().view(np.uint32)
    kind = re.search(r"_f(16|32|64)", name)
    if kind is None:
        return rng.integers(0, 1 << 32, count, dtype=np.uint32)
    width = int(kind[1])
    return (rng.standard_normal(count * 32 // width) * 8).astype(f"f{width // 8}").view(np.uint32)


@pytest.mark.parametrize("name", of_memory())
def test_memory_instruction(name: str) -> None:
    rng = np.random.default_rng(0)
    plain = name.partition("@")[0]
    text = pseudocode(name)
    assert text is not None
    findings, memory = Findings("test", (Line(1, "test", ""),)), AddressSpace()
    content = numbers_for(plain, rng, SIZE // 4)
    allocation = memory.add_bytes("data", content.copy().view(np.uint8))
    m = Machine(Shape(1, 1, 64, SIZE, SIZE if plain.startswith("scratch") else 0), memory, findings)
    m.local._data[:] = content.view(np.uint8)
    if m.private.size:
        m.private[:, 0, :] = content[:, None]
    m.vector[DATA : DATA + 16, 0] = numbers_for(plain, rng, 16 * LANES).reshape(16, LANES)
    m.vector[SECOND : SECOND + 4, 0] = numbers_for(plain, rng, 4 * LANES).reshape(4, LANES)
    # two lanes share each place where the order of lanes is part of the contract
    share = (
        2 if "atomic" in plain or re.match(r"ds_(add|sub|inc|dec|min|max|and|or|x|cmp|wr.x)", plain) else 1
    )
    places = (rng.permutation(LANES)[: LANES // share] * 32).repeat(share).astype(np.uint64)
    m.scalar64[0, EXEC // 2] = mask = int(rng.integers(1, 1 << 62)) | 1
    m.refresh_lanes()
    set_addresses(m, plain, allocation.base, places)
    _make_half_equal(m, plain, content, places)
    before = m.vector.copy()
    step_of(name)(m)
    decode(Line(2, "s_waitcnt", "vmcnt(0) lgkmcnt(0)"), "gfx942").step(m)
    assert not findings.report()
    shared = Bytes(content.tobytes())
    lanes = [lane for lane in range(LANES) if mask >> lane & 1] if not plain.startswith("s_") else [0]
    for lane in lanes:
        own = Bytes(content.tobytes()) if plain.startswith("scratch") else shared
        names = documented(plain, text, own, int(places[lane]), before, lane)
        run_documented(text, names)
        compare_lane(m, plain, names, before, lane, own)
    untouched = [lane for lane in range(LANES) if lane not in lanes]
    if not plain.startswith("s_"):
        assert np.array_equal(m.vector[:, 0, untouched], before[:, 0, untouched])
    if plain.startswith("ds_"):
        assert m.local._data.tobytes() == bytes(shared.data)
    elif not plain.startswith("scratch"):
        assert allocation.data.tobytes() == bytes(shared.data)


def step_of(name: str) -> Any:
    target = name.partition("@")[2] or "gfx942"
    for words in spellings(name.partition("@")[0]):
        try:
            return decode(Line(1, name.partition("@")[0], words), target).step
        except AssemblyError:
            continue
    raise AssertionError(f"{name}: no spelling is taken")


def set_addresses(m: Machine, name: str, base: int, places: np.ndarray) -> None:
    m.scalar64[:, 1] = base + int(places[0])  # s[2:3] of scalar loads
    m.scalar[:, 4:8] = [base & 0xFFFFFFFF, base >> 32, SIZE, 0x27000]
    wide = places if not name.startswith("global") else places + np.uint64(base)
    m.vector[ADDRESS, 0] = wide.astype(np.uint32)
    m.vector[ADDRESS + 1, 0] = (wide >> np.uint64(32)).astype(np.uint32)


def _make_half_equal(m: Machine, name: str, content: np.ndarray, places: np.ndarray) -> None:
    """Comparisons hold in half of the lanes."""
    if "cmp" not in name:
        return
    words = 2 if name.endswith(("x2", "64")) else 1
    for lane in range(0, LANES, 4):
        for word in range(words):
            first = DATA if "cmpst" in name else DATA + words
            m.vector[first + word, 0, lane] = content[(int(places[lane]) + OFFSET) // 4 + word]


def documented(
    name: str, text: str, memory: Bytes, place: int, before: np.ndarray, lane: int
) -> dict[str, Any]:
    """What the pseudocode of a memory instruction may refer to."""
    adds_itself = re.search(r"OFFSET[01]?\.u32", text) is not None
    address = place if adds_itself else place + OFFSET

    def wide(first: int) -> int:
        return sum(int(before[first + word, 0, lane]) << 32 * word for word in range(16) if first + word < 64)

    def calculated(*_: Value) -> Value:
        return Value("u", 64, address)

    data = Storage(wide(DATA), "u", 512)
    first, second = offsets_of(name)
    old = DATA if name.startswith("buffer") else RESULT
    names: dict[str, Any] = {
        f"Calc{kind}Addr": calculated for kind in ("Global", "Buffer", "Scratch", "Ds", "ScalarGlobal")
    }
    zero = ("SADDR", "SRSRC", "SOFFSET", "VADDR", "SBASE")
    return names | {zeroed: Storage(0) for zeroed in zero} | {
        "ADDR": Storage(address, "u", 64), "MEM": memory, "DATA": data,
        "VDATA": data if "store" in name else Storage(wide(old), "u", 512),
        "RETURN_DATA": Storage(wide(old), "u", 512), "SDATA": Storage(0, "u", 512),
        "DATA2": Storage(wide(SECOND), "u", 128),
        "OFFSET": Storage(OFFSET, "u", 32), "OFFSET0": Storage(first, "u", 32), "OFFSET1": Storage(second, "u", 32),
    }  # fmt: skip


def compare_lane(
    m: Machine, name: str, names: dict[str, Any], before: np.ndarray, lane: int, own: Bytes
) -> None:
    if name.startswith("s_load"):
        for word in range(16):
            if (wanted := names["SDATA"].bits >> 32 * word & 0xFFFFFFFF) or word == 0:
                assert int(m.scalar[0, 24 + word]) == wanted, f"{name}: word {word}"
        return
    if name.startswith("scratch_store"):
        assert m.private[:, 0, lane].tobytes() == bytes(own.data), f"{name} in lane {lane}"
        return
    loads = "load" in name or "_read" in name
    if not loads and "_rtn_" not in name and "_atomic_" not in name:
        return
    first = DATA if name.startswith("buffer") else RESULT
    result = names["RETURN_DATA" if "VDATA" not in pseudo_targets(name) else "VDATA"].bits
    # "RETURN_DATA = tmp" says nothing of the registers behind
    words = 2 if name.endswith("f64") else 1 if "RETURN_DATA = tmp" in pseudo_targets(name) else 4
    for word in range(words):
        wanted = result >> 32 * word & 0xFFFFFFFF
        assert int(m.vector[first + word, 0, lane]) == wanted, f"{name} in lane {lane}, word {word}"


def pseudo_targets(name: str) -> str:
    return pseudocode(name) or ""


# across lanes -------------------------------------------------------------------------------------


def lanes_machine(mask: int) -> Machine:
    rng = np.random.default_rng(1)
    m = Machine(Shape(1, 1, 64, 64, 0), AddressSpace(), Findings("test", (Line(1, "test", ""),)))
    m.vector[:, 0] = rng.integers(0, 1 << 32, (64, LANES), dtype=np.uint32)
    m.vector[ADDRESS, 0] = rng.integers(0, 256, LANES, dtype=np.uint32)
    m.scalar64[0, EXEC // 2] = mask
    m.scalar[0, M0] = 0
    m.scalar[0, 8] = 37
    m.scalar[0, 9] = 0xDEADBEEF
    m.refresh_lanes()
    return m


HALF = 0x5A5AFFFF00FF3C40
EVERY = (1 << 64) - 1
# instruction -> its operands, EXEC, and what its results are called in the pseudocode
LANE_TESTS = {
    "ds_bpermute_b32": (f"v{RESULT}, v{ADDRESS}, v{DATA} offset:12", HALF),
    "ds_permute_b32": (f"v{RESULT}, v{ADDRESS}, v{DATA} offset:12", HALF),
    "v_readlane_b32": (f"s24, v{DATA}, s8", HALF),
    "v_readfirstlane_b32": (f"s24, v{DATA}", HALF),
    "v_writelane_b32": (f"v{RESULT}, s9, s8", HALF),
    "v_permlane16_swap_b32": (f"v{RESULT}, v{DATA}", EVERY),
    "v_permlane32_swap_b32": (f"v{RESULT}, v{DATA}", EVERY),
    "v_swap_b32": (f"v{RESULT}, v{DATA}", HALF),
    "v_pk_mov_b32": (
        f"v[{RESULT}:{RESULT + 1}], v[{DATA}:{DATA + 1}], v[{SECOND}:{SECOND + 1}] op_sel:[1,0]",
        HALF,
    ),
}


@pytest.mark.parametrize("name", list(LANE_TESTS))
def test_instruction_across_lanes(name: str) -> None:
    words, mask = LANE_TESTS[name]
    text = pseudocode(name)
    assert text is not None
    text = re.sub(r"^declare (OFFSET|DATA0|VDST|lane) .*;$", "", text, flags=re.MULTILINE)
    text = text.replace("S0.u32[", "S0.u64[").replace("S1.u32[", "S1.u64[")  # the pairs of v_pk_mov
    m = lanes_machine(mask)
    before = m.vector.copy()
    decode(Line(1, name, words), "gfx950").step(m)
    decode(Line(2, "s_waitcnt", "vmcnt(0) lgkmcnt(0)"), "gfx950").step(m)
    registers = Registers(
        {number: [int(value) for value in before[number, 0]] for number in (ADDRESS, DATA, RESULT)},
        {"ADDR": ADDRESS, "DATA0": DATA, "VDST": RESULT, "SRC0": DATA},
    )
    if name in ("v_swap_b32", "v_pk_mov_b32"):
        _lane_by_lane(m, name, text, before, mask)
        return
    names: dict[str, Any] = {
        "VGPR": registers, "EXEC": Storage(mask, "u", 64), "OFFSET": Storage(12, "u", 32),
        "S0": Storage(0xDEADBEEF, "u", 32), "S1": Storage(37, "u", 32), "D0": Storage(0),
        "SRC0": Storage(DATA), "VDST": Storage(RESULT), "lane": Storage(0, "i", 32),
    }  # fmt: skip
    run_documented(text, names)
    if words.startswith("s24"):
        assert int(m.scalar[0, 24]) == names["D0"].bits
    for number, values in registers.values.items():
        assert m.vector[number, 0].tolist() == values, f"{name}: v{number}"


def _lane_by_lane(m: Machine, name: str, text: str, before: np.ndarray, mask: int) -> None:
    def pair(first: int, lane: int) -> int:
        return int(before[first, 0, lane]) | int(before[first + 1, 0, lane]) << 32

    for lane in range(LANES):
        names: dict[str, Any] = {
            "D0": Storage(pair(RESULT, lane), "u", 64), "S0": Storage(pair(DATA, lane), "u", 64),
            "S1": Storage(pair(SECOND, lane), "u", 64), "OPSEL": Storage(1, "u", 3),
        }  # fmt: skip
        if mask >> lane & 1:
            run_documented(text, names)
        assert int(m.vector[RESULT, 0, lane]) == names["D0"].bits & 0xFFFFFFFF
        if name == "v_swap_b32":
            assert int(m.vector[DATA, 0, lane]) == names["S0"].bits & 0xFFFFFFFF
        else:
            assert int(m.vector[RESULT + 1, 0, lane]) == names["D0"].bits >> 32


@pytest.mark.parametrize("name", [name for name in SPECIAL if name.endswith("_saveexec_b64")])
def test_saveexec(name: str) -> None:
    text = pseudocode(name)
    assert text is not None
    for seed in range(4):
        source, mask = (int(value) for value in np.random.default_rng(seed).integers(0, 1 << 62, 2))
        source = (0, EVERY, source, source)[seed]
        m = lanes_machine(mask)
        m.scalar64[0, 6] = source
        decode(Line(1, name, "s[24:25], s[12:13]"), "gfx942").step(m)
        names: dict[str, Any] = {
            "EXEC": Storage(mask, "u", 64), "S0": Storage(source, "u", 64), "D0": Storage(0), "SCC": Storage(0)
        }  # fmt: skip
        run_documented(text, names)
        assert int(m.scalar64[0, EXEC // 2]) == names["EXEC"].bits
        assert int(m.scalar64[0, 12]) == names["D0"].bits == mask
        assert bool(m.scc[0]) == bool(names["SCC"].bits & 1)
