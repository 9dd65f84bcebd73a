"""Turns a packed GGUF file into a plain model folder: `python -m learnloop.policy.convert GGUF OUT`.

A plain load keeps the weights in GGUF blocks, which can neither be trained nor saved, so every
weight is unpacked once and stored as bf16 safetensors beside the tokenizer. The same file and the
same library versions give the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging


def convert(gguf: Path, out: Path) -> None:
    """Write the weights and the tokenizer of one GGUF file as a model folder.

    Args:
        gguf: the packed file.
        out: the folder to write; made when it is missing.
    """
    folder, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        local_files_only=True,
    )
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(out))
    tokenizer.save_pretrained(str(out))


def main(argv: list[str]) -> int:
    """Convert the file named on the command line; return the exit status."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m learnloop.policy.convert GGUF OUT\n")
        return 2
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    convert(Path(argv[0]), Path(argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
