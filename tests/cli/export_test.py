"""Exported checkpoints, read by Hugging Face's transformers: its loss and its text are the program's."""
import json
import os
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import torch.distributed.checkpoint
import transformers
from safetensors.torch import load_file

from program import ProgramTest, piece_bytes

transformers.utils.logging.disable_progress_bar()
TENSOR = ["--parallel.tensor=2"]
LAYOUTS = {
    "one": (1, []),
    "tensor": (2, [*TENSOR, "--parallel.sequence_parallel=true"]),
    "pipeline, zero 1": (4, ["--parallel.pipeline=2", "--parallel.zero=1"]),
    "context, zero 3": (4, ["--parallel.context=2", "--parallel.zero=3"]),
    "tensor of three, pipeline": (6, ["--parallel.tensor=3", "--parallel.pipeline=2"]),
}
# Nothing is transformers' default: a key that it overlooked would show.
LLAMA = ["--model.family=llama", "--model.rope_base=500", "--model.norm_epsilon=1e-4"]
GPT2 = ["--model.family=gpt2", "--model.kv_heads=4", "--model.norm_epsilon=1e-4", "--model.ffn_width=80",
        "--model.dropout=0.1"]
MIXTRAL = ["--model.family=mixtral", "--model.experts=5", "--model.experts_per_token=3", "--model.expert_width=24",
           *LLAMA[1:]]
QWEN3 = [*LLAMA, "--model.qk_norm=true"]
QWEN3_MOE = [*QWEN3, *MIXTRAL[1:4], "--model.router_normalise=false", "--model.layers=3", "--model.dense_layers=1"]
DEEPSEEK = [*LLAMA, "--model.kv_heads=4", "--model.kv_lora_rank=12", "--model.q_lora_rank=20",
            "--model.qk_nope_width=8", "--model.qk_rope_width=4", "--model.v_head_width=10", "--model.experts=8",
            "--model.experts_per_token=3", "--model.expert_width=24", "--model.shared_experts=2",
            "--model.dense_layers=1", "--model.expert_groups=4", "--model.groups_per_token=2",
            "--model.router_score=sigmoid", "--model.router_scale=1.5", "--model.router_bias_rate=1e-3"]
GEMMA2 = ["--model.family=gemma", *LLAMA[1:], "--model.tied_embedding=true", "--model.head_width=12",
          "--model.query_scalar=20", "--model.attention_softcap=0.5", "--model.logits_softcap=2", "--model.window=5",
          "--model.window_layers=wf"]
GEMMA3 = [*GEMMA2[:6], "--model.qk_norm=true", "--model.window=5", "--model.window_layers=wf", "--model.rope_scaling=linear",
          "--model.rope_factor=3", "--model.rope_local_base=50"]
FAMILIES = {"gemma2": GEMMA2, "gemma3": GEMMA3, "llama": LLAMA, "mixtral": MIXTRAL, "qwen3": QWEN3, "qwen3 moe": QWEN3_MOE, "deepseek": DEEPSEEK, "tied llama": [*LLAMA, "--model.tied_embedding=true"], "gpt2": GPT2}
CLASSES = {"gemma2": transformers.Gemma2ForCausalLM, "gemma3": transformers.Gemma3ForCausalLM, "llama": transformers.LlamaForCausalLM, "mixtral": transformers.MixtralForCausalLM,
           "qwen3": transformers.Qwen3ForCausalLM, "qwen3 moe": transformers.Qwen3MoeForCausalLM,
           "deepseek": transformers.DeepseekV3ForCausalLM,
           "tied llama": transformers.LlamaForCausalLM,
           "gpt2": transformers.GPT2LMHeadModel}
SEQUENCES = 8  # of an evaluation
LENGTH = 32
# About 14 products lie one behind the other, each of sums of up to 80 terms whose errors walk at random:
# 14 * sqrt(80) = 125 roundings of the loss. transformers' llama computes norms and angles in fp32 always.
TOLERANCE = {"fp32": 125 * 2 ** -24, "fp64": 125 * 2 ** -53}


