"""Low-rank adapters ([lora]) and frozen parameters, beside the package peft: losses, files both ways, bits."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file

from program import ProgramTest

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
LENGTH = 32
STEPS = 50
RATE = 1e-2
SIZES = {"vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LENGTH}
MODELS = {
    "llama": (transformers.LlamaConfig, SIZES),
    "phi3": (transformers.Phi3Config, {**SIZES, "pad_token_id": None, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    # Rows of rotary projections are stored in another order than here.
    "deepseek": (transformers.DeepseekV3Config, {
        **SIZES, "num_key_value_heads": 4, "moe_intermediate_size": 24, "num_experts_per_tok": 3,
        "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
        "kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "rope_interleave": True}),
    "gpt2": (transformers.GPT2Config, {"vocab_size": 257, "n_embd": 32, "n_inner": 80, "n_layer": 2, "n_head": 4,
                                       "n_positions": LENGTH, "bos_token_id": None, "eos_token_id": None,
                                       "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
}
LORA = ["--lora.rank=4", "--lora.alpha=8"]
LAYOUTS = {
    "ddp": (2, []),
    "zero 3": (2, ["--parallel.zero=3"]),
    "tensor, sequence": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline": (2, ["--parallel.pipeline=2"]),
    "ring": (2, ["--parallel.context=2"]),
}
# A step multiplies a difference of the losses by little: about 125 roundings a step (see import_test.py), which
# walk at random over the steps.
TOLERANCE = 125 * STEPS ** 0.5 * 2 ** -24


class LoraTest(ProgramTest):
    def setUp(self):
        super().setUp()
        text = (self.folder / "text/0.txt").read_bytes()[:4 * LENGTH]
        (self.folder / "four.txt").write_bytes(text)
        self.tokens = numpy.array([*text, 256])
        self.succeed("data", "prepare", "--input", "four.txt", "--tokenizer", "bytes", "--output", "data/four",
                     "--validation-fraction", 0)

    def save(self, family, folder="hf"):
        kind, sizes = MODELS[family]
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(kind(**sizes), attn_implementation="eager").eval()
        model.save_pretrained(self.folder / folder)

    def load(self, folder="hf"):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder / folder, attn_implementation="eager",
                                                                 dtype=torch.float32).eval()

    def tune(self, run, ranks, *options, steps=STEPS):
        return self.succeed("train", "--ranks", ranks, "--init", "hf", f"--output.folder={run}",
                            "--data.path=data/four", f"--train.steps={steps}", "--train.global_batch=4",
                            "--train.micro_batch=2", "--train.gradient_clip=0", f"--optimizer.learning_rate={RATE}",
                            "--optimizer.warmup_steps=0", "--optimizer.schedule=constant",
                            "--optimizer.weight_decay=0", "--checkpoint.interval=1000", *LORA, *options)

    def metrics(self, run, key="loss"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)[key] for line in lines if key in json.loads(line)]

    def export(self, run, output, form):
        self.succeed("checkpoint", "export", run, "--output", output, "--format", form)
        return self.folder / output

    def logits(self, model):
        tokens = torch.arange(2 * LENGTH).view(2, LENGTH) % 257
        with torch.no_grad():
            return model(tokens).logits

    def assert_near(self, actual, expected, factor=125):
        """Equal but for so many roundings of the largest."""
        difference = (actual - expected).abs().max().item()
        self.assertLess(difference, factor * 2 ** -24 * expected.abs().max().item())

    def refuse(self, code, parts, *options, init="hf"):
        begin = ["--init", init] if init else []
        result = self.run_program("train", *begin, "--data.path=data/four", "--output.folder=none",
                                  "--train.steps=1", "--train.global_batch=4", *options)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def train_twin(self, model):
        """The losses of the same samples: every step has all four of data/four, in some order."""
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
        losses = []
        batch = torch.tensor(numpy.lib.stride_tricks.sliding_window_view(self.tokens, LENGTH + 1)[::LENGTH].copy())
        for _ in range(STEPS):
            logits = model(batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


class Adapters(LoraTest):
    def test_the_losses_are_those_of_peft_from_the_same_adapters(self):
        all_layers = ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "k_proj"]
        for family, targets, *more in (("llama", all_layers), ("llama", all_layers, "--lora.dora=true"),
                                       ("gpt2", ["c_fc"]), ("gpt2", ["c_fc"], "--lora.dora=true")):
            with self.subTest(family=family, more=more):
                self.setUp()
                self.save(family)
                pattern = ",".join(f"*.{target}" for target in targets)
                # The adapters that a run begins with are those of its first checkpoint, before a step.
                self.tune(f"{family}-start", 1, f"--lora.targets={pattern}", *more, "--optimizer.learning_rate=0", steps=1)
                folder = self.export(f"{family}-start", f"{family}-adapter", "peft")
                self.tune(f"{family}-run", 1, f"--lora.targets={pattern}", *more)
                twin = peft.PeftModel.from_pretrained(self.load(), folder, is_trainable=True)
                theirs = self.train_twin(twin)
                ours = self.metrics(f"{family}-run")
                self.assertEqual(len(ours), STEPS)
                for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                    self.assertLess(abs(a - b), TOLERANCE * b, f"step {step}")
                self.assertLess(ours[-1], ours[0] - 0.3)

    def test_peft_reads_them_and_a_merged_model_is_the_same_at_every_layout(self):
        for family in ("llama", "phi3", "gpt2"):
            with self.subTest(family=family):
                self.save(family, "hf")
                for name, (ranks, options) in LAYOUTS.items():
                    if family != "llama" and name not in ("ddp", "tensor, sequence"):
                        continue
                    run = f"{family}-{name.replace(', ', '-').replace(' ', '-')}"
                    self.tune(run, ranks, *options, steps=5)
                    adapter = self.export(run, f"{run}-adapter", "peft")
                    merged = self.load(self.export(run, f"{run}-merged", "hf").name)
                    adapted = peft.PeftModel.from_pretrained(self.load(), adapter)
                    self.assertGreater((self.logits(merged) - self.logits(self.load())).abs().max().item(), 1e-3)
                    self.assert_near(self.logits(merged), self.logits(adapted))
                    self.assertEqual(set(load_file(adapter / "adapter_model.safetensors")),
                                     {key.replace(".default", "") for key in adapted.state_dict() if "lora_" in key})

    def test_magnitudes_go_to_peft_and_back(self):
        for family, name, targets, pattern in (
                ("llama", "zero 3", ["q_proj", "down_proj"], "*.q_proj,*.down_proj"),
                ("llama", "tensor, sequence", ["k_proj", "o_proj"], "*.k_proj,*.o_proj"),
                ("phi3", "tensor, sequence", ["qkv_proj", "o_proj"], "*.[qkv]_proj,*.o_proj"),
                ("gpt2", "pipeline", ["c_attn"], "*.[qkv]_proj")):
            with self.subTest(family=family, layout=name):
                self.setUp()
                self.save(family)
                ranks, options = LAYOUTS[name]
                dora = ("--lora.dora=true", f"--lora.targets={pattern}")
                self.tune("run", ranks, *options, *dora, steps=5)
                adapter = self.export("run", "adapter", "peft")
                merged = self.load(self.export("run", "merged", "hf").name)
                adapted = peft.PeftModel.from_pretrained(self.load(), adapter)
                self.assert_near(self.logits(merged), self.logits(adapted))
                self.assertEqual(set(load_file(adapter / "adapter_model.safetensors")), {
                    key.replace("vector.default.weight", "vector").replace(".default", "")
                    for key in adapted.state_dict() if "lora_" in key})
                # One that peft made, whose parts share A where it has one matrix for several layers.
                config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM",
                                         fan_in_fan_out=family == "gpt2", init_lora_weights=False, use_dora=True)
                torch.manual_seed(2)
                adapted = peft.get_peft_model(self.load(), config)
                with torch.no_grad():
                    for key, parameter in adapted.named_parameters():
                        if "magnitude" in key:
                            parameter.mul_(1 + torch.rand_like(parameter))
                adapted.save_pretrained(self.folder / "theirs")
                self.start_from("theirs", "ours", *dora)
                merged = self.load(self.export("ours", "ours-merged", "hf").name)
                self.assertGreater((self.logits(merged) - self.logits(self.load())).abs().max().item(), 1e-3)
                self.assert_near(self.logits(merged), self.logits(adapted))
                self.refuse(2, ["use_dora of", "is true; set lora.dora to true"], "--lora.init=theirs", *LORA, f"--lora.targets={pattern}")

    def test_an_adapter_comes_back_with_its_bits(self):
        for family in ("llama", "phi3"):
            with self.subTest(family=family):
                self.save(family)
                self.tune(f"{family}-first", 1, "--lora.also_train=*norm*", steps=3)
                first = self.export(f"{family}-first", f"{family}-adapter", "peft")
                self.start_from(first, f"{family}-again", "--lora.also_train=*norm*", "--parallel.zero=3")
                again = self.export(f"{family}-again", f"{family}-second", "peft")
                self.assertEqual(json.loads((first / "adapter_config.json").read_text()),
                                 json.loads((again / "adapter_config.json").read_text()))
                theirs, ours = (load_file(folder / "adapter_model.safetensors") for folder in (first, again))
                self.assertEqual(set(ours), set(theirs))
                for name, tensor in theirs.items():
                    self.assertTrue(torch.equal(ours[name], tensor), name)

    def start_from(self, adapter, run, *options):
        """A run on two ranks that begins with an adapter and changes nothing."""
        self.tune(run, 2, f"--lora.init={adapter}", "--optimizer.learning_rate=0", *options, steps=1)

    def test_an_adapter_of_peft_is_the_same_model_here(self):
        """Where transformers has one matrix for several layers here, these share their A."""
        for family, targets, pattern in (("llama", ["q_proj", "down_proj"], "*.q_proj,*.down_proj"),
                                         ("phi3", ["qkv_proj", "o_proj"], "*.[qkv]_proj,*.o_proj"),
                                         ("deepseek", ["q_b_proj", "kv_a_proj_with_mqa", "o_proj"],
                                          "*.q_b_proj,*.kv_a_proj_with_mqa,*.o_proj"),
                                         ("gpt2", ["c_attn"], "*.[qkv]_proj")):
            with self.subTest(family=family):
                self.save(family)
                config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM",
                                         fan_in_fan_out=family == "gpt2", init_lora_weights=False)
                torch.manual_seed(2)
                adapted = peft.get_peft_model(self.load(), config)
                adapted.save_pretrained(self.folder / f"{family}-theirs")
                self.start_from(f"{family}-theirs", f"{family}-ours", f"--lora.targets={pattern}")
                merged = self.load(self.export(f"{family}-ours", f"{family}-merged", "hf").name)
                self.assertGreater((self.logits(merged) - self.logits(self.load())).abs().max().item(), 1e-3)
                self.assert_near(self.logits(merged), self.logits(adapted))
                if family == "deepseek":
                    result = self.run_program("checkpoint", "export", f"{family}-ours", "--output", "none", "--format",
                                              "peft")
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn("rows that transformers may keep in another order", result.stderr)

    def test_frozen_weights_keep_their_bits_and_have_no_states(self):
        self.save("llama")
        self.tune("run", 2, "--parallel.zero=1", "--train.precision=bf16", "--lora.targets=*.q_proj", steps=3)
        report = json.loads(self.succeed("checkpoint", "inspect", "run", "--json"))
        names = {tensor["name"] for tensor in report["tensors"]}
        states = {name for name in names if name.startswith("optimizer.")}
        self.assertEqual(len(states), 2 * 2 * 3)  # two layers, A and B: two moments and the master
        self.assertTrue(all(".lora_" in name for name in states), states)
        merged = self.tensors(self.export("run", "merged", "safetensors"))
        for name, tensor in self.tensors(self.folder / "hf").items():
            is_same = torch.equal(merged[name], tensor.bfloat16())
            self.assertEqual(is_same, "q_proj" not in name, name)

    def tensors(self, folder):
        return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}

    def test_a_resumed_run_is_the_run_and_generates(self):
        self.save("llama")
        self.tune("whole", 2, "--lora.dropout=0.1", "--parallel.zero=2", steps=6)
        for steps in (3, 6):
            self.tune("parts", 2, "--lora.dropout=0.1", "--parallel.zero=2", steps=steps)
        self.assertEqual(self.metrics("parts"), self.metrics("whole"))
        self.assertTrue(self.succeed("generate", "--checkpoint", "whole", "--prompt", "def ", "--tokens", 4))
        self.assertIn(" are trained", self.tune("third", 1, steps=1))
        other = ("train", "whole/config.toml", "--init", "whole", "--ranks", 2, "--train.steps=1")
        self.assertIn("init    another model than these weights': lora.alpha 8.0 -> 16.0\n",
                      self.succeed(*other, "--lora.alpha=16", "--output.folder=scaled"))
        self.assertNotIn("another model", self.succeed(*other, "--output.folder=same"))


class Frozen(LoraTest):
    def test_patterns_freeze_parameters_of_any_task(self):
        config = ["tiny.toml", "--data.path=data/tiny", "--train.steps=4"]
        self.succeed("train", *config, "--ranks", 2, "--parallel.zero=2", "--output.folder=part",
                     "--train.freeze=*embed*, model.layers.0.*")
        self.succeed("train", *config, "--output.folder=start", "--optimizer.learning_rate=0", "--train.steps=1")
        start, part = (self.tensors_of(run) for run in ("start", "part"))
        for name, tensor in start.items():
            is_frozen = "embed" in name or ".layers.0." in name
            self.assertEqual(torch.equal(part[name], tensor), is_frozen, name)

    def tensors_of(self, run):
        return load_file(self.export(run, f"{run}-weights", "safetensors") / "model.safetensors")


class Refusals(LoraTest):
    def test_what_does_not_fit_is_one_line(self):
        self.save("llama")
        self.refuse(2, ['lora.targets has "*.c_attn"', "model.layers.0.self_attn.q_proj"], *LORA, "--lora.targets=*.c_attn")
        self.refuse(2, ["lora.also_train", "lora.rank 0"], "--lora.also_train=*norm*")
        self.refuse(2, ["lora.init", "lora.rank 0"], "--lora.init=hf")
        self.refuse(2, ["lora.init", "init.folder empty"], "tiny.toml", *LORA, "--lora.init=hf", init="")
        self.tune("own", 1, "--lora.targets=*.q_proj", steps=1)
        self.refuse(2, ["lora.init", "Hugging Face folder"], "own/config.toml", "--lora.init=hf", init="own")
        self.refuse(2, ["lora.dropout is 0.1 and lora.dora true"], *LORA, "--lora.dropout=0.1", "--lora.dora=true")
        self.refuse(2, ['train.freeze has "encoder.*"', "model.embed_tokens.weight"], "--train.freeze=encoder.*")
        self.refuse(2, ["no parameter is left to train"], "--train.freeze=*")
        result = self.run_program("checkpoint", "import", "hf", "--output", "none", "--lora.rank=4")
        self.assertEqual((result.returncode, "train --init" in result.stderr), (2, True), result.stderr)
        self.refuse(2, ["adapter_config.json", "does not exist"], *LORA, "--lora.init=hf")

    def test_another_adapter_is_refused_by_its_key(self):
        self.save("llama")
        self.tune("run", 1, "--lora.targets=*.q_proj", steps=1)
        adapter = self.export("run", "adapter", "peft")
        own = [*LORA, "--lora.init=adapter", "--lora.targets=*.q_proj"]
        self.refuse(2, ["lora.rank is 2", "has 4 rows"], *own, "--lora.rank=2")
        self.refuse(2, ["lora.alpha / lora.rank is 1", "set lora.alpha to 8"], *own, "--lora.alpha=4")
        self.refuse(4, ["2 missing", "v_proj", "lora.targets"], *own[:-1], "--lora.targets=*.q_proj, model.layers.0.*.v_proj")
        result = self.run_program("checkpoint", "upcycle", "run", "--output", "none", "--model.experts=4")
        self.assertEqual((result.returncode, "has adapters" in result.stderr), (2, True), result.stderr)
        config = json.loads((adapter / "adapter_config.json").read_text())
        for change, parts in (({"use_dora": True}, ["use_dora of", "set lora.dora to true"]), ({"bias": "all"}, ["bias is", '"none"']),
                              ({"peft_type": "IA3"}, ["peft_type", "LORA"]), ({"lora_alpha": "4"}, ["lora_alpha is"]),
                              ({"init_lora_weights": "pissa"}, ["init_lora_weights is"]),
                              ({"alora_invocation_tokens": [1]}, ["alora_invocation_tokens"]),
                              ({"alpha_pattern": {"q_.*": 3}}, ["alpha_pattern has"]),
                              ({"alpha_pattern": {"q_proj": 16}}, ["set lora.alpha to 16"])):
            (adapter / "adapter_config.json").write_text(json.dumps({**config, **change}))
            self.refuse(2, parts, *own)
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        weights = adapter / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        self.refuse(4, ["adapter_model.safetensors"], *own)

    def test_a_run_without_adapters_exports_none(self):
        self.save("llama")
        self.tune("plain", 1, "--lora.rank=0", "--lora.alpha=16", steps=1)
        result = self.run_program("checkpoint", "export", "plain", "--output", "none", "--format", "peft")
        self.assertEqual(result.returncode, 2)
        self.assertIn("lora.rank is 0", result.stderr)


if __name__ == "__main__":
    unittest.main()
