# pyright: basic
"""A tiny random language model: a complete model folder, made in a second, that speaks ChatML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "system\nAnswer with a number. Tools, one call a line:\n@search query: Finds a report.",
    "user\nWhat was the revenue of Acme in 2021? What was the net income of Globex in 2020?",
    "assistant\n@search Acme revenue 2021\n@cat reports/acme/2021.txt\n@list reports/acme",
    "tool\nreports/acme/2021.txt: Revenue was 1,234 million. Net income was 567 million.",
    "assistant\nAnswer: 1234",
)
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"tie_word_embeddings": True, "head_dim": 24},
}


def make_tiny_model(folder: Path, family: str = "llama") -> Path:
    """Write config, weights (fp32, always the same) and tokenizer of a two-layer model.

    Args:
        folder: where to write; made when it is missing.
        family: `llama`, `qwen2` (biases, own output matrix) or `qwen3` (query and key norms).
    """
    tokenizer = make_tokenizer()
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.15,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **FAMILIES[family],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                # Fresh norms are all ones and fresh biases all zeros, which would hide mistakes.
                if tensor.ndim == 1:
                    tensor.copy_(
                        (0.0 if name.endswith("bias") else 1.0) + 0.2 * torch.randn(tensor.shape)
                    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with the ChatML tokens, always the same."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=401,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )
