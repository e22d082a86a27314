"""Tokens per second of atoll and the peers, interleaved, with agreement of the losses.
SPDX-License-Identifier: Apache-2.0"""

import math
import statistics

import cases
import peak
import report
from processes import Failure
from programs import Unsupported, reason_of

WARM_UP = 2  # steps that are not timed: allocation, compilation
CHECKED = 20  # steps of the first pair, over which the losses must agree


def estimate(options):
    """Seconds; rough: the arithmetic at a third of what a core with AVX2 or better does, and the starts."""
    total = 60
    for case in chosen_cases(options):
        rate = 25e9 * options.cores * (2 if case.precision == "bf16" else 1)
        steps = options.check_steps + (options.pairs - 1) * (WARM_UP + options.timed_steps)
        seconds = steps * case.operations / rate + 8 * options.pairs
        total += len(cases.of_precision(options.programs, case.precision)) * seconds
    return total


def chosen_cases(options):
    return [cases.Case(size, length, precision, max(options.tokens // length, options.least_batch))
            for size in options.sizes for precision in options.precisions for length in options.lengths]


def run(options):
    results = {"pairs": options.pairs, "checked_steps": options.check_steps, "timed_steps": options.timed_steps,
               "tolerance": cases.TOLERANCE, "optimizer": cases.OPTIMIZER, "every": cases.EVERY, "cores": options.cores,
               "load_before": load(), "peak": peak.measure(options), "cases": []}
    for case in chosen_cases(options):
        results["cases"].append(measure(options, case))
        results["load_after"] = load()
        report.save(options.output, "throughput", results, text_of(results))  # should it be stopped
    report.write(options.output, "throughput", results, text_of(results))
    return all(row["counts"] or "loss_difference" not in row for case in results["cases"] for row in case["rows"])


def load():
    """Mean number of running processes in the last minute."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return float(file.read().split()[0])


def measure(options, case):
    """Every program once in each pair; each pair begins elsewhere, so that a slow drift of the machine meets all."""
    programs = cases.of_precision(options.programs, case.precision)
    samples = {program: [] for program in programs}
    problems = {}
    for pair in range(options.pairs):
        steps = options.check_steps if pair == 0 else WARM_UP + options.timed_steps
        shift = pair * len(programs) // options.pairs
        for program in programs[shift:] + programs[:shift]:
            if program in problems:
                continue
            try:
                result = options.runner.train(program, case, steps)
            except (Failure, Unsupported) as problem:
                problems[program] = problem
                options.say(f"{case}, {program}: {reason_of(problem)}")
                continue
            samples[program].append(result)
            options.say(f"{case}, {program}, {pair + 1} of {options.pairs}: "
                        f"{case.tokens / result.seconds(WARM_UP):,.0f} tokens/s, loss {result.losses[-1]:.4f}")
    rows = [row_of(case, program, samples, problems) for program in programs]
    return {"name": str(case), "parameters": cases.parameters(case.config), "batch": case.batch, "length": case.length,
            "precision": case.precision, "operations_per_token": case.operations / case.tokens,
            "config": case.config, "rows": rows}


def row_of(case, program, samples, problems):
    row = {"program": program.name, "layout": str(program.layout), "groups": program.groups, "counts": False}
    if program in problems:
        problem = problems[program]
        row["problem"], row["reason"] = str(problem), reason_of(problem)
        row["unsupported"] = isinstance(problem, Unsupported)
        return row
    mine = samples[program]
    rates = [case.tokens / result.seconds(WARM_UP) for result in mine]
    row["tokens_per_second"] = summarise(rates)
    row["operations_per_second"] = row["tokens_per_second"]["median"] * case.operations / case.tokens
    row["peak_memory"] = max((result.peak_memory for result in mine), key=sum)
    row["library_memory"] = mine[0].more.get("library_memory")
    row["versions"] = mine[0].more.get("versions")
    row["losses"], row["gradient_norms"] = mine[0].losses, mine[0].gradient_norms
    base = counterpart(program, samples)
    if base is None:
        row["counts"] = program.is_atoll
        return row
    theirs = samples[base]
    if len(theirs) == len(mine):
        row["loss_difference"] = max(difference(a.losses, b.losses) for a, b in zip(mine, theirs))
        row["norm_difference"] = max(difference(a.gradient_norms, b.gradient_norms) for a, b in zip(mine, theirs))
        row["counts"] = row["loss_difference"] <= cases.TOLERANCE[case.precision]
        # Of the same pair, so that what slows a whole pair does not count.
        row["atoll_over_it"] = summarise([case.tokens / b.seconds(WARM_UP) / rate for b, rate in zip(theirs, rates)])
        row["atoll_memory_over_it"] = max(sum(b.peak_memory) for b in theirs) / sum(row["peak_memory"])
    return row


def counterpart(program, samples):
    """atoll's run that does the same on the same ranks; for atoll itself the first of the same mathematics."""
    same = [other for other, found in samples.items() if found and other.is_atoll and other.family == program.family]
    if program.is_atoll:
        return same[0] if same and same[0] != program else None
    return next((other for other in same if other.layout == program.layout), None)


def difference(losses, others):
    """Largest relative difference of a step; infinite where a loss is not finite."""
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True)]
    return max(d if math.isfinite(d) else math.inf for d in differences)