def checkpoint_tensors(folder):
    """Every tensor of a checkpoint, put together from its pieces as docs/design/checkpoint-format.md has it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    dtypes = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
    tensors = {}
    for name, record in manifest["tensors"].items():
        dtype = dtypes[record["dtype"]]
        whole = torch.empty(record["shape"], dtype=dtype)
        for piece in record["pieces"]:
            box = tuple(slice(o, o + s) for o, s in zip(piece["offset"], piece["size"], strict=True))
            data = bytearray(piece_bytes(folder, manifest, piece))
            whole[box] = torch.frombuffer(data, dtype=dtype).view(piece["size"])
        tensors[name] = whole
    return tensors


def as_hugging_face(tensors):
    """A checkpoint's parameters under transformers' names."""
    result = {}
    for name, tensor in tensors.items():
        if ".mlp.gate.weight" in name or ".mlp.experts." in name:
            is_mixtral = not any(".q_norm." in other or ".kv_a_" in other for other in tensors)
            result.update(as_mixtral(name, tensor) if is_mixtral else each_expert(name, tensor))
            continue
        is_matrix = tensor.dim() == 2 and name.startswith("transformer.h.")
        if ".k_proj." in name or ".v_proj." in name:
            if name.startswith("transformer."):
                continue
        if name.startswith("transformer.") and ".q_proj." in name:
            tensor = torch.cat([tensors[name.replace("q_proj", part)]
                                for part in ("q_proj", "k_proj", "v_proj")])
            name = name.replace("q_proj", "c_attn")
        result[name] = tensor.T if is_matrix else tensor
    return result


def as_mixtral(name, tensor):
    block, part = name.split(".mlp.")
    if part == "gate.weight":
        return {f"{block}.block_sparse_moe.gate.weight": tensor}
    projection = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[part.removeprefix("experts.")]
    return {f"{block}.block_sparse_moe.experts.{e}.{projection}.weight": tensor[e] for e in range(len(tensor))}


def each_expert(name, tensor):
    if name.endswith("gate.weight"):
        return {name: tensor}
    block, projection = name.split(".mlp.experts.")
    return {f"{block}.mlp.experts.{e}.{projection}.weight": tensor[e] for e in range(len(tensor))}


def mean_loss(model, sequences):
    with torch.no_grad():
        logits = model(sequences[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), sequences[:, 1:].flatten()).item()


class Exports(ProgramTest):
    def train(self, run, ranks, *overrides, steps=10):
        self.succeed("train", "tiny.toml", "--ranks", ranks, f"--train.steps={steps}", f"--output.folder={run}",
                     "--train.evaluate_interval=5", f"--train.evaluate_sequences={SEQUENCES}",
                     "--optimizer.learning_rate=1e-2", *overrides)
        return self.folder / run / "checkpoints" / f"step-{steps:06d}"

    def export(self, run, output, *options):
        return self.succeed("checkpoint", "export", run, "--output", output, *options)

    def load(self, output, model_class, **options):
        model, info = model_class.from_pretrained(self.folder / output, output_loading_info=True, dtype="auto",
                                                  attn_implementation="eager", **options)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(info[kind], kind)
        return model.eval()

    def weights(self, output):
        return {name: tensor for file in sorted((self.folder / output).glob("*.safetensors"))
                for name, tensor in load_file(file).items()}

    def assert_same(self, actual, expected):
        self.assertEqual(set(actual), set(expected))
        for name, tensor in expected.items():
            self.assertEqual(actual[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(actual[name], tensor), name)

    def validation_sequences(self):
        tokens = numpy.fromfile(self.folder / "data" / "tiny.validation.bin", dtype=numpy.uint16)
        return torch.stack([torch.tensor(tokens[i * LENGTH:(i + 1) * LENGTH + 1].astype(numpy.int64))
                            for i in range(SEQUENCES)])

    def relative_difference(self, run, model):
        """Between the last loss that the run printed and that of transformers' model."""
        expected = self.metrics(run)[-1]["validation_loss"]
        return abs(mean_loss(model, self.validation_sequences()) - expected) / expected

    def test_every_layout_gives_transformers_the_loss_of_the_run(self):
        for family, model_options in FAMILIES.items():
            few = family in ("gemma2", "gemma3", "tied llama", "qwen3", "qwen3 moe", "deepseek")
            layouts = ["tensor of three, pipeline", "context, zero 3"] if few else LAYOUTS
            for layout in layouts:
                ranks, overrides = LAYOUTS[layout]
                with self.subTest(family=family, layout=layout):
                    run, output = f"{family} {layout}", f"{family} {layout} exported"
                    checkpoint = self.train(run, ranks, *model_options, *overrides)
                    self.export(run, output)
                    tensors = checkpoint_tensors(checkpoint)
                    parameters = {name: t for name, t in tensors.items() if not name.startswith("optimizer.")}
                    self.assertLess(len(parameters), len(tensors))
                    self.assert_same(self.weights(output), as_hugging_face(parameters))
                    model = self.load(output, CLASSES[family])
                    self.assertEqual(model.dtype, torch.float32)
                    self.assertLess(self.relative_difference(run, model), TOLERANCE["fp32"])

    def test_a_scaling_of_an_own_config_is_written_with_its_lengths(self):
        for scaling in ("llama3", "yarn", "dynamic"):
            with self.subTest(scaling=scaling):
                self.train(scaling, 1, *LLAMA, f"--model.rope_scaling={scaling}", "--model.rope_factor=4")
                self.export(scaling, f"{scaling}-hf")
                model = self.load(f"{scaling}-hf", CLASSES["llama"])
                self.assertLess(self.relative_difference(scaling, model), TOLERANCE["fp32"])

    def test_the_loss_would_show_a_wrong_config(self):
        # Each is well above the tolerance; gelu and gelu_new differ by little, so gpt2 is in fp64.
        wrong = {"mixtral": ("fp32", [{"num_experts_per_tok": 2}]),
                 "qwen3 moe": ("fp32", [{"norm_topk_prob": True}, {"mlp_only_layers": [0], "num_experts_per_tok": 2}]),
                 "deepseek": ("fp32", [{"routed_scaling_factor": 1.0}, {"topk_group": 1}, {"rope_interleave": True}]),
                 "llama": ("fp32", [{"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
                                    {"rms_norm_eps": 1e-5}, {"hidden_act": "gelu"}]),
                 "gpt2": ("fp64", [{"layer_norm_epsilon": 1e-5}, {"activation_function": "gelu"}])}
        for family, (precision, changes) in wrong.items():
            self.train(family, 1, *FAMILIES[family], f"--train.precision={precision}", steps=20)
            self.export(family, f"{family}-hf")
            right = self.load(f"{family}-hf", CLASSES[family])
            self.assertLess(self.relative_difference(family, right), TOLERANCE[precision])
            for change in changes:
                with self.subTest(family=family, change=change):
                    model = self.load(f"{family}-hf", CLASSES[family], **change)
                    self.assertGreater(self.relative_difference(family, model), 4 * TOLERANCE[precision])

    def test_transformers_writes_the_text_that_the_program_writes(self):
        for family in ("llama", "gpt2", "gemma2", "gemma3"):
            with self.subTest(family=family):
                self.train(family, 2, *FAMILIES[family], *TENSOR, steps=30)
                self.export(family, f"{family}-hf")
                model = self.load(f"{family}-hf", transformers.AutoModelForCausalLM)
                prompt = torch.tensor([[256, *b"def "]])
                tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                        max_new_tokens=20)[0]
                text = bytes(token for token in tokens.tolist() if token < 256).decode(errors="backslashreplace")
                self.assertEqual(self.succeed("generate", "--checkpoint", family, "--prompt", "def ", "--tokens", 20,
                                              "--temperature", 0), text + "\n")
                self.assertEqual(model.config.eos_token_id, 256)

    def test_half_precision_comes_as_it_is_or_from_the_masters(self):
        checkpoint = self.train("run", 2, *GPT2, *TENSOR, "--train.precision=bf16")
        tensors = checkpoint_tensors(checkpoint)
        masters = {name.removeprefix("optimizer.master."): tensor for name, tensor in tensors.items()
                   if name.startswith("optimizer.master.")}
        self.export("run", "own")
        self.assert_same(self.weights("own"), as_hugging_face({name: tensors[name] for name in masters}))
        self.assertEqual(self.load("own", transformers.GPT2LMHeadModel).dtype, torch.bfloat16)
        for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
            output = self.export("run", name, "--dtype", name)
            self.assertIn("master weights", output)
            self.assert_same(self.weights(name),
                             as_hugging_face({key: tensor.to(dtype) for key, tensor in masters.items()}))
            self.assertEqual(self.load(name, transformers.GPT2LMHeadModel).dtype, dtype)

    def test_files_below_a_size_are_one_model(self):
        self.train("run", 1, *LLAMA)
        self.export("run", "whole")
        report = json.loads(self.export("run", "parts", "--max-shard-size", "20kB", "--json"))
        names = sorted(p.name for p in (self.folder / "parts").glob("*.safetensors"))
        self.assertEqual(report["files"], names)
        self.assertGreater(len(names), 2)
        self.assertEqual(report["tokenizer"], "bytes")
        self.assertEqual(report["bytes"], sum(t.numel() * 4 for t in self.weights("whole").values()))
        self.assert_same(self.weights("parts"), self.weights("whole"))
        model = self.load("parts", transformers.LlamaForCausalLM)
        self.assertLess(self.relative_difference("run", model), TOLERANCE["fp32"])

    def test_the_form_of_torch_distributed_has_the_same_weights(self):
        self.train("run", 2, *LLAMA)
        self.export("run", "hf")
        report = json.loads(self.export("run", "dcp", "--format", "dcp", "--json"))
        self.assertEqual((report["format"], report["files"]), ("dcp", ["__0_0.distcp", ".metadata"]))
        weights = self.weights("hf")
        loaded = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        torch.distributed.checkpoint.load(loaded, checkpoint_id=self.folder / "dcp", no_dist=True)
        self.assert_same(loaded, weights)
        # The same files of weights, and nothing else.
        report = json.loads(self.export("run", "weights", "--format", "safetensors", "--json"))
        self.assertEqual((report["format"], report["files"]), ("safetensors", ["model.safetensors"]))
        self.assertEqual(sorted(os.listdir(self.folder / "weights")), ["model.safetensors"])
        self.assertEqual((self.folder / "weights/model.safetensors").read_bytes(),
                         (self.folder / "hf/model.safetensors").read_bytes())
        self.fail_with(2, ["--format", "zip", "dcp"], "checkpoint", "export", "run", "--output", "zip", "--format", "zip")

    def test_a_bpe_tokenizer_gives_transformers_the_same_tokens(self):
        (self.folder / "text" / "other.txt").write_text("  Zwölf  Boxkämpfer\n\t日本語 42\t\t\tx, <unk>5000 more</s>.\n")
        self.succeed("data", "prepare", "--input", "text", "--tokenizer", "bpe", "--vocab-size", 320,
                     "--validation-fraction", 0, "--output", "data/bpe")
        documents = [path.read_text() for path in sorted((self.folder / "text").iterdir())]
        tokens = numpy.fromfile(self.folder / "data" / "bpe.bin", dtype=numpy.uint16).tolist()
        for family in ("llama", "gpt2"):
            with self.subTest(family=family):
                self.train(family, 1, *FAMILIES[family], "--data.path=data/bpe", "--train.evaluate_interval=0",
                           steps=2)
                self.export(family, f"{family}-hf")
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / f"{family}-hf")
                model = self.load(f"{family}-hf", CLASSES[family])
                self.assertEqual(len(tokenizer), model.config.vocab_size)
                self.assertEqual(tokenizer.eos_token_id, model.config.eos_token_id)
                encoded = [tokenizer.encode(text) for text in documents]
                self.assertEqual([t for text in encoded for t in (*text, tokenizer.eos_token_id)], tokens)
                self.assertEqual([tokenizer.decode(text) for text in encoded], documents)


