"""What is trained: models, lengths, precisions, layouts, and what they cost. SPDX-License-Identifier: Apache-2.0"""

from dataclasses import dataclass

COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
          "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.02,
          "max_position_embeddings": 131072, "tie_word_embeddings": True}
MODELS = {
    "tiny": {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 320},
    "20m": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 10, "num_attention_heads": 6,
            "num_key_value_heads": 3, "vocab_size": 8192},
    "125m": {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 4, "vocab_size": 50304},
}
SEED = 7
EVERY = 4  # optimizer steps between two averages of the federation groups
OPTIMIZER = {"lr": 6e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
SCHEDULE = {"warmup": 2, "min_lr": 6e-5}

# Relative difference of a step's loss from atoll's: 4 digits. bf16 keeps 8 bits, and programs round at different
# places: 3 digits.
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-3}


def model_config(size, layers=None):
    """A Hugging Face config.json."""
    config = {**COMMON, **MODELS[size]}
    if layers:
        config["num_hidden_layers"] = layers
    return config


def parameters(config):
    hidden, width = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    attention = 2 * hidden * (config["num_attention_heads"] + config["num_key_value_heads"]) * width
    block = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    return config["vocab_size"] * hidden + config["num_hidden_layers"] * block + hidden


def operations_per_token(config, length):
    """Of forward and backward: 2 a multiplication and addition in the products (the embedding looks up, the head
    multiplies), the causal half of attention, twice the forward in backward. Norms, RoPE, softmax, SwiGLU and the
    optimizer are not counted."""
    layers = config["num_hidden_layers"]
    norms = (2 * layers + 1) * config["hidden_size"]
    return 6 * (parameters(config) - norms) + 6 * layers * (length + 1) * config["hidden_size"]


@dataclass(frozen=True)
class Layout:
    """Ranks, and threads of each."""

    ranks: int
    threads: int

    def __str__(self):
        return f"{self.ranks}x{self.threads}"


@dataclass(frozen=True)
class Case:
    """One model on one kind of data; every program that runs it takes `batch` sequences a step in all."""

    size: str
    length: int
    precision: str
    batch: int
    layers: int = 0  # 0: as the size says

    @property
    def config(self):
        return model_config(self.size, self.layers)

    @property
    def tokens(self):
        return self.batch * self.length

    @property
    def operations(self):
        """Of a step of all ranks."""
        return self.tokens * operations_per_token(self.config, self.length)

    def __str__(self):
        layers = f"-{self.layers}layers" if self.layers else ""
        return f"{self.size}{layers}-T{self.length}-{self.precision}"


@dataclass(frozen=True)
class Program:
    """atoll with a strategy, or a peer, on a layout. Those of one `family` do the same, and their losses are equal."""

    name: str
    layout: Layout
    groups: int = 1

    @property
    def is_atoll(self):
        return self.name.startswith("atoll")

    @property
    def federated(self):
        return self.groups > 1

    @property
    def family(self):
        return ("federated" if self.federated else "plain", self.groups)

    def __str__(self):
        return f"{self.name} {self.layout}"


ONE_PROCESS = ("eager", "eager-onednn", "eager-chunked", "compile", "compile-onednn")
SHARDED = ("fsdp2", "fsdp2-onednn", "fsdp2-chunked", "fsdp2-compile")
FEDERATED = ("fedavg-fsdp2", "fedavg-fsdp2-onednn")
PEERS = ONE_PROCESS + SHARDED + FEDERATED


def programs(layouts, peers, groups):
    """atoll first in each layout, beside the peers that do the same there."""
    found = []
    for layout in layouts:
        found.append(Program("atoll", layout))
        if layout.ranks == 1:
            found += [Program(peer, layout) for peer in ONE_PROCESS if peer in peers]
            continue
        found += [Program(peer, layout) for peer in SHARDED if peer in peers]
        averaged = [Program(peer, layout, groups) for peer in FEDERATED if peer in peers]
        if averaged and groups > 1 and layout.ranks % groups == 0:
            found += [Program("atoll-fedavg", layout, groups)] + averaged
    return found


def of_precision(found, precision):
    """In bf16 PyTorch calls oneDNN anyway."""
    return [program for program in found if precision != "bf16" or not program.name.endswith("-onednn")]
