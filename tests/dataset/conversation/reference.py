"""Conversations as tokens by Hugging Face's transformers: the reference of reference_test.cc.

reference.py FOLDER CHAT COUNT draws COUNT conversations for each template in CHAT/templates, as the reference of the
templates itself does (CHAT/reference.py). It writes a tokenizer.json of each kind, which has the special tokens of all
templates, into FOLDER/KIND/, and to FOLDER/cases.jsonl an object in each line: `template`, `kind`, the `line` of a file
of conversations, and what it becomes: `tokens` and `learnt`, a 0 or 1 for each, or `error`.

`learnt` is transformers' assistant mask where the template marks generation. Otherwise it is computed from its
texts: what each message of the assistant adds to the messages before it with a generation prompt.
"""

import json
import logging
import os
import re
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.utils import chat_template_utils

sys.path.insert(0, sys.argv[2])
import reference as templates  # in CHAT

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = r"<[|｜][^<>{}'\"\s]{1,40}[|｜]>|</?s>|\[/?[A-Z_]{3,20}\]|<(?:start|end)_of_turn>|<bos>"


def split_at(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {
    "gpt2": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False)},
    "spaced": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
    "llama3": {"pre_tokenizer": split_at(LLAMA3), "ignore_merges": True},
    "qwen2": {"pre_tokenizer": split_at(LLAMA3.replace("{1,3}", "")), "normalizer": normalizers.NFC()},
    # Without a pattern tokens may reach from the template's text into a message's.
    "whole": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)},
}


def write_tokenizer(folder, texts, special, pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.add_special_tokens([AddedToken(content, rstrip=content == "</s>") for content in special])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>")


def draw_line(draw):
    variables = draw.variables()
    while not variables["messages"]:
        variables = draw.variables()
    line = {"messages": variables.pop("messages")}
    for name in ("add_generation_prompt", "bos_token", "eos_token"):
        variables.pop(name, None)
    if "tools" in variables:
        line["tools"] = variables.pop("tools")
    if variables:
        line["chat_template_kwargs"] = variables
    return line


class Encoder:
    def __init__(self, tokenizer, template):
        self.tokenizer, self.template = tokenizer, template

    def options(self, line):
        return {"tools": line.get("tools"), "chat_template": self.template, **line.get("chat_template_kwargs", {})}

    def text(self, line, count, prompt):
        if count == 0:  # which apply_chat_template() refuses
            variables = {**self.tokenizer.special_tokens_map, **self.options(line)}
            (text,), _ = chat_template_utils.render_jinja_template(
                conversations=[[]], add_generation_prompt=prompt, **variables)
            return text
        return self.tokenizer.apply_chat_template(
            line["messages"][:count], tokenize=False, add_generation_prompt=prompt, **self.options(line))

    def added(self, line):
        """Tokens and mask without marks."""
        messages = line["messages"]
        whole = self.text(line, len(messages), False)
        encoding = self.tokenizer(whole, add_special_tokens=False)
        learnt = [0] * len(encoding["input_ids"])
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before, to = self.text(line, i, True), self.text(line, i + 1, False)
            if not (to.startswith(before) and whole.startswith(to)):
                raise ValueError("prefixes do not extend each other")
            if len(to) > len(before):
                first, last = encoding.char_to_token(len(before)), encoding.char_to_token(len(to) - 1)
                learnt[first:last + 1] = [1] * (last + 1 - first)
        return {"tokens": encoding["input_ids"], "learnt": learnt}

    def encode(self, line):
        try:
            if not re.search(r"\{%-?\s*generation\s*-?%\}", self.template):
                return self.added(line)
            found = self.tokenizer.apply_chat_template(
                line["messages"], return_dict=True, return_assistant_tokens_mask=True, **self.options(line))
            return {"tokens": found["input_ids"], "learnt": found["assistant_masks"]}
        except Exception as error:  # whatever a template's Python raises
            return {"error": f"{type(error).__name__}: {error}"}


def main():
    folder, chat, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of escapes that Python does not know
    chat_template_utils.datetime = templates.Now
    paths = sorted((chat / "templates").glob("*.jinja"))
    texts = [path.read_text(encoding="utf-8") for path in paths] + [" ".join(templates.PIECES)] * 3
    special = sorted({token for text in texts for token in re.findall(SPECIAL, text)} | {"<s>", "</s>"})
    tokenizers = [(kind, write_tokenizer(folder / kind, texts, special, **options)) for kind, options in KINDS.items()]
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as file:
        for number, path in enumerate(paths):
            draw = templates.Draw("conversation " + path.name)
            kind, tokenizer = tokenizers[number % len(tokenizers)]
            encoder = Encoder(tokenizer, path.read_text(encoding="utf-8"))
            for _ in range(count):
                line = draw_line(draw)
                case = {"template": path.name, "kind": kind, "line": json.dumps(line), **encoder.encode(line)}
                file.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
