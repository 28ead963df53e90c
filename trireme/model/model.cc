// Length: one class, a model and what is asked of it.
#include "trireme/model/model.h"

#include <map>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trireme/base/error.h"
#include "trireme/model/cache/key_cache.h"
#include "trireme/model/experts/expert_feed_forward.h"
#include "trireme/model/experts/router.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/network.h"
#include "trireme/model/family/token_probe.h"
#include "trireme/model/layers/batch_maker.h"
#include "trireme/model/layers/linear.h"
#include "trireme/parallel/data/sharded_weights.h"
#include "trireme/parallel/tensor/token_scores.h"

namespace trireme::model {
namespace {

void check_tokens(const at::Tensor& tokens_BT, std::string_view key, int64_t most) {
  TRIREME_CHECK(tokens_BT.defined() && tokens_BT.dim() == 2 && tokens_BT.scalar_type() == at::kLong,
                "tokens of shape ", tokens_BT.sizes(), " and type ", tokens_BT.scalar_type(),
                "; expected [B, T] of int64");
  TRIREME_CHECK(tokens_BT.size(1) <= most, "sequences of ", tokens_BT.size(1),
                " tokens; expected at most ", key, " = ", most, ": shorten them or raise it");
}

// Returns how many images a sequence has at most.
int64_t check_images(const PartInput& in, const VisionConfig& vision) {
  if (!in.images.defined()) return 0;
  const at::Tensor& images = in.images;
  const int64_t most = images.dim() == 5 ? images.size(1) : 0;
  const std::vector<int64_t> expected = {in.tokens_BT.size(0), most, VisionConfig::kChannels,
                                         vision.image_size, vision.image_size};
  TRIREME_CHECK(images.is_floating_point() && images.sizes() == at::IntArrayRef(expected),
                "images of shape ", images.sizes(), " and type ", images.scalar_type(),
                "; expected [", in.tokens_BT.size(0), ", images of a sequence, ",
                VisionConfig::kChannels, ", ", vision.image_size, ", ", vision.image_size,
                "] of a floating type");
  return most;
}

// With causality the first tokens have the least work, and a rank has some of either end.
parallel::SequenceOrder order_of(const ModelConfig& config) {
  return config.is_causal() ? parallel::SequenceOrder::kZigZag
                            : parallel::SequenceOrder::kContiguous;
}

class NetworkModel : public LanguageModel {
 public:
  NetworkModel(const ModelConfig& config, const ModelPlan& plan, uint64_t seed,
               at::ScalarType dtype, const ModelAxes& axes, const ModelPart& part)
      : config_(config),
        axes_(axes),
        part_(part),
        batches_(config, axes, order_of(config), seed),
        first_token_(TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).offset),
        network_(make_bare_network(config, axes, part, dtype)) {
    if (config.lora.is_on()) add_adapters(plan);
  }

  const ModelConfig& config() const override { return config_; }
  torch::nn::Module& module() override { return *network_; }

  std::vector<parallel::Unit> units() const override { return network_->units(); }
  void run_units_with(parallel::RunUnit run) override { network_->run_unit = std::move(run); }
  void set_recompute(const RecomputePlan& plan) override { network_->set_recompute(plan); }

  void take_routing_counts(std::span<double> table) override {
    for (Router* const router : routers_of(*network_)) router->take_counts(table);
  }
  void use_routing_counts(std::span<const double> table) override {
    for (Router* const router : routers_of(*network_)) router->use_counts(table);
  }

