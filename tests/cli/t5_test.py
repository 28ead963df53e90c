"""T5: span corruption at every layout, from scratch and from transformers' files, and what it refuses."""
import json
import os
import subprocess
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

from program import CLUSTER, ProgramTest

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
BATCHES = os.environ["TRIREME_MASKED_BATCHES"]
# Inputs of 32 tokens are of a text of 31 or 32 with 5 hidden ones in 2 spans; the bytes' end of a document is token 256.
LENGTH, TARGETS, VOCABULARY, SENTINEL, END, START = 32, 8, 262, 261, 256, 0
SHARE, SPAN = 0.15, 3.0
SEQUENCES = 8  # of an evaluation
STEPS, BATCH, RATE, DECAY, BETAS, CLIP = 50, 8, 1e-3, 0.1, (0.9, 0.95), 1.0  # of a twin
EPSILON = 1e-3
# As in import_test.py and twins_test.py.
TOLERANCE, TWIN_TOLERANCE = 125 * 2 ** -24, 1e-5
DATA = [f"--data.masked_share={SHARE}", f"--data.sentinel_token={SENTINEL}"]
T5 = ["--model.family=t5", "--model.kv_heads=4", "--model.tied_embedding=true", "--model.decoder_layers=3", *DATA]
SIZES = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3,
         "num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "dropout_rate": 0.0,
         "layer_norm_epsilon": 1e-4, "decoder_start_token_id": START}
# T5 1.1 has a gate, and a head of its own, whose logits are not scaled.
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
LAYOUTS = {
    "tensor": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline, zero 2": (4, ["--parallel.pipeline=2", "--parallel.zero=2"]),
    "context, zero 3": (4, ["--parallel.context=2", "--parallel.zero=3"]),
}


