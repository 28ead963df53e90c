#include "trireme/train/config/config_schema.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/train/numerics/loss_scale.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train {
namespace {

// Ranges end where nothing sensible is left and every product of counts still fits 64 bits:
// steps * global_batch, the product of the axes, the parameters of the largest model
// (config_test counts them).
constexpr int64_t kMaxSteps = 100'000'000'000;
constexpr int64_t kMaxBatch = 10'000'000;
constexpr int64_t kMaxRanks = 1 << 15;
constexpr int64_t kMaxLayers = 1 << 16;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxFfnWidth = 1 << 22;
constexpr int64_t kMaxSequence = 1 << 24;
constexpr int64_t kMaxVocabulary = 1 << 26;
constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();  // TOML has no more
constexpr int64_t kMaxBuffer = int64_t{1} << 40;
constexpr int64_t kMaxMemory = int64_t{1} << 50;
constexpr int64_t kMaxSeconds = 365 * 24 * 3600;
constexpr double kMaxRate = 1e30;  // no size: a rate too large diverges, and the run says so
constexpr Range kDecay{.minimum = 0, .maximum = 1, .below_maximum = true};

std::string to_text(long double bound) {
  const auto whole = static_cast<int64_t>(bound);
  if (static_cast<long double>(whole) == bound) return std::to_string(whole);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<double>(bound));
  return {digits, end.ptr};
}

}  // namespace

bool Range::contains(long double value) const {
  return (above_minimum ? value > minimum : value >= minimum) &&
         (below_maximum ? value < maximum : value <= maximum);
}

std::string to_text(const Range& range) {
  return concat(range.above_minimum ? "above " : "at least ", to_text(range.minimum), " and ",
                range.below_maximum ? "below " : "at most ", to_text(range.maximum));
}

