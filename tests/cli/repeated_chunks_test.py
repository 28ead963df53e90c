"""Tensors that are larger than all files of their checkpoint, as one chunk is listed again and again: never in memory whole."""
import json
import os
import unittest

from program import ProgramTest, checksum

DONE, DIFFERS, CHECKPOINT = 0, 1, 4
TIMES = 12000
# Beyond what a command takes for the same run as it was saved: 16 MiB of a tensor on each side of a diff, and up to as
# much of a conversion; the manifest as JSON and as chunks, about 500 bytes each.
ALLOWED = 4 * (16 << 20) + 2 * 500 * TIMES
EMBEDDING = "model.embed_tokens.weight"


class RepeatedChunks(ProgramTest):
    def setUp(self):
        super().setUp()
        self.small = self.save("small", "--model.tied_embedding=true")
        self.large = self.save("large", "--model.tied_embedding=true")
        self.tensor_bytes = self.repeat(self.large)
        self.assertGreater(self.tensor_bytes, 4 * ALLOWED)
        self.assertLess(sum(path.stat().st_size for path in self.large.iterdir()), 16 << 20)

    def save(self, run, *options):
        self.succeed("train", "tiny.toml", "--train.steps=1", f"--output.folder={run}", *options)
        return self.folder / run / "checkpoints/step-000001"

    def repeat(self, folder, config=True):
        """Makes the embedding TIMES as long, and the model's vocabulary with it; its bytes."""
        manifest = json.loads((folder / "manifest.json").read_text())
        record = manifest["tensors"][EMBEDDING]
        piece, = record["pieces"]
        chunk, = piece["chunks"]
        rows = record["shape"][0]
        record["shape"][0] = piece["size"][0] = rows * TIMES
        piece["chunks"] = [chunk] * TIMES
        if config:
            before = manifest["state"]["config"]
            self.assertIn(f"vocab_size = {rows}\n", before)
            manifest["state"]["config"] = before.replace(f"vocab_size = {rows}\n", f"vocab_size = {rows * TIMES}\n")
        del manifest["checksum"]
        body = json.dumps(manifest, indent=1)[2:].encode() + b"\n"
        (folder / "manifest.json").write_bytes(b'{"checksum": "' + checksum(body).encode() + b'",\n' + body)
        return rows * TIMES * record["shape"][1] * 4

    def peak(self, code, *arguments):
        """The most memory that a command took, in bytes."""
        process = self.start(*arguments)
        with process.stdout, process.stderr:
            told = process.stdout.read() + process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, code, told)
        print(f"{arguments[1]}: {usage.ru_maxrss >> 10} MiB", flush=True)
        return usage.ru_maxrss << 10

    def test_diff_goes_through_them(self):
        usual = self.peak(DONE, "checkpoint", "diff", self.small, self.small)
        self.assertLess(self.peak(DONE, "checkpoint", "diff", self.large, self.large), usual + ALLOWED)
        other = self.save("other", "--model.tied_embedding=true", "--train.seed=7")
        self.repeat(other)
        for options in ([], ["--tolerance=1e-3"]):
            self.assertLess(self.peak(DIFFERS, "checkpoint", "diff", self.large, other, *options), usual + ALLOWED)

    def test_export_writes_them_in_parts(self):
        for form in ("safetensors", "dcp"):
            with self.subTest(form=form):
                export = ["checkpoint", "export", "--format", form]
                usual = self.peak(DONE, *export, self.small, "--output", f"small-{form}")
                allowed = usual + ALLOWED + (256 << 20 if form == "dcp" else 0)  # a chunk of DCP
                self.assertLess(self.peak(DONE, *export, self.large, "--output", f"large-{form}"), allowed)
                size = sum(path.stat().st_size for path in (self.folder / f"large-{form}").iterdir())
                self.assertGreater(size, self.tensor_bytes)

    def test_those_that_the_model_does_not_have_are_not_read(self):
        odd = self.save("odd", "--model.tied_embedding=true")
        self.repeat(odd, config=False)
        export = ["checkpoint", "export", odd, "--output", "out"]
        usual = self.peak(DONE, "checkpoint", "export", self.small, "--output", "small-out")
        self.assertLess(self.peak(CHECKPOINT, *export), usual + ALLOWED)
        self.fail_with(CHECKPOINT, ["step-000001", f'"{EMBEDDING}" has the shape'], *export)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