  PartOutput forward_part(const PartInput& in) override {
    if (in.cached && config_.has_decoder()) return {.hidden = decode(in)};
    const at::Tensor& tokens_BT = in.tokens_BT;
    check_tokens(tokens_BT, "model.sequence_length",
                 in.cached ? tokens_BT.numel() : config_.sequence_length);
    NetworkInput run{
        .batch = batches_.make(tokens_BT.size(0), tokens_BT.size(1),
                               {.causal = config_.is_causal(), .documents_BT = in.documents_BT},
                               tokens_BT.device(), in.training),
        .carried = in.carried};
    if (in.cached) read_cached(run.batch, in.cached);
    network_->complete(run.batch);
    run.x = part_.embeds ? local(tokens_BT, run.batch.context.get()) : in.hidden;
    if (config_.has_decoder()) add_decoder(in, run);
    if (config_.vision.is_on() && part_.embeds) add_images(in, run.batch);
    NetworkOutput ran = network_->run(run);
    PartOutput out{.hidden = std::move(ran.x), .carried = std::move(ran.carried)};
    if (part_.embeds && !part_.has_head && config_.has_tied_head() && in.sends_head) {
      // Inside the unit, where the weight is gathered. A copy, because it must outlive the unit.
      out.head_weight = network_->run_unit(
          network_->head_unit().value(), out.hidden.defined() ? out.hidden : run.x,
          [this](const at::Tensor& /*hidden*/) { return network_->head_VD().clone(); });
      out.carried.emplace_back(kHeadWeight, out.head_weight);
    }
    return out;
  }

  at::Tensor run_head(const at::Tensor& hidden, const at::Tensor& head_weight,
                      const HeadUse& use) override {
    const auto with_input = [&](const at::Tensor& x) {
      return use({.x = x,
                  .w_vD = head_weight.defined() ? head_weight : network_->head_VD(),
                  .bias_v = network_->head_bias_V(),
                  .softcap = config_.logits_softcap});
    };
    if (!network_->head_unit()) return with_input(hidden);
    return network_->run_unit(*network_->head_unit(), hidden, with_input);
  }

  parallel::LinearHead whole_head() override {
    const auto whole = [this](const at::Tensor& own) {
      if (!own.defined()) return own;
      std::vector<int64_t> sizes = own.sizes().vec();
      sizes[0] = config_.vocab_size;
      const at::Tensor rows = at::empty(sizes, own.options());
      gather_vocabulary(rows, own.detach());
      return rows;
    };
    return {.x = {},
            .w_vD = whole(network_->head_VD()),
            .bias_v = whole(network_->head_bias_V()),
            .softcap = config_.logits_softcap};
  }

  parallel::LinearHead own_part(const parallel::LinearHead& whole) const override {
    const mesh::Range rows = TensorCuts(config_, axes_.tensor.size()).vocab_of(axes_.tensor.rank());
    const auto own = [&](const at::Tensor& all) {
      return all.defined() ? all.narrow(0, rows.offset, rows.size) : all;
    };
    at::Tensor x = local(whole.x, context_of(whole.x).get());
    if (axes_.tensor.sequence) {
      const at::Tensor x_SD = parallel::view_rows(x);
      const mesh::Range of_rank = axes_.tensor.own_rows(x_SD.size(0));
      x = x_SD.narrow(0, of_rank.offset, of_rank.size);
    }
    return {.x = x, .w_vD = own(whole.w_vD), .bias_v = own(whole.bias_v), .softcap = whole.softcap};
  }

  Loss head_loss(const at::Tensor& hidden, const at::Tensor& targets_BT,
                 const at::Tensor& head_weight, const LossFunction& loss_of_tokens) override {
    const auto context = context_of(targets_BT);
    const at::Tensor own_targets = local(targets_BT, context.get());
    Loss loss;
    loss.sum = run_head(hidden, head_weight, [&](const parallel::LinearHead& head) {
      const parallel::CrossEntropyOptions options{.axis = axes_.tensor,
                                                  .first_row = first_token_,
                                                  .vocab_size = config_.vocab_size,
                                                  .softcap = head.softcap,
                                                  .bias_v = head.bias_v,
                                                  .loss = loss_of_tokens};
      loss = parallel::linear_cross_entropy(head.x, head.w_vD, own_targets, options);
      if (verify::is_probing()) probe_losses(head, own_targets, targets_BT.size(1), options);
      return loss.sum;
    });
    return loss;
  }

