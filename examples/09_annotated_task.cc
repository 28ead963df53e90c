// Your own torch::nn::Module with everything that `trireme train` has, on data x tensor ranks: the
// module does not change, and four patterns say how its weights are split. It learns to continue
// arithmetic progressions, of which it makes its own data.
//
//   build/release/bin/example_09_annotated_task train --ranks 4 --parallel.tensor=2
//   build/release/bin/example_09_annotated_task train --ranks 2 --parallel.pipeline=2
//
// Kill it at any moment, and the same command resumes with the same bits, or at another layout.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include "trireme/cli/program.h"
#include "trireme/train/annotated/annotated_task.h"
#include "trireme/train/task/task_metrics.h"

namespace {

using namespace trireme;
namespace nn = torch::nn;
constexpr int64_t kHeads = 4, kTokens = 12, kVocabulary = 50;

struct Block : nn::Module {
  explicit Block(int64_t width) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    q = register_module("q", nn::Linear(width, width));
    k = register_module("k", nn::Linear(width, width));
    v = register_module("v", nn::Linear(width, width));
    o = register_module("o", nn::Linear(width, width));
    fc1 = register_module("fc1", nn::Linear(width, 4 * width));
    fc2 = register_module("fc2", nn::Linear(4 * width, width));
  }
  static at::Tensor heads(const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = norm1(x);
    const at::Tensor a = at::scaled_dot_product_attention(heads(q(h)), heads(k(h)), heads(v(h)), {},
                                                          0, /*is_causal=*/true);
    const at::Tensor y = x + o(a.transpose(1, 2).flatten(2));
    return y + fc2(at::gelu(fc1(norm2(y))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr}, fc1{nullptr}, fc2{nullptr};
};

// Progressions modulo the vocabulary: all that begin at `begin` in a mixed list of them.
class Progressions : public dataset::Source {
 public:
  Progressions(int64_t begin, int64_t size) : begin_(begin), size_(size) {}
  int64_t size() const override { return size_; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    const int64_t which = (begin_ + index) * 199 % (9 * kVocabulary);
    const int64_t first = which % kVocabulary, step = 1 + which / kVocabulary;
    const at::Tensor ids = (torch::arange(kTokens + 1) * step + first) % kVocabulary;
    return {{"ids", ids.narrow(0, 0, kTokens)}, {"next", ids.narrow(0, 1, kTokens)}};
  }

 private:
  int64_t begin_, size_;
};

struct ModelConfig {
  TRIREME_KEYS_BEGIN(ModelConfig)
  TRIREME_KEY(int64_t, width, 32, kMustStay, "width of the model, a multiple of 4", Range{4, 65536})
  TRIREME_KEY(int64_t, layers, 1, kMustStay, "number of blocks", Range{1, 1000})
  TRIREME_KEYS_END()
};

class Continue : public train::AnnotatedTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Continue>(*this); }
  void add_keys(train::Keys& keys) override { keys.add("model", model_); }
  void open(bool evaluates) override { evaluates_ = evaluates; }
  const dataset::Source& training() const override { return training_; }
  const dataset::Source* validation() const override { return evaluates_ ? &validation_ : nullptr; }
  train::TaskTraits traits() const override {
    return {.data_name = "progressions", .metrics = {{.name = "accuracy"}}};
  }

  // Each link is a unit of ZeRO-3 and of recompute, and a layer of pipelines.
  train::AnnotatedNet make_net() const override {
    train::AnnotatedNet net;
    net.add("words", nn::Embedding(kVocabulary, model_.width));
    for (int64_t layer = 0; layer < model_.layers; ++layer)
      net.add("block" + std::to_string(layer), std::make_shared<Block>(model_.width));
    net.add("head", nn::Linear(model_.width, kVocabulary));
    return net;
  }
  spmd::Annotations annotations() const override {
    return {.parameters = {{"*.[qkv].*", spmd::split(0, "tensor")},
                           {"*.o.weight", spmd::split(1, "tensor")},
                           {"*.fc1.*", spmd::split(0, "tensor")},
                           {"*.fc2.weight", spmd::split(1, "tensor")}},
            .inputs = {{"ids", spmd::split(0, "data")}}};
  }
  std::vector<std::string> target_names() const override { return {"next"}; }
  at::Tensor loss_sum(const at::Tensor& logits_BTV, const train::StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits_BTV.flatten(0, 1), 1), batch["next"].flatten(), {},
                        at::Reduction::Sum);
  }
  int64_t num_terms(const dataset::Batch& batch) const override { return batch.size() * kTokens; }
  at::Tensor metric_states(const at::Tensor& logits_BTV,
                           const train::StageInput& batch) const override {
    return train::accuracy_state(logits_BTV.flatten(0, 1), batch["next"].flatten());
  }

 private:
  ModelConfig model_;
  Progressions training_{0, 386}, validation_{386, 64};
  bool evaluates_ = false;
};

constexpr train::TaskKind kTasks[] = {
    {"continue", "continue progressions",
     []() -> std::unique_ptr<train::Task> { return std::make_unique<Continue>(); }}};

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program(argc, argv, {.tasks = kTasks, .description = "Continues progressions."});
}
