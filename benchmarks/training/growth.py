"""How the time of a token grows with sequence length and layers. SPDX-License-Identifier: Apache-2.0"""

import cases
import report
import throughput
from processes import Failure
from programs import Unsupported, reason_of

WARM_UP, TIMED = 1, 2
LAYERS = (1, 2, 4, 8)
LENGTH = 1024  # of the runs over layers
TOKENS = 8192  # of a step, whatever the length: what grows is attention alone


def sweeps(options):
    """(axis, value, case) of all runs."""
    for size in options.sizes:
        for precision in options.precisions:
            for length in options.lengths:
                yield "T", length, cases.Case(size, length, precision, max(TOKENS // length, options.least_batch))
            for layers in LAYERS:
                yield "layers", layers, cases.Case(size, LENGTH, precision, TOKENS // LENGTH, layers)


def chosen_programs(options, case):
    return [p for p in cases.of_precision(options.programs, case.precision) if not p.federated]


def estimate(options):
    total = 0
    for _, _, case in sweeps(options):
        rate = 25e9 * options.cores * (2 if case.precision == "bf16" else 1)
        total += len(chosen_programs(options, case)) * ((WARM_UP + TIMED) * case.operations / rate + 8)
    return total * options.pairs


def run(options):
    points, results, agree = [], None, True
    for axis, value, case in sweeps(options):
        samples = {program: [] for program in chosen_programs(options, case)}
        losses = {}  # of atoll, by layout
        for pair in range(options.pairs):
            for program in list(samples):
                try:
                    result = options.runner.train(program, case, WARM_UP + TIMED)
                except (Failure, Unsupported) as problem:
                    options.say(f"{case}, {program}: {reason_of(problem)}")
                    del samples[program]
                    continue
                if program.is_atoll:
                    losses[program.layout] = result.losses
                base = losses.get(program.layout)
                if base and throughput.difference(result.losses, base) > cases.TOLERANCE[case.precision]:
                    options.say(f"{case}, {program}: its losses differ from atoll's, it does not count")
                    del samples[program]
                    agree = False
                    continue
                samples[program].append(result.seconds(WARM_UP) / case.tokens)
                options.say(f"{case}, {program}, {pair + 1} of {options.pairs}: "
                            f"{case.tokens / result.seconds(WARM_UP):,.0f} tokens/s")
        for program, seconds in samples.items():
            middle = sorted(seconds)[len(seconds) // 2]
            points.append({"size": case.size, "precision": case.precision, "axis": axis, "value": value,
                           "program": str(program), "seconds_per_token": middle, "samples": seconds})
        results = {"pairs": options.pairs, "points": points, "lines": lines(points)}
        report.save(options.output, "growth", results, text_of(results), plot_of(results))  # should it be stopped
    report.write(options.output, "growth", results, text_of(results), plot_of(results))
    return agree


def fit(xs, ys):
    """Least squares of y = a + b x in relative terms; (a, b, largest relative deviation)."""
    weights = [1 / y**2 for y in ys]
    total = sum(weights)
    mx = sum(w * x for w, x in zip(weights, xs)) / total
    my = sum(w * y for w, y in zip(weights, ys)) / total
    spread = sum(w * (x - mx) ** 2 for w, x in zip(weights, xs))
    b = sum(w * (x - mx) * (y - my) for w, x, y in zip(weights, xs, ys)) / spread
    a = my - b * mx
    return a, b, max(abs(a + b * x - y) / y for x, y in zip(xs, ys))


def lines(points):
    """A straight line through each program's points of an axis."""
    found, series = [], {}
    for point in points:
        series.setdefault(tuple(point[key] for key in ("size", "precision", "axis", "program")), []).append(point)
    for (size, precision, axis, program), mine in series.items():
        if len(mine) < 3:
            continue
        a, b, deviation = fit([p["value"] for p in mine], [p["seconds_per_token"] for p in mine])
        found.append({"size": size, "precision": precision, "axis": axis, "program": program, "constant": a, "slope": b,
                      "deviation": deviation})
    return found


def text_of(results):
    text = ("# How the time of a token grows\n\nTokens/s; medians of "
            f"{results['pairs']}. The line is seconds per token = a + b x, fitted to relative errors.\n")
    groups = {}
    for point in results["points"]:
        groups.setdefault((point["size"], point["precision"], point["axis"]), []).append(point)
    for (size, precision, axis), mine in groups.items():
        values = sorted({point["value"] for point in mine})
        rows = []
        for program in dict.fromkeys(point["program"] for point in mine):
            rates = {p["value"]: 1 / p["seconds_per_token"] for p in mine if p["program"] == program}
            key = (size, precision, axis, program)
            row = [program] + [report.number(rates.get(value)) for value in values]
            for line in results["lines"]:
                if (line["size"], line["precision"], line["axis"], line["program"]) == key:
                    row += [f"{1e6 * line['constant']:.3g} + {1e6 * line['slope']:.3g} {axis}",
                            report.percent(line["deviation"])]
            rows.append(row + ["-"] * (len(values) + 3 - len(row)))
        head = ["program"] + [f"{axis} = {value}" for value in values] + ["microseconds a token", "furthest from it"]
        text += f"\n## {size}, {precision}, over {axis}\n\n" + report.markdown_table(head, rows)
    return text


def plot_of(results):
    if not results["points"]:
        return None
    groups, programs = {}, list(dict.fromkeys(point["program"] for point in results["points"]))
    for point in results["points"]:
        groups.setdefault((point["size"], point["precision"]), {}).setdefault(point["axis"], []).append(point)
    colours = {program: report.COLOURS[i % len(report.COLOURS)] for i, program in enumerate(programs)}
    dashes = {program: "" if i < len(report.COLOURS) else "6 4" for i, program in enumerate(programs)}
    rows = []
    for (size, precision), axes in groups.items():
        row = []
        for axis, points in axes.items():
            values = sorted({point["value"] for point in points})
            panel = report.Panel(f"{size}, {precision}, over {axis}", "tokens per second", [str(v) for v in values])
            for program in programs:
                rates = {p["value"]: 1 / p["seconds_per_token"] for p in points if p["program"] == program}
                if rates:
                    panel.add(program, [rates.get(value) for value in values], colours[program], dashes[program], True)
            row.append(panel)
        rows.append(row)
    legend = [(program, colours[program], dashes[program]) for program in programs]
    return report.svg("How the time of a token grows", rows, legend, f"{TOKENS} tokens a step.")
