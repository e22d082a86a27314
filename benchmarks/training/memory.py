"""The longest sequence that each program trains in a budget of memory. SPDX-License-Identifier: Apache-2.0"""

import cases
import report
from processes import Failure
from programs import OverBudget, Unsupported, reason_of

STEPS = 2  # the second has gradients, moments and activations at once
FIRST = 1024
STEP = 256  # lengths are multiples of it
CLOSE = 0.05  # longest that fits and shortest that does not are as near as this


def estimate(options):
    """Seconds; the time of the longest trials is what bounds it."""
    count = len(options.sizes) * len(options.precisions) * len(options.programs)
    return count * 6 * options.timeout / 6


def run(options):
    budget = options.memory * 2**30
    results = {"budget": budget, "timeout": options.timeout, "rows": []}
    for size in options.sizes:
        for precision in options.precisions:
            for program in cases.of_precision(options.programs, precision):
                results["rows"].append(search(options, size, precision, program, budget))
                report.save(options.output, "memory", results, text_of(results))  # should it be stopped
    report.write(options.output, "memory", results, text_of(results))
    return True


def attempt(options, size, precision, program, length, budget):
    """Peak of all ranks together, each with one sequence; None: more than the budget."""
    case = cases.Case(size, length, precision, program.layout.ranks)
    try:
        peak = sum(options.runner.train(program, case, STEPS, budget).peak_memory)
    except OverBudget:
        peak = None
    options.say(f"{case}, {program}: " + (f"{peak / 2**30:.2f} GiB" if peak else "over the budget"))
    return peak if peak and peak <= budget else None


def search(options, size, precision, program, budget):
    """Doubles the length until it does not fit, then closes in by the straight line through what was measured: memory
    is linear in the length. A trial that takes too long ends the search."""
    fits, over, ended = {}, None, ""
    length = FIRST
    try:
        while True:
            peak = attempt(options, size, precision, program, length, budget)
            if peak is None:
                over = length
            else:
                fits[length] = peak
            if close_enough(fits, over):
                break
            length = following(fits, over, budget)
    except Unsupported as problem:
        ended = str(problem)
    except Failure as problem:
        ended = reason_of(problem)
        options.say(f"{size}, {precision}, {program}: {ended}")
    row = {"size": size, "precision": precision, "program": program.name, "layout": str(program.layout),
           "groups": program.groups, "peaks": fits, "fits": max(fits, default=0), "over": over, "ended": ended}
    row["by_line"] = None if over or len(fits) < 2 else round(line(fits)(budget))
    return row


def line(fits):
    """Length as a function of memory, through the two longest."""
    (a, at_a), (b, at_b) = sorted(fits.items())[-2:]
    return lambda memory: b + (memory - at_b) * (b - a) / max(at_b - at_a, 1)


def close_enough(fits, over):
    return over is not None and over - max(fits, default=0) <= max(STEP, CLOSE * over)


def following(fits, over, budget):
    """The next length to try."""
    most = max(fits, default=0)
    if not over:
        return 2 * most
    guess = line(fits)(0.98 * budget) if len(fits) > 1 else (most + over) / 2
    low, high = most + STEP, over - STEP
    # Never closer to either end than a twentieth, or a wrong line would take for ever.
    margin = (over - most) // 20
    guess = min(max(guess, most + margin), over - margin)
    return int(min(max(guess // STEP * STEP, low), max(low, high)))


def text_of(results):
    rows = []
    for row in results["rows"]:
        name = row["program"] + (f", {row['groups']} groups" if row["groups"] > 1 else "")
        rows.append([row["size"], row["precision"], row["layout"], name, f"{row['fits']:,}" if row["fits"] else "-",
                     f"{row['over']:,}" if row["over"] else "-", f"{row['by_line']:,}" if row["by_line"] else "-",
                     row["ended"][:150].replace("|", "/") or "-"])
    head = ["model", "precision", "ranks x threads", "program", "fits", "does not fit", "by the line", "ended by"]
    return (f"# The longest sequence in {results['budget'] / 2**30:g} GiB\n\nOne sequence a rank, {STEPS} steps; VmHWM "
            f"of all ranks together.\n\n{report.markdown_table(head, rows)}")
