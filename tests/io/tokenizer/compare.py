#!/usr/bin/env python3
"""Tokens of atoll against those of the `tokenizers` library. SPDX-License-Identifier: Apache-2.0

    compare.py ENCODE_DOCUMENTS [--megabytes 2] [--vocab 3000] [--files FILE...] [--threads 1] [--kinds ...]

Trains each kind of tokenizer, encodes mixed documents with both and compares every token. Exit code 77 where the
library is not installed.
"""
import argparse
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

try:
    import tokenizers  # noqa: F401
except ImportError:
    print("skipped: the Python package `tokenizers` is not installed")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "fixtures"))
import make_tokenizers as make  # noqa: E402


def documents(megabytes, files):
    """Texts of files, generated ones and random ones, in all so many megabytes."""
    draw, texts, size = random.Random(11), [""], 0
    for path in files:
        data = pathlib.Path(path).read_bytes()
        texts.append(data.decode("utf-8", "replace"))
        size += len(data)
        if size > megabytes * 6e5:
            break
    for c in range(0, 0x30000, 64):  # every assigned character below U+30000 between letters and digits
        texts.append(" ".join("a" + chr(i) + "1 " + chr(i) for i in range(c, c + 64) if make.known(chr(i))))
    size = sum(len(t.encode()) for t in texts)
    texts += ["x" * 20000, "ab" * 20000, " " * 20000, "\u4f60\u597d" * 9000, "".join(draw.choice("abcdef") for _ in range(30000))]
    while size < megabytes * 1e6:
        some = list(make.corpus(draw.randint(0, 1 << 30), 50)) + [make.random_text(draw, 60) for _ in range(12)]
        texts += some
        size += sum(len(t.encode()) for t in some)
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--vocab", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", default=list(make.KINDS))
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    texts = documents(options.megabytes, options.files)
    total = sum(len(t.encode()) for t in texts)
    training = list(make.corpus(3, 4000)) + [t[:50000] for t in texts[1:400]]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        source, target = folder + "/documents", folder + "/ids"
        with open(source, "wb") as out:
            for text in texts:
                data = text.encode()
                out.write(struct.pack("<Q", len(data)) + data)
        for kind in options.kinds:
            tokenizer = make.KINDS[kind](training, options.vocab)
            tokenizer.save(folder + "/t.json")
            start = time.perf_counter()
            expected = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
            theirs = time.perf_counter() - start
            ours = float(subprocess.run([options.program, folder + "/t.json", source, target, str(options.threads)],
                                        check=True, capture_output=True, text=True).stdout)
            data, at, differ = pathlib.Path(target).read_bytes(), 0, 0
            for text, ids in zip(texts, expected):
                (count,) = struct.unpack_from("<Q", data, at)
                found = list(struct.unpack_from(f"<{count}I", data, at + 8))
                at += 8 + 4 * count
                if found != ids:
                    differ += 1
                    if differ <= 3:
                        i = next((i for i, (a, b) in enumerate(zip(found, ids)) if a != b), min(len(found), len(ids)))
                        print(f"  {kind}: {text[:60]!r}: token {i}: {found[i:i + 5]}, tokenizers {ids[i:i + 5]},"
                              f" after {tokenizer.decode(ids[max(0, i - 4):i])!r}"
                              f" comes {[tokenizer.id_to_token(t) for t in ids[i:i + 5]]}")
            wrong += differ
            print(f"{kind}: {total / 1e6:.1f} MB, {sum(map(len, expected))} tokens, {differ} of {len(texts)} documents "
                  f"differ; {options.threads} threads: {total / 1e6 / ours:.1f} MB/s, tokenizers {total / 1e6 / theirs:.1f} MB/s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
