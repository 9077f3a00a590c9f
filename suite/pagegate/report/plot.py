"""Pictures of measured results: latency and share of the roofline over context or batch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.cases.spec import AttentionSpec
from pagegate.cases.workloads import workloads
from pagegate.errors import UsageError
from pagegate.regress.results import Results, Row

SUFFIXES = (".png", ".svg", ".pdf")
AXES = ("context", "batch", "workload")
_MOST_PANELS = 4
_MARKERS = "osD^vP*X"


@dataclass(frozen=True)
class Panel:
    """Workloads that differ along one axis only. points: (place on the axis, label, workload)."""

    title: str
    points: tuple[tuple[float, str, str], ...]


def panels(specs: dict[str, AttentionSpec], axis: str) -> list[Panel]:
    """What can be drawn over an axis: families of at least two workloads, the largest first.

    Over "workload" everything stands side by side.
    """
    if axis == "workload":
        return [Panel("", tuple((n, name, name) for n, name in enumerate(specs)))]
    families: dict[str, dict[int, str]] = {}
    for name, spec in specs.items():
        place = _place(spec, axis)
        if place is not None:
            title, position = place
            families.setdefault(title, {}).setdefault(position, name)
    found = [
        Panel(title, tuple((x, _short(x), family[x]) for x in sorted(family)))
        for title, family in families.items()
        if len(family) > 1
    ]
    return sorted(found, key=lambda panel: -len(panel.points))[:_MOST_PANELS]


def _place(spec: AttentionSpec, axis: str) -> tuple[str, int] | None:
    """The family of a spec and its place in it; None for a batch of unequal sequences."""
    if len(set(spec.query_lens)) != 1 or len(set(spec.seq_lens)) != 1:
        return None
    queries, context, batch = spec.query_lens[0], spec.seq_lens[0], spec.num_seqs
    kind = "decode" if queries == 1 else "prompt" if queries == context else f"{queries} queries"
    shape = f"{spec.num_query_heads}/{spec.num_kv_heads} heads of {spec.head_dim}"
    shown = ("query_lens", "seq_lens", "num_query_heads", "num_kv_heads", "head_dim")
    rest = ", ".join(f"{k} {v}" for k, v in spec.non_defaults().items() if k not in shown)
    where = f"batch {batch}" if axis == "context" else f"{_short(context)} keys"
    title = f"{kind}, {where}\n{shape}" + (f", {rest}" if rest else "")
    return title, context if axis == "context" else batch


def _short(number: float) -> str:
    whole = int(number)
    return f"{whole // 1024}k" if whole >= 1024 and whole % 1024 == 0 else str(whole)


def choose_axis(specs: dict[str, AttentionSpec]) -> str:
    """The first axis along which at least two workloads lie."""
    return next(axis for axis in AXES if panels(specs, axis))


def specs_of(results: Results) -> dict[str, AttentionSpec]:
    """The specs of the measured workloads that are (still) in the table."""
    table = {row.name: row.spec for row in workloads()}
    return {
        row.workload: table[row.workload] for row in results.rows if row.samples and row.workload in table
    }


def refuse_no_matplotlib() -> None:
    """Raises UsageError where pictures cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot: required matplotlib, found none; pip install 'pagegate[bench]'")


def plot(results: Results, path: Path, axis: str | None = None) -> None:
    """Latency above, share of the roofline below, one column per family; PNG, SVG or PDF by the name."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    measured = {row.name[:2]: row for row in results.rows if row.samples}
    specs = specs_of(results)
    axis = axis or choose_axis(specs)
    columns = panels(specs, axis)
    width = max(5.5, 0.5 * len(specs)) if axis == "workload" else 1.2 + 3.3 * len(columns)
    figure, axes = plt.subplots(
        2,
        len(columns),
        sharex="col",
        sharey="row",
        squeeze=False,
        figsize=(width, 6.2),
        height_ratios=(3, 2),
        layout="constrained",
    )
    for column, panel in enumerate(columns):
        _draw_panel(axes[0][column], axes[1][column], panel, measured, axis)
    axes[0][0].set_ylabel("median latency, us")
    axes[1][0].set_ylabel("share of the roofline, %")
    axes[1][0].set_ylim(bottom=0)
    axes[0][0].legend(frameon=False, fontsize=8)
    quantity = ", ".join(sorted({row.quantity for row in measured.values()}))
    e = results.environment
    figure.suptitle(f"Paged attention on {e.gpu}", fontweight="bold")
    about = f"{quantity} time; torch {e.torch}, triton {e.triton}, driver {e.driver}, {e.runtime}"
    figure.supxlabel(about, fontsize=7, color="0.4")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_panel(
    above: Any, below: Any, panel: Panel, measured: dict[tuple[str, str], Row], axis: str
) -> None:
    for number, kernel in enumerate(dict.fromkeys(kernel for _, kernel in measured)):
        style: dict[str, Any] = {"marker": _MARKERS[number % len(_MARKERS)], "color": f"C{number % 10}"}
        style["zorder"] = 10 - number  # the first kernel is the one in question: on top
        # unrelated workloads are not a line
        style |= {"linestyle": "none"} if axis == "workload" else {"linewidth": 1.5}
        rows = [(x, measured.get((name, kernel))) for x, _, name in panel.points]
        _draw(above, rows, _median_us, label=kernel, markersize=5, **style)
        _draw(below, rows, _share, markersize=5, **style)
    floors = {workload: row for (workload, _), row in measured.items() if row.floor_s}
    _draw(
        above,
        [(x, floors.get(name)) for x, _, name in panel.points],
        _floor_us,
        label="floor",
        linestyle="--",
        color="0.6",
        linewidth=1,
        zorder=0,
    )
    _label(above, below, panel, axis)


def _draw(
    axes: Any, rows: Sequence[tuple[float, Row | None]], value: Callable[[Row], float | None], **style: Any
) -> None:
    points = [(x, value(row)) for x, row in rows if row is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], **style)


def _median_us(row: Row) -> float | None:
    return row.samples.median * 1e6 if row.samples else None


def _floor_us(row: Row) -> float | None:
    return row.floor_s * 1e6 if row.floor_s else None


def _share(row: Row) -> float | None:
    return 100 * row.floor_s / row.samples.median if row.floor_s and row.samples else None


def _label(above: Any, below: Any, panel: Panel, axis: str) -> None:
    above.set_title(panel.title, fontsize=9)
    above.set_yscale("log")
    above.yaxis.set_major_formatter("{x:g}")
    positions, labels = [x for x, _, _ in panel.points], [label for _, label, _ in panel.points]
    if axis == "workload":
        below.set_xticks(positions, labels, rotation=60, ha="right", fontsize=8)
    else:
        below.set_xscale("log", base=2)
        below.set_xticks(positions, labels)
        below.minorticks_off()
        below.set_xlabel("keys per sequence" if axis == "context" else "sequences")
    for axes in (above, below):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
