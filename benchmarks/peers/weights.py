"""Initial weights for atoll and the peers: one model file (model.init_from). SPDX-License-Identifier: Apache-2.0"""

import json
import sys
from pathlib import Path

import h5py
import numpy


def shapes(config):
    """(name, shape) of every tensor under its Hugging Face name; the head is tied."""
    hidden, heads, key_heads = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    width, inner = hidden // heads, config["intermediate_size"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (heads * width, hidden)
        yield prefix + "self_attn.k_proj.weight", (key_heads * width, hidden)
        yield prefix + "self_attn.v_proj.weight", (key_heads * width, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, heads * width)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (inner, hidden)
        yield prefix + "mlp.up_proj.weight", (inner, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)


def write(path, config, seed):
    """Norms away from one, so that a norm that is left out shows in the losses; the rest normal of the usual size."""
    random = numpy.random.default_rng(seed)
    with h5py.File(path, "w", libver=("v108", "v110")) as file:
        file.attrs["format"] = "atoll-model"
        for name, value in (("version", 1), ("step", 0), ("tokens", 0)):
            file.attrs[name] = numpy.int64(value)
        file.attrs["config"] = json.dumps(config)
        for name, shape in shapes(config):
            values = random.standard_normal(shape, dtype=numpy.float32)
            file[name] = 1 + numpy.float32(0.1) * values if len(shape) == 1 else numpy.float32(0.02) * values


if __name__ == "__main__":
    write(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
