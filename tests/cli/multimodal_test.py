"""A model of text and images from a LLaVA folder of transformers and conversations with images, and back."""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from program import ProgramTest

ROOT = pathlib.Path(__file__).parents[2]
IMAGE, END = "<image>", "</s>"
TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}A: {% generation %}{{ m.content }}" + END +
            "{% endgeneration %}{% elif m.content is string %}U: {{ m.content }}\n{% else %}U: {% for p in m.content %}"
            "{% if p.type == 'image' %}" + IMAGE + "{% else %}{{ p.text }}{% endif %}{% endfor %}\n{% endif %}{% endfor %}")
SIZE, PATCH, LENGTH = 16, 8, 48
TOKENS = (SIZE // PATCH) ** 2
PLACE = {"type": "image", "path": "b.png"}
STEPS, RATE, DECAY, BETAS, CLIP = 50, 1e-3, 0.1, (0.9, 0.95), 1.0
TOLERANCE = 1e-5  # as in twins_test.py


def turns(asked, answer, **others):
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}], **others}


LINES = [turns(f"{IMAGE} What is it?", "A field of red and blue.", image="a.png"),
         turns([{"type": "text", "text": "Look at"}, PLACE, {"type": "text", "text": "!"}], "It is noise, all of it."),
         turns("Which one is noise?", "The second of the two."),
         {"image": ["a.png", "c.jpg"], "conversations": [
             {"from": "human", "value": f"{IMAGE}{IMAGE} Are they the same?"}, {"from": "gpt", "value": "They are not."}]}]


class MultimodalTest(ProgramTest):
    def prepare(self):
        generator = numpy.random.default_rng(1)
        for name, shape in (("a.png", (20, 31, 3)), ("b.png", (16, 16, 3)), ("c.jpg", (40, 33, 3))):
            Image.fromarray(generator.integers(0, 256, shape, numpy.uint8)).save(self.folder / name)
        tokenizer = self.tokenizer([END, IMAGE])
        self.image_token = tokenizer.token_to_id(IMAGE)
        torch.manual_seed(1)
        hf = self.folder / "hf"
        self.save_model(hf, tokenizer)
        tokenizer.save(str(hf / "tokenizer.json"))
        (hf / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}))
        (hf / "chat_template.jinja").write_text(TEMPLATE)
        transformers.CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=SIZE).save_pretrained(hf)
        self.write(LINES)

    def tokenizer(self, special):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator([json.dumps(LINES)], trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False))
        return tokenizer

    def text_config(self, vocab_size, length):
        return transformers.LlamaConfig(
            vocab_size=vocab_size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=length, tie_word_embeddings=False)

    def vision_config(self, size, patch):
        return transformers.CLIPVisionConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=3,
                                             num_attention_heads=4, image_size=size, patch_size=patch)

    def save_model(self, folder, tokenizer):
        model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
            text_config=self.text_config(tokenizer.get_vocab_size(), LENGTH), vision_config=self.vision_config(SIZE, PATCH),
            image_token_index=self.image_token, image_seq_length=TOKENS))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)

    def write(self, lines, name="chat.jsonl"):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def arguments(self, *options):
        return ("data", "prepare", "--format", "chat", "--input", "chat.jsonl", "--tokenizer-model", "hf",
                "--validation-fraction", 0, "--output", "data/chat", "--image-size", SIZE, "--patch-size", PATCH, *options)

    def train(self, output, *options):
        self.succeed(*self.training(output), *options)

    def training(self, output):
        return ("train", "--init", "hf", f"--output.folder={output}", "--data.path=data/chat", "--data.packing=whole",
                "--train.steps=4", "--train.global_batch=4", "--train.micro_batch=2", "--optimizer.warmup_steps=0")

    def weights(self, folder):
        return transformers.LlavaForConditionalGeneration.from_pretrained(self.folder / folder).state_dict()


