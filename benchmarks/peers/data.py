"""The sequences of a step in atoll's order, from a token file (docs/data.md). SPDX-License-Identifier: Apache-2.0

The order is a pure function of (seed, epoch): a Feistel network over [0, 2^(2b)) with cycle walking (io's Permutation),
written anew here, so that the agreement of the losses also checks the order.
"""

import h5py
import torch

IGNORED = -100  # target of F.cross_entropy that does not count
MASK = (1 << 64) - 1


def mix64(x):
    """The finalizer of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def random_bits(key, counter):
    return mix64((mix64(key ^ mix64(counter)) + key) & MASK)


def random_key(seed, name):
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x100000001B3) & MASK
    return mix64(hashed ^ mix64(seed))


def permutation(n, seed, epoch):
    """A function from a position in [0, n) to the index of the sequence that stands there."""
    bits = 4
    while 1 << (2 * bits) < n:
        bits += 1
    key = random_bits(random_key(seed, "permutation"), epoch)
    keys = [random_bits(key, turn) for turn in range(8)]
    mask = (1 << bits) - 1

    def network(value):
        left, right = value >> bits, value & mask
        for turn in keys:
            left, right = right, left ^ (random_bits(turn, right) & mask)
        return (left << bits) | right

    def index(position):
        if n == 1:
            return 0
        position = network(position)
        while position >= n:
            position = network(position)
        return position

    return index


class Batches:
    """What a rank trains on: of the `batch` sequences that a group of `ranks` takes in a step, every ranks-th; groups
    take theirs one after the other. The last sequence of the file may be shorter, and is padded; the losses agree only
    where there is none such, as the peers take the mean of ranks that hold equally many targets."""

    def __init__(self, path, length, seed, batch, ranks, groups=1):
        if batch % ranks:
            raise ValueError(f"a batch of {batch} sequences does not go into {ranks} ranks")
        with h5py.File(path) as file:
            self._tokens = torch.from_numpy(file["tokens"][:].astype("int64"))
        self._length, self._seed, self._batch, self._ranks, self._groups = length, seed, batch, ranks, groups
        self._count = -(-(len(self._tokens) - 1) // length)

    def step(self, step, group, rank):
        """Tokens and targets of step 0, 1, ..., each (batch / ranks, T)."""
        first = (step * self._groups + group) * self._batch
        shape = (self._batch // self._ranks, self._length)
        tokens, targets = torch.zeros(shape, dtype=torch.int64), torch.full(shape, IGNORED)
        for row, position in enumerate(range(first + rank, first + self._batch, self._ranks)):
            epoch, place = divmod(position, self._count)
            begin = permutation(self._count, self._seed, epoch)(place) * self._length
            text = self._tokens[begin : begin + self._length + 1]
            tokens[row, : len(text) - 1], targets[row, : len(text) - 1] = text[:-1], text[1:]
        return tokens, targets
