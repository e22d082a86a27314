"""Tables in Markdown and plots in SVG. SPDX-License-Identifier: Apache-2.0"""

import json
import math
from html import escape

COLOURS = ("#1f77b4", "#d95f02", "#2a9d4e", "#7b4fa3", "#777777")


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value, digits=3):
    """To so many significant digits; "-" for nothing."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def spread(summary, digits=3):
    """Median, and least to largest where there are several."""
    text = number(summary["median"], digits)
    if summary["n"] > 1:
        text += f" ({number(summary['min'], digits)}-{number(summary['max'], digits)})"
    return text


def percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def save(folder, name, results, text, plot=None):
    """NAME.json, NAME.md and NAME.svg."""
    (folder / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")
    (folder / f"{name}.md").write_text(text)
    if plot:
        (folder / f"{name}.svg").write_text(plot)


def write(folder, name, results, text, plot=None):
    """As save; the text goes to standard output too."""
    save(folder, name, results, text, plot)
    print("\n" + text)
    print(f"written: {folder / name}.json, .md" + (", .svg" if plot else ""))


class Panel:
    """A plot of series over categories, with a logarithmic axis of values. A point is a value, or None."""

    width, height = 420, 320
    left, right, top, bottom = 64, 12, 48, 44

    def __init__(self, title, unit, categories):
        self.title, self.unit, self.categories, self.series = title, unit, categories, []

    def add(self, name, points, colour, dashes="", dots=False, ranges=None):
        """`dashes` as of stroke-dasharray; `ranges` are (least, largest) of each point."""
        self.series.append((name, points, colour, dashes, dots, ranges))

    def _scale(self):
        values = [p for _, points, *_ in self.series for p in points if p]
        low, high = math.log10(min(values)), math.log10(max(values))
        pad = max(0.05, 0.06 * (high - low))
        return low - pad, high + pad

    def svg(self, x0, y0):
        low, high = self._scale()
        inner = self.width - self.left - self.right
        tall = self.height - self.top - self.bottom

        def x(i):
            return x0 + self.left + inner * (i + 0.5) / len(self.categories)

        def y(value):
            return y0 + self.top + tall * (high - math.log10(value)) / (high - low)

        out = [f'<text x="{x0 + self.left}" y="{y0 + 20}" font-weight="bold">{escape(self.title)}</text>',
               f'<text x="{x0 + self.left}" y="{y0 + 38}" fill="#555">{escape(self.unit)}</text>']
        for tick in ticks(low, high):
            out.append(f'<line x1="{x0 + self.left}" x2="{x0 + self.width - self.right}" y1="{y(tick):.1f}" '
                       f'y2="{y(tick):.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{x0 + self.left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>')
        for i, category in enumerate(self.categories):
            out.append(f'<text x="{x(i):.1f}" y="{y0 + self.height - self.bottom + 20}" text-anchor="middle">'
                       f'{escape(category)}</text>')
        for name, points, colour, dashes, dots, ranges in self.series:
            at = [(x(i), y(p)) for i, p in enumerate(points) if p]
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" '
                       f'stroke-dasharray="{dashes}"><title>{escape(name)}</title></polyline>')
            for i, limits in enumerate(ranges or []):
                if limits:
                    out.append(f'<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{y(limits[0]):.1f}" '
                               f'y2="{y(limits[1]):.1f}" stroke="{colour}"/>')
            for i, p in enumerate(points) if dots else ():
                if p:
                    out.append(f'<circle cx="{x(i):.1f}" cy="{y(p):.1f}" r="3.2" fill="{colour}">'
                               f'<title>{escape(name)}, {escape(self.categories[i])}: {number(p)}</title></circle>')
        return "\n".join(out)


def ticks(low, high):
    """1, 2, 5 times powers of ten between two logarithms."""
    marks = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [mark for mark in marks if low <= math.log10(mark) <= high]
    return inside if len(inside) <= 9 else [mark for mark in inside if math.log10(mark) % 1 < 1e-9]


def svg(title, rows, legend, note):
    """Panels in rows. `legend` has (name, colour, dashes)."""
    width = max(len(row) for row in rows) * Panel.width + 10
    height = 60 + len(rows) * Panel.height + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" fill="#222">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="16" y="24" font-size="15" font-weight="bold">{escape(title)}</text>']
    at = 16
    for name, colour, dashes in legend:
        out.append(f'<line x1="{at}" x2="{at + 26}" y1="42" y2="42" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dashes}"/><text x="{at + 32}" y="46">{escape(name)}</text>')
        at += 48 + 7 * len(name)
    for r, row in enumerate(rows):
        out += [panel.svg(c * Panel.width, 56 + r * Panel.height) for c, panel in enumerate(row)]
    out.append(f'<text x="16" y="{height - 10}" fill="#555">{escape(note)}</text></svg>')
    return "\n".join(out) + "\n"
