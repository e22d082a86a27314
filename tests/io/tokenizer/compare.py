#!/usr/bin/env python3
"""Tokens of atoll against those of the `tokenizers` library. SPDX-License-Identifier: Apache-2.0

    compare.py ENCODE_DOCUMENTS [--atoll PROGRAM] [--megabytes 2] [--vocab 3000] [--files FILE...] [--threads 1] [--kinds ...]

Trains each kind of tokenizer, encodes mixed documents with both and compares every token. Exit code 77 where the
library is not installed.
"""
import argparse
import json
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


def compare_training(program, folder, texts):
    """A tokenizer trained by `atoll tokenize --train-vocab` is the one that the library trains. Returns what differs."""
    source = pathlib.Path(folder) / "texts"
    source.mkdir()
    for i, text in enumerate(texts):
        (source / f"{i:06}").write_bytes(text.replace("\0", "").encode())
    subprocess.run([program, "tokenize", source, "-o", folder + "/trained", "--train-vocab", "2000", "--eval-fraction", "0"],
                   check=True, capture_output=True)
    path = folder + "/trained/tokenizer.json"
    ours = make.Tokenizer.from_file(path)
    theirs = make.Tokenizer(make.models.BPE())
    theirs.pre_tokenizer = ours.pre_tokenizer
    make.train(theirs, 2000, ["<|begin_of_text|>", "<|end_of_text|>"], [t.replace("\0", "") for t in texts],
               min_frequency=2, **make.BYTES)
    models = [json.loads(t.to_str())["model"] for t in (ours, theirs)]
    different = [key for key in ("vocab", "merges") if models[0][key] != models[1][key]]
    print(f"training: {len(models[0]['merges'])} merges, {'different: ' + str(different) if different else 'the same'}")
    return len(different)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--atoll", help="the program: its training is compared too")
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
            clock = time.process_time if options.threads == 1 else time.perf_counter  # as encode_documents
            start = clock()
            expected = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
            theirs = clock() - start
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
        if options.atoll:
            wrong += compare_training(options.atoll, folder, [t for t in make.corpus(5, 3000) if t.replace("\0", "")])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
