"""Models that Hugging Face's transformers wrote, imported: their bits, their loss, and training from them."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import torch.distributed.checkpoint
import transformers
from safetensors.torch import load_file, save_file

from hugging_face_models import FAMILIES, LENGTH, PLAIN, REWRITTEN, SCALINGS, WINDOWS, make_model
from program import ProgramTest

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
SEQUENCES = 8  # of an evaluation
# As in export_test.py: 14 products one behind the other, each of sums of up to 80 terms.
TOLERANCE = 125 * 2 ** -24
LAYOUTS = {
    "one": (1, []),
    "tensor": (2, ["--parallel.tensor=2", "--parallel.sequence_parallel=true"]),
    "pipeline": (2, ["--parallel.pipeline=2"]),
    "zero 3": (2, ["--parallel.zero=3"]),
}


def mean_loss(model, sequences):
    with torch.no_grad():
        logits = model(sequences[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), sequences[:, 1:].flatten()).item()


class ImportTest(ProgramTest):
    def save(self, family, folder="hf", **options):
        name, own = {**FAMILIES, **SCALINGS, **WINDOWS}[family]
        model = make_model(name, own)
        model.save_pretrained(self.folder / folder, **options)
        return model

    def do_import(self, source="hf", output="imported", *options):
        return self.succeed("checkpoint", "import", source, "--output", output, *options)

    def tensors(self, folder):
        return {name: tensor for file in sorted((self.folder / folder).glob("*.safetensors"))
                for name, tensor in load_file(file).items()}

    def assert_same(self, actual, expected):
        self.assertEqual(set(actual), set(expected))
        for name, tensor in expected.items():
            self.assertEqual(actual[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(actual[name], tensor), name)

    def assert_exports_as(self, expected, run="imported"):
        output = f"{run}-exported"
        self.succeed("checkpoint", "export", run, "--output", output)
        self.assert_same(self.tensors(output), expected)

    def tune(self, run, ranks, *options, init="imported"):
        """Trains a step that changes nothing."""
        config = [f"{init}/config.toml"] if (self.folder / init / "config.toml").exists() else []
        return self.succeed("train", *config, "--ranks", ranks, "--init", init, f"--output.folder={run}", "--data.path=data/tiny", "--train.steps=1",
                            "--train.global_batch=8", "--train.micro_batch=2", "--train.evaluate_interval=1",
                            f"--train.evaluate_sequences={SEQUENCES}", "--optimizer.learning_rate=1e-30", *options)

    def validation_loss(self, run):
        return self.metrics(run)[-1]["validation_loss"]

    def sequences(self):
        tokens = numpy.fromfile(self.folder / "data" / "tiny.validation.bin", dtype=numpy.uint16)
        return torch.stack([torch.tensor(tokens[i * LENGTH:(i + 1) * LENGTH + 1].astype(numpy.int64))
                            for i in range(SEQUENCES)])


class Imports(ImportTest):
    def test_every_family_keeps_its_bits_and_its_loss_at_every_layout(self):
        for family in FAMILIES:
            folder, run = f"{family} hf", f"{family} run"
            model = self.save(family, folder)
            report = json.loads(self.do_import(folder, run, "--json"))
            with self.subTest(family=family):
                self.assertEqual(report["dtype"], "fp32")
                self.assertEqual(report["source"][:2], "a ")
                self.assertEqual(report["parameters"], model.num_parameters())
                if family not in REWRITTEN:
                    self.assert_exports_as(self.tensors(folder), run)
                self.succeed("checkpoint", "verify", run)
            expected = mean_loss(model, self.sequences())
            # Random weights are worse than uniform ones, so the loss depends on all of them.
            self.assertGreater(expected, numpy.log(257) + 0.05)
            for layout, (ranks, options) in LAYOUTS.items():
                with self.subTest(family=family, layout=layout):
                    tuned = f"{family} {layout}"
                    self.tune(tuned, ranks, *options, init=run)
                    self.assertLess(abs(self.validation_loss(tuned) - expected) / expected, TOLERANCE)

    def test_every_scaling_and_window_is_that_of_transformers(self):
        for family, plain_keys in PLAIN.items():
            folder, run = f"{family} hf", f"{family} run"
            model = self.save(family, folder)
            expected = mean_loss(model, self.sequences())
            self.do_import(folder, run, f"--model.sequence_length={LENGTH}")
            for layout, options in (("one", ()), ("context", ("--parallel.context=2",))):
                with self.subTest(family=family, layout=layout):
                    tuned = f"{family} {layout}"
                    self.tune(tuned, 1 if layout == "one" else 2, *options, init=run)
                    self.assertLess(abs(self.validation_loss(tuned) - expected) / expected, TOLERANCE)
            with self.subTest(family=family):
                # As written back, and without it: the loss would show that.
                self.assert_exports_as(self.tensors(folder), run)
                again = transformers.AutoModelForCausalLM.from_pretrained(
                    self.folder / f"{run}-exported", attn_implementation="eager").eval()
                self.assertEqual(mean_loss(again, self.sequences()), expected)
                path = self.folder / f"{run}-exported" / "config.json"
                path.write_text(json.dumps({**json.loads(path.read_text()), **plain_keys}))
                plain = transformers.AutoModelForCausalLM.from_pretrained(
                    self.folder / f"{run}-exported", attn_implementation="eager").eval()
                self.assertGreater(abs(mean_loss(plain, self.sequences()) - expected) / expected, 4 * TOLERANCE)

    def test_the_loss_would_show_a_wrong_key(self):
        for family, key, value in (("llama", "rms_norm_eps", 1e-2), ("qwen3", "rope_parameters", {"rope_theta": 1000.0}),
                                   ("deepseek", "routed_scaling_factor", 1.6), ("mixtral", "num_experts_per_tok", 2),
                                   ("gemma2", "attn_logit_softcapping", None), ("gemma2", "final_logit_softcapping", 5.0),
                                   ("gemma2", "query_pre_attn_scalar", 12),
                                   ("gemma3", "query_pre_attn_scalar", 12),
                                   ("gemma3", "rope_parameters", {"full_attention": {"rope_theta": 500.0}})):
            with self.subTest(family=family, key=key):
                folder, run, tuned = (f"{family} {key} {part}" for part in ("hf", "run", "tuned"))
                expected = mean_loss(self.save(family, folder), self.sequences())
                self.change_config(folder, **{key: value})
                self.do_import(folder, run)
                self.tune(tuned, 1, init=run)
                difference = abs(self.validation_loss(tuned) - expected) / expected
                self.assertGreater(difference, 4 * TOLERANCE)

    def change_config(self, folder, **changes):
        path = self.folder / folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def test_files_in_parts_and_half_precision_are_kept(self):
        model = make_model(*FAMILIES["llama"]).to(torch.bfloat16)
        model.save_pretrained(self.folder / "hf", max_shard_size="20kB")
        self.assertGreater(len(list((self.folder / "hf").glob("*.safetensors"))), 1)
        self.assertIn("bf16", self.do_import())
        self.assert_exports_as(self.tensors("hf"))
        self.do_import("hf", "wide", "--dtype", "fp32")
        self.assert_exports_as({name: tensor.float() for name, tensor in self.tensors("hf").items()}, "wide")

    def test_masters_begin_with_what_the_source_has(self):
        model = self.save("llama")
        self.do_import()
        # The wide weights, not the rounded ones.
        self.tune("half", 1, "--train.precision=bf16")
        self.succeed("checkpoint", "export", "half", "--output", "half-exported", "--dtype", "fp32")
        self.assert_same(self.tensors("half-exported"), self.tensors("hf"))
        loss = self.validation_loss("half")
        self.assertLess(abs(loss - mean_loss(model, self.sequences())), 0.05)
        # And back: masters are nearer to fp32 than a bf16 run's weights.
        self.tune("wide", 2, "--parallel.tensor=2", "--train.precision=fp32", init="half")
        self.assert_exports_as(self.tensors("hf"), "wide")

    def test_older_files_of_gpt2_have_shorter_names_masks_and_the_tied_head(self):
        model = self.save("gpt2")
        plain = self.tensors("hf")
        older = {name.removeprefix("transformer."): tensor.contiguous() for name, tensor in plain.items()}
        for layer in range(2):
            older[f"h.{layer}.attn.bias"] = torch.ones(1, 1, LENGTH, LENGTH)
        older["lm_head.weight"] = model.lm_head.weight.detach().clone()
        save_file(older, self.folder / "hf" / "model.safetensors", metadata={"format": "pt"})
        self.do_import()
        self.assert_exports_as(plain)

    def test_pytorchs_own_files_are_read_too(self):
        model = self.save("tied llama")
        plain = self.tensors("hf")
        (self.folder / "hf" / "model.safetensors").unlink()
        torch.save(model.state_dict(), self.folder / "hf" / "pytorch_model.bin")
        self.do_import("hf", "from pickle")
        torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=self.folder / "dcp", no_dist=True)
        self.do_import("dcp", "from dcp", "--config", "hf/config.json")
        for run in ("from pickle", "from dcp"):
            self.assert_exports_as(plain, run)

    def test_tensors_with_our_names_need_the_keys_of_the_model_or_a_config(self):
        self.succeed("train", "tiny.toml", "--train.steps=1", "--model.family=gpt2", "--model.kv_heads=4")
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        file = next((self.folder / "run" / "checkpoints" / "step-000001").glob("*.safetensors"))
        own = {name: tensor for name, tensor in load_file(file).items() if not name.startswith("optimizer.")}
        self.assertIn("transformer.h.0.attn.q_proj.weight", own)
        save_file(own, self.folder / "own.safetensors")
        self.do_import("own.safetensors", "by config", "--config", "exported/config.json")
        self.do_import("own.safetensors", "by keys", "--model.family=gpt2", "--model.layers=2", "--model.width=32",
                       "--model.heads=4", "--model.ffn_width=64", "--model.sequence_length=32",
                       "--model.vocab_size=257")
        for run in ("by config", "by keys"):
            self.assert_exports_as(self.tensors("exported"), run)
        self.fail_with(2, ["vocab_size is 0", "--config"], "checkpoint", "import", "own.safetensors", "--output", "x")

    def test_a_bpe_tokenizer_goes_into_the_run(self):
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bpe", "--vocab-size", 300,
                     "--validation-fraction", 0, "--output", "data/bpe")
        self.succeed("train", "tiny.toml", "--data.path=data/bpe", "--train.steps=1")
        self.succeed("checkpoint", "export", "run", "--output", "hf")
        self.assertEqual(json.loads(self.do_import("hf", "imported", "--json"))["tokenizer"], "bpe")
        texts = [self.succeed("generate", "--checkpoint", run, "--prompt", "def ", "--tokens", 8, "--temperature", 0)
                 for run in ("run", "imported")]
        self.assertEqual(texts[0], texts[1])
        direct = ["train", "--init", "hf", "--train.global_batch=8", "--train.micro_batch=2", "--train.steps=1"]
        self.succeed(*direct, "--data.path=data/bpe", "--output.folder=same")
        self.fail_with(2, ["another tokenizer than hf/tokenizer.model", "token 0 ", "prepare the data"], *direct,
                       "--data.path=data/tiny", "--output.folder=other")
        (self.folder / "hf" / "tokenizer.model").write_bytes(b"no tokenizer")
        self.assertIn("tokenizer  none: hf/tokenizer.model", self.do_import("hf", "without"))


class Tunes(ImportTest):
    def test_a_resumed_run_has_its_own_weights_and_the_source_stays(self):
        self.save("llama")
        self.do_import()
        before = (self.folder / "imported" / "checkpoints" / "step-000000" / "manifest.json").read_bytes()
        self.assertIn("init    imported/checkpoints/step-000000", self.tune("run", 1))
        more = self.tune("run", 2, "--train.steps=2")
        self.assertIn("init.folder imported is left out", more)
        self.assertEqual([line["step"] for line in self.metrics("run")], [1, 2])
        self.fail_with(2, ["init.folder", "resume.allow"], "train", "imported/config.toml", "--output.folder=run",
                       "--data.path=data/tiny", "--train.steps=3", "--train.global_batch=8")
        self.fail_with(2, ["weights only", "--init=imported"], "train", "imported/config.toml",
                       "--data.path=data/tiny", "--train.global_batch=8", "--train.micro_batch=2")
        manifest = self.folder / "imported" / "checkpoints" / "step-000000" / "manifest.json"
        self.assertEqual(manifest.read_bytes(), before)

    def test_a_trained_run_begins_another_one_at_its_loss(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--parallel.zero=2", "--average.decay=0.9",
                     "--train.evaluate_interval=20", f"--train.evaluate_sequences={SEQUENCES}")
        loss = self.validation_loss("run")
        for layout, (ranks, options) in LAYOUTS.items():
            with self.subTest(layout=layout):
                self.tune(layout, ranks, "--parallel.data=0", "--parallel.shard=0", "--parallel.zero=0", *options,
                          "--optimizer.name=lion", init="run")
                self.assertLess(abs(self.validation_loss(layout) - loss) / loss, TOLERANCE)
                self.assertEqual(self.metrics(layout)[0]["step"], 1)

    def test_patterns_say_what_is_taken_and_what_may_be_missing(self):
        self.save("llama")
        self.do_import()
        self.fail_with(4, ["1 missing: lm_head.weight", "init.missing"],
                       *self.attempt("--init.names=model.*"))
        self.tune("new head", 2, "--parallel.tensor=2", "--init.names=model.*", "--init.missing=lm_head.*")
        self.succeed("checkpoint", "export", "new head", "--output", "new-head-hf")
        new, old = self.tensors("new-head-hf"), self.tensors("hf")
        self.assertFalse(torch.equal(new.pop("lm_head.weight"), old.pop("lm_head.weight")))
        self.assert_same(new, old)
        # A deeper model: its last layer is drawn.
        self.tune("deeper", 1, "--model.layers=3", "--init.missing=model.layers.2.*")
        self.fail_with(4, ["9 missing: model.layers.2."], *self.attempt("--model.layers=3"))
        self.fail_with(4, ["9 unexpected: model.layers.1.", "init.names"], *self.attempt("--model.layers=1"))
        self.fail_with(4, ["with a different dtype or shape", "lm_head.weight"], *self.attempt("--model.vocab_size=300"))
        self.fail_with(2, ["init.names", "without init.folder"], "train", "tiny.toml", "--init.names=a*")
        self.fail_with(4, ["no checkpoint in nowhere"], *self.attempt("--init.folder=nowhere"))

    def attempt(self, *options):
        return ["train", "imported/config.toml", "--init.folder=imported", "--output.folder=attempt",
                "--data.path=data/tiny", "--train.steps=1", "--train.global_batch=8", *options]


class Begins(ImportTest):
    """Runs that begin with a folder of Hugging Face, without an import."""

    def test_a_run_begins_as_with_the_imported_folder(self):
        for family in ("tied llama", "mixtral", "gpt2", "deepseek pairs"):
            self.save(family, f"{family} hf")
            self.do_import(f"{family} hf", f"{family} imported")
            for layout, (ranks, options) in LAYOUTS.items():
                with self.subTest(family=family, layout=layout):
                    runs = [f"{family} {layout} {way}" for way in ("hf", "imported")]
                    for run in runs:
                        text = self.tune(run, ranks, *options, init=f"{family} {run.split()[-1]}")
                    self.assertIn(f"init    {family} imported", text)
                    self.assertEqual(*map(self.curve, runs))
                    self.assertEqual(*map(self.validation_loss, runs))
                    same = json.loads(self.succeed("checkpoint", "diff", *runs, "--json"))
                    self.assertTrue(same["same"])
                    changed = {change["key"] for change in same["state"]}
                    self.assertEqual(changed, {"config.init.folder", "config.output.folder"})

    def test_masters_have_the_precision_of_the_folder(self):
        self.save("llama")
        self.assertIn("init    hf", self.tune("half", 2, "--parallel.zero=1", "--train.precision=bf16", init="hf"))
        self.succeed("checkpoint", "export", "half", "--output", "half-exported", "--dtype", "fp32")
        self.assert_same(self.tensors("half-exported"), self.tensors("hf"))
        make_model(*FAMILIES["llama"]).to(torch.bfloat16).save_pretrained(self.folder / "bf16")
        self.tune("as saved", 1, init="bf16")
        self.succeed("checkpoint", "export", "as saved", "--output", "bf16-exported")
        self.assert_same(self.tensors("bf16-exported"), self.tensors("bf16"))

    def test_keys_that_say_another_model_are_named(self):
        self.save("llama")
        command = ["train", "--init", "hf", "--output.folder=run", "--data.path=data/tiny", "--train.global_batch=8",
                   "--train.micro_batch=2", "--train.steps=1"]
        for options, parts in ((["--model.width=64"], ["model.width is 64", "hidden_size", "hf/config.json", "32"]),
                               (["--model.rope_base=1000"], ["model.rope_base is 1000", "rope_theta", "is 500.0"]),
                               (["--model.layers=3"], ["model.layers is 3", "num_hidden_layers", "2"]),
                               (["--model.tied_embedding=true"], ["model.tied_embedding", "tie_word_embeddings"]),
                               (["--model.family=gpt2", "--model.kv_heads=4"], ["model.family is 'gpt2'", "model_type"]),
                               (["--model.sequence_length=64"], ["model.sequence_length is 64", "max_position_embeddings"])):
            for ranks in (1, 2):
                with self.subTest(options=options, ranks=ranks):
                    self.fail_with(2, parts, *command, *options, "--ranks", ranks)
        # A file of keys says as much as the command line.
        self.fail_with(2, ["model.ffn_width is 64", "intermediate_size", "48"], "train", "tiny.toml", *command[1:])
        self.assertEqual(self.checkpoints(), []) if (self.folder / "run" / "checkpoints").exists() else None
        self.succeed(*command, "--model.sequence_length=16", "--model.dropout=0.1")
        more = self.succeed(*command, "--model.sequence_length=16", "--model.dropout=0.1", "--train.steps=2")
        self.assertIn("init.folder hf is left out", more)

    def test_folders_that_do_not_fit_are_one_line(self):
        self.save("llama")
        command = ["train", "--init", "hf", "--output.folder=run", "--data.path=data/tiny", "--train.global_batch=8",
                   "--train.micro_batch=2", "--train.steps=1"]
        path = self.folder / "hf" / "model.safetensors"
        plain, whole = self.tensors("hf"), path.read_bytes()

        def fail(code, parts, *options):
            for ranks in (1, 2):
                with self.subTest(parts=parts, ranks=ranks):
                    self.fail_with(code, parts, *command, *options, "--ranks", ranks)

        save_file({name: tensor for name, tensor in plain.items() if name != "lm_head.weight"}, path)
        fail(4, ["1 missing: lm_head.weight"])
        save_file(plain | {"extra.weight": torch.ones(1)}, path)
        fail(4, ["1 unexpected: extra.weight"])
        save_file(plain | {"model.norm.weight": plain["model.norm.weight"] / 0}, path)
        fail(4, ["model.norm.weight", "infinite"])
        path.write_bytes(whole[:-4])
        fail(4, ["model.safetensors"])
        path.write_bytes(whole)
        save_file(plain | {"model.norm.weight": plain["model.norm.weight"] * 1e6}, path)
        fail(2, ["model.norm.weight", "Half cannot hold"], "--train.precision=fp16")
        config = self.folder / "hf" / "config.json"
        config.write_text(config.read_text().replace('"llama"', '"mamba"'))
        fail(2, ["hf/config.json", "model_type", "mamba"])


class Refusals(ImportTest):
    def setUp(self):
        super().setUp()
        self.save("llama")
        self.plain = self.tensors("hf")
        self.config = json.loads((self.folder / "hf" / "config.json").read_text())
        self.before = sorted(p.name for p in self.folder.iterdir())

    def refuse(self, code, parts, *options):
        self.fail_with(code, parts, "checkpoint", "import", "hf", "--output", "out", *options)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), self.before)

    def test_a_config_that_is_no_model_here(self):
        path = self.folder / "hf" / "config.json"
        for changes, parts in (({"model_type": "mamba"}, ["model_type", "mamba", "llama"]),
                               ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["rope_scaling.low_freq_factor"]),
                               ({"rope_parameters": {"rope_type": "yarn"}}, ["rope_scaling", "yarn", "no factor"]),
                               ({"hidden_act": "gelu"}, ["hidden_act", "silu"]),
                               ({"mlp_bias": True}, ["mlp_bias", "expected false"]),
                               ({"attention_bias": True}, []),  # tensors that are missing
                               ({"quantization_config": {"quant_method": "fp8"}},
                                ["quantization_config", "not quantised"]),
                               ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
                               ({"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping"]),
                               ({"rms_norm_eps": float("nan")}, ["config.json"]),
                               ({"num_hidden_layers": 2 ** 40}, ["num_hidden_layers", "65536"]),
                               ({"num_hidden_layers": 65536}, []),
                               ({"num_attention_heads": 3}, ["heads"]),
                               ({"hidden_size": None}, ["hidden_size"])):
            with self.subTest(changes=changes):
                path.write_text(json.dumps({**self.config, **changes}))
                self.refuse(4 if not parts else 2, parts)
        path.write_text("{")
        self.refuse(2, ["config.json"])

    def test_tensors_that_do_not_fit(self):
        file = self.folder / "hf" / "model.safetensors"
        norm, head = "model.norm.weight", "lm_head.weight"
        without = {name: tensor for name, tensor in self.plain.items() if name != norm}
        infinite = self.plain[head].clone()
        infinite[3, 4] = float("inf")
        for tensors, parts in ((without, ["1 missing", norm]),
                               ({**self.plain, "model.extra": torch.ones(2)}, ["1 unexpected", "model.extra"]),
                               ({**self.plain, norm: torch.ones(31)}, ["a different shape", norm, "[31]", "[32]"]),
                               ({**self.plain, norm: torch.ones(32, dtype=torch.int64)}, ["dtype", norm]),
                               ({**self.plain, head: infinite}, [head, "1 of the", "infinite"])):
            with self.subTest(parts=parts):
                save_file(tensors, file, metadata={"format": "pt"})
                self.refuse(4, parts)
        save_file({**self.plain, head: 1e6 * self.plain[head]}, file, metadata={"format": "pt"})
        self.refuse(2, [head, "cannot hold"], "--dtype", "fp16")
        file.write_bytes(file.read_bytes()[:1000])
        self.refuse(4, ["model.safetensors"])
        file.unlink()
        self.refuse(4, ["hf"])

    def test_arguments(self):
        self.refuse(2, ["--dtype", "int8"], "--dtype", "int8")
        self.refuse(2, ["model.laiers", "model.layers"], "--model.laiers=2")
        self.refuse(4, ["does not fit", "missing"], "--model.layers=3")
        self.refuse(2, ["missing.json", "does not exist"], "--config", "missing.json")
        self.fail_with(2, ["text", "not empty"], "checkpoint", "import", "hf", "--output", "text")


if __name__ == "__main__":
    unittest.main(verbosity=2)
