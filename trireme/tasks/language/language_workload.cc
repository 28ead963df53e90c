#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/accumulate.h>

#include "trireme/model/clip/image_input.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/plan/cost/layer_costs.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/parallel/stage_costs.h"

namespace trireme::tasks {

namespace {

// The block that a parameter is in or counts with.
int64_t block_of(std::string_view name, const model::ModelConfig& config) {
  const int64_t L = config.layers;
  const bool is_encoder = name.starts_with("encoder.");
  if (name == "lm_head.weight") return config.num_blocks() - 1;
  if (!is_encoder && !name.starts_with("decoder.")) return 0;
  const int64_t first = is_encoder ? 0 : L;
  if (name.ends_with("final_layer_norm.weight"))
    return first + (is_encoder ? L : config.decoder_layers()) - 1;
  constexpr std::string_view kBlock = ".block.";
  const size_t at = name.find(kBlock);
  if (at == name.npos) return first;
  int64_t number = 0;
  std::from_chars(name.data() + at + kBlock.size(), name.data() + name.size(), number);
  return first + number;
}

// Of a rank, for a microbatch: T tokens of the encoder, U of the decoder, and the rows of each
// between the layers.
struct Tokens {
  double T = 0, U = 0, rows_T = 0, rows_U = 0;
};

// A block keeps the inputs and outputs of its norms; of attention q, k, v and its output; and what
// its feed-forward reads and writes. Attention's scores are computed again in backward.
double kept_bytes(const train::RunConfig& run, const model::ModelConfig& config,
                  const Tokens& tokens, bool is_decoder, const model::RecomputePlan& again) {
  const double item = train::itemsize(run);
  const auto D = static_cast<double>(config.width), F = static_cast<double>(config.ffn_width);
  const auto heads = static_cast<double>(config.heads * config.head_width());
  const auto tensor = static_cast<double>(run.parallel.tensor);
  const double n = is_decoder ? tokens.U : tokens.T;
  const double rows = is_decoder ? tokens.rows_U : tokens.rows_T;
  if (again.block) return item * D * rows;
  const bool is_gated = config.seq2seq.feed_forward == model::FeedForwardForm::kGatedGelu;
  const double attention = again.attention ? 0 : 4 * heads * n;
  const double across = again.attention ? 0 : 2 * heads * (n + tokens.T);
  const double hidden = again.feed_forward ? 0 : (is_gated ? 4 : 1) * F * n;
  const double branches = is_decoder ? 3 : 2;
  return item *
         (branches * 2 * D * rows + (attention + (is_decoder ? across : 0) + hidden) / tensor);
}

// The encoder's blocks and then the decoder's, which differ and read different numbers of tokens.
// Time is in floating-point operations of forward and backward of a sequence, whose sum is
// model::flops_per_sequence(). Memory is that of a rank: the states of its parameters as the axes
// and ZeRO divide them, and what a forward of a microbatch keeps.
std::vector<parallel::LayerCost> seq2seq_costs(const train::RunConfig& config,
                                               const LanguageConfig& own) {
  const model::ModelConfig& model = own.model;
  const train::ParallelConfig& parallel = config.parallel;
  const int64_t L = model.layers;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double T = number(model.sequence_length), U = number(model.seq2seq.target_length);
  const double states = train::state_bytes_per_parameter(config, model.width);
  std::vector<parallel::LayerCost> costs(static_cast<size_t>(model.num_blocks()), {.time = 0});
  const model::ModelPlan plan =
      model::make_plan(model, {.tensor = static_cast<int>(parallel.tensor)});
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const std::vector<int64_t>& shape = parameter.layout.shape();
    const double elements = number(c10::multiply_integers(shape));
    const std::string_view name = parameter.name;
    const int64_t block = block_of(name, model);
    parallel::LayerCost& cost = costs[static_cast<size_t>(block)];
    cost.memory += elements * states / number(parallel.tensor);
    if (shape.size() < 2 || name.find(".block.") == name.npos) continue;
    // Keys and values across are those of the encoder's tokens.
    const bool reads_memory = name.find(".EncDecAttention.k.") != name.npos ||
                              name.find(".EncDecAttention.v.") != name.npos;
    cost.time += 6 * elements * (block < L || reads_memory ? T : U);
  }
  const double scores = 12 * number(model.heads * model.head_width());
  const double micro_batch = number(config.largest_micro_batch());
  const double share = parallel.sequence_parallel ? number(parallel.tensor) : 1;
  Tokens tokens{.T = micro_batch * T / number(parallel.context),
                .U = micro_batch * U / number(parallel.context)};
  tokens.rows_T = tokens.T / share;
  tokens.rows_U = tokens.U / share;
  const model::RecomputePlan recompute = config.recompute_plan();
  for (int64_t block = 0; block < model.num_blocks(); ++block) {
    parallel::LayerCost& cost = costs[static_cast<size_t>(block)];
    cost.time += scores * (block < L ? T * T : U * U + U * T);
    cost.activations = kept_bytes(config, model, tokens, block >= L, recompute.of_block(0));
  }
  // The norm between the halves, and its output, which all blocks of the decoder read.
  costs[static_cast<size_t>(L - 1)].activations +=
      2 * train::itemsize(config) * number(model.width) * tokens.rows_T;
  // The norm's input and the loss's gradients, in fp32 at least.
  const double D = number(model.width);
  const double vocabulary = number(model.vocab_size) / number(parallel.tensor);
  costs.back().time += 6 * U * number(model.vocab_size) * D;
  costs.back().activations += train::itemsize(config) * D * tokens.rows_U +
                              train::wide_itemsize(config) * (D * tokens.rows_U + vocabulary * D);
  if (recompute.num_blocks >= model.num_blocks()) return costs;
  const std::vector<int64_t> places = parallel::places_in_stages(
      costs, parallel.schedule, parallel.pipeline, parallel.stages_per_rank);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (places[i] < recompute.num_blocks) continue;
    const bool is_decoder = static_cast<int64_t>(i) >= L;
    costs[i].activations += kept_bytes(config, model, tokens, is_decoder, {}) -
                            kept_bytes(config, model, tokens, is_decoder, recompute.of_block(0));
  }
  return costs;
}

