"""Llama in PyTorch, as it is written where speed counts. SPDX-License-Identifier: Apache-2.0

Query, key and value are one product, gate and up another; RoPE turns queries and keys at once; attention is PyTorch's
own blocked one, norms its fused ones. B sequences of T tokens; C: width, H: query heads, K: key and value heads, D:
width of a head.
"""

import torch
import torch.nn.functional as F
from torch import nn


@torch.library.custom_op("peers::onednn_product", mutates_args=())
def onednn_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b^T by oneDNN also in fp32, where PyTorch itself calls MKL, which is slow on processors that are not Intel's.
    It is the operator of Inductor's for weights that do not change. a: (..., k), b: (n, k)."""
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


@onednn_product.register_fake
def _(a, b):
    return a.new_empty(*a.shape[:-1], b.shape[0])


class OneDnnLinear(torch.autograd.Function):
    """x W^T by onednn_product. x: (..., in), weight: (out, in)."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return onednn_product(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        of_weight = onednn_product(flat.t(), x.flatten(0, -2).t())
        return onednn_product(gradient, weight.t()), of_weight


class Linear(nn.Module):
    products = staticmethod(F.linear)

    def __init__(self, columns, rows):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, columns))

    def forward(self, x):
        return Linear.products(x, self.weight)


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(config["hidden_size"])), config["rms_norm_eps"]

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.key_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config["hidden_size"] // self.heads
        self.qkv_proj = Linear(config["hidden_size"], (self.heads + 2 * self.key_heads) * self.width)
        self.o_proj = Linear(self.heads * self.width, config["hidden_size"])

    def forward(self, x, cosine, sine):
        B, T, _ = x.shape
        qkv = self.qkv_proj(x).view(B, T, -1, self.width)  # (B, T, H + 2 K, D)
        turned, v = qkv.split((self.heads + self.key_heads, self.key_heads), 2)
        low, high = turned.chunk(2, -1)
        turned = torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)
        q, k = turned.split((self.heads, self.key_heads), 2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                           enable_gqa=self.heads != self.key_heads)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_up_proj = Linear(config["hidden_size"], 2 * config["intermediate_size"])
        self.down_proj = Linear(config["intermediate_size"], config["hidden_size"])

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(config), Attention(config)
        self.post_attention_layernorm, self.mlp = Norm(config), Mlp(config)

    def forward(self, x, cosine, sine):
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """`config`: as Hugging Face's config.json; the head is tied to the embedding. Half-split RoPE, no scaling.
    `loss_chunk`: tokens whose logits exist at once; 0: all."""

    def __init__(self, config, length, loss_chunk=0):
        super().__init__()
        self.loss_chunk = loss_chunk
        assert config["tie_word_embeddings"] and "rope_scaling" not in config
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Norm(config)
        width = config["hidden_size"] // config["num_attention_heads"]
        frequency = config["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(length, dtype=torch.float64)[:, None, None] * frequency  # (T, 1, D / 2)
        self.register_buffer("cosine", angle.cos().float(), persistent=False)
        self.register_buffer("sine", angle.sin().float(), persistent=False)

    def forward(self, tokens, targets):
        """Mean cross-entropy over all targets; both (B, T)."""
        x = self.embed_tokens(tokens)
        cosine, sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        x = self.norm(x)
        if self.loss_chunk:
            options = nn.LinearCrossEntropyOptions(batch_chunk_size=self.loss_chunk, chunking_method=None)
            return F.linear_cross_entropy(x.flatten(0, 1), self.embed_tokens.weight, targets.flatten(), options=options)
        logits = Linear.products(x, self.embed_tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def load(model, tensors):
    """Fills a model from tensors under Hugging Face's names: `tensors(name)` returns one."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv_proj" in name:
                parts = [name.replace("qkv_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
            elif "gate_up_proj" in name:
                parts = [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")]
            else:
                parts = [name]
            parameter.copy_(torch.cat([tensors("model." + part) for part in parts]))
