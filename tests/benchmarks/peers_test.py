"""The peers train what atoll trains. Skipped where torch and h5py cannot be imported.
SPDX-License-Identifier: Apache-2.0"""

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

ATOLL = Path(sys.argv[1]).resolve()
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "training"), str(BENCHMARKS / "common")]

import cases
import programs
from throughput import difference

STEPS = 20
ONE, TWO, FOUR = cases.Layout(1, 1), cases.Layout(2, 1), cases.Layout(4, 1)


class Agreement(unittest.TestCase):
    """Two fp32 programs round differently: 1.6e-7 of the loss in 20 steps here. A weight gradient that is off by 0.1 %
    is 2e-6, eps of AdamW 1e-7 instead of 1e-8 1e-5, weight decay on norms too 1.4e-4."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.runner = programs.Runner(ATOLL, sys.executable, Path(cls.folder.name), 300)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, name, layout, groups=1, precision="fp32"):
        case = cases.Case("tiny", 64, precision, 8)
        return self.runner.train(cases.Program(name, layout, groups), case, STEPS)

    def assert_equal(self, peer, atoll, bound=1e-6):
        self.assertEqual(len(peer.losses), STEPS)
        self.assertLess(difference(peer.losses, atoll.losses), bound)

    def test_one_process(self):
        atoll = self.train("atoll", ONE)
        self.assertGreater(atoll.losses[0] - atoll.losses[-1], 0.5, "hardly anything was learnt")
        for peer in ("eager", "eager-onednn", "eager-chunked"):
            with self.subTest(peer):
                found = self.train(peer, ONE)
                self.assert_equal(found, atoll)
                # As of a small model, PyTorch's norm is exact enough.
                self.assertLess(difference(found.gradient_norms, atoll.gradient_norms), 1e-5)

    def test_fsdp2(self):
        self.assert_equal(self.train("fsdp2", TWO), self.train("atoll", TWO))

    def test_average_of_groups_of_sharded_ranks(self):
        self.assert_equal(self.train("fedavg-fsdp2", FOUR, 2), self.train("atoll-fedavg", FOUR, 2))

    def test_bf16(self):
        exact = self.train("atoll", ONE)
        for peer, layout in (("eager", ONE), ("fsdp2", TWO)):
            with self.subTest(peer):
                self.assert_equal(self.train(peer, layout, precision="bf16"), exact, cases.TOLERANCE["bf16"])


if __name__ == "__main__":
    for module in ("torch", "h5py"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: {sys.executable} has no {module}")
            sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