  // The head reads whole rows and has the whole weight on every rank of the tensor axis.
  ClassLoss class_loss(const at::Tensor& hidden, const at::Tensor& labels_B) override {
    const at::Tensor own_labels = labels_B.narrow(0, 0, hidden.size(0));
    ClassLoss loss;
    loss.of_texts.sum = run_head(hidden, {}, [&](const parallel::LinearHead& head) {
      loss.of_texts =
          parallel::linear_cross_entropy(head.x, head.w_vD, own_labels, {.bias_v = head.bias_v});
      const at::NoGradGuard no_grad;
      const at::ScalarType wide = at::promote_types(head.x.scalar_type(), at::kFloat);
      loss.logits_BC = at::linear(head.x.to(wide), head.w_vD.to(wide), head.bias_v.to(wide));
      return loss.of_texts.sum;
    });
    return loss;
  }

  parallel::DistillationLoss distillation_loss(
      const at::Tensor& hidden, const at::Tensor& targets_BT, const at::Tensor& head_weight,
      const parallel::LinearHead& of_teacher,
      const parallel::DistillationOptions& options) override {
    return loss_beside(hidden, targets_BT, head_weight, of_teacher, options);
  }
  parallel::DistillationLoss distillation_loss(
      const at::Tensor& hidden, const at::Tensor& targets_BT, const at::Tensor& head_weight,
      const parallel::TopOutputs& of_teacher,
      const parallel::DistillationOptions& options) override {
    const auto context = context_of(targets_BT);
    const parallel::TopOutputs own{.tokens_Sk = local(of_teacher.tokens_Sk, context.get()),
                                   .log_p_Sk = local(of_teacher.log_p_Sk, context.get()),
                                   .log_rest_S = local(of_teacher.log_rest_S, context.get())};
    return loss_beside(hidden, targets_BT, head_weight, own, options);
  }

  parallel::TopOutputs top_outputs(const at::Tensor& hidden, const at::Tensor& tokens_BT,
                                   const at::Tensor& head_weight, int64_t top_k,
                                   double temperature) override {
    const auto context = context_of(tokens_BT);
    const int64_t B = tokens_BT.size(0);
    const int64_t t = local(tokens_BT, context.get()).size(1);
    parallel::TopOutputs found;
    run_head(hidden, head_weight, [&](const parallel::LinearHead& head) {
      found = parallel::linear_top_outputs(head, B * t,
                                           {.top_k = top_k,
                                            .temperature = temperature,
                                            .axis = axes_.tensor,
                                            .first_row = first_token_,
                                            .vocab_size = config_.vocab_size});
      return found.log_rest_S;
    });
    const auto whole = [&](const at::Tensor& own_S) {
      const at::Tensor own_Bt = own_S.unflatten(0, {B, t});
      if (context == nullptr) return own_Bt;
      std::vector<int64_t> sizes = own_Bt.sizes().vec();
      sizes[1] = tokens_BT.size(1);
      return at::zeros(sizes, own_Bt.options())
          .index_copy(1, context->positions().to(own_Bt.device()), own_Bt);
    };
    return {.tokens_Sk = whole(found.tokens_Sk),
            .log_p_Sk = whole(found.log_p_Sk),
            .log_rest_S = whole(found.log_rest_S)};
  }

  at::Tensor next_logits(const at::Tensor& hidden, const CachedTokens& read,
                         const at::Tensor& head_weight) override {
    TRIREME_ASSERT(!axes_.tensor.sequence && axes_.context == nullptr,
                   "generation with parts of a sequence");
    const at::Tensor last_rD = hidden.squeeze(0).index_select(0, read.last_rows(hidden.device()));
    const at::Tensor logits_Vr = run_head(last_rD, head_weight, [&](const auto& head) {
      const at::Tensor own_vr = at::linear(head.x, head.w_vD, head.bias_v).t().contiguous();
      const at::Tensor whole_Vr =
          at::empty({config_.vocab_size, last_rD.size(0)}, own_vr.options());
      gather_vocabulary(whole_Vr, own_vr);
      return head.softcap > 0 ? head.softcap * at::tanh(whole_Vr / head.softcap) : whole_Vr;
    });
    return logits_Vr.t().to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  }

