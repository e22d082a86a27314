#!/usr/bin/env python3
"""Models that the `safetensors` library writes and reads, of random shapes. SPDX-License-Identifier: Apache-2.0

    compare_safetensors.py ATOLL [SEED]

What `atoll import` makes of them is read by h5py, and what `atoll export` writes by the library: to the bit. Exit code
77 where safetensors, h5py or numpy are not there.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)


def model(draw):
    """A config.json and the tensors that it asks for, as the library saves them."""
    kv, width = draw.choice([1, 2, 3]), 2 * draw.randint(1, 6)
    heads = kv * draw.randint(1, 3)
    hidden, middle, vocab, layers = draw.randint(3, 40), draw.randint(1, 50), draw.randint(2, 90), draw.randint(1, 3)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": middle,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": width,
              "vocab_size": vocab, "rms_norm_eps": 1e-5, "tie_word_embeddings": draw.random() < 0.5}
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for i in range(layers):
        for name, shape in {"self_attn.q_proj": (heads * width, hidden), "self_attn.k_proj": (kv * width, hidden),
                            "self_attn.v_proj": (kv * width, hidden), "self_attn.o_proj": (hidden, heads * width),
                            "mlp.gate_proj": (middle, hidden), "mlp.up_proj": (middle, hidden),
                            "mlp.down_proj": (hidden, middle), "input_layernorm": (hidden,),
                            "post_attention_layernorm": (hidden,)}.items():
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    numbers = numpy.random.default_rng(draw.randint(0, 1 << 30))
    kind = draw.choice([numpy.float16, numpy.float32])
    names = list(shapes)
    draw.shuffle(names)
    return config, {name: numbers.normal(size=shapes[name]).astype(kind) for name in names}


def save(folder, config, tensors, files):
    """In so many files, with an index where there are several."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    names, index = list(tensors), {}
    for i in range(files):
        file = "model.safetensors" if files == 1 else f"model-{i + 1:05}-of-{files:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::files]}, folder / file, metadata={"format": "pt"})
        index.update({name: file for name in names[i::files]})
    if files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def load(folder):
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


def differences(found, tensors, kind):
    wrong = sorted(set(found) ^ set(tensors))
    return wrong + [name for name in set(found) & set(tensors)
                    if found[name].dtype != kind or not numpy.array_equal(found[name], tensors[name].astype(kind))]


def main():
    program, draw = sys.argv[1], random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    for i in range(20):
        config, tensors = model(draw)
        files, kind = draw.choice([1, 1, 2, 3]), tensors["model.norm.weight"].dtype
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            save(folder / "saved", config, tensors, files)
            size = f"{draw.randint(1, 30)}KB"
            for command in (["import", folder / "saved", folder / "atoll"],
                            ["export", folder / "atoll", folder / "out", "--max-shard-size", size,
                             "--dtype", "fp16" if kind == numpy.float16 else "fp32"]):
                done = subprocess.run([program, *command], capture_output=True, text=True)
                if done.returncode != 0:
                    print(done.stderr, config)
                    return 1
            with h5py.File(folder / "atoll" / "model.h5") as file:
                imported = {name: file[name][...] for name in tensors}
            wrong = (differences(imported, tensors, numpy.float32), differences(load(folder / "out"), tensors, kind))
        if any(wrong):
            print(f"model {i}, {kind}, {files} files, {config}:\n  imported: {wrong[0]}\n  exported: {wrong[1]}")
            return 1
    print("20 models: imported and exported to the bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