class Refusals(ProgramTest):
    def test_what_cannot_be_exported_is_one_line(self):
        self.fail_with(4, ["no checkpoint in run"], "checkpoint", "export", "run", "--output", "out")
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=2", *TENSOR)
        export = ["checkpoint", "export", "run", "--output"]
        self.fail_with(2, ["--dtype", "int8", "bf16"], *export, "out", "--dtype", "int8")
        self.fail_with(2, ["--max-shard-size"], *export, "out", "--max-shard-size", "many")
        self.fail_with(2, ["at least 1"], *export, "out", "--max-shard-size", "0")
        self.fail_with(2, ["text", "not empty", "choose another"], *export, "text")
        self.fail_with(2, ["tiny.toml", "is a file"], *export, "tiny.toml")
        self.assertFalse((self.folder / "out").exists())
        self.succeed(*export, "out")
        self.fail_with(2, ["not empty"], *export, "out")

    def test_a_damaged_checkpoint_leaves_nothing(self):
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=2", *TENSOR)
        before = sorted(p.name for p in self.folder.iterdir())
        file = self.folder / "run" / "checkpoints" / "step-000002" / "rank-001-of-002.safetensors"
        content = file.read_bytes()
        data = 8 + int.from_bytes(content[:8], "little")  # an export reads some of it
        file.write_bytes(content[:data] + bytes(byte ^ 1 for byte in content[data:]))
        self.fail_with(4, ["rank-001-of-002", "digest"], "checkpoint", "export", "run", "--output", "out")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