class Multimodal(MultimodalTest):
    def samples(self):
        """What transformers trains on: every sequence and its images, from our files."""
        tokens = numpy.fromfile(self.folder / "data/chat.bin", numpy.uint16).astype(numpy.int64)
        learnt = numpy.fromfile(self.folder / "data/chat.loss.bin", numpy.uint8)
        index = (self.folder / "data/chat.idx").read_bytes()
        lengths = numpy.frombuffer(index, numpy.int32, int.from_bytes(index[18:26], "little"), 34)
        pixels = numpy.fromfile(self.folder / "data/chat.images.bin", numpy.uint8).reshape(-1, 3, SIZE, SIZE) / 255.0
        mean, deviation = (numpy.array(c).reshape(3, 1, 1) for c in (
            transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD))
        cuts = numpy.cumsum(lengths)[:-1]
        documents = list(zip(numpy.split(tokens, cuts), numpy.split(learnt, cuts)))
        return documents, torch.from_numpy((pixels - mean) / deviation).float()

    def test_data_has_image_tokens_that_nobody_learns_and_images_as_clips_processor_makes_them(self):
        report = json.loads(self.succeed(*self.arguments("--json")))
        self.assertEqual((report["images"], report["conversations"]), (4, 4))
        documents, images = self.samples()
        self.assertEqual([int((t == self.image_token).sum()) for t, _ in documents], [TOKENS, TOKENS, 0, 2 * TOKENS])
        for tokens, learnt in documents:
            self.assertEqual(learnt[tokens == self.image_token].sum(), 0)
            self.assertGreater(learnt.sum(), 0)
        stored = numpy.fromfile(self.folder / "data/chat.images.bin", numpy.uint8).reshape(-1, 3, SIZE, SIZE)
        self.assertTrue((stored[0] == stored[2]).all())
        processor = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": SIZE}, crop_size=SIZE, do_rescale=False, do_normalize=False)
        for ours, name in zip(stored, ("a.png", "b.png", "a.png", "c.jpg"), strict=True):
            theirs = processor(Image.open(self.folder / name))["pixel_values"][0]
            self.assertLessEqual(abs(ours.astype(int) - theirs).max(), 2, name)

    def test_what_is_frozen_stays_and_an_export_is_transformers_model(self):
        self.succeed(*self.arguments())
        before = self.weights("hf")
        self.train("run", "--train.freeze=*vision_tower*, *layers*, *embed*, *norm*, lm_head*")
        self.succeed("checkpoint", "export", "run", "--output", "out")
        after = self.weights("out")
        processor = "preprocessor_config.json"
        self.assertEqual((self.folder / "out" / processor).read_bytes(), (self.folder / "hf" / processor).read_bytes())
        self.assertEqual(before.keys(), after.keys())
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        self.assertEqual(changed, {name for name in before if "projector" in name})

    def test_layouts_have_the_curve_of_one_rank_and_a_killed_run_resumes_on_the_same_bits(self):
        self.succeed(*self.arguments())
        common = ("--init", "hf", "--data.path=data/chat", "--data.packing=whole", "--train.steps=12",
                  "--train.global_batch=4", "--train.micro_batch=1", "--checkpoint.interval=2",
                  "--train.freeze=*vision_tower*", "--train.precision=fp64")
        self.succeed("train", *common, "--output.folder=whole")
        for name, *layout in (("tensor", "--parallel.tensor=2", "--parallel.sequence_parallel=true"),
                              ("zero", "--parallel.data=2", "--parallel.zero=3")):
            self.succeed("train", *common, "--ranks", 2, *layout, f"--output.folder={name}")
            for ours, one in zip(self.metrics(name), self.metrics("whole"), strict=True):
                self.assertLess(abs(ours["loss"] - one["loss"]), 1e-10 * one["loss"], name)
        process = self.start("train", *common, "--output.folder=killed")
        self.await_step(5, process, "killed")
        process.kill()
        process.communicate()
        self.succeed("train", *common, "--output.folder=killed")
        self.assertEqual(self.curve("killed"), self.curve("whole"))

    def test_fifty_steps_have_the_losses_of_transformers(self):
        self.succeed(*self.arguments())
        documents, images = self.samples()
        model = transformers.LlavaForConditionalGeneration.from_pretrained(self.folder / "hf").eval()
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        optimizer = torch.optim.AdamW(
            [{"params": [p for p in trained.values() if p.dim() > 1], "weight_decay": DECAY},
             {"params": [p for p in trained.values() if p.dim() == 1], "weight_decay": 0}],
            lr=RATE, betas=BETAS, eps=1e-8)
        theirs = []
        for _ in range(STEPS):
            total, count, first = 0, 0, 0
            for tokens, learnt in documents:
                num = int((tokens == self.image_token).sum()) // TOKENS
                inputs = torch.from_numpy(tokens[:-1])[None]
                targets = torch.from_numpy(numpy.where(learnt[1:] > 0, tokens[1:], -100))
                given = {"pixel_values": images[first:first + num]} if num else {}
                first += num
                total = total + torch.nn.functional.cross_entropy(model(inputs, **given).logits[0], targets, reduction="sum")
                count += int((targets >= 0).sum())
            loss = total / count
            theirs.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)
            optimizer.step()
        self.train("twin", f"--train.steps={STEPS}", f"--train.gradient_clip={CLIP}", f"--optimizer.learning_rate={RATE}",
                   "--optimizer.schedule=constant", f"--optimizer.weight_decay={DECAY}", f"--optimizer.beta2={BETAS[1]}",
                   "--data.separate_documents=true", f"--model.sequence_length={LENGTH}")
        ours = [line["loss"] for line in self.metrics("twin")]
        self.assertLess(theirs[-1], 0.5 * theirs[0])
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            with self.subTest(step=step):
                self.assertLess(abs(a - b) / b, TOLERANCE)

    def test_the_guide_begins_with_a_llama_and_a_tower_that_have_not_met(self):
        image_tokens = (336 // 14) ** 2
        self.tokenizer([END]).save(str(self.folder / "tokenizer.json"))
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(self.folder / "tokenizer.json"), eos_token=END, chat_template=TEMPLATE)
        tokenizer.save_pretrained(self.folder / "llama")
        transformers.LlamaForCausalLM(self.text_config(len(tokenizer), 2048)).save_pretrained(self.folder / "llama")
        transformers.CLIPVisionModel(self.vision_config(336, 14)).save_pretrained(self.folder / "clip")
        guide = (ROOT / "docs/guide/multimodal.md").read_text()
        script = guide.split("```python\n")[1].split("```")[0]
        subprocess.run([sys.executable, "-c", script], cwd=self.folder, capture_output=True, text=True, check=True)
        text = transformers.LlamaForCausalLM.from_pretrained(self.folder / "llama").state_dict()
        begun = self.weights("llava")
        name = "model.layers.1.mlp.up_proj.weight"
        self.assertTrue(torch.equal(begun[name.replace("model.", "model.language_model.")], text[name]))
        self.write(LINES, "captions.jsonl")
        told = guide.split("    build/release/bin/trireme ")[1:4]
        prepare, train, export = (shlex.split(one.split("\n\n")[0].replace("\\\n", " ")) for one in told)
        self.assertEqual([prepare[:2], train[:1], export[:2]], [["data", "prepare"], ["train"], ["checkpoint", "export"]])
        report = json.loads(self.succeed(*prepare, "--json"))
        self.assertEqual(report["images"] + report["validation_images"], 4)
        self.assertEqual((report["tokens"] + report["validation_tokens"]) // image_tokens, 4)
        train[1] = str(ROOT / train[1])
        self.succeed(*train, "--train.steps=2", "--train.global_batch=2", "--train.micro_batch=1", "--optimizer.warmup_steps=0")
        self.succeed(*export)
        after = self.weights("llava-captions")
        self.assertEqual({n for n in after if not torch.equal(after[n].float(), begun[n].bfloat16().float())},
                         {n for n in begun if "projector" in n})

    def test_other_images_are_other_data(self):
        self.succeed(*self.arguments())
        self.train("run")
        Image.fromarray(numpy.full((16, 16, 3), 7, numpy.uint8)).save(self.folder / "b.png")
        self.succeed(*self.arguments())
        self.fail_with(2, ["images", "data.path"], *self.training("run"), "--train.steps=5")

    def test_what_knows_no_tower_says_so(self):
        self.succeed(*self.arguments())
        self.train("run")
        self.fail_with(2, ["vision.layers is 3", "cost model"], "plan", "run/config.toml",
                       ROOT / "examples/clusters/dgx-h100.toml")

    def test_wrong_images_are_refused_with_file_and_line(self):
        header = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + (2 ** 15).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
        (self.folder / "huge.png").write_bytes(header + bytes(64))
        cases = [(turns(f"{IMAGE} What?", "It.", image="none.png"), "none.png is no file"),
                 (turns(f"{IMAGE}{IMAGE} What?", "It.", image="a.png"), "2 times <image> without a path"),
                 (turns("What?", "It.", image="a.png"), "0 times <image>"),
                 (turns(f"{IMAGE} What?", "It.", image="huge.png"), "huge.png"),
                 (turns(f"{IMAGE} What?", "It.", image="https://a.b/c.png"), "download it first")]
        for line, message in cases:
            with self.subTest(message=message):
                self.write([LINES[2], line])
                self.fail_with(2, [message, "chat.jsonl:2"], *self.arguments())


if __name__ == "__main__":
    unittest.main(verbosity=2)
