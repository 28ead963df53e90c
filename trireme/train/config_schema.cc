#include "trireme/train/config_schema.h"

namespace trireme::train {

std::vector<Field> schema(RunConfig& config) {
  auto& [model, data, train, optimizer, parallel, checkpoint, output] = config;
  return {
      {"model.family", &model.family, "architecture", 0, {"llama", "gpt2"}},
      {"model.layers", &model.layers, "blocks", 1},
      {"model.width", &model.width, "width of the residual stream", 1},
      {"model.heads", &model.heads, "attention heads; divide the width", 1},
      {"model.kv_heads", &model.kv_heads, "key and value heads; divide the heads", 1},
      {"model.ffn_width", &model.ffn_width, "width inside the feed-forward", 1},
      {"model.sequence_length", &model.sequence_length, "tokens a sequence", 1},
      {"model.vocab_size", &model.vocab_size, "0: the tokenizer's", 0},
      {"model.norm_epsilon", &model.norm_epsilon, "added to the variance in norms", 0},
      {"model.rope_base", &model.rope_base, "llama: base of the rotary angles", 1},
      {"model.tied_embedding", &model.tied_embedding,
       "llama: output shares the embedding's weight"},

      {"data.path", &data.path, "prefix that `trireme data prepare --output` wrote"},
      {"data.seed", &data.seed, "order of the sequences"},

      {"train.steps", &train.steps, "optimizer steps of the whole run", 1},
      {"train.global_batch", &train.global_batch, "sequences a step over all ranks", 1},
      {"train.micro_batch", &train.micro_batch, "sequences a forward", 1},
      {"train.precision",
       &train.precision,
       "arithmetic of weights and activations",
       0,
       {"fp64", "fp32", "bf16", "fp16"}},
      {"train.seed", &train.seed, "initial weights"},
      {"train.gradient_clip", &train.gradient_clip, "largest global gradient norm; 0: none", 0},
      {"train.recompute",
       &train.recompute,
       "activations computed again in backward",
       0,
       {"none", "selective", "full"}},
      {"train.reproducible", &train.reproducible, "same bits for every number of data ranks"},
      {"train.evaluate_interval", &train.evaluate_interval, "steps between evaluations; 0: never",
       0},
      {"train.evaluate_sequences", &train.evaluate_sequences, "sequences an evaluation", 1},
      {"train.bucket_bytes", &train.bucket_bytes, "size of a gradient bucket", 1},
      {"train.overlap", &train.overlap, "reduce gradients behind backward"},
      {"train.symmetric_memory", &train.symmetric_memory,
       "gradients in shared memory; false where /dev/shm is too small for them"},

      {"optimizer.name", &optimizer.name, "optimizer", 0, {"adamw"}},
      {"optimizer.learning_rate", &optimizer.learning_rate, "peak of the schedule", 0},
      {"optimizer.warmup_steps", &optimizer.warmup_steps, "linear rise from 0", 0},
      {"optimizer.schedule",
       &optimizer.schedule,
       "after the warm-up",
       0,
       {"constant", "linear", "cosine", "warmup-stable-decay"}},
      {"optimizer.minimum_learning_rate", &optimizer.minimum_learning_rate, "end of the schedule",
       0},
      {"optimizer.decay_fraction", &optimizer.decay_fraction,
       "warmup-stable-decay: share of the steps that decay", 0},
      {"optimizer.weight_decay", &optimizer.weight_decay, "of matrices; norms and biases have none",
       0},
      {"optimizer.beta1", &optimizer.beta1, "decay of the first moment", 0},
      {"optimizer.beta2", &optimizer.beta2, "decay of the second moment", 0},
      {"optimizer.epsilon", &optimizer.epsilon, "added to the denominator", 0},

      {"parallel.data", &parallel.data, "data-parallel ranks; 0: what is left", 0},
      {"parallel.zero", &parallel.zero, "0 DDP, 1, 2, 3: what is sharded over the data ranks", 0},
      {"parallel.tensor", &parallel.tensor, "tensor-parallel ranks", 1},
      {"parallel.pipeline", &parallel.pipeline, "pipeline stages", 1},
      {"parallel.schedule",
       &parallel.schedule,
       "pipeline schedule",
       0,
       {"gpipe", "1f1b", "interleaved", "zero-bubble"}},
      {"parallel.context", &parallel.context, "context-parallel ranks", 1},
      {"parallel.expert", &parallel.expert, "expert-parallel ranks", 1},
      {"parallel.transport", &parallel.transport, "how ranks of one host talk", 0, {"auto", "shm"}},

      {"checkpoint.interval", &checkpoint.interval, "steps; 0: only at the end", 0},
      {"checkpoint.keep", &checkpoint.keep, "newest checkpoints that stay", 1},

      {"output.folder", &output.folder, "metrics, events and checkpoints of the run"},
  };
}

}  // namespace trireme::train
