"""Which instructions lie in loops: strongly connected parts of the control-flow graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components


@dataclass(frozen=True)
class Step:
    """One instruction. target: the label that it may jump to; falls: whether the next one may follow."""

    opcode: str
    target: str = ""
    falls: bool = True


def in_loops(steps: Sequence[Step], labels: Mapping[str, int]) -> list[bool]:
    """For each instruction, whether it can be executed again after itself, from the first one on."""
    count = len(steps)
    sources, ends = [], []
    for index, step in enumerate(steps):
        successors = [index + 1] if step.falls and index + 1 < count else []
        if labels.get(step.target, count) < count:
            successors.append(labels[step.target])
        sources += [index] * len(successors)
        ends += successors
    graph = csr_matrix((np.ones(len(ends), np.int8), (sources, ends)), shape=(count, count))
    _, component = connected_components(graph, directed=True, connection="strong")
    sizes = np.bincount(component)
    loops = sizes[component] > 1
    loops[[s for s, e in zip(sources, ends, strict=True) if s == e]] = True
    reached = np.zeros(count, bool)
    reached[breadth_first_order(graph, 0, return_predecessors=False)] = True
    return [bool(flag) for flag in loops & reached]