def randomised(model):
    """Weights of some size, so that every one of them shows."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn_like(tensor)
            tensor.copy_(tensor + 0.1 * noise if "norm" in name else (0.5 if "shared" in name else 0.2) * noise)
    return model.eval()


def cross_entropy(model, tokens, read, targets):
    logits = model(tokens, decoder_input_ids=read).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class T5Test(ProgramTest):
    def batches(self, steps, batch, seed=1, data="data/tiny"):
        """Tokens, decoder tokens and targets of each step, or with steps = 0 of an evaluation."""
        arguments = (BATCHES, data, LENGTH, VOCABULARY, SENTINEL, SHARE, seed, steps, batch, SPAN, END, START)
        output = subprocess.run([str(each) for each in arguments], cwd=self.folder, stdout=subprocess.PIPE, check=True).stdout
        numbers = torch.from_numpy(numpy.frombuffer(output, dtype=numpy.int64).copy())
        parts = numbers.view(-1, batch * (LENGTH + 2 * TARGETS)).split([batch * LENGTH, batch * TARGETS, batch * TARGETS], 1)
        return list(zip(*(part.reshape(part.shape[0], batch, -1) for part in parts)))

    def save(self, folder="hf", **options):
        config = transformers.T5Config(**{**SIZES, **options})
        model = transformers.T5ForConditionalGeneration._from_config(config, attn_implementation="eager")
        if options.get("tie_word_embeddings") is False:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        randomised(model)
        model.save_pretrained(self.folder / folder)
        # This version of transformers writes true whatever was given.
        path = self.folder / folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **options}))
        if options.get("tie_word_embeddings") is False:
            tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()
                       if "embed_tokens" not in name}
            save_file(tensors, self.folder / folder / "model.safetensors", metadata={"format": "pt"})
        return model

    def load(self, folder):
        model, info = transformers.T5ForConditionalGeneration.from_pretrained(
            self.folder / folder, attn_implementation="eager", output_loading_info=True)
        self.assertFalse(any(info.values()), info)
        return model.eval()

    def train(self, run, ranks, *options, init=None):
        start = ["--init", init, *DATA] if init else ["tiny.toml", *T5, f"--model.vocab_size={VOCABULARY}"]
        self.succeed("train", *start, "--ranks", ranks, f"--output.folder={run}", "--data.path=data/tiny",
                     f"--train.evaluate_sequences={SEQUENCES}", f"--model.sequence_length={LENGTH}", *options)

    def evaluate(self, run, init, *options):
        """The validation loss after a step that changes nothing."""
        self.train(run, 1, "--train.steps=1", f"--train.global_batch={BATCH}", "--train.micro_batch=4",
                   "--train.evaluate_interval=1", "--optimizer.learning_rate=1e-30", *options, init=init)
        return self.metrics(run)[-1]["validation_loss"]

    def loss_of_transformers(self, model):
        batch = self.batches(0, SEQUENCES, data="data/tiny.validation")[0]
        with torch.no_grad():
            return cross_entropy(model.double(), *batch).item()

    def assert_same_loss(self, model, expected):
        """Of the same weights; where they lie in memory may change how libtorch rounds a sum."""
        self.assertLess(abs(self.loss_of_transformers(model) - expected), 2 ** -23 * expected)


class Training(T5Test):
    def test_every_layout_and_a_resumed_run_have_the_curve_of_one_rank(self):
        options = ["--train.precision=fp64", "--checkpoint.interval=3", "--train.evaluate_interval=3",
                   "--optimizer.schedule=constant"]
        self.train("one", 1, *options, "--train.steps=6")
        expected = self.metrics("one")
        for layout, (ranks, own) in LAYOUTS.items():
            with self.subTest(layout=layout):
                self.train(layout, ranks, *options, *own, "--train.steps=6")
                for a, b in zip(self.metrics(layout), expected, strict=True):
                    for key in ("loss", "grad_norm") + (("validation_loss",) if "validation_loss" in b else ()):
                        self.assertLess(abs(a[key] - b[key]), 1e-10 * b[key], key)
        # It goes on at another layout from the third step, and with the same bits at this one.
        for run, ranks, own in (("cut", 2, ["--parallel.tensor=2"]), ("same", 1, [])):
            self.train(run, 1, *options, "--train.steps=3")
            self.train(run, ranks, *options, "--train.steps=6", *own)
            for a, b in zip(self.metrics(run), expected, strict=True):
                self.assertLessEqual(abs(a["loss"] - b["loss"]), (1e-10 if own else 0) * b["loss"])

    def test_adapters_drop_the_same_at_every_layout(self):
        """Keys and values across the models read the encoder's tokens, which are more than the decoder's."""
        options = ["--train.precision=fp64", "--train.steps=3", "--optimizer.schedule=constant", "--lora.rank=2"]
        self.train("nothing", 1, *options)
        options.append("--lora.dropout=0.3")
        self.train("one", 1, *options)
        expected = self.metrics("one")
        self.assertNotEqual(expected[0]["grad_norm"], self.metrics("nothing")[0]["grad_norm"])
        for layout, (ranks, own) in LAYOUTS.items():
            with self.subTest(layout=layout):
                self.train(layout, ranks, *options, *own)
                for a, b in zip(self.metrics(layout), expected, strict=True):
                    for key in ("loss", "grad_norm"):
                        self.assertLess(abs(a[key] - b[key]), 1e-10 * b[key], key)

    def test_it_learns(self):
        self.train("run", 1, "--train.steps=60", "--optimizer.learning_rate=5e-3", "--train.evaluate_interval=60")
        losses = [line["loss"] for line in self.metrics()]
        self.assertLess(sum(losses[-5:]), 0.7 * sum(losses[:5]))

    def test_sentinels_may_be_behind_the_tokenizers(self):
        self.succeed("train", "tiny.toml", *T5, "--train.steps=1")
        config = (self.folder / "run" / "config.toml").read_text()
        for line in ("vocab_size = 262", "sentinel_token = 261", "end_token = 256", "target_length = "):
            self.assertIn(line, config)

    def test_adapters_are_exported_for_peft(self):
        import peft
        model = self.save()
        self.train("tuned", 1, "--train.steps=3", "--lora.rank=2", "--lora.targets=*.q, *.v", init="hf")
        for form in ("peft", "hf"):
            self.succeed("checkpoint", "export", "tuned", "--output", f"{form} out", "--format", form)
        adapters = json.loads((self.folder / "peft out" / "adapter_config.json").read_text())
        self.assertEqual(adapters["task_type"], "SEQ_2_SEQ_LM")
        tuned = peft.PeftModel.from_pretrained(model, self.folder / "peft out")
        expected, merged = self.loss_of_transformers(tuned), self.loss_of_transformers(self.load("hf out"))
        self.assertLess(abs(expected - merged), TOLERANCE * expected)


class Transformers(T5Test):
    def test_files_keep_their_bits_and_their_loss(self):
        for folder, options in (("hf", {}), ("gated", GATED)):
            with self.subTest(folder=folder):
                model = self.save(folder, **options)
                self.succeed("checkpoint", "import", folder, "--output", f"{folder} run")
                self.succeed("checkpoint", "export", f"{folder} run", "--output", f"{folder} out")
                one, other = (load_file(self.folder / name / "model.safetensors") for name in (folder, f"{folder} out"))
                self.assertEqual(set(one), set(other))
                for name, tensor in one.items():
                    self.assertTrue(torch.equal(tensor, other[name]), name)
                expected = self.loss_of_transformers(self.load(folder))
                self.assert_same_loss(self.load(f"{folder} out"), expected)
                if not options:
                    self.assert_same_loss(model, expected)
                loss = self.evaluate(f"{folder} evaluated", folder)
                self.assertLess(abs(loss - expected), TOLERANCE * expected)
        # The loss would show another epsilon.
        config = self.folder / "hf" / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "layer_norm_epsilon": 1e-1}))
        self.assertGreater(abs(self.evaluate("wrong", "hf") - self.loss_of_transformers(self.load("hf out"))),
                           4 * TOLERANCE * expected)

    def test_it_writes_the_likeliest_tokens_of_transformers(self):
        prompts = ["def f(x):", "a", "for each in range(10):\n    print(each)"]
        (self.folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        for folder, options in (("hf", {}), ("gated", GATED)):
            model, run = self.save(folder, **options), f"{folder} run"
            self.train(run, 1, "--train.steps=1", "--optimizer.learning_rate=1e-30", init=folder)
            greedy = ["--checkpoint", run, "--temperature", 0, "--tokens", 40]
            counts = []
            for prompt in prompts:
                with self.subTest(folder=folder, prompt=prompt):
                    theirs = model.generate(torch.tensor([[*prompt.encode(), END]]), max_new_tokens=40, do_sample=False,
                                            num_beams=1, eos_token_id=END, pad_token_id=START,
                                            use_cache=False)[0, 1:].tolist()  # its cache has the encoder's number of layers
                    theirs = theirs[:theirs.index(END)] if END in theirs else theirs
                    counts.append(len(theirs))
                    expected = b"".join(bytes([token]) if token < END else f"<extra_id_{SENTINEL - token}>".encode()
                                        for token in theirs).decode(errors="backslashreplace")
                    expected = expected.replace("\r\n", "\n").replace("\r", "\n") + "\n"
                    for more in [], ["--no-cache"]:
                        self.assertEqual(self.succeed("generate", *greedy, "--prompt", prompt, *more), expected)
            many = ["generate", *greedy, "--prompts", "prompts.jsonl", "--batch", 2]
            lines = self.succeed(*many)
            self.assertEqual([json.loads(line)["tokens"] for line in lines.splitlines()], counts)
            self.assertGreater(sum(counts), 3)
            for layout in [], ["--parallel.tensor=2"]:
                self.assertEqual(self.succeed(*many, "--ranks", 2, *layout), lines)

    def test_its_own_tokenizer_is_read_and_exported(self):
        import sentencepiece
        text = (self.folder / "text" / "0.txt").read_text()
        (self.folder / "few.txt").write_text(text + "\u4e00\n")
        sentencepiece.SentencePieceTrainer.train(
            input=str(self.folder / "text" / "0.txt"), model_prefix=str(self.folder / "spiece"), vocab_size=220, pad_id=0,
            eos_id=1, unk_id=2, bos_id=-1, model_type="unigram", hard_vocab_limit=False, minloglevel=4)
        self.save(vocab_size=384)
        (self.folder / "spiece.model").rename(self.folder / "hf" / "spiece.model")
        theirs = transformers.T5Tokenizer.from_pretrained(self.folder / "hf")
        sentinel = theirs.convert_tokens_to_ids("<extra_id_0>")
        output = self.succeed("data", "prepare", "--input", "few.txt", "--tokenizer", "bpe", "--tokenizer-model",
                              "hf/spiece.model", "--validation-fraction", 0, "--output", "data/few")
        self.assertIn("1 of the tokens stand for text that the tokenizer's vocabulary lacks", output)
        tokens = numpy.fromfile(self.folder / "data" / "few.bin", dtype=numpy.uint16).tolist()
        self.assertEqual(tokens, theirs(text + "\u4e00\n").input_ids)  # both end in </s>
        self.succeed("train", "--init", "hf", "--data.path=data/few", f"--data.sentinel_token={sentinel}",
                     f"--model.sequence_length={LENGTH}", "--train.steps=1", "--output.folder=few")
        self.assertIn("end_token = 1", (self.folder / "few" / "config.toml").read_text())
        self.succeed("checkpoint", "export", "few", "--output", "few hf")
        again = transformers.AutoTokenizer.from_pretrained(self.folder / "few hf")
        self.assertEqual(again(text).input_ids, theirs(text).input_ids)

    def test_a_tied_head_is_what_the_config_says(self):
        self.save("gated", **GATED)
        path = self.folder / "gated" / "config.json"
        config = {**json.loads(path.read_text()), "tie_word_embeddings": True}
        # As transformers 5 saves it.
        self.assertIs(config["scale_decoder_outputs"], False)
        path.write_text(json.dumps(config))
        self.succeed("checkpoint", "import", "gated", "--output", "separate")
        self.assertIn("tied_embedding = false", (self.folder / "separate" / "config.toml").read_text())
        del config["scale_decoder_outputs"]
        path.write_text(json.dumps(config))
        self.fail_with(2, ["lm_head.weight is not shared.weight", "tie_word_embeddings", "set it to false"],
                       "checkpoint", "import", "gated", "--output", "other")

    def test_fifty_steps_have_the_losses_of_transformers(self):
        # ReLU's slope jumps at 0, so that rounding decides whether a token reaches a unit. A unit that only this token
        # reaches would move by the whole learning rate, but for an epsilon above such gradients.
        for folder, options, epsilon in (("hf", {}, EPSILON), ("gated", GATED, 1e-8)):
            with self.subTest(folder=folder):
                self.save(folder, **options)
                self.compare_fifty_steps(folder, epsilon)

    def compare_fifty_steps(self, folder, epsilon):
        model = self.load(folder)
        named = list(model.named_parameters())
        optimizer = torch.optim.AdamW([{"params": [p for _, p in named if p.dim() > 1], "weight_decay": DECAY},
                                       {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0}],
                                      lr=RATE, betas=BETAS, eps=epsilon)
        theirs = []
        for batch in self.batches(STEPS, BATCH):
            loss = cross_entropy(model, *batch)
            optimizer.zero_grad()
            loss.backward()
            theirs.append((loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()))
            optimizer.step()
        self.train(f"{folder} twin", 1, f"--train.steps={STEPS}", f"--train.global_batch={BATCH}", "--train.micro_batch=4",
                   f"--train.gradient_clip={CLIP}", f"--optimizer.learning_rate={RATE}",
                   "--optimizer.schedule=constant", "--optimizer.warmup_steps=0", f"--optimizer.weight_decay={DECAY}",
                   f"--optimizer.beta2={BETAS[1]}", f"--optimizer.epsilon={epsilon}", init=folder)
        largest = 0
        for line, (loss, norm) in zip(self.metrics(f"{folder} twin"), theirs, strict=True):
            with self.subTest(step=line["step"]):
                self.assertLess(abs(line["loss"] - loss), TWIN_TOLERANCE * loss)
                self.assertLess(abs(line["grad_norm"] - norm), 10 * TWIN_TOLERANCE * norm)
            largest = max(largest, abs(line["loss"] - loss) / loss)
        print(f"{folder}: largest relative difference of a loss {largest:.2g}")


class Refusals(T5Test):
    def test_what_does_not_fit_is_one_line(self):
        for words, options in (
                (["data.masked_share is 0", "t5"], T5[:4]),
                (["data.sentinel_token is -1", "<extra_id_0>", "2 tokens", "258"], T5[:5]),
                (["data.sentinel_token is 261", "model.vocab_size 260"], [*T5, "--model.vocab_size=260"]),
                (["data.sentinel_token is 0", "at least 1"], [*T5, "--data.sentinel_token=0"]),
                (["data.end_token is 300", "model.vocab_size 262"], [*T5, "--model.vocab_size=262", "--data.end_token=300"]),
                (["data.mask_token is 3", "data.sentinel_token instead"], [*T5, "--data.mask_token=3"]),
                (["model.target_length is 9", "have 8 tokens"], [*T5, "--model.target_length=9"]),
                (["model.sequence_length is 2", "at least 3"], [*T5, "--model.sequence_length=2"]),
                (["data.packing is \"whole\"", "stream of tokens"], [*T5, "--data.packing=whole"]),
                (["data.separate_documents true"], [*T5, "--data.separate_documents=true"]),
                (["model.decoder_layers is set", "llama"], ["--model.decoder_layers=2"]),
                (["data.sentinel_token is 5", "llama", "no decoder"], ["--data.sentinel_token=5"]),
                (["t5 has no grouped queries"], [*T5, "--model.kv_heads=2"]),
                (["t5 learns its positions"], [*T5, "--model.rotary_share=0.5"]),
                (["objective.name \"dpo\""], [*T5, "--objective.name=dpo"])):
            with self.subTest(words=words):
                self.fail_with(2, words, "train", "tiny.toml", f"--model.sequence_length={LENGTH}", *options)

    def test_it_continues_no_text_and_is_not_planned(self):
        self.succeed("train", "tiny.toml", *T5, "--train.steps=1")
        for option, found in ("--parallel.pipeline=2", "parallel.pipeline is 2"), ("--parallel.zero=3", "parallel.zero 3"):
            self.fail_with(2, [found, "t5"], "generate", "--checkpoint", "run", "--prompt", "def", "--ranks", 2, option)
        (self.folder / "text.jsonl").write_text('{"text": "def"}\n')
        self.fail_with(2, ["t5", "restores hidden tokens", "export"], "evaluate", "run", "--task", "text.jsonl")
        (self.folder / "cluster.toml").write_text(CLUSTER)
        self.fail_with(2, ["model.family is \"t5\"", "cost model"], "simulate", "tiny.toml", "cluster.toml", *T5,
                       f"--model.vocab_size={VOCABULARY}")
        self.fail_with(2, ["recompute"], "train", "tiny.toml", *T5, "--train.recompute=auto",
                       "--output.folder=other")


if __name__ == "__main__":
    unittest.main(verbosity=2)
