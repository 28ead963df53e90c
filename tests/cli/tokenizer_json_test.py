"""Tokenizers of Hugging Face's tokenizer.json: every token is that of the package `tokenizers`."""
import json
import os
import pathlib
import random
import shutil
import sysconfig
import unicodedata
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import

import numpy
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from program import ProgramTest

END = "<|endoftext|>"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
MISTRAL = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]
CHAT = ["<|im_start|>", "<|im_end|>"]
ADDED = [AddedToken("<|x|>", lstrip=True, rstrip=True), AddedToken("<tool>", normalized=True),
         AddedToken("<mask>", lstrip=True, special=True), AddedToken("zword", single_word=True),
         AddedToken("A\u030ax", normalized=True)]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def cut_by(*patterns):
    return [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


def pre_tokenizer(*steps):
    return pre_tokenizers.Sequence([*steps, byte_level(use_regex=False)])


KINDS = {
    "gpt2": {"pre_tokenizer": byte_level()},
    "prefix space": {"pre_tokenizer": byte_level(add_prefix_space=True), "added": ADDED[:1]},
    "llama3": {"pre_tokenizer": pre_tokenizer(*cut_by(LLAMA3)), "ignore_merges": True},
    "qwen2": {"pre_tokenizer": pre_tokenizer(*cut_by(QWEN2)), "normalizer": normalizers.NFC(), "added": ADDED},
    "mistral": {"pre_tokenizer": pre_tokenizer(*cut_by(MISTRAL)), "ignore_merges": True, "added": ADDED[:4]},
    "deepseek": {"pre_tokenizer": pre_tokenizers.Sequence(
        [*cut_by(*DEEPSEEK), pre_tokenizers.Digits(individual_digits=True), byte_level()])},
    "digits": {"pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), byte_level()])},
}


def make_tokenizer(texts, pre_tokenizer, normalizer=None, ignore_merges=False, added=()):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{CHAT[0]} $A", special_tokens=[(CHAT[0], 1)])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=1500, special_tokens=[END, *CHAT], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.add_tokens(list(added))
    return tokenizer


def known_characters():
    """All that Unicode 14 has assigned. `tokenizers` composes by the tables of Unicode 9, so newer marks are left out."""
    compose = normalizers.NFC().normalize_str
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    characters = [c for c in characters if unicodedata.category(c) not in ("Cn", "Co")]
    return [c for c in characters if unicodedata.combining(c) == 0 and len(unicodedata.normalize("NFD", c)) == 1
            or all(compose(t) == unicodedata.normalize("NFC", t) for t in (c, c + "\u0323", "\u0301" + c, "a" + c))]


def hard_texts():
    characters = known_characters()
    by_category = {}
    for character in characters:
        by_category.setdefault(unicodedata.category(character), []).append(character)
    texts = [between.join(characters) for between in ("", " ", "a", "1", "'", "\n", " x")]
    texts += [" ".join(some) + "\u0301".join(some) for some in by_category.values()]
    # Runs that a pattern takes at once and gives back, and that merge into each other.
    texts += [(part * 10**6)[:50_000] for part in (" ", "a", "1", "\u0301", "漢", "!", "\t", "\r\n", "A", " a", "' ")]
    texts += [" " * 10**6 + "a", "x" + " " * 10**6 + "\n", "a" + "\u0301\u0323" * 50_000]
    parts = ["'s", "'T", "'ſ", "'Re", " 'll", "\r\n", "\n\n", " \n", "\t", "  ", "   ", "\u00a0", "\u3000", "\u180e", "\u200b",
             "\u200d", "\ufeff", "\u2028", "\u0085", "e\u0301", "A\u030a\u0323", "A\u030ax", "\u00c5x", "\u1100\u1161\u11a8", "가",
             "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "123", "1234567890", "½", "Ⅷ", "٣٤", "漢字", "かな", "か\u3099", "ไทย", "हिन्दी", "Straße",
             *CHAT, "<|x|>", "<tool>", "<mask>", "zword", "azword", "the", " def", "self.", "/", "!!", "...", "©", "_", "-",
             "\x00", "\x1b", "İ", "ﬁ", "\u0344", "\u0958", "\u2126", "=====", "ab", "AB", "aB", "é", "<|endoftext", "|>"]
    generator = random.Random(7)
    categories = list(by_category.values())
    for _ in range(600):
        text = ""
        for _ in range(generator.randrange(1, 60)):
            one = generator.choice(generator.choice(categories)) * generator.choice([1, 1, 1, 2, 5])
            text += generator.choice(parts) if generator.random() < 0.7 else one
        texts.append(text)
    return [text for text in texts if END not in text]


def without_newer(texts):
    """Without the characters to which `tokenizers`, with the categories of Unicode 8, gives others than Unicode 14."""
    cuts = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    clean = normalizers.BertNormalizer(True, False, False, False).normalize_str
    strip = normalizers.BertNormalizer(False, False, True, False).normalize_str

    def is_newer(c):
        category = unicodedata.category(c)
        plain = "".join(part for part in unicodedata.normalize("NFD", c) if unicodedata.category(part) != "Mn")
        return ((len(cuts(f"a{c}a")) == 3) != category.startswith("P") or strip(c) != plain or
                category == "Cf" and clean(c) != "")

    newer = {c for c in set("".join(texts)) if ord(c) > 0x7f and is_newer(c)}
    return [text.translate(dict.fromkeys(map(ord, newer))) for text in texts]


class JsonTokenizers(ProgramTest):
    @classmethod
    def setUpClass(cls):
        library = pathlib.Path(sysconfig.get_paths()["stdlib"])
        code = [path.read_bytes() for path in sorted([*library.glob("*.py"), *library.glob("asyncio/*.py")])][::3]
        cls.code = [text.decode() for text in code if text and END.encode() not in text]
        cls.texts = [*cls.code, *hard_texts()]

    def make(self, name, **options):
        """A tokenizer of few texts, and its file."""
        tokenizer = make_tokenizer([*self.code[::6], *(text[:1000] for text in self.texts[-300:])], **options)
        tokenizer.save(str(self.folder / name))
        return tokenizer

    def write(self, texts):
        folder = self.folder / "documents"
        folder.mkdir()
        for number, text in enumerate(texts):
            (folder / f"{number:06d}").write_bytes(text if isinstance(text, bytes) else text.encode())

    def prepare_data(self, model, output, *options):
        return self.succeed("data", "prepare", "--input", "documents", "--tokenizer", "json", "--tokenizer-model", model,
                            "--validation-fraction", 0, "--output", output, *options)

    def documents(self, output):
        tokens = numpy.fromfile(self.folder / f"{output}.bin", dtype=numpy.uint16)
        index = (self.folder / f"{output}.idx").read_bytes()
        lengths = numpy.frombuffer(index, numpy.int32, int.from_bytes(index[18:26], "little"), 34)
        return [part.tolist() for part in numpy.split(tokens, numpy.cumsum(lengths)[:-1])]

    def test_every_token_is_that_of_tokenizers(self):
        self.write(self.texts)
        for kind, options in KINDS.items():
            with self.subTest(kind=kind):
                tokenizer = self.make("tokenizer.json", **options)
                self.prepare_data("tokenizer.json", "data/json")
                documents = self.documents("data/json")
                self.assertEqual(len(documents), len(self.texts))
                end = tokenizer.token_to_id(END)
                for text, tokens in zip(self.texts, documents):
                    expected = tokenizer.encode(text, add_special_tokens=False).ids
                    if tokens != [*expected, end]:
                        first = next((i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b), len(expected))
                        around = slice(max(0, first - 3), first + 4)
                        self.fail(f"{text[:40]!r}, token {first}: {[tokenizer.id_to_token(t) for t in tokens[around]]}, "
                                  f"expected {[tokenizer.id_to_token(t) for t in expected[around]]}")

    def test_every_token_of_word_piece_is_that_of_tokenizers(self):
        texts = without_newer([*self.code[:20], *self.texts[len(self.code):len(self.code) + 2], *self.texts[-400:]])
        self.write(texts)
        kinds = {"uncased": {}, "cased": {"lowercase": False}, "as they are": {
            "clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}}
        for kind, options in kinds.items():
            with self.subTest(kind=kind):
                tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
                tokenizer.normalizer = normalizers.BertNormalizer(**options)
                tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
                tokenizer.decoder = decoders.WordPiece()
                tokenizer.train_from_iterator(self.code[::6], trainers.WordPieceTrainer(
                    vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
                tokenizer.add_tokens([AddedToken("<Tool>", normalized=True), AddedToken("zword", single_word=True)])
                tokenizer.save(str(self.folder / "tokenizer.json"))
                report = json.loads(self.prepare_data("tokenizer.json", "data/json", "--json"))
                unknown, end = tokenizer.token_to_id("[UNK]"), tokenizer.token_to_id("[SEP]")
                count = 0
                for text, tokens in zip(texts, self.documents("data/json"), strict=True):
                    expected = tokenizer.encode(text, add_special_tokens=False).ids
                    count += expected.count(unknown)
                    if tokens != [*expected, end]:
                        first = next((i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b), len(expected))
                        around = slice(max(0, first - 3), first + 4)
                        self.fail(f"{text[:40]!r}, token {first}: {[tokenizer.id_to_token(t) for t in tokens[around]]}, "
                                  f"expected {[tokenizer.id_to_token(t) for t in expected[around]]}")
                self.assertGreater(count, 0)
                self.assertEqual(report["unknown_tokens"], count)

    def test_merges_in_both_forms_are_the_same(self):
        self.write(self.code[:20])
        self.make("pairs.json", **KINDS["gpt2"])
        content = json.loads((self.folder / "pairs.json").read_text())
        self.assertIsInstance(content["model"]["merges"][0], list)
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        (self.folder / "texts.json").write_text(json.dumps(content))
        for name in ("pairs", "texts"):
            self.prepare_data(f"{name}.json", f"data/{name}")
        self.assertEqual((self.folder / "data/pairs.bin").read_bytes(), (self.folder / "data/texts.bin").read_bytes())

    def test_a_run_generates_and_exports_with_the_tokenizer_of_its_data(self):
        self.write(self.code[:30])
        tokenizer = self.make("tokenizer.json", **KINDS["llama3"])
        self.prepare_data("tokenizer.json", "data/json", "--end-of-document", CHAT[1])
        end = tokenizer.token_to_id(CHAT[1])
        self.assertEqual([text[-1] for text in self.documents("data/json")], [end] * 30)
        self.succeed("train", "tiny.toml", "--ranks", 2, "--train.steps=2", "--data.path=data/json")
        self.assertEqual((self.folder / "run/tokenizer.tokenizer.model").read_bytes(),
                         (self.folder / "tokenizer.json").read_bytes())
        self.succeed("generate", "--checkpoint", "run", "--prompt", "def ", "--tokens", 5)
        self.succeed("checkpoint", "export", "run", "--output", "exported")
        loaded = transformers.AutoTokenizer.from_pretrained(self.folder / "exported")
        self.assertEqual(loaded.eos_token_id, end)
        self.assertEqual(json.loads((self.folder / "exported/config.json").read_text())["eos_token_id"], end)
        for text, tokens in zip(self.code, self.documents("data/json")):
            encoded = loaded.encode(text, add_special_tokens=False)
            self.assertEqual([*encoded, end], tokens)
            self.assertEqual(loaded.decode(encoded), text)

    def test_the_end_of_a_turn_is_a_token_in_text_even_if_it_ends_documents(self):
        turns = [f"{CHAT[0]}user\nhello{CHAT[1]}\n{CHAT[0]}assistant\nself{CHAT[1]}\n", self.code[0]]
        self.write(turns)
        tokenizer = self.make("tokenizer.json", **KINDS["qwen2"])
        for end in (END, CHAT[1]):
            self.prepare_data("tokenizer.json", "data/json", "--end-of-document", end)
            for text, tokens in zip(turns, self.documents("data/json"), strict=True):
                expected = tokenizer.encode(text, add_special_tokens=False).ids
                self.assertEqual(tokens, [*expected, tokenizer.token_to_id(end)])
        self.assertEqual(self.documents("data/json")[0].count(tokenizer.token_to_id(CHAT[1])), 3)

    def make_chat_model(self, folder):
        """A model that ends a turn with its second end-of-sequence token, and its folder as a publisher has it."""
        tokenizer = self.make("tokenizer.json", **KINDS["qwen2"])
        path = self.folder / folder
        end, turn = tokenizer.token_to_id(END), tokenizer.token_to_id(CHAT[1])
        torch.manual_seed(1)
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=end,
            eos_token_id=turn, pad_token_id=end, attention_dropout=0.1, initializer_range=0.03)).eval()
        model.generation_config = transformers.GenerationConfig(
            bos_token_id=end, eos_token_id=[turn, end], pad_token_id=end, do_sample=True, top_k=20, temperature=0.7)
        model.save_pretrained(path)
        shutil.copy(self.folder / "tokenizer.json", path)
        (path / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": CHAT[1], "pad_token": END, "model_max_length": 64}))
        (path / "chat_template.jinja").write_text(
            "{% for m in messages %}" + CHAT[0] + "{{ m.role }}\n{{ m.content }}" + CHAT[1] + "\n{% endfor %}")
        return model, turn

    def test_what_came_with_a_chat_model_goes_out_with_it(self):
        model, turn = self.make_chat_model("hf")
        beside = {path.name: path.read_bytes() for path in (self.folder / "hf").iterdir()
                  if path.name not in ("config.json", "model.safetensors")}
        self.assertEqual(set(beside), {"chat_template.jinja", "generation_config.json", "tokenizer.json",
                                       "tokenizer_config.json"})
        self.write(self.code[:30])
        self.prepare_data("hf/tokenizer.json", "data/json")
        data = ["--data.path=data/json", "--train.global_batch=2", "--train.micro_batch=1", "--train.steps=1"]
        self.succeed("checkpoint", "import", "hf", "--output", "imported")
        self.succeed("train", "imported/config.toml", "--init", "imported", "--output.folder=tuned", *data)
        self.succeed("train", "--ranks", 2, "--init", "tuned/checkpoints/step-000001", "--output.folder=again",
                     "--model.attention_bias=true", "--model.layers=2", "--model.width=32", "--model.heads=4",
                     "--model.kv_heads=2", "--model.ffn_width=48", "--model.sequence_length=64", *data)
        self.succeed("train", "--init", "hf", "--output.folder=direct", *data)
        self.succeed("checkpoint", "reshard", "direct", "--output", "resharded", "--ranks", 2)
        whole = json.loads((self.folder / "hf" / "config.json").read_text())
        for run in ("imported", "tuned", "again", "direct", "resharded"):
            with self.subTest(run=run):
                report = json.loads(self.succeed("checkpoint", "export", run, "--output", f"{run}-hf", "--json"))
                self.assertEqual(set(report["imported_files"]), set(beside))
                for name, content in beside.items():
                    self.assertEqual((self.folder / f"{run}-hf" / name).read_bytes(), content, name)
                config = json.loads((self.folder / f"{run}-hf" / "config.json").read_text())
                for key in ("bos_token_id", "eos_token_id", "pad_token_id", "attention_dropout", "initializer_range"):
                    self.assertEqual(config[key], whole[key], key)
                loaded = transformers.AutoModelForCausalLM.from_pretrained(self.folder / f"{run}-hf")
                self.assertEqual(loaded.generation_config.eos_token_id, model.generation_config.eos_token_id)
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / f"{run}-hf")
                self.assertEqual(tokenizer.eos_token_id, turn)
                self.assertIn(f"user\nhi{CHAT[1]}", tokenizer.apply_chat_template([{"role": "user", "content": "hi"}],
                                                                                 tokenize=False))

    def test_generate_stops_at_the_end_of_a_turn(self):
        model, turn = self.make_chat_model("hf")
        with torch.no_grad():
            model.lm_head.weight.zero_()
            model.lm_head.weight[turn] = 1
            model.model.norm.weight.zero_()
            model.model.embed_tokens.weight.fill_(0.1)
        model.model.norm.weight.data.fill_(1.0)
        model.save_pretrained(self.folder / "hf")
        tokens = torch.tensor([[0, 5]])
        with torch.no_grad():
            self.assertEqual(model(tokens).logits[0, -1].argmax().item(), turn)
        self.succeed("checkpoint", "import", "hf", "--output", "imported")
        text = self.succeed("generate", "--checkpoint", "imported", "--prompt", "def ", "--tokens", 5, "--temperature", 0)
        self.assertEqual(text, "def \n")

    def test_another_tokenizer_does_not_get_them(self):
        self.make_chat_model("hf")
        self.succeed("checkpoint", "import", "hf", "--output", "imported")
        self.succeed("train", "imported/config.toml", "--init", "imported", "--output.folder=tuned",
                     "--data.path=data/tiny", "--train.global_batch=2", "--train.micro_batch=1", "--train.steps=1")
        self.assertIn("note       the run has another tokenizer",
                      self.succeed("checkpoint", "export", "tuned", "--output", "out"))
        self.assertFalse((self.folder / "out" / "chat_template.jinja").exists())
        self.assertEqual(json.loads((self.folder / "out" / "config.json").read_text())["eos_token_id"], 256)

    def test_an_imported_model_has_the_tokenizer_beside_it(self):
        tokenizer = self.make("tokenizer.json", **KINDS["llama3"])
        size = tokenizer.get_vocab_size()
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2)).eval()
        # Only words of ASCII are ever chosen, so that each token is text.
        words = [tokenizer.id_to_token(i).isascii() and tokenizer.id_to_token(i).isalnum() for i in range(size)]
        with torch.no_grad():
            model.lm_head.weight[~torch.tensor(words)] = 0
        model.save_pretrained(self.folder / "hf")
        shutil.copy(self.folder / "tokenizer.json", self.folder / "hf")

        report = json.loads(self.succeed("checkpoint", "import", "hf", "--output", "imported", "--json"))
        self.assertEqual((report["tokenizer"], report["tokenizer_problem"]), ("json", ""))
        kept = self.folder / "imported" / "tokenizer.tokenizer.model"
        self.assertEqual(kept.read_bytes(), (self.folder / "tokenizer.json").read_bytes())
        self.write(self.texts)
        self.prepare_data(kept, "data/json")
        end = tokenizer.token_to_id(END)
        for text, tokens in zip(self.texts, self.documents("data/json"), strict=True):
            self.assertEqual(tokens, [*tokenizer.encode(text, add_special_tokens=False).ids, end])

        prompt = "def main(self):"
        tokens = [end, *tokenizer.encode(prompt, add_special_tokens=False).ids]
        with torch.no_grad():
            for _ in range(12):
                tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
        text = self.succeed("generate", "--checkpoint", "imported", "--prompt", prompt, "--tokens", 12, "--temperature", 0)
        self.assertEqual(text, prompt + tokenizer.decode(tokens[-12:]) + "\n")

        small = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=size - 1, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4))
        small.save_pretrained(self.folder / "hf")
        report = json.loads(self.succeed("checkpoint", "import", "hf", "--output", "smaller", "--json"))
        self.assertEqual(report["tokenizer"], "")
        self.assertIn(f"it has {size} tokens and the model {size - 1}", report["tokenizer_problem"])

    def test_what_cannot_be_read_is_one_line(self):
        self.write(["text"])
        tokenizer = self.make("tokenizer.json", **KINDS["gpt2"])
        whole = json.loads((self.folder / "tokenizer.json").read_text())
        prepare = ["data", "prepare", "--input", "documents", "--output", "data/json", "--tokenizer"]
        self.fail_with(2, ["--tokenizer-model"], *prepare, "json")
        self.fail_with(2, ["--end-of-document"], *prepare, "bytes", "--end-of-document", END)
        json_prepare = [*prepare, "json", "--tokenizer-model"]
        self.fail_with(2, ["missing.json"], *json_prepare, "missing.json")
        self.fail_with(2, ["<|no|>", "--end-of-document"], *json_prepare, "tokenizer.json", "--end-of-document", "<|no|>")

        def fail_with_change(parts, change):
            content = json.loads(json.dumps(whole))
            change(content)
            (self.folder / "changed.json").write_text(json.dumps(content))
            self.fail_with(2, ["tokenizer.json", *parts], *json_prepare, "changed.json")

        def set_pattern(pattern):
            step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            return lambda c: c.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [step, whole["pre_tokenizer"]]})

        fail_with_change(["--end-of-document"], lambda c: c.update(added_tokens=c["added_tokens"][1:]))
        fail_with_change(["--tokenizer bpe"], lambda c: c.update(normalizer={"type": "Prepend", "prepend": "▁"}))
        fail_with_change(["Unigram", "BPE"], lambda c: c["model"].update(type="Unigram"))
        fail_with_change(["a\\u0301b"], lambda c: c["model"]["merges"].append("a\u0301b c"))
        fail_with_change(["not a regular expression"], set_pattern("(a"))
        fail_with_change(["does not support"], set_pattern(r"\bword"))
        (self.folder / "documents" / "000000").write_text("a" * 5000 + "!")
        fail_with_change(["takes too long"], set_pattern(r"(?:a|aa)+[bc]"))
        self.assertEqual(tokenizer.token_to_id(END), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