def summarise(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def memory(row):
    text = "+".join(report.number(peak / 2**30) for peak in row["peak_memory"])
    return text + (f" ({row['library_memory'] / 2**30:.2f})" if row["library_memory"] else "")


def table(case, peaks):
    rows = []
    for row in case["rows"]:
        name = [row["layout"], row["program"] + (f", {row['groups']} groups" if row["groups"] > 1 else "")]
        if "problem" in row:
            text = ("" if row["unsupported"] else "failed: ") + row["reason"]
            rows.append(name + [text[:150].replace("|", "/")] + 5 * ["-"])
            continue
        agreement = "-"
        if "loss_difference" in row:
            agreement = f"{row['loss_difference']:.1e}" + ("" if row["counts"] else ": DIFFERS, does not count")
        ratio = row["atoll_over_it"] if row["counts"] and "atoll_over_it" in row else None
        rows.append(name + [agreement, report.spread(row["tokens_per_second"]),
                            report.percent(row["operations_per_second"] / peaks[case["precision"]]),
                            report.spread(ratio) if ratio and not row["program"].startswith("atoll") else "-",
                            memory(row),
                            report.number(row["atoll_memory_over_it"], 2)
                            if ratio and not row["program"].startswith("atoll") else "-"])
    return report.markdown_table(["ranks x threads", "program", "losses differ by", "tokens/s", "of GEMM peak",
                                  "atoll / it", "GiB a rank (libraries)", "atoll's memory / its"], rows)


def best(case):
    """atoll's best layout against PyTorch's best of one process, on the same cores."""
    counted = [row for row in case["rows"] if row["counts"] and row["groups"] == 1]
    mine = [row for row in counted if row["program"] == "atoll"]
    text = ""
    kinds = {"eager": [name for name in cases.ONE_PROCESS if name.startswith("eager")],
             "torch.compile": [name for name in cases.ONE_PROCESS if name.startswith("compile")],
             "FSDP2": cases.SHARDED}
    for what, names in kinds.items():
        theirs = [row for row in counted if row["program"] in names]
        if not mine or not theirs:
            continue
        a, b = (max(rows, key=lambda row: row["tokens_per_second"]["median"]) for rows in (mine, theirs))
        ratio = a["tokens_per_second"]["median"] / b["tokens_per_second"]["median"]
        text += f"- best of atoll ({a['layout']}) over the best {what} ({b['program']} {b['layout']}): {ratio:.2f}\n"
    return text


def text_of(results):
    peaks = results["peak"]["best"]
    text = (f"# Training the same Llama: atoll and PyTorch\n\n{results['cores']} cores; load average before "
            f"{results['load_before']:.2f}, of other programs. {peak.text_of(results['peak'])}\n"
            f"{results['pairs']} interleaved pairs: median (least-largest); ratios are those of the same pair. "
            f"Losses: largest relative difference from atoll's over {results['checked_steps']} steps (and in all later "
            f"runs); at most {results['tolerance']['fp32']:g} in fp32, {results['tolerance']['bf16']:g} in bf16.\n")
    for case in results["cases"]:
        text += (f"\n## {case['name']}: {case['parameters'] / 1e6:.1f} M parameters, {case['batch']} x "
                 f"{case['length']} tokens a step\n\n{table(case, peaks)}\n{best(case)}")
    return text
