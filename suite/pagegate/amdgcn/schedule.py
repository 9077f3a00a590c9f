"""Running the waves of a batch: the lowest block first, waves of one block together, barriers met."""

from __future__ import annotations

import numpy as np

from .farjump import index_of
from .machine import Array, Machine
from .operands import EXEC, VCC
from .program import Block, Program

_RUNNING, _WAITING, _ENDED = 0, 1, 2
LIMIT = 200_000  # block executions of one batch, far above what a small case needs
PATIENCE = 500  # block executions after which the waves further on get their turn, as long


def run_batch(m: Machine, program: Program, executed: Array) -> None:
    """Run until all waves have ended. `executed` counts, per block, the waves that ran it."""
    waves, per_group = m.shape.waves, m.shape.waves_per_group
    may_spin = program.has_atomics
    position = np.full(waves, program.entry)
    state = np.zeros(waves, np.int8)
    for turn in range(LIMIT):
        running = state == _RUNNING
        if not running.any():
            if (state == _ENDED).all():
                return
            _release(m, state, per_group)
            continue
        # a wave that spins on a lock must not starve the one that holds it
        late = may_spin and turn // PATIENCE % 2
        number = int(position[running].max() if late else position[running].min())
        active = running & (position == number)
        if not np.array_equal(active, m.active):
            m.activate(active)
        block = program.blocks[number]
        executed[number] += int(active.sum())
        _run_block(m, block)
        _leave(m, program, number, position, state, active)
        if block.ending in ("s_barrier", "s_endpgm"):
            _release(m, state, per_group)
    m.findings.add("did not end", f"after {LIMIT} blocks", program.blocks[int(position.min())].first)


def _run_block(m: Machine, block: Block) -> None:
    findings, waits = m.findings, m.waits
    at = block.first
    for instruction in block.code:
        findings.current = at
        if waits.registers & instruction.registers:
            waits.touch(instruction.registers)
        instruction.step(m)
        at += 1
    findings.current = at


def _leave(m: Machine, program: Program, number: int, position: Array, state: Array, active: Array) -> None:
    """Move the active waves on."""
    block = program.blocks[number]
    if block.ending == "s_endpgm":
        state[active] = _ENDED
        m.waits.drain(active)
        return
    if block.ending == "s_setpc_b64":
        _jump(m, program, block, position, state, active)
        return
    position[active] = number + 1
    if block.ending == "s_barrier":
        state[active] = _WAITING
    elif block.ending:
        position[active & _taken(m, block.ending)] = block.target


def _jump(m: Machine, program: Program, block: Block, position: Array, state: Array, active: Array) -> None:
    """Each active wave goes to the block at its own address; one without a block there is ended."""
    starts = {block.first: number for number, block in enumerate(program.blocks)}
    for wave in np.flatnonzero(active):
        goal = index_of(int(m.scalar64[wave, block.target // 2]))
        if goal in starts:
            position[wave] = starts[goal]
        else:
            m.findings.add("jump out of the code", f"to line index {goal}")
            state[wave] = _ENDED


def _taken(m: Machine, mnemonic: str) -> Array:
    """Which waves take a branch."""
    if mnemonic == "s_branch":
        return np.ones(m.shape.waves, bool)
    condition = mnemonic.removeprefix("s_cbranch_")
    if condition.startswith("scc"):
        return np.asarray(m.scc == (condition == "scc1"))
    register = EXEC if condition.startswith("exec") else VCC
    zero = m.scalar64[:, register // 2] == 0
    return np.asarray(~zero if condition.endswith("nz") else zero)


def _release(m: Machine, state: Array, per_group: int) -> None:
    """Let workgroups go on of which every wave has arrived or ended."""
    grouped = state.reshape(-1, per_group)
    ready = (grouped != _RUNNING).all(axis=1) & (grouped == _WAITING).any(axis=1)
    for group in np.flatnonzero(ready):
        m.local.barrier(int(group))
        waves = np.zeros(state.shape, bool)
        waves[group * per_group : (group + 1) * per_group] = True
        m.waits.remark(waves)
        grouped[group][grouped[group] == _WAITING] = _RUNNING
