"""The models of the comparison on one GPU, and how many operations a token costs."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    layers: int
    width: int
    heads: int
    ffn_width: int
    sequence_length: int
    micro_batch: int  # sequences per step
    steps: int
    vocab_size: int = 32000

    @property
    def tokens_per_step(self):
        return self.micro_batch * self.sequence_length

    @property
    def num_parameters(self):
        return self.layers * (self.block_parameters + 2 * self.width) + (2 * self.vocab_size + 1) * self.width

    @property
    def block_parameters(self):
        return 4 * self.width**2 + 3 * self.width * self.ffn_width

    @property
    def flops_per_token(self):
        """As `mfu` of `trireme train` has it: causal attention counts in full."""
        matmul_parameters = self.layers * self.block_parameters + self.vocab_size * self.width
        return 6 * matmul_parameters + 12 * self.layers * self.sequence_length * self.width

    def keys(self):
        """trireme's."""
        return [f"--model.{key}={getattr(self, key)}"
                for key in ("layers", "width", "heads", "ffn_width", "sequence_length", "vocab_size")
                ] + [f"--model.kv_heads={self.heads}", f"--train.micro_batch={self.micro_batch}",
                     f"--train.global_batch={self.micro_batch}"]


MODELS = {model.name: model for model in (
    Model("953M", layers=16, width=2048, heads=16, ffn_width=5632, sequence_length=2048, micro_batch=8, steps=16),
    Model("134M", layers=12, width=768, heads=12, ffn_width=2048, sequence_length=1024, micro_batch=16, steps=40),
    Model("check", layers=4, width=256, heads=4, ffn_width=640, sequence_length=256, micro_batch=8, steps=8),
)}
