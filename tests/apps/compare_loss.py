#!/usr/bin/env python3
"""`atoll eval` of Hugging Face models against the loss that transformers computes. SPDX-License-Identifier: Apache-2.0

    compare_loss.py PROGRAM          models: tests/fixtures/huggingface, and a larger one with random weights, made here

The same tokens, in the same windows, plain and strided: loss in fp64 (to rounding) and in fp32, and what `atoll import`
made of the model. Exit code 77 where torch, transformers or h5py are not there.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5py  # noqa: F401
    import numpy
    import torch
    import transformers
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)
FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES))
import make_huggingface as make  # noqa: E402

LENGTH, STRIDE, TOKENS = 48, 20, 1200


def new_model(folder, seed):
    """Llama 3.2's kind, wider than the fixtures, as transformers saves it. Returns its keys."""
    keys = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
                vocab_size=5000, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=5e5, tie_word_embeddings=True,
                rope_scaling=make.LLAMA3, initializer_range=0.1)
    torch.manual_seed(seed)
    transformers.LlamaForCausalLM(make.new_config("Llama", keys)).save_pretrained(folder)
    return keys


def loss_of(model, tokens, stride):
    """Mean over all targets, each once: a window counts those that no window before it did."""
    total, counted = 0.0, 0
    for begin in range(0, len(tokens) - 1, stride):
        window = tokens[begin:begin + LENGTH + 1]
        if begin + len(window) <= counted + 1:
            break
        logits = model(window[None, :-1]).logits[0]
        losses = torch.nn.functional.cross_entropy(logits, window[1:], reduction="none").double()
        new = begin + len(window) - 1 - counted
        total += losses[len(losses) - new:].sum().item()
        counted += new
    assert counted == len(tokens) - 1
    return total / counted


def transformers_losses(folder, keys, tokens):
    """By (precision, stride). In fp64 also what transformers computes in fp32 whatever the model is done in fp64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = {("fp32", stride): loss_of(model, tokens, stride) for stride in (LENGTH, STRIDE)}
    make.modeling_llama.torch = make.modeling_mistral.torch = make.DoubleTorch()
    try:
        model = model.double()
        make.exact_rotary(model, keys)
        found |= {("fp64", stride): loss_of(model, tokens, stride) for stride in (LENGTH, STRIDE)}
    finally:
        make.modeling_llama.torch = make.modeling_mistral.torch = torch
    return found


def main():
    program = sys.argv[1]
    transformers.utils.logging.disable_progress_bar()
    generator = numpy.random.default_rng(7)
    # In fp64 sums in another order; in fp32 both have rounded, of losses between 4 and 12 (an ulp: 1e-6).
    limits = {"fp64": 1e-12, "fp32": 1e-6}
    worst, wrong = dict.fromkeys(limits, (0.0, 0.0)), 0
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        def run(*arguments):
            return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout

        larger = pathlib.Path(scratch) / "larger"
        families = [(name, FIXTURES / "huggingface" / name, dict(make.SIZES, **make.FAMILIES[name][1])) for name in make.FAMILIES]
        families.append(("larger", larger, new_model(larger, 3)))
        for name, folder, keys in families:
            tokens = generator.integers(0, keys["vocab_size"], TOKENS)
            data, imported = f"{scratch}/{name}.npy", f"{scratch}/{name}-imported"
            numpy.save(data, tokens.astype(numpy.uint16))
            run("import", folder, imported)
            expected = transformers_losses(folder, keys, torch.from_numpy(tokens))
            line = []
            for (precision, stride), theirs in expected.items():
                found = [json.loads(run("eval", model, "--data", data, "--sequence-length", LENGTH, "--stride", stride,
                                        "--precision", precision, "--json")) for model in (folder, imported)]
                difference = max(abs(f["loss"] - theirs) for f in found)
                ratio = max(abs(f["perplexity"] / math.exp(theirs) - 1) for f in found)
                worst[precision] = tuple(map(max, worst[precision], (difference, ratio)))
                # "not <": a NaN is wrong too.
                wrong += not difference < limits[precision] or any(f["tokens"] != TOKENS - 1 for f in found)
                line.append(f"{precision} {theirs:.6f} {difference:.1e}")
            print(f"{name:10} loss of transformers, difference: " + ", ".join(line), flush=True)
    for precision, (difference, ratio) in worst.items():
        print(f"{len(families)} models, {precision}: largest difference of the loss {difference:.1e}, of the perplexity "
              f"{ratio:.1e} of it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
