#!/usr/bin/env python3
"""Loads exported models in transformers: prints what it found by folder, as JSON. SPDX-License-Identifier: Apache-2.0

    python3 tests/apps/load_in_transformers.py FOLDER EXPECTED.h5 ...     # see tests/fixtures/make_huggingface.py
Exit code 77 where transformers, torch or h5py are not there.
"""
import json
import sys

try:
    import h5py
    import torch
    import transformers
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)


def load(folder: str, expected: str) -> dict:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    with h5py.File(expected) as file:
        tokens = torch.from_numpy(file["tokens"][...]).long()
        logits = torch.from_numpy(file["logits"][...])
    with torch.no_grad():
        difference = (model.eval()(tokens).logits.double() - logits).abs().max().item()
    keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return {"difference": difference, "type": model.config.model_type, "bos": model.config.bos_token_id,
            "generation_bos": model.generation_config.bos_token_id, **{key: sorted(map(str, info[key])) for key in keys}}


print(json.dumps({folder: load(folder, expected) for folder, expected in zip(sys.argv[1::2], sys.argv[2::2])}))