  at::Tensor token_scores(const at::Tensor& hidden, const at::Tensor& targets_n,
                          const at::Tensor& head_weight) override {
    TRIREME_ASSERT(!axes_.tensor.sequence && axes_.context == nullptr,
                   "scores with parts of a sequence");
    const at::NoGradGuard no_grad;
    return run_head(hidden.squeeze(0), head_weight,
                    [&](const parallel::LinearHead& head) {
                      return parallel::token_scores(
                          head, targets_n.to(hidden.device()),
                          {.axis = axes_.tensor, .first_row = first_token_});
                    })
        .to(at::kCPU);
  }

  int64_t num_targets(const at::Tensor& targets_BT) const override {
    const auto context = context_of(targets_BT);
    return local(targets_BT, context.get()).ne(kIgnoredTarget).sum().item<int64_t>();
  }

  at::Tensor logits(const at::Tensor& tokens_BT, const at::Tensor& decoder_tokens_BU,
                    const at::Tensor& images) override {
    TRIREME_ASSERT(
        axes_.tensor.size() == 1 && axes_.context == nullptr && part_.embeds && part_.has_head,
        "logits of a part of the model");
    return network_->run_unit(
        network_->head_unit().value(),
        forward_part(
            {.tokens_BT = tokens_BT, .decoder_tokens_BU = decoder_tokens_BU, .images = images})
            .hidden,
        [this](const at::Tensor& x_BTD) {
          const at::Tensor logits_BTV =
              at::linear(x_BTD, network_->head_VD(), network_->head_bias_V());
          const double cap = config_.logits_softcap;
          return cap > 0 ? cap * at::tanh(logits_BTV / cap) : logits_BTV;
        });
  }

 private:
  using Context = std::shared_ptr<const parallel::ContextParallel>;

  // Hands out the cross-entropy of each token, which the loss itself never has.
  void probe_losses(const parallel::LinearHead& head, const at::Tensor& own_targets_BT,
                    int64_t length, parallel::CrossEntropyOptions options) const {
    const at::NoGradGuard no_grad;
    at::Tensor found_S;
    options.loss = [&found_S](const at::Tensor& losses_S) {
      found_S = losses_S.detach().clone();
      return parallel::LossOfTokens{.value = losses_S.sum(), .slopes_S = at::ones_like(losses_S)};
    };
    parallel::linear_cross_entropy(head.x.detach(), head.w_vD.detach(), own_targets_BT, options);
    if (!found_S.defined()) return;
    const auto context = batches_.context_of(length);
    const at::Tensor positions_T = context ? context->positions() : at::arange(length, at::kLong);
    verify::probe("loss", found_S.unsqueeze(1),
                  rows_of_tokens(own_targets_BT.size(0), positions_T, length));
  }

  // Fills the rows of a tensor that has one for each token of the vocabulary.
  void gather_vocabulary(const at::Tensor& whole_Vr, const at::Tensor& own_vr) const {
    if (axes_.tensor.size() == 1) {
      whole_Vr.copy_(own_vr);
      return;
    }
    const TensorCuts cuts(config_, axes_.tensor.size());
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < axes_.tensor.size(); ++rank) {
      const mesh::Range rows = cuts.vocab_of(rank);
      parts.push_back(whole_Vr.narrow(0, rows.offset, rows.size));
    }
    axes_.tensor.group->all_gather(std::move(parts), own_vr)->wait();
  }

  // of_teacher: its head on this rank's tokens, or what it says of them
  template <typename Teacher>
  parallel::DistillationLoss loss_beside(const at::Tensor& hidden, const at::Tensor& targets_BT,
                                         const at::Tensor& head_weight, const Teacher& of_teacher,
                                         const parallel::DistillationOptions& options) {
    const auto context = context_of(targets_BT);
    const at::Tensor own_targets = local(targets_BT, context.get());
    parallel::DistillationLoss loss;
    loss.sum = run_head(hidden, head_weight, [&](const parallel::LinearHead& head) {
      loss = parallel::linear_distillation(head, of_teacher, own_targets,
                                           {.temperature = options.temperature,
                                            .weight = options.weight,
                                            .axis = axes_.tensor,
                                            .first_row = first_token_,
                                            .vocab_size = config_.vocab_size});
      return loss.sum;
    });
    return loss;
  }

