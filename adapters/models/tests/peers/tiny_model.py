"""Writes a language model of a few megabytes for llama-server: a real tokenizer, random weights, one habit.

The habit: wherever the chat template lets the model speak, it opens a tool call. From there on the server's grammar
makes the arguments valid, so a whole tool loop runs against a real server without a model worth downloading.

    python tiny_model.py VOCABULARY.gguf CHAT_TEMPLATE.jinja OUTPUT.gguf

VOCABULARY and CHAT_TEMPLATE come with the sources of llama.cpp (ggml-vocab-gpt-2.gguf, Qwen-Qwen2.5-7B-Instruct.jinja).
"""

import sys
from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, INNER, HEADS, KEY_HEADS, CONTEXT = 2, 32, 128, 4, 2, 131072

# "\n<tool_call>\n" as GPT-2 splits it: newline, <, tool, _, call, >, newline.
HABIT = [198, 27, 25981, 62, 13345, 29, 198]
# How loud a token of the habit is, and how strongly the next one answers: far above the noise of the other weights.
CUE, RESPONSE = 8.0, 6.0


def copy_tokenizer(vocabulary: gguf.GGUFReader, model: gguf.GGUFWriter) -> int:
    """Copies every tokenizer setting but the chat template; gives back the number of tokens."""
    tokens = 0
    for field in vocabulary.fields.values():
        if not field.name.startswith("tokenizer.") or field.name == "tokenizer.chat_template":
            continue
        value = field.contents()
        element = field.types[1] if len(field.types) > 1 else None
        model.add_key_value(field.name, value, field.types[0], sub_type=element)
        if field.name == "tokenizer.ggml.tokens":
            tokens = len(value)
    return tokens


def describe(model: gguf.GGUFWriter, tokens: int, template: str) -> None:
    model.add_name("dormouse-tiny")
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(KEY_HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_file_type(gguf.LlamaFileType.ALL_F32)
    model.add_vocab_size(tokens)
    model.add_chat_template(template)


def teach_habit(embeddings: np.ndarray, outputs: np.ndarray) -> None:
    """Reserves one dimension for each step of the habit: its token speaks there alone, the next one listens."""
    steps = len(HABIT)
    embeddings[:, :steps] = 0
    outputs[:, :steps] = 0
    for step, (token, following) in enumerate(zip(HABIT, HABIT[1:])):
        embeddings[token] = 0
        embeddings[token, step] = CUE
        outputs[following, step] = RESPONSE


def add_weights(model: gguf.GGUFWriter, tokens: int) -> None:
    random = np.random.default_rng(seed=1)

    def noise(scale: float, *shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    embeddings, outputs = noise(1.0, tokens, WIDTH), noise(0.3, tokens, WIDTH)
    teach_habit(embeddings, outputs)
    model.add_tensor("token_embd.weight", embeddings)
    model.add_tensor("output.weight", outputs)
    model.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    keys = WIDTH // HEADS * KEY_HEADS
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH), "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            model.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
        for name, shape in shapes.items():
            model.add_tensor(f"blk.{layer}.{name}.weight", noise(0.05, *shape))


def main(vocabulary: str, template: str, output: str) -> None:
    model = gguf.GGUFWriter(output, "llama")
    tokens = copy_tokenizer(gguf.GGUFReader(vocabulary), model)
    describe(model, tokens, Path(template).read_text(encoding="utf-8"))
    add_weights(model, tokens)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
