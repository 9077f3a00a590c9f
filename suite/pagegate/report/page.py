"""A gate's result as one HTML file: forest plot, rounds, reasons. No scripts, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from pagegate.regress.outcome import GateResult, RowResult
from pagegate.regress.verdict import AMBIGUOUS, FASTER, INCOMPARABLE, SAME, SLOWER, percent

from .gate import again, cells, headline, side_words

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9dce1; --paper: #ffffff;
  --card: #f6f7f9; --bad: #c62a2f; --good: #18794e; --doubt: #ad5700; --band: #18794e14; }
@media (prefers-color-scheme: dark) { :root { --ink: #eceef0; --soft: #9ba1a6; --line: #343a40;
  --paper: #121416; --card: #1b1e21; --bad: #ff6369; --good: #4cc38a; --doubt: #f1a10d; --band: #4cc38a1c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 74rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, li { color: var(--ink); } .soft { color: var(--soft); }
.figure, .scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .5rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
code { font: .85rem ui-monospace, monospace; background: var(--card); padding: .1rem .3rem; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .soft { fill: var(--soft); }
.SLOWER, .WRONG, .UNUSABLE { color: var(--bad); } .SAME, .FASTER, .PASSED { color: var(--good); }
.AMBIGUOUS, .INCOMPARABLE, .UNSUPPORTED { color: var(--doubt); } b { font-weight: 600; }
svg .SLOWER { color: var(--bad); } .grid { stroke: var(--line); } .zero { stroke: var(--soft); }
.floor { stroke: var(--soft); stroke-dasharray: 4 3; } .mark { stroke: currentColor; fill: currentColor; }
.round { fill: currentColor; opacity: .45; } .band { fill: var(--band); }
"""
_SHAPES = {SLOWER: "square", FASTER: "circle", SAME: "circle", AMBIGUOUS: "diamond", INCOMPARABLE: "diamond"}
_NAME, _PLOT, _SIDE, _ROW, _TOP = 230, 560, 150, 26, 34


def page(result: GateResult, outcome: str) -> str:
    """The whole file. Colours follow the reader's light or dark setting; shapes say the same."""
    rows = result.worst_first()
    measured = [row for row in rows if row.track and row.track.figures]
    parts = [
        f"<h1 class={outcome}>{escape(headline(result, outcome))}</h1>",
        f"<p class=soft>{escape(_about(result))}</p>",
        *(
            f"<p><b class=WRONG>{f.status}</b> {escape(f'{f.side} {f.row}: {f.words}')}</p>"
            for f in result.failures
        ),
    ]
    if measured:
        parts += [
            "<h2>Head against base</h2>",
            "<p class=soft>Each mark is the median over rounds of head over base, with its interval; each "
            "dot is one round. Dashed: the floor, from which a slowdown counts.</p>",
            f"<div class=figure>{forest(measured, result.rules.floor)}</div>",
            "<h2>Round by round</h2>",
            "<p class=soft>Head over base in the order in which rounds were measured, each row on its own "
            "scale; the band is the floor on both sides.</p>",
            f"<div class=figure>{series(measured, result.rules.floor)}</div>",
        ]
    parts += ["<h2>All rows</h2>", f"<div class=scroll>{_table(rows)}</div>"]
    explained = [row for row in rows if row.why]
    if explained:
        parts.append("<h2>What differs</h2>")
        for row in explained:
            items = "".join(f"<li>{escape(line)}</li>" for line in row.why)
            parts.append(f"<p><b>{escape(row.name)}</b></p><ul>{items}</ul>")
    if result.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
        parts.append(f"<h2>Notes</h2><ul>{notes}</ul>")
    parts.append(f"<h2>Again</h2><p><code>{escape(again(result))}</code></p>")
    title = escape(f"pagegate gate: {outcome}")
    return (
        f"<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _about(result: GateResult) -> str:
    e = result.environment
    where = f"{e['gpu']}, driver {e['driver']}, torch {e['torch']}, triton {e['triton']}" if e else "no GPU"
    took = f"took {sum(result.seconds.values()):.0f} s"
    return f"{side_words(result.head)} against {side_words(result.base)}; {result.quantity}; {where}; {took}"


def _table(rows: Sequence[RowResult]) -> str:
    columns = [
        "workload",
        "kernel",
        "base us",
        "head us",
        "change",
        "interval",
        "rounds",
        "verdict",
        "reasons",
    ]
    head = "".join(f"<th{' class=n' if 2 <= n <= 6 else ''}>{c}</th>" for n, c in enumerate(columns))
    lines = []
    for row in rows:
        numbers = "".join(f"<td class=n>{escape(cell)}</td>" for cell in cells(row))
        reasons = escape("; ".join(row.reasons))
        lines.append(
            f"<tr><td>{escape(row.workload)}</td><td>{escape(row.kernel)}</td>{numbers}"
            f"<td class={row.verdict}><b>{row.verdict}</b></td><td class=soft>{reasons}</td></tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def forest(rows: Sequence[RowResult], floor: float) -> str:
    """Ratio and interval of each row over one scale; disturbed rounds are clipped to its ends."""
    edges = [math.log1p(2 * floor)]
    for row in rows:
        assert row.track is not None and row.track.figures is not None
        edges += [abs(row.track.figures.lower), abs(row.track.figures.upper)]
    limit = 1.08 * min(max(edges), 0.7)
    width, height = _NAME + _PLOT + _SIDE, _TOP + _ROW * len(rows) + 28

    def x(value: float) -> float:
        return _NAME + _PLOT / 2 * (1 + max(-1.0, min(1.0, value / limit)))

    parts = []
    for tick in _ticks(limit):
        place, kind = x(math.log1p(tick)), "zero" if tick == 0 else "grid"
        parts.append(
            f'<line class={kind} x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP - 8}" y2="{height - 24}"/>'
        )
        parts.append(
            f'<text class=soft x="{place:.1f}" y="{height - 8}" text-anchor=middle>{_tick(tick)}</text>'
        )
    place = x(math.log1p(floor))
    parts.append(f'<line class=floor x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP - 8}" y2="{height - 24}"/>')
    parts.append(f'<text class=soft x="{place:.1f}" y="{_TOP - 14}" text-anchor=middle>floor</text>')
    for number, row in enumerate(rows):
        parts.append(_forest_row(row, _TOP + _ROW * number + _ROW / 2, x))
    label = "Forest plot: head over base with its interval, row by row"
    return _svg(width, height, label, parts)


def _forest_row(row: RowResult, y: float, x: object) -> str:
    assert callable(x) and row.track is not None and row.track.figures is not None
    figures = row.track.figures
    low, high, middle = (x(v) for v in (figures.lower, figures.upper, figures.change))
    dots = "".join(
        f'<circle class=round cx="{x(r.time):.1f}" cy="{y + 7:.1f}" r="1.6"/>' for r in row.track.rounds
    )
    words = f"{row.name}: {percent(figures.change)} ({percent(figures.lower)} to {percent(figures.upper)})"
    return (
        f"<g class={row.verdict}><title>{escape(words)}, {figures.rounds} rounds, {row.verdict}</title>"
        f'<text x="{_NAME - 12}" y="{y + 4:.1f}" text-anchor=end>{escape(_label(row))}</text>{dots}'
        f'<line class=mark stroke-width=2 x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f"{_mark(_SHAPES[row.verdict], middle, y)}"
        f'<text x="{_NAME + _PLOT + 12}" y="{y + 4:.1f}">{percent(figures.change)} {row.verdict}</text></g>'
    )


def _label(row: RowResult) -> str:
    return f"{row.workload} {row.kernel}"


def _mark(shape: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle class=mark cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect class=mark x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turn}/>'


def _tick(ratio: float) -> str:
    return f"{100 * ratio:+g} %" if ratio else "0"


def _ticks(limit: float) -> list[float]:
    """Round ratios on both sides of 0 within a log ratio."""
    for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        if limit / step <= 5.5:
            break
    count = int(limit / step)
    return [n * step for n in range(-count, count + 1) if abs(math.log1p(n * step)) <= limit]


def series(rows: Sequence[RowResult], floor: float) -> str:
    """One small panel per row: rounds from left to right."""
    columns, wide, high = 3, 300, 96
    parts = []
    for number, row in enumerate(rows):
        left, top = 10 + (wide + 12) * (number % columns), 10 + (high + 14) * (number // columns)
        parts.append(_panel(row, left, top, wide, high, floor))
    height = 10 + (high + 14) * (-(-len(rows) // columns))
    return _svg(20 + (wide + 12) * columns, height, "Head over base in each round, row by row", parts)


def _panel(row: RowResult, left: float, top: float, wide: float, high: float, floor: float) -> str:
    assert row.track is not None
    times = [one.time for one in row.track.rounds]
    edge = math.log1p(floor)
    limit = max(1.5 * edge, *(abs(t) for t in times))
    plot_top, plot = top + 20, high - 24

    def y(value: float) -> float:
        return plot_top + plot / 2 * (1 - value / limit)

    step = (wide - 76) / max(len(times) - 1, 1)
    dots = "".join(
        f'<circle class=mark cx="{left + 8 + n * step:.1f}" cy="{y(t):.1f}" r="2"><title>round {n + 1}: '
        f"{percent(t)}</title></circle>"
        for n, t in enumerate(times)
    )
    right = left + wide - 64
    band = f'y="{y(edge):.1f}" width="{wide - 62}" height="{y(-edge) - y(edge):.1f}"'
    return (
        f'<g class={row.verdict}><text x="{left}" y="{top + 10}">{escape(_label(row))}</text>'
        f'<rect class=band x="{left}" {band}/>'
        f'<line class=zero x1="{left}" x2="{right + 2}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>{dots}'
        f'<text class=soft x="{right + 6}" y="{y(limit) + 8:.1f}">{percent(limit)}</text>'
        f'<text class=soft x="{right + 6}" y="{y(-limit):.1f}">{percent(-limit)}</text></g>'
    )


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role=img aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
