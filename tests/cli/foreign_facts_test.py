"""What wins where a folder of Hugging Face says a fact twice, not at all, or otherwise than its tensors: every case is
loaded by transformers, and imported, exported and loaded again, with the same logits."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import torch.distributed.checkpoint
import transformers
from safetensors.torch import load_file, save_file

from hugging_face_models import FAMILIES, LENGTH, make_model
from import_test import TOLERANCE, ImportTest, mean_loss

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
ROPE = {"rope_type": "default"}
MISSING = object()
# Of each family, keys to change and what is expected: True, as transformers has it; or a word of the refusal.
CASES = {
    "llama": [
        ({"rope_theta": 1e4, "rope_parameters": {**ROPE, "rope_theta": 500.0}}, True),
        ({"rope_theta": 700.0, "rope_parameters": MISSING}, True),
        ({"rope_theta": 700.0, "rope_parameters": ROPE}, True),
        ({"rope_theta": MISSING, "rope_parameters": ROPE}, True),
        ({"rope_theta": MISSING, "rope_parameters": MISSING}, True),
        ({"rope_theta": 700.0, "rope_parameters": None}, True),
        ({"rope_scaling": {**ROPE, "rope_theta": 600.0}, "rope_theta": 700.0}, True),
        ({"rope_scaling": ROPE, "rope_theta": 700.0}, True),
        ({"rope_scaling": ROPE}, True),
        ({"rope_scaling": {}}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 700.0}, True),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}}, True),
        ({"rope_scaling": {"rope_type": "linear"}}, "has no factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 16}}, True),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": None}}, True),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0]}},
         "rope_short_factors"),
        ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "one of default, linear"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "ramp": 1}}, "ramp"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rms_norm_eps": MISSING}, True),
        ({"num_key_value_heads": None, "num_attention_heads": 2, "head_dim": 16}, "shape"),
        ({"head_dim": MISSING}, True),
        ({"head_dim": None}, True),
        ({"attention_dropout": 0.1}, True),
        ({"mlp_bias": MISSING, "attention_bias": MISSING, "hidden_act": MISSING}, True),
        ({"rope_interleaved": False, "is_llama_config": True}, True),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"transformers.js_config": {"dtype": "q4"}}, True),
        ({"tie_word_embeddings": MISSING}, True),
        ({"torch_dtype": "float64", "dtype": "float32"}, True)],
    "tied llama": [({"tie_word_embeddings": MISSING}, "lm_head.weight")],
    "mistral": [
        ({"sliding_window": None}, True),
        ({"sliding_window": LENGTH}, True),
        ({"sliding_window": MISSING}, True),
        ({"sliding_window": 4}, True),
        ({"sliding_window": 0}, "sliding_window"),
        ({"num_key_value_heads": MISSING}, "kv_heads")],
    "qwen2": [
        ({"use_mrope": False}, True),
        ({"use_mrope": True}, "use_mrope"),
        ({"layer_types": MISSING, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}, True),
        ({"layer_types": MISSING, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": MISSING}, True),
        ({"layer_types": MISSING, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, True),
        ({"layer_types": ["full_attention"] * 2, "use_sliding_window": True, "sliding_window": 4,
          "max_window_layers": 0}, True),
        ({"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": True, "sliding_window": 4},
         True),
        ({"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": True,
          "sliding_window": LENGTH}, True),
        ({"layer_types": MISSING, "use_sliding_window": MISSING, "sliding_window": 4, "max_window_layers": 0}, True)],
    "qwen3": [({"head_dim": MISSING}, "shape"), ({"layer_types": MISSING, "use_sliding_window": MISSING}, True)],
    "mixtral": [
        ({"rope_parameters": MISSING}, True),
        ({"rms_norm_eps": MISSING}, True),
        ({"num_experts": 5}, True),
        ({"num_local_experts": MISSING, "num_experts": 5}, True),
        ({"num_experts": 4}, "shape"),
        ({"sliding_window": 4}, True),
        ({"output_router_logits": True, "router_aux_loss_coef": 0.02}, True),
        ({"router_jitter_noise": 0.1}, True)],
    "qwen3 moe": [
        ({"num_experts": 4, "num_local_experts": 5}, True),
        ({"num_experts": 5, "num_local_experts": MISSING}, True),
        ({"norm_topk_prob": MISSING}, True),
        ({"mlp_only_layers": None}, "missing"),
        ({"use_sliding_window": True, "sliding_window": 4}, True),
        ({"output_router_logits": True}, True)],
    "qwen2 moe": [
        ({"norm_topk_prob": True}, True),
        ({"norm_topk_prob": MISSING, "qkv_bias": MISSING}, True),
        ({"mlp_only_layers": None}, True),
        ({"mlp_only_layers": [0, 1]}, "missing"),
        ({"mlp_only_layers": [2]}, "mlp_only_layers"),
        ({"decoder_sparse_step": MISSING}, "missing"),
        ({"shared_expert_intermediate_size": 40}, "multiple of the experts' width"),
        ({"layer_types": MISSING, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}, True),
        ({"layer_types": MISSING, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": MISSING}, True),
        ({"layer_types": ["full_attention"] * 3 + ["sliding_attention"], "use_sliding_window": True,
          "sliding_window": 4}, True),
        ({"num_key_value_heads": MISSING}, "kv_heads"),
        ({"output_router_logits": True}, True)],
    "olmo2": [
        ({"rms_norm_eps": MISSING}, True),
        ({"rope_parameters": MISSING}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 700.0}, True),
        ({"attention_bias": MISSING, "sliding_window": None}, True),
        ({"num_key_value_heads": None}, "shape"),
        ({"clip_qkv": 8.0}, "clip_qkv"),
        ({"hidden_act": "gelu"}, "hidden_act")],
    "olmo3": [
        ({"rms_norm_eps": MISSING}, True),
        ({"layer_types": MISSING, "num_hidden_layers": 2}, True),
        ({"rope_parameters": MISSING, "rope_theta": 500000.0}, True),
        ({"rope_parameters": MISSING, "rope_theta": 700.0}, True),
        ({"attention_bias": MISSING}, True),
        ({"clip_qkv": 8.0}, "clip_qkv")],
    "glm4": [
        ({"rms_norm_eps": MISSING, "attention_bias": MISSING}, True),
        ({"rope_parameters": MISSING}, True),
        ({"rope_parameters": MISSING, "partial_rotary_factor": 1.0, "rope_theta": 700.0}, True),
        ({"rope_parameters": {**ROPE, "rope_theta": 700.0}}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, True),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}}, True),
        ({"head_dim": MISSING}, "shape"),
        ({"sliding_window": 4}, "sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act")],
    "deepseek": [
        ({"norm_topk_prob": MISSING}, True),
        ({"n_routed_experts": 4, "num_local_experts": 8}, True),
        ({"aux_loss_alpha": 0.1, "seq_aux": True, "num_nextn_predict_layers": 2}, True)],
    "deepseek pairs": [({"rope_interleave": MISSING}, True), ({"rope_interleave": None}, True)],
    "gemma2": [
        ({"layer_types": MISSING}, True),
        ({"layer_types": None}, True),
        ({"layer_types": ["sliding_attention"] * 2}, True),
        ({"layer_types": ["full_attention"] * 2}, True),
        ({"layer_types": ["full_attention"] * 2, "sliding_window": LENGTH}, True),
        ({"sliding_window": MISSING}, True),
        ({"sliding_window": None}, "sliding_window is null"),
        ({"sliding_window_size": 3, "sliding_window_pattern": 1}, "sliding_window_pattern"),
        ({"sliding_window_size": 3, "cache_implementation": "hybrid"}, True),
        ({"attn_logit_softcapping": MISSING, "final_logit_softcapping": MISSING}, True),
        ({"attn_logit_softcapping": None, "final_logit_softcapping": None}, True),
        ({"hidden_act": "gelu"}, True),
        ({"hidden_activation": MISSING}, True),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"query_pre_attn_scalar": MISSING}, True),
        ({"head_dim": MISSING}, "shape"),
        ({"num_key_value_heads": MISSING}, "shape"),
        ({"rms_norm_eps": MISSING}, True),
        ({"tie_word_embeddings": MISSING}, True),
        ({"rope_parameters": MISSING}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 700.0}, True),
        ({"use_bidirectional_attention": None}, True),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention")],
    "gemma3": [
        ({"rope_parameters": MISSING}, True),
        ({"rope_parameters": MISSING, "rope_theta": 300.0, "rope_local_base_freq": 70.0}, True),
        ({"rope_parameters": MISSING, "rope_theta": 300.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, True),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}, "rope_theta": 300.0,
          "rope_local_base_freq": 70.0}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 400.0}}, "rope_theta": 300.0},
         True),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 400.0}}, "rope_local_base_freq": 70.0}, True),
        ({"rope_parameters": {"full_attention": None, "sliding_attention": None}}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                                 "high_freq_factor": 3.0, "rope_theta": 500.0}}}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0}}}, True),
        ({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}, "sliding_attention"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "full_attention"),
        ({"layer_types": MISSING}, True),
        ({"layer_types": MISSING, "sliding_window_pattern": 2}, True),
        ({"sliding_window_pattern": 1, "_sliding_window_pattern": 5}, True),
        ({"layer_types": ["sliding_attention"] * 3}, True),
        ({"layer_types": ["full_attention"] * 3}, True),
        ({"attn_logit_softcapping": 1.0}, True),
        ({"final_logit_softcapping": 3.0}, True),
        ({"sliding_window": MISSING, "query_pre_attn_scalar": MISSING}, True),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"model_type": "gemma3"}, "model_type")],
    "gpt2": [
        ({"n_inner": MISSING}, "shape"),
        ({"n_embd": 16, "hidden_size": 32}, True),
        ({"n_layer": MISSING, "num_hidden_layers": 2, "n_head": 2, "num_attention_heads": 4}, True),
        ({"layer_norm_epsilon": MISSING}, True),
        ({"tie_word_embeddings": MISSING}, True),
        ({"attn_pdrop": 0.3, "resid_pdrop": MISSING}, True)],
}


class FactsTest(ImportTest):
    def change(self, folder, **changes):
        path = self.folder / folder / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not MISSING}))

    def load(self, folder):
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.folder / folder, attn_implementation="eager", dtype="auto").eval()

    def logits(self, folder):
        tokens = torch.arange(2 * LENGTH).view(2, LENGTH) * 7 % 257
        with torch.no_grad():
            return self.load(folder)(tokens).logits

    def assert_same_model(self, folder, *options):
        """Imported and exported, the folder is the same model to transformers. Returns the notes."""
        self.count = getattr(self, "count", 0) + 1
        run, exported = f"run {self.count}", f"exported {self.count}"
        report = json.loads(self.do_import(folder, run, "--json", *options))
        self.succeed("checkpoint", "export", run, "--output", exported)
        torch.testing.assert_close(self.logits(exported), self.logits(folder), rtol=1e-5, atol=1e-6)
        return report["notes"]

    def noted(self, folder, *words, options=()):
        notes = self.assert_same_model(folder, *options)
        found = [note for note in notes if all(word in note for word in words)]
        self.assertEqual(len(found), 1, notes)


class Keys(FactsTest):
    def test_every_key_means_what_it_means_to_transformers(self):
        for family, cases in CASES.items():
            self.save(family, family)
            path = self.folder / family / "config.json"
            plain = path.read_text()
            for changes, expected in cases:
                with self.subTest(family=family, changes=str(changes)):
                    path.write_text(plain)
                    self.change(family, **changes)
                    if expected is True:
                        self.assert_same_model(family)
                    else:
                        result = self.run_program("checkpoint", "import", family, "--output", "refused")
                        self.assertIn(result.returncode, (2, 4))
                        self.assertIn(expected, result.stderr)

    def test_a_fact_that_is_there_twice_is_a_line(self):
        self.save("llama")
        self.change("hf", rope_theta=1e4, attention_dropout=0.1)
        self.noted("hf", "rope_theta is 500.0", "10000")
        self.noted("hf", "attention_dropout is 0.1")
        self.assertIn("note       rope_theta is 500.0", self.do_import("hf", "printed"))
        self.assertIn("init    rope_theta is 500.0", self.tune("run", 1, init="hf"))


class Heads(FactsTest):
    def with_head(self, family, folder, head):
        self.save(family, folder)
        tensors = self.tensors(folder)
        save_file({**tensors, "lm_head.weight": head}, self.folder / folder / "model.safetensors",
                  metadata={"format": "pt"})
        return tensors

    def test_another_head_than_the_tied_one_stays(self):
        for family in ("gpt2", "tied llama"):
            with self.subTest(family=family):
                self.with_head(family, family, 0.15 * torch.randn(257, 32))
                self.noted(family, "tie_word_embeddings is true", "lm_head.weight", "both")
                expected = mean_loss(self.load(family), self.sequences())
                for ranks, options in ((1, []), (2, ["--parallel.tensor=2"]), (2, ["--parallel.pipeline=2"])):
                    run = f"{family} {len(options)} {options}"
                    text = self.tune(run, ranks, *options, init=family)
                    self.assertIn("lm_head.weight is another matrix", text)
                    self.assertLess(abs(self.validation_loss(run) - expected) / expected, TOLERANCE)
                key = "separate_head=false" if family == "gpt2" else "tied_embedding=true"
                self.fail_with(4, ["lm_head.weight is another matrix", "set model."], "checkpoint", "import", family,
                               "--output", "refused", f"--model.{key}")

    def test_a_second_copy_of_a_tied_head_is_no_news(self):
        for family in ("gpt2", "tied llama"):
            self.save(family, family)
            embedding = "transformer.wte.weight" if family == "gpt2" else "model.embed_tokens.weight"
            head = self.tensors(family)[embedding].clone()
            self.with_head(family, family, head)
            self.assertEqual([n for n in self.assert_same_model(family) if "lm_head" in n], [])

    def test_a_tied_head_that_is_stored_alone_is_the_embedding(self):
        for family, embedding in (("gpt2", "transformer.wte.weight"), ("tied llama", "model.embed_tokens.weight")):
            with self.subTest(family=family):
                self.save(family, family)
                tensors = self.tensors(family)
                tensors["lm_head.weight"] = tensors.pop(embedding)
                save_file(tensors, self.folder / family / "model.safetensors", metadata={"format": "pt"})
                self.noted(family, embedding, "lm_head.weight", "tied")
                expected = mean_loss(self.load(family), self.sequences())
                self.tune(f"{family} run", 1, init=family)
                self.assertLess(abs(self.validation_loss(f"{family} run") - expected) / expected, TOLERANCE)

    def test_an_own_head_that_is_missing_is_refused(self):
        self.save("gpt2")
        self.change("hf", tie_word_embeddings=False)
        self.fail_with(4, ["1 missing: lm_head.weight"], "checkpoint", "import", "hf", "--output", "refused")


class Dtypes(FactsTest):
    def test_wide_weights_are_rounded_with_a_line_or_not_at_all(self):
        self.save("llama")
        wide = self.tensors("hf")
        self.change("hf", dtype="bfloat16")
        narrow = {name: tensor.bfloat16() for name, tensor in wide.items()}
        # As transformers with dtype="auto".
        self.assertEqual(self.load("hf").dtype, torch.bfloat16)
        self.assertIn("tensors are rounded to bf16; --dtype=fp32 keeps every value", self.do_import("hf", "narrow"))
        self.assert_exports_as(narrow, "narrow")
        for name, option in (("by dtype", "--dtype=fp32"), ("by precision", "--train.precision=fp32")):
            self.assertNotIn("rounded", self.do_import("hf", name, option))
            self.assert_exports_as(wide, name)
        # A run that begins with them.
        self.assertNotIn("rounded", self.tune("fp32", 1, "--train.precision=fp32", init="hf"))
        self.assert_exports_as(wide, "fp32")
        self.assertIn("rounded to bf16; --train.precision=fp32", self.tune("bf16", 1, init="hf"))
        self.succeed("checkpoint", "export", "bf16", "--output", "masters", "--dtype", "fp32")
        self.assert_same(self.tensors("masters"), wide)

    def test_a_narrow_file_of_a_wide_config_is_no_news(self):
        make_model(*FAMILIES["llama"]).to(torch.bfloat16).save_pretrained(self.folder / "hf")
        self.change("hf", dtype="float32")
        self.assertEqual(self.assert_same_model("hf"), [])


class Wrappers(FactsTest):
    def test_names_inside_wrappers_are_found(self):
        self.save("llama")
        plain = self.tensors("hf")
        (self.folder / "hf" / "model.safetensors").unlink()
        beside = {"step": torch.ones(1), "optimizer": {"exp_avg": torch.ones(3)}}
        compiled = {name.replace("layers.0.", "layers.0._orig_mod."): tensor for name, tensor in plain.items()}
        for name, state in {
                "model": {"model": plain, **beside}, "state_dict": {"state_dict": plain},
                "module": {f"module.{name}": tensor for name, tensor in plain.items()},
                "compiled": {f"_orig_mod.{name}": tensor for name, tensor in plain.items()},
                "blocks": compiled,
                "all": {"app": {"model": {f"module._orig_mod.{n}": t for n, t in plain.items()}}, **beside}}.items():
            with self.subTest(name=name):
                torch.save(state, self.folder / "state.pt")
                report = json.loads(self.do_import("state.pt", name, "--config", "hf/config.json", "--json"))
                self.assertTrue(any("left out" in note for note in report["notes"]), report["notes"])
                self.assert_exports_as(plain, name)
        torch.distributed.checkpoint.save({"app": {"model": plain, **beside}}, checkpoint_id=self.folder / "dcp",
                                          no_dist=True)
        self.do_import("dcp", "from dcp", "--config", "hf/config.json")
        self.assert_exports_as(plain, "from dcp")
        torch.save({"model": plain, "ema": plain}, self.folder / "two.pt")
        self.fail_with(4, ["two.pt", "several models", "ema.", "model."], "checkpoint", "import", "two.pt",
                       "--config", "hf/config.json", "--output", "refused")


class Balance(FactsTest):
    """A step of training beside transformers' own, on the same sequences."""
    def setUp(self):
        super().setUp()
        self.use(8)

    def use(self, sequences):
        """Data of so many sequences: all are the batch of the first step, in any order."""
        words = (self.folder / "text" / "0.txt").read_text()[:sequences * LENGTH]
        (self.folder / "few.txt").write_text(words)
        self.succeed("data", "prepare", "--input", "few.txt", "--tokenizer", "bytes", "--validation-fraction", 0,
                     "--output", "data/few")
        tokens = numpy.fromfile(self.folder / "data" / "few.bin", dtype=numpy.uint16).astype(numpy.int64)
        self.inputs = torch.tensor(tokens[:-1]).view(sequences, LENGTH)
        self.targets = torch.tensor(tokens[1:]).view(sequences, LENGTH)

    def theirs(self, folder):
        """Loss, and norm of the gradient of all that transformers adds to it."""
        model = self.load(folder).train()
        output = model(self.inputs)
        loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), self.targets.flatten())
        balance = getattr(output, "aux_loss", None)
        (loss if balance is None else loss + model.config.router_aux_loss_coef * balance).backward()
        squares = sum(p.grad.double().square().sum() for p in model.parameters() if p.grad is not None)
        return loss.item(), squares.sqrt().item()

    def ours(self, folder, run, *options):
        self.do_import(folder, run)
        self.succeed("train", f"{run}/config.toml", "--init", run, f"--output.folder={run} trained",
                     "--data.path=data/few", "--train.steps=1", f"--train.global_batch={len(self.inputs)}",
                     "--train.micro_batch=1", "--optimizer.learning_rate=1e-30", *options)
        line = self.metrics(f"{run} trained")[0]
        return line["loss"], line["grad_norm"]

    def assert_twins(self, ours, theirs):
        for a, b in zip(ours, theirs, strict=True):
            self.assertLess(abs(a - b) / b, 1e-5)

    def test_without_the_loss_they_are_twins(self):
        for family in ("mixtral", "qwen3 moe", "deepseek", "deepseek pairs"):
            with self.subTest(family=family):
                self.save(family, family)
                self.assert_twins(self.ours(family, f"{family} run"), self.theirs(family))

    def test_with_it_the_scale_is_the_same(self):
        """Of one layer and one sequence the losses are one; of several, transformers multiplies pooled means."""
        self.use(1)
        for family, layers in (("mixtral", {"num_hidden_layers": 1}),
                               ("qwen3 moe", {"num_hidden_layers": 2, "mlp_only_layers": [0]})):
            with self.subTest(family=family):
                name, own = FAMILIES[family]
                options = {**own, **layers, "output_router_logits": True, "router_aux_loss_coef": 0.5}
                make_model(name, options).save_pretrained(self.folder / family)
                theirs = self.theirs(family)
                self.assert_twins(self.ours(family, f"{family} run"), theirs)
                without = self.ours(family, f"{family} none", "--model.balance_loss=0")
                self.assertGreater(abs(without[1] - theirs[1]) / theirs[1], 1e-3)

    def test_the_biases_of_deepseek_are_its_models(self):
        self.save("deepseek")
        self.assert_twins(self.ours("hf", "run", "--model.router_bias_rate=0"), self.theirs("hf"))
        before, after = (load_file(next((self.folder / run / "checkpoints").glob("step-*/*.safetensors")))
                         for run in ("run", "run trained"))
        names = [name for name in before if name.endswith("e_score_correction_bias")]
        self.assertTrue(names)
        for name in names:
            self.assertTrue(torch.equal(before[name], after[name]))
        # Begun with the folder itself, too.
        self.succeed("train", "--init", "hf", "--output.folder=direct", "--data.path=data/few", "--train.steps=1",
                     "--train.global_batch=8", "--train.micro_batch=1", "--model.router_bias_rate=0")


if __name__ == "__main__":
    unittest.main(verbosity=2)