// Time is that of a token, as the blocks' is. The parameters are among the embedding's.
void add_images(parallel::LayerCost& first, const train::RunConfig& config,
                const LanguageConfig& own) {
  const model::ModelConfig& model = own.model;
  const double images = model.vision.images_per_sequence;
  first.time += images * model::flops_of_image(model) / static_cast<double>(model.sequence_length);
  const std::vector<model::ParameterPlan> parameters = model::make_plan(model).parameters();
  const std::set<std::string> frozen = train::frozen_parameters(config, parameters);
  const bool trains_tower = std::ranges::any_of(parameters, [&](const auto& parameter) {
    return parameter.name.find(model::kVisionTower) != std::string::npos &&
           !frozen.contains(parameter.name);
  });
  const auto num_images =
      static_cast<int64_t>(std::ceil(images * static_cast<double>(config.largest_micro_batch())));
  first.activations += model::kept_bytes_of_images(model,
                                                   {.num_images = num_images,
                                                    .dtype = config.dtype(),
                                                    .recompute = config.recompute_plan(),
                                                    .tensor = config.parallel.tensor},
                                                   trains_tower);
}

}  // namespace

double teacher_flops_per_token(const LanguageConfig& own) {
  if (!own.teacher) return 0;
  model::ModelConfig model = own.teacher->model;
  model.sequence_length = own.model.sequence_length;  // that of the run's samples
  return model::flops_per_token(model) / 3;
}

plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own) {
  const train::ParallelConfig& parallel = config.parallel;
  plan::Workload work;
  work.set_model(own.model);
  const model::ModelPlan parameters = model::make_plan(own.model);
  work.sizes = train::number_sizes(config, own.model.width)
                   .with_share(train::trained_share(config, parameters.parameters()));
  work.sizes.kept_share = train::kept_share(config, parameters.parameters());
  work.axes = train::plan_axes(parallel);
  // A learner's part of them.
  const int64_t sequences = own.sequences_per_sample();
  work.global_batch = sequences * config.train.global_batch / parallel.learners;
  work.smallest_batch = sequences * config.train.batch_ramp_start / parallel.learners;
  work.micro_batch = sequences * config.largest_micro_batch();
  work.reproducible = config.train.reproducible;
  if (parallel.gradient_order != train::GradientOrder::kAuto) {
    work.rank_first = parallel.gradient_order == train::GradientOrder::kRankFirst;
  }
  work.zero = parallel.zero;
  work.gathered_units = parallel.gathered_units;
  work.sequence_parallel = parallel.sequence_parallel;
  work.overlap = config.train.overlap;
  work.hides_tensor = parallel.async_tensor == train::AsyncTensor::kOn;
  work.schedule = parallel.schedule;
  work.stages_per_rank = parallel.stages_per_rank;
  work.bucket_bytes = config.train.bucket_bytes;
  work.expert_chunk = parallel.expert_chunk;
  work.expert_replicas = parallel.expert_replicas;
  work.separate_documents = own.has_documents();
  work.recompute_kind = config.train.recompute;
  work.recompute = config.recompute_plan();
  work.input_offload_rate =
      config.leaves_memory(config.offload.activations) ? plan::kUnknownRate : 0;
  work.kept_by_block = model::family_of(own.model).kept_by_block(own.model);
  work.kept_by_block.copies_keys = config.device.is_cuda();
  if (own.teacher) {
    plan::Workload teacher;
    teacher.set_model(own.teacher->model);
    work.teacher = std::make_shared<const plan::Workload>(std::move(teacher));
  }
  return work;
}

std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own) {
  if (own.model.has_decoder()) return seq2seq_costs(config, own);
  std::vector<parallel::LayerCost> costs = plan::layer_costs(workload_of(config, own));
  if (own.model.vision.is_on()) add_images(costs.front(), config, own);
  return costs;
}

}  // namespace trireme::tasks
