#include "trireme/model/model.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/gpt2.h"
#include "trireme/model/init.h"
#include "trireme/model/linear_cross_entropy.h"
#include "trireme/model/llama.h"

namespace trireme::model {
namespace {

void check_tokens(const at::Tensor& tokens_BT, const ModelConfig& config) {
  TRIREME_CHECK(tokens_BT.dim() == 2 && tokens_BT.scalar_type() == at::kLong, "tokens of shape ",
                tokens_BT.sizes(), " and type ", tokens_BT.scalar_type(),
                "; expected [B, T] of int64");
  TRIREME_CHECK(tokens_BT.size(1) <= config.sequence_length, "sequences of ", tokens_BT.size(1),
                " tokens; expected at most model.sequence_length = ", config.sequence_length,
                ": shorten them or raise it");
}

template <typename Network>
class NetworkModel : public LanguageModel {
 public:
  NetworkModel(const ModelConfig& config, at::ScalarType dtype)
      : config_(config), network_(std::make_shared<Network>(config, dtype)) {}

  const ModelConfig& config() const override { return config_; }
  torch::nn::Module& module() override { return *network_; }

  std::vector<parallel::Unit> units() const override { return network_->units(); }
  void run_units_with(parallel::RunUnit run) override { network_->run_unit = std::move(run); }
  void set_recompute(const RecomputePlan& plan) override {
    for (const auto& block : network_->blocks()) block->set_recompute(plan);
  }

  Loss loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT) override {
    check_tokens(tokens_BT, config_);
    Loss loss;
    loss.sum = run_head(tokens_BT, [&](const at::Tensor& x_BTD) {
      loss = linear_cross_entropy(x_BTD, network_->head_VD(), targets_BT);
      return loss.sum;
    });
    return loss;
  }
  at::Tensor logits(const at::Tensor& tokens_BT) override {
    check_tokens(tokens_BT, config_);
    return run_head(
        tokens_BT, [&](const at::Tensor& x_BTD) { return at::linear(x_BTD, network_->head_VD()); });
  }

 private:
  at::Tensor run_head(const at::Tensor& tokens_BT, const parallel::UnitForward& forward) {
    return network_->run_unit(network_->head_unit(), network_->hidden(tokens_BT), forward);
  }

  ModelConfig config_;
  std::shared_ptr<Network> network_;
};

}  // namespace

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed,
                                          at::ScalarType dtype) {
  validate(config);
  TRIREME_CHECK(config.vocab_size > 0, "model.vocab_size = ", config.vocab_size,
                "; expected at least 1: set it, or take it from the data before building");
  std::unique_ptr<LanguageModel> model;
  if (config.family == "llama") {
    model = std::make_unique<NetworkModel<Llama>>(config, dtype);
  } else {
    model = std::make_unique<NetworkModel<Gpt2>>(config, dtype);
  }
  initialise(model->module(), config, seed);
  return model;
}

}  // namespace trireme::model
