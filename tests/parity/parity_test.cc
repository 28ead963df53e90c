// Our models against reference.py, which computes the same in plain Python torch: logits, loss,
// every gradient, ten AdamW steps.
#include <cstdlib>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/harness/read_tensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parity/gradient_scale.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/model.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme {
namespace {

// How far the two sides may differ, relative to the largest element of each tensor.
struct Tolerance {
  double forward = 0;  // logits, loss
  double gradient = 0;
  double epsilon = 0;  // AdamW's
};

// fp64: the 1e-10 of the promise. fp32: unit roundoff u = 2^-24 = 6e-8. A dot product of n terms in
// another order typically differs by sqrt(n) u of its largest terms; here n <= 48 and about ten
// products lie on the longest path through two blocks: 10 * sqrt(48) * u = 4e-6 forward. Backward
// goes the path twice and sums over up to 51 tokens: 2 * sqrt(51) times that = 6e-5. AdamW divides
// a gradient by its own size, so rounding noise would decide the sign of an update wherever the
// gradient is nearly zero. In fp32 its epsilon is therefore 1e-3, which bounds the slope of the
// update.
Tolerance tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return {1e-10, 1e-10, 1e-8};
  return {4e-6, 6e-5, 1e-3};
}

// Ten steps move a weight by 10 * lr * g / (|g| + epsilon), whose slope in g is at most 1 /
// epsilon.
double trained_tolerance(at::ScalarType dtype, const at::Tensor& gradient) {
  const Tolerance tolerance = tolerance_of(dtype);
  if (dtype == at::kDouble) return 0;
  const double gradient_error = tolerance.gradient * gradient.abs().max().item<double>();
  return 10 * 1e-3 * gradient_error / tolerance.epsilon;
}

struct Case {
  std::string name;
  model::ModelConfig config;
  int64_t batch = 2;
  int64_t tokens = 16;
};

std::map<std::string, at::Tensor> run_reference(const std::filesystem::path& folder,
                                                std::map<std::string, at::Tensor> input,
                                                const model::ModelConfig& config,
                                                at::ScalarType dtype) {
  checkpoint::write_safetensors(folder / "input.safetensors", input,
                                {{"family", config.family},
                                 {"layers", std::to_string(config.layers)},
                                 {"heads", std::to_string(config.heads)},
                                 {"kv_heads", std::to_string(config.kv_heads)},
                                 {"norm_epsilon", concat(config.norm_epsilon)},
                                 {"rope_base", concat(config.rope_base)},
                                 {"epsilon", concat(tolerance_of(dtype).epsilon)}});
  const std::string command =
      concat("'", TRIREME_TEST_PYTHON, "' '", TRIREME_REFERENCE, "' '", folder.string(), "'");
  if (std::system(command.c_str()) != 0) throw Error("the reference failed: " + command);
  return harness::read_tensors(folder / "reference.safetensors");
}

// Tokens and targets without a pattern; every seventh target is ignored.
std::pair<at::Tensor, at::Tensor> make_batch(const Case& test) {
  const int64_t V = test.config.vocab_size;
  const at::Tensor index = at::arange(test.batch * test.tokens, at::kLong);
  const at::Tensor tokens = (index * 7919 + 13).remainder(V).view({test.batch, test.tokens});
  const at::Tensor targets = (index * 104729 + 5).remainder(V);
  targets.index_put_({index.remainder(7).eq(3)},
                     at::scalar_tensor(model::kIgnoredTarget, at::kLong));
  return {tokens, targets.view({test.batch, test.tokens})};
}