namespace {

// Besides all of [model].
constexpr std::string_view kMustStay[] = {
    "data.path",
    "data.seed",
    "data.separate_documents",
    "train.precision",
    "train.seed",
    "train.master_weights",
    "optimizer.name",
    "optimizer.adamw_parameters",
};

constexpr std::string_view kMayChange[] = {
    "train.steps",
    "train.global_batch",
    "train.micro_batch",
    "train.gradient_clip",
    "train.stochastic_rounding",
    "train.reduce_dtype",
    "train.loss_scale",
    "train.loss_scale_interval",
    "train.recompute",
    "train.recompute_modules",
    "train.reproducible",
    "train.uneven_batches",
    "train.measure_noise",
    "train.skip_bad_steps",
    "train.spike_factor",
    "train.check_replicas_interval",
    "train.evaluate_interval",
    "train.evaluate_sequences",
    "train.bucket_bytes",
    "train.overlap",
    "train.symmetric_memory",
    "train.compression",
    "train.compression_rank",
    "train.compression_ratio",
    "train.compression_warmup",
    "optimizer.learning_rate",
    "optimizer.warmup_steps",
    "optimizer.schedule",
    "optimizer.minimum_learning_rate",
    "optimizer.decay_fraction",
    "optimizer.weight_decay",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.epsilon",
    "optimizer.momentum",
    "optimizer.nesterov",
    "optimizer.groups",
    "optimizer.batch_scaling",
    "optimizer.base_batch",
    "parallel.data",
    "parallel.zero",
    "parallel.shard",
    "parallel.gathered_units",
    "parallel.tensor",
    "parallel.sequence_parallel",
    "parallel.async_tensor",
    "parallel.pipeline",
    "parallel.schedule",
    "parallel.stages_per_rank",
    "parallel.stage_layers",
    "parallel.stage_memory",
    "parallel.rebalance_interval",
    "parallel.rebalance_threshold",
    "parallel.context",
    "parallel.context_form",
    "parallel.expert",
    "parallel.transport",
    "parallel.timeout_seconds",
    "parallel.heap_bytes",
    "offload.optimizer",
    "offload.folder",
    "offload.buffer_bytes",
    "checkpoint.interval",
    "checkpoint.keep",
    "output.folder",
};

OnResume on_resume(std::string_view key) {
  if (key == "resume.allow") return OnResume::kNotKept;
  if (std::ranges::count(kMayChange, key) > 0) return OnResume::kMayChange;
  TRIREME_ASSERT(key.starts_with("model.") || std::ranges::count(kMustStay, key) > 0, key,
                 " is in no list that says whether a resumed run may change it");
  return OnResume::kMustStay;
}

std::vector<Field> all_fields(RunConfig& config) {
  auto& [model, data, train, optimizer, parallel, offload, checkpoint, output, resume] = config;
  return {
      {"model.family", &model.family, "architecture", {}, {"llama", "gpt2"}},
      {"model.layers", &model.layers, "blocks", {1, kMaxLayers}},
      {"model.width", &model.width, "width of the residual stream", {1, kMaxWidth}},
      {"model.heads", &model.heads, "attention heads; divide the width", {1, kMaxWidth}},
      {"model.kv_heads", &model.kv_heads, "key and value heads; divide the heads", {1, kMaxWidth}},
      {"model.ffn_width", &model.ffn_width, "width inside the feed-forward", {1, kMaxFfnWidth}},
      {"model.sequence_length", &model.sequence_length, "tokens a sequence", {1, kMaxSequence}},
      {"model.vocab_size", &model.vocab_size, "0: the tokenizer's", {0, kMaxVocabulary}},
      {"model.norm_epsilon",
       &model.norm_epsilon,
       "added to the variance in norms",
       {.minimum = 0, .maximum = 1, .above_minimum = true}},
      {"model.rope_base",
       &model.rope_base,
       "llama: base of the rotary angles",
       {.minimum = 1, .maximum = 1e12, .above_minimum = true}},
      {"model.tied_embedding", &model.tied_embedding,
       "llama: output shares the embedding's weight"},
      {"model.dropout",
       &model.dropout,
       "share of elements dropped in training after embedding, attention and feed-forward",
       {.minimum = 0, .maximum = 1, .below_maximum = true}},

      {"data.path", &data.path, "prefix that `trireme data prepare --output` wrote"},
      {"data.seed", &data.seed, "order of the sequences", {0, kMaxSeed}},
      {"data.separate_documents", &data.separate_documents,
       "attention within documents alone, where a sequence holds parts of several"},

      {"train.steps", &train.steps, "optimizer steps of the whole run", {1, kMaxSteps}},
      {"train.global_batch",
       &train.global_batch,
       "sequences a step over all ranks",
       {1, kMaxBatch}},
      {"train.micro_batch", &train.micro_batch, "sequences a forward", {1, kMaxBatch}},
      {"train.precision",
       &train.precision,
       "arithmetic of weights and activations",
       {},
       {"fp64", "fp32", "bf16", "fp16"}},
      {"train.seed", &train.seed, "initial weights, dropout, stochastic rounding", {0, kMaxSeed}},
      {"train.gradient_clip",
       &train.gradient_clip,
       "largest global gradient norm; 0: none",
       {0, 1e30}},
      {"train.master_weights", &train.master_weights,
       "bf16, fp16: the optimizer keeps weights in fp32"},
      {"train.stochastic_rounding", &train.stochastic_rounding,
       "bf16 without masters: round updates up or down by chance"},
      {"train.reduce_dtype",
       &train.reduce_dtype,
       "bf16, fp16: sum gradients over ranks in their own precision or in fp32",
       {},
       {"gradient", "fp32"}},
      {"train.loss_scale",
       &train.loss_scale,
       "fp16: the first loss scale",
       {1, LossScale::kLargest}},
      {"train.loss_scale_interval",
       &train.loss_scale_interval,
       "fp16: good steps before the loss scale doubles",
       {1, kMaxSteps}},
      {"train.recompute",
       &train.recompute,
       "activations computed again in backward",
       {},
       {"none", "selective", "full"}},
      {"train.recompute_modules", &train.recompute_modules,
       "selective: attention_core, attention, feed_forward, separated by commas"},
      {"train.reproducible", &train.reproducible, "same bits for every number of data ranks"},
      {"train.uneven_batches", &train.uneven_batches,
       "any global_batch on any number of ranks: the last microbatches may be smaller or empty"},
      {"train.measure_noise", &train.measure_noise,
       "metrics have the gradient noise scale: how large a global_batch still pays"},
      {"train.skip_bad_steps",
       &train.skip_bad_steps,
       "steps in a row whose NaN or spike may be left out; 0: it ends the run",
       {0, kMaxSteps}},
      {"train.spike_factor",
       &train.spike_factor,
       "a gradient norm so many times its mean is a spike; 0: never",
       {0, 1e6}},
      {"train.check_replicas_interval",
       &train.check_replicas_interval,
       "compare replicas every N steps; 0: never",
       {0, kMaxSteps}},
      {"train.evaluate_interval",
       &train.evaluate_interval,
       "steps between evaluations; 0: never",
       {0, kMaxSteps}},
      {"train.evaluate_sequences",
       &train.evaluate_sequences,
       "sequences an evaluation",
       {1, kMaxBatch}},
      {"train.bucket_bytes", &train.bucket_bytes, "size of a gradient bucket", {1, kMaxBuffer}},
      {"train.overlap", &train.overlap, "reduce gradients behind backward"},
      {"train.symmetric_memory", &train.symmetric_memory,
       "gradients in shared memory; false where /dev/shm is too small for them"},
      {"train.compression",
       &train.compression,
       "gradients on the wire",
       {},
       {"none", "bf16", "fp16", "int8", "powersgd", "topk"}},
      {"train.compression_rank",
       &train.compression_rank,
       "powersgd: columns of the two thin matrices",
       {1, 65536}},
      {"train.compression_ratio",
       &train.compression_ratio,
       "topk: share of each parameter's gradient that is sent",
       {.minimum = 0, .maximum = 1, .above_minimum = true}},
      {"train.compression_warmup",
       &train.compression_warmup,
       "first steps without compression",
       {0, kMaxSteps}},

      {"optimizer.name", &optimizer.name, "update rule", {}, optimizer_names()},
      {"optimizer.learning_rate", &optimizer.learning_rate, "peak of the schedule", {0, kMaxRate}},
      {"optimizer.warmup_steps", &optimizer.warmup_steps, "linear rise from 0", {0, kMaxSteps}},
      {"optimizer.schedule",
       &optimizer.schedule,
       "after the warm-up",
       {},
       {"constant", "linear", "cosine", "warmup-stable-decay"}},
      {"optimizer.minimum_learning_rate",
       &optimizer.minimum_learning_rate,
       "end of the schedule",
       {0, kMaxRate}},
      {"optimizer.decay_fraction",
       &optimizer.decay_fraction,
       "warmup-stable-decay: share of the steps that decay",
       {0, 1}},
      {"optimizer.weight_decay",
       &optimizer.weight_decay,
       "of matrices; norms and biases have none",
       {0, kMaxRate}},
      {"optimizer.beta1", &optimizer.beta1, "decay of the first moment", kDecay},
      {"optimizer.beta2", &optimizer.beta2, "decay of the second moment", kDecay},
      {"optimizer.epsilon", &optimizer.epsilon, "added to the denominator", {0, 1}},
      {"optimizer.momentum", &optimizer.momentum, "sgd, muon, lars: decay of the momentum", kDecay},
      {"optimizer.nesterov", &optimizer.nesterov, "sgd, muon: look one step of momentum ahead"},
      {"optimizer.groups", &optimizer.groups,
       "decay and rate by name, such as \"*.bias: decay=0; lm_head.*: rate=0.5\""},
      {"optimizer.adamw_parameters", &optimizer.adamw_parameters,
       "muon: names of the matrices that AdamW updates"},
      {"optimizer.batch_scaling",
       &optimizer.batch_scaling,
       "learning_rate times global_batch / base_batch, or its root",
       {},
       {"none", "linear", "square-root"}},
      {"optimizer.base_batch",
       &optimizer.base_batch,
       "global_batch that learning_rate was tuned at",
       {1, kMaxBatch}},

      {"parallel.data", &parallel.data, "data-parallel ranks; 0: what is left", {0, kMaxRanks}},
      {"parallel.zero",
       &parallel.zero,
       "0 DDP, 1, 2, 3: what is sharded over the data ranks",
       {0, 3}},
      {"parallel.shard",
       &parallel.shard,
       "zero: ranks that share one copy out; 0: all data ranks",
       {0, kMaxRanks}},
      {"parallel.gathered_units",
       &parallel.gathered_units,
       "zero = 3: blocks whose parameters are whole at one time",
       {1, kMaxLayers}},
      {"parallel.tensor", &parallel.tensor, "tensor-parallel ranks", {1, kMaxRanks}},
      {"parallel.sequence_parallel", &parallel.sequence_parallel,
       "tensor: norms and residuals of each rank's own tokens alone: less memory"},
      {"parallel.async_tensor",
       &parallel.async_tensor,
       "tensor: communicate while multiplying; auto: what the first steps show to be faster",
       {},
       {"auto", "on", "off"}},
      {"parallel.pipeline", &parallel.pipeline, "pipeline ranks", {1, kMaxRanks}},
      {"parallel.schedule",
       &parallel.schedule,
       "pipeline schedule",
       {},
       parallel::schedule_names()},
      {"parallel.stages_per_rank",
       &parallel.stages_per_rank,
       "pipeline stages a rank; 0: what the schedule asks for, 1 or 2",
       {0, kMaxLayers}},
      {"parallel.stage_layers", &parallel.stage_layers,
       "layers of each stage, such as 3,3; empty: as even as their cost allows"},
      {"parallel.stage_memory",
       &parallel.stage_memory,
       "limit on a rank's estimated states and activations, in bytes, when layers are split by "
       "cost; "
       "0: no limit",
       {0, kMaxMemory}},
      {"parallel.rebalance_interval",
       &parallel.rebalance_interval,
       "measure the stages every N steps, and move layers if that pays; 0: never",
       {0, kMaxSteps}},
      {"parallel.rebalance_threshold",
       &parallel.rebalance_threshold,
       "a move must save this share of the slowest stage's time",
       {0, 1}},
      {"parallel.context", &parallel.context, "context-parallel ranks", {1, kMaxRanks}},
      {"parallel.context_form",
       &parallel.context_form,
       "context: keys and values go round a ring, or heads are exchanged (Ulysses)",
       {},
       {"ring", "all-to-all"}},
      {"parallel.expert", &parallel.expert, "expert-parallel ranks", {1, kMaxRanks}},
      {"parallel.transport",
       &parallel.transport,
       "how ranks talk (mpi: started by mpirun)",
       {},
       {"auto", "shm", "gloo", "hierarchical", "mpi"}},
      {"parallel.timeout_seconds",
       &parallel.timeout_seconds,
       "how long a rank waits for another before the run ends, naming it",
       {1, kMaxSeconds}},
      {"parallel.heap_bytes",
       &parallel.heap_bytes,
       "limit on a rank's shared memory for gradients and activations; 0: what /dev/shm has, at "
       "most 2 TiB divided by the host's ranks",
       {0, kMaxMemory}},

      {"offload.optimizer",
       &offload.optimizer,
       "where its states and fp32 weights are: with the parameters, in the host's memory, in files",
       {},
       {"none", "host", "disk"}},
      {"offload.folder", &offload.folder, "disk: a folder on a fast disk; empty: in output.folder"},
      {"offload.buffer_bytes",
       &offload.buffer_bytes,
       "disk: size of each of the three buffers that states pass through",
       {65536, kMaxBuffer}},

      {"checkpoint.interval", &checkpoint.interval, "steps; 0: only at the end", {0, kMaxSteps}},
      {"checkpoint.keep", &checkpoint.keep, "newest checkpoints that stay", {1, 1e6}},

      {"output.folder", &output.folder, "metrics, events and checkpoints of the run"},

      {"resume.allow", &resume.allow,
       "keys of the checkpoint's run that may change this once, such as data.path,model.dropout"},
  };
}

}  // namespace

std::vector<Field> schema(RunConfig& config) {
  std::vector<Field> fields = all_fields(config);
  for (Field& field : fields) field.on_resume = on_resume(field.key);
  return fields;
}

}  // namespace trireme::train