  static void read_cached(TokenBatch& batch, const std::shared_ptr<const CachedTokens>& cached) {
    TRIREME_ASSERT(batch.B == 1 && batch.T == cached->num_tokens(), batch.B, " rows of ", batch.T,
                   " tokens for ", cached->num_tokens());
    batch.cached = cached;
    batch.positions_T = cached->positions(batch.positions_T.device());
  }

  // The decoder's hidden states of texts whose prompts the encoder reads once.
  at::Tensor decode(const PartInput& in) {
    const at::Tensor& tokens_1n = in.decoder_tokens_BU;
    check_tokens(tokens_1n, "the number of tokens", tokens_1n.numel());
    NetworkInput run{.decoder_tokens = tokens_1n};
    run.decoder = batches_.make(tokens_1n.size(0), tokens_1n.size(1), {.causal = true},
                                tokens_1n.device(), /*training=*/{});
    read_cached(run.decoder, in.cached);
    return network_->run(run).x;
  }

  void add_decoder(const PartInput& in, NetworkInput& run) const {
    const at::Tensor& tokens_BU = in.decoder_tokens_BU;
    check_tokens(tokens_BU, "model.target_length", config_.seq2seq.target_length);
    run.decoder = batches_.make(tokens_BU.size(0), tokens_BU.size(1), {.causal = true},
                                tokens_BU.device(), in.training);
    run.decoder_tokens = local(tokens_BU, run.decoder.context.get());
  }

  // Adds the images that the sequences have, and which feature each token takes.
  void add_images(const PartInput& in, TokenBatch& batch) const {
    const VisionConfig& vision = config_.vision;
    const at::Tensor is_image_BT = in.tokens_BT.eq(vision.image_token);
    const at::Tensor tokens_B = is_image_BT.sum(1);
    const int64_t P = vision.num_patches();
    const int64_t most = check_images(in, vision);
    const at::Tensor is_whole_B = tokens_B.remainder(P).eq(0).logical_and(tokens_B.le(most * P));
    TRIREME_CHECK(is_whole_B.all().item<bool>(), "a sequence has ",
                  tokens_B.masked_select(is_whole_B.logical_not()).max().item<int64_t>(),
                  " image tokens; expected ", P, " for each of at most ", most,
                  " images: prepare the data with the same vision.image_size and "
                  "vision.patch_size");
    if (most == 0) {
      batch.images = at::zeros({0, VisionConfig::kChannels, vision.image_size, vision.image_size},
                               in.tokens_BT.options().dtype(at::kFloat));
    } else {
      const at::Tensor has_BM =
          at::arange(most, tokens_B.options()).lt(tokens_B.div(P, "floor").unsqueeze(1));
      batch.images = in.images.flatten(0, 1).index_select(0, has_BM.flatten().nonzero().squeeze(1));
    }
    const at::Tensor rows_BT = is_image_BT.flatten().cumsum(0).sub(1).view(is_image_BT.sizes());
    batch.image_rows_BT =
        local(rows_BT.masked_fill(is_image_BT.logical_not(), -1), batch.context.get());
  }

  // Gives what the plan names its adapters, and freezes what is not trained.
  void add_adapters(const ModelPlan& plan) {
    std::map<std::string_view, const ParameterPlan*> plans;
    for (const ParameterPlan& parameter : plan.parameters()) {
      plans[parameter.name] = &parameter;
    }
    for (const auto& module : network_->named_modules()) {
      if (auto* const experts = module.value()->as<ExpertWeights>()) {
        const std::string& key = module.key();
        experts->add_adapters(config_.lora, plans.contains(key + ".gate_up_proj" + kAdapterA),
                              plans.contains(key + ".down_proj" + kAdapterA));
        continue;
      }
      const auto a = plans.find(module.key() + kAdapterA);
      if (a == plans.end()) continue;
      auto* const linear = module.value()->as<Linear>();
      TRIREME_ASSERT(linear != nullptr, module.key(), " has an adapter and is no linear layer");
      const mesh::Layout& layout = a->second->layout;
      linear->add_adapter(
          config_.lora, concat("adapter.", module.key()),
          {.offset = layout.local_box(axes_.tensor.rank()).offset[1], .whole = layout.shape()[1]});
    }
    if (freezes(config_)) freeze_base(plans);
    network_->collect_parameters();
    for (const auto& parameter : network_->named_parameters()) {
      parameter.value().set_requires_grad(plans.at(parameter.key())->is_trained);
    }
  }

