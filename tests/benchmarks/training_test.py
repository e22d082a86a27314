"""Parts of benchmarks/training that need no PyTorch. SPDX-License-Identifier: Apache-2.0"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ATOLL = Path(sys.argv[1]).resolve()
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "training"), str(BENCHMARKS / "common")]

import cases
import growth
import memory
import programs
import throughput
from processes import Failure


class Cases(unittest.TestCase):
    def test_parameters_are_those_of_atoll(self):
        for size in cases.MODELS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "config.json"
                path.write_text(json.dumps(cases.model_config(size)))
                done = subprocess.run([ATOLL, "inspect", path, "--json"], capture_output=True, text=True, check=True)
            self.assertEqual(json.loads(done.stdout)["parameters"]["total"], cases.parameters(cases.model_config(size)))

    def test_operations_of_a_token(self):
        # tiny, product by product: multiplications and additions of a forward pass over T = 3 tokens
        length, hidden, inner, keys, vocabulary = 3, 64, 176, 2 * 16, 320
        block = hidden * (hidden + 2 * keys) + hidden * hidden + 3 * hidden * inner
        scores = sum(2 * hidden * (t + 1) for t in range(length))  # q k and p v, t + 1 keys
        forward = 2 * (length * (2 * block + hidden * vocabulary) + 2 * scores)
        self.assertEqual(cases.operations_per_token(cases.model_config("tiny"), length) * length, 3 * forward)

    def test_programs_of_layouts(self):
        found = cases.programs([cases.Layout(1, 2), cases.Layout(2, 1)], ("eager", "fsdp2", "fedavg-fsdp2"), 2)
        self.assertEqual([str(program) for program in found],
                         ["atoll 1x2", "eager 1x2", "atoll 2x1", "fsdp2 2x1", "atoll-fedavg 2x1", "fedavg-fsdp2 2x1"])


class Agreement(unittest.TestCase):
    def row(self, losses):
        """Of a peer whose losses these are, where atoll's are 4 and 2."""
        atoll, peer = (cases.Program(name, cases.Layout(1, 1)) for name in ("atoll", "eager"))
        case = cases.Case("tiny", 64, "fp32", 8)
        result = lambda losses, seconds: programs.Result(losses, [9, 9, seconds], [1, 1], [1 << 20])
        samples = {atoll: [result([4.0, 2.0], 1.0)], peer: [result(losses, 2.0)]}
        return throughput.row_of(case, peer, samples, {})

    def test_counts_with_four_digits_only(self):
        row = self.row([4.0, 2.0001])
        self.assertTrue(row["counts"])
        self.assertEqual(row["atoll_over_it"]["median"], 2.0)
        self.assertFalse(self.row([4.0, 2.0003])["counts"])
        self.assertFalse(self.row([4.0, float("nan")])["counts"])


class Runs(unittest.TestCase):
    def watched(self, folder, command, timeout, budget=None):
        return programs.Watched([command], [{}], Path(folder), timeout, budget)

    def assert_gone(self, folder):
        pid = int((Path(folder) / "pid").read_text())
        for _ in range(100):
            if not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
                return
            time.sleep(0.05)
        self.fail("a process of the run is still there")

    def test_time_out_ends_all_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            watched = self.watched(folder, ["sh", "-c", f"sleep 1000 & echo $! > {folder}/pid; sleep 1000"], 1)
            with self.assertRaisesRegex(Failure, "no end after 1 s"):
                watched.wait(watched.pids)
            self.assert_gone(folder)

    def test_failure_ends_all_processes_and_shows_the_log(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ["sh", "-c", f"sleep 1000 & echo $! > {folder}/pid; echo what went wrong >&2; exit 3"]
            watched = self.watched(folder, command, 60)
            with self.assertRaisesRegex(Failure, "exit status 3(.|\n)*what went wrong"):
                watched.wait(watched.pids)
            self.assert_gone(folder)

    def test_budget_ends_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            watched = self.watched(folder, ["sleep", "1000"], 60, budget=1)
            with self.assertRaises(programs.OverBudget):
                watched.wait(watched.pids)


class Lines(unittest.TestCase):
    def test_fit_of_a_straight_line(self):
        a, b, deviation = growth.fit([1, 2, 4, 8], [3 + 0.5 * x for x in (1, 2, 4, 8)])
        self.assertAlmostEqual(a, 3)
        self.assertAlmostEqual(b, 0.5)
        self.assertLess(deviation, 1e-12)

    def test_search_finds_the_longest_sequence(self):
        for per_token in (1000, 77777, 400000):
            budget, lengths, fits, over, length = 2**30, [], {}, None, memory.FIRST
            while True:  # as memory.search, of a program that takes 10 MB and so many bytes a token
                lengths.append(length)
                peak = 10_000_000 + per_token * length
                if peak > budget:
                    over = length
                else:
                    fits[length] = peak
                if memory.close_enough(fits, over):
                    break
                length = memory.following(fits, over, budget)
            longest = (budget - 10_000_000) / per_token
            self.assertLessEqual(max(fits), longest)
            self.assertGreater(over, longest)
            self.assertLess(len(lengths), 20)


class Tables(unittest.TestCase):
    def test_growth(self):
        points = [{"size": "20m", "precision": "fp32", "axis": "T", "value": T, "program": program, "samples": [],
                   "seconds_per_token": factor * (1e-3 + 1e-6 * T)}
                  for program, factor in (("atoll 1x1", 1), ("eager 1x1", 2)) for T in (128, 512, 2048)]
        results = {"pairs": 1, "points": points, "lines": growth.lines(points)}
        text = growth.text_of(results)
        self.assertIn("| atoll 1x1 | 887 | 661 | 328 | 1e+03 + 1 T | 0 % |", text)
        self.assertIn("| eager 1x1 | 443 | 331 | 164 | 2e+03 + 2 T | 0 % |", text)
        self.assertEqual(growth.plot_of(results).count("<polyline"), 2)
        self.assertIsNone(growth.plot_of({"points": []}))

    def test_memory(self):
        row = {"size": "20m", "precision": "fp32", "program": "eager", "layout": "1x1", "groups": 1, "peaks": {},
               "fits": 2048, "over": None, "by_line": 65536, "ended": "no end after 60 s"}
        text = memory.text_of({"budget": 20 * 2**30, "rows": [row]})
        self.assertIn("| 20m | fp32 | 1x1 | eager | 2,048 | - | 65,536 | no end after 60 s |", text)

    def test_failed_and_unsupported_programs(self):
        atoll, peer = (cases.Program(name, cases.Layout(1, 1)) for name in ("atoll", "eager"))
        case = cases.Case("tiny", 64, "bf16", 8)
        problems = {atoll: programs.Unsupported("not supported by this build"), peer: Failure("a | b")}
        rows = [throughput.row_of(case, program, {}, problems) for program in (atoll, peer)]
        text = throughput.table({"rows": rows, "precision": "bf16"}, {"bf16": 1e9})
        self.assertIn("| 1x1 | atoll | not supported by this build |", text)
        self.assertIn("| 1x1 | eager | failed: a / b |", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