void compare(const Case& test, at::ScalarType dtype) {
  SCOPED_TRACE(test.name + (dtype == at::kDouble ? " in fp64" : " in fp32"));
  const Tolerance tolerance = tolerance_of(dtype);
  const auto model = model::make_model(test.config, /*seed=*/7, dtype);
  const auto [tokens, targets] = make_batch(test);
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<parallel::Shard> shards;
  std::map<std::string, at::Tensor> input = {{"tokens", tokens}, {"targets", targets}};
  // Away from the initial symmetry: norms are not all one, biases not all zero.
  c10::AutoGradMode no_grad(false);
  for (const auto& item : model->module().named_parameters()) {
    const at::Tensor index =
        at::arange(item.value().numel(), at::kDouble).view(item.value().sizes());
    item.value().add_((index * 0.7).sin().mul(0.1).to(dtype));
    parameters.emplace_back(item.key(), item.value());
    shards.push_back({.name = item.key(),
                      .weights = item.value().detach(),
                      .layout = mesh::Layout(item.value().sizes().vec(), {{"shard", 1}})});
    input[item.key()] = item.value().detach().clone();
  }
  const harness::TemporaryFolder folder;
  const auto reference = run_reference(folder.path(), input, test.config, dtype);

  harness::assert_close(model->logits(tokens), reference.at("logits"), tolerance.forward, 0,
                        "logits");
  train::Optimizer optimizer(
      shards, {.weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = tolerance.epsilon});
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    for (auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
    model::Loss loss;
    {
      const c10::AutoGradMode grad(true);
      loss = model->loss(tokens, targets);
      (loss.sum / static_cast<double>(loss.count)).backward();
    }
    losses.push_back(loss.sum.item<double>() / static_cast<double>(loss.count));
    if (step == 0) {
      ASSERT_EQ(loss.count, targets.ne(model::kIgnoredTarget).sum().item<int64_t>());
      harness::assert_close(loss.sum, reference.at("loss"), tolerance.forward, 0, "loss");
      for (const auto& [name, parameter] : parameters) {
        ASSERT_TRUE(parameter.grad().defined()) << name;
        const double scale =
            gradient_scale(name, [&](const std::string& of) { return reference.at("grad." + of); });
        harness::assert_close(parameter.grad(), reference.at("grad." + name), 0,
                              tolerance.gradient * scale, "gradient of " + name);
      }
    }
    for (size_t i = 0; i < shards.size(); ++i) shards[i].gradient = parameters[i].second.grad();
    optimizer.step(1e-3);
  }
  harness::assert_close(at::tensor(losses, at::kDouble), reference.at("losses"), tolerance.gradient,
                        0, "losses");
  for (const auto& [name, parameter] : parameters) {
    harness::assert_close(parameter, reference.at("trained." + name), tolerance.forward,
                          trained_tolerance(dtype, reference.at("grad." + name)),
                          "trained " + name);
  }
}

model::ModelConfig tiny(const std::string& family) {
  return {.family = family,
          .layers = 2,
          .width = 24,
          .heads = 4,
          .kv_heads = 4,
          .ffn_width = 40,
          .sequence_length = 20,
          .vocab_size = 48};
}

class Parity : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Parity, LlamaAgreesWithPlainTorch) { compare({"llama", tiny("llama")}, GetParam()); }

TEST_P(Parity, LlamaWithGroupedQueriesOddVocabularyAndThreeSequences) {
  model::ModelConfig config = tiny("llama");
  config.kv_heads = 2;
  config.vocab_size = 47;
  config.ffn_width = 37;
  compare({"grouped", config, 3, 17}, GetParam());
}

TEST_P(Parity, LlamaWithTiedEmbeddingAndOneSequence) {
  model::ModelConfig config = tiny("llama");
  config.kv_heads = 1;
  config.tied_embedding = true;
  compare({"tied", config, 1, 20}, GetParam());
}

TEST_P(Parity, Gpt2AgreesWithPlainTorch) { compare({"gpt2", tiny("gpt2"), 3, 13}, GetParam()); }

INSTANTIATE_TEST_SUITE_P(Dtypes, Parity, ::testing::Values(at::kDouble, at::kFloat),
                         [](const auto& info) {
                           return info.param == at::kDouble ? "fp64" : "fp32";
                         });

}  // namespace
}  // namespace trireme