  static bool freezes(const ModelConfig& config) {
    return config.lora.is_on() && config.lora.base != WeightFormat::kRun;
  }

  // Where weights will be frozen in another format, without memory: it never has them all in the
  // run's.
  static std::shared_ptr<Network> make_bare_network(const ModelConfig& config,
                                                    const ModelAxes& axes, const ModelPart& part,
                                                    at::ScalarType dtype) {
    const WithoutMemory guard(freezes(config) && !part.without_memory
                                  ? std::optional(at::Device(at::kCPU))
                                  : std::nullopt);
    return family_of(config).make_network(config, axes, part, dtype);
  }

  void freeze_base(const std::map<std::string_view, const ParameterPlan*>& plans) {
    for (const auto& module : network_->named_modules()) {
      auto* const linear = module.value()->as<Linear>();
      if (linear == nullptr) continue;
      for (const std::string_view end : {std::string_view(".weight"), kWeightCodes}) {
        const auto found = plans.find(concat(module.key(), end));
        if (found != plans.end() && found->second->format != WeightFormat::kRun)
          linear->freeze_as(found->second->format);
      }
    }
    if (part_.without_memory) return;
    for (const auto& parameter : network_->named_parameters()) {
      const at::Tensor& tensor = parameter.value();
      if (!parallel::has_memory(tensor))
        tensor.set_data(at::zeros(tensor.sizes(), tensor.options()));
    }
  }

  Context context_of(const at::Tensor& tokens_BT) const {
    return batches_.context_of(tokens_BT.size(1));
  }
  static at::Tensor local(const at::Tensor& tokens_BT, const parallel::ContextParallel* context) {
    return context == nullptr ? tokens_BT : context->local(tokens_BT, 1);
  }

  ModelConfig config_;
  ModelAxes axes_;
  ModelPart part_;
  BatchMaker batches_;
  int64_t first_token_;  // where this rank's part of the vocabulary begins
  std::shared_ptr<Network> network_;
};

}  // namespace

Loss LanguageModel::loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT,
                         const std::optional<TrainingPlace>& training) {
  at::Tensor decoder_tokens;
  if (config().has_decoder()) {
    decoder_tokens = at::zeros_like(targets_BT);
    const at::Tensor read = targets_BT.slice(1, 0, -1);
    decoder_tokens.slice(1, 1).copy_(read.masked_fill(read.eq(kIgnoredTarget), 0));
  }
  return head_loss(
      forward_part(
          {.tokens_BT = tokens_BT, .training = training, .decoder_tokens_BU = decoder_tokens})
          .hidden,
      targets_BT);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed,
                                          at::ScalarType dtype, const ModelAxes& axes,
                                          ModelPart part) {
  validate(config);
  TRIREME_CHECK(config.vocab_size > 0, "model.vocab_size = ", config.vocab_size,
                "; expected at least 1: set it, or take it from the data before building");
  if (part.num_layers < 0) part.num_layers = config.num_blocks() - part.first_layer;
  const ModelPlan plan = make_plan(config, sizes_of(axes));
  const WithoutMemory guard(part.without_memory);
  auto model = std::make_unique<NetworkModel>(config, plan, seed, dtype, axes, part);
  initialise(model->module(), plan, {axes.tensor.rank(), axes.expert.rank()}, seed);
  return model;
}

}  // namespace trireme::model
