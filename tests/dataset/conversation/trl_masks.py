"""The loss masks of TRL beside those of `trireme data prepare --format chat`, on drawn conversations.

trl_masks.py PROGRAM CHAT COUNT [NAME], in an environment that has the tests' packages and trl==1.16.0: for each template
of CHAT/templates and of TRL that marks generation and has NAME in its own, draws COUNT conversations of texts as
reference.py does, has SFTTrainer with assistant_only_loss make its labels of them, and compares tokens and masks.
Conversations that a template refuses, or in which the assistant says nothing, which TRL refuses, are drawn again. A
template that takes lists of parts only gets them. Prints a line for each template; exits with 1 if one differs or has
fewer conversations.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import datasets
import numpy
import transformers
import trl

PROGRAM, CHAT, COUNT, NAME = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3]), [*sys.argv, ""][4]
TRIES = 40  # for each conversation
SPEC = importlib.util.spec_from_file_location("conversations", Path(__file__).with_name("reference.py"))
conversations = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(conversations)


def marked_templates():
    paths = [*sorted((CHAT / "templates").glob("*.jinja")),
             *sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))]
    texts = {f"{path.parent.parent.name}/{path.name}": path.read_text(encoding="utf-8") for path in paths}
    return {name: text for name, text in texts.items() if re.search(r"\{%-?\s*generation\s*-?%\}", text)}


def as_parts(message):
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def draw_lines(name, tokenizer, as_lists):
    draw, lines = conversations.templates.Draw("trl " + name), []
    for _ in range(TRIES * COUNT):
        drawn = conversations.draw_line(draw)["messages"]
        # Of one form, for the table in which TRL has them.
        messages = [{key: m[key] for key in ("role", "content")} for m in drawn if isinstance(m.get("content"), str)]
        messages = [as_parts(message) for message in messages] if as_lists else messages
        try:
            found = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        except Exception:  # whatever a template's Python raises
            continue
        if any(found["assistant_masks"]):
            lines.append({"messages": messages})
        if len(lines) == COUNT:
            break
    return lines


def of_trl(tokenizer, lines):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    with tempfile.TemporaryDirectory() as output:
        arguments = trl.SFTConfig(output_dir=output, assistant_only_loss=True, max_length=None, report_to=[], use_cpu=True,
                                  bf16=False)
        rows = trl.SFTTrainer(model=model, processing_class=tokenizer, args=arguments,
                              train_dataset=datasets.Dataset.from_list(lines)).train_dataset
        return [(row["input_ids"], [int(label != -100) for label in row["labels"]]) for row in rows]


def of_trireme(folder, template, lines):
    (folder / "template.jinja").write_text(template, encoding="utf-8")
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([PROGRAM, "data", "prepare", "--format", "chat", "--input", folder / "lines.jsonl", "--tokenizer-model",
                    folder / "tokenizer", "--chat-template", folder / "template.jinja", "--validation-fraction", "0",
                    "--output", folder / "out"], check=True, stdout=subprocess.DEVNULL)
    index = (folder / "out.idx").read_bytes()
    lengths = numpy.frombuffer(index, numpy.int32, int.from_bytes(index[18:26], "little"), 34)

    def parts(name, dtype):
        whole = numpy.fromfile(folder / name, dtype)
        return [part.tolist() for part in numpy.split(whole, numpy.cumsum(lengths)[:-1])]
    return list(zip(parts("out.bin", numpy.uint16), parts("out.loss.bin", numpy.uint8), strict=True))


def main():
    datasets.disable_progress_bars()
    templates = marked_templates()
    texts = [*templates.values(), *[" ".join(conversations.templates.PIECES)] * 3]
    special = sorted({token for text in texts for token in re.findall(conversations.SPECIAL, text)} | {"<s>", "</s>"})
    kinds, different = list(conversations.KINDS.items()), 0
    for number, (name, template) in enumerate(templates.items()):
        if NAME not in name:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            kind, options = kinds[number % len(kinds)]
            tokenizer = conversations.write_tokenizer(folder / "tokenizer", texts, special, **options)
            tokenizer.pad_token, tokenizer.chat_template = "</s>", template
            takes_lists = re.search(r"message(\['content'\]|\.content)\[0\]", template)
            lines = draw_lines(name, tokenizer, as_lists=takes_lists is not None)
            pairs = list(zip(of_trl(tokenizer, lines), of_trireme(folder, template, lines), strict=True)) if lines else []
            same = sum(theirs == ours for theirs, ours in pairs)
            different += COUNT - same
            print(f"{name}, {kind}: {same} of {len(pairs)} the same", flush=True)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
