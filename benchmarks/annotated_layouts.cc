// Four modules whose splits are planned under given ones: what benchmarks/annotated_layouts.py
// trains, to compare a plan's seconds with measured ones.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "trireme/cli/program.h"
#include "trireme/train/annotated/annotated_task.h"

namespace {

using namespace trireme;
namespace nn = torch::nn;

constexpr int64_t kVocabulary = 1024, kHeads = 8, kNumbers = 32, kImage = 32;

struct LayoutConfig {
  TRIREME_KEYS_BEGIN(LayoutConfig)
  TRIREME_KEY(std::string, kind, "mlp", kMustStay, "mlp, transformer, unet or dlrm")
  TRIREME_KEY(std::string, given, "", kMayChange, "columns, rows, blocks, samples or nothing")
  TRIREME_KEY(int64_t, width, 512, kMustStay, "width", Range{8, 1 << 16})
  TRIREME_KEY(int64_t, tokens, 128, kMustStay, "tokens of a sequence", Range{1, 1 << 16})
  TRIREME_KEYS_END()
};

struct Mlp : nn::Module {
  explicit Mlp(int64_t width) {
    first = register_module("first", nn::Linear(kNumbers, width));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
    head = register_module("head", nn::Linear(width, kVocabulary));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = at::gelu(first(x));
    return head(h + down(at::gelu(up(h))));
  }
  nn::Linear first{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
};

struct Transformer : nn::Module {
  explicit Transformer(int64_t width) {
    words = register_module("words", nn::Embedding(kVocabulary, width));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    o = register_module("o", nn::Linear(width, width));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
    head = register_module("head", nn::Linear(width, kVocabulary));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids);
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : qkv(norm(x)).chunk(3, -1))
      parts.push_back(part.view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2));
    const at::Tensor a =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, /*is_causal=*/true);
    x = x + o(a.transpose(1, 2).flatten(2));
    x = x + down(at::gelu(up(norm(x))));
    return head(x).flatten(0, 1);
  }
  nn::Embedding words{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear qkv{nullptr}, o{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
};

struct UNet : nn::Module {
  explicit UNet(int64_t width) {
    const auto conv = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    };
    first = conv("first", 4, width), up = conv("up", width, 2 * width);
    down = conv("down", 2 * width, width), out = conv("out", 2 * width, 4);
    head = register_module("head", nn::Linear(4 * kImage * kImage, kVocabulary));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor skip = at::relu(first(x));
    const at::Tensor deep = at::relu(down(at::relu(up(at::max_pool2d(skip, 2)))));
    const at::Tensor wide = at::upsample_nearest2d(deep, {kImage, kImage});
    return head(out(at::cat({wide, skip}, 1)).flatten(1));
  }
  nn::Conv2d first{nullptr}, up{nullptr}, down{nullptr}, out{nullptr};
  nn::Linear head{nullptr};
};

struct Dlrm : nn::Module {
  explicit Dlrm(int64_t width) {
    for (int table = 0; table < 4; ++table) {
      tables.push_back(
          register_module("table" + std::to_string(table), nn::Embedding(16384, width)));
    }
    up = register_module("up", nn::Linear(4 * width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
    head = register_module("head", nn::Linear(width, kVocabulary));
  }
  at::Tensor forward(const at::Tensor& ids) {
    std::vector<at::Tensor> fields;
    for (int64_t table = 0; table < 4; ++table)
      fields.push_back(tables[static_cast<size_t>(table)](ids.select(1, table)));
    return head(at::relu(down(at::relu(up(at::cat(fields, 1))))));
  }
  std::vector<nn::Embedding> tables;
  nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
};

// A few samples, made once: a plan has no time for making them.
class Samples : public dataset::Source {
 public:
  explicit Samples(const LayoutConfig& config) {
    for (int64_t index = 0; index < 64; ++index) made_.push_back(make(config, index));
  }
  int64_t size() const override { return 4096; }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> /*key*/) const override {
    return made_[static_cast<size_t>(index) % made_.size()];
  }

 private:
  static dataset::NamedTensors make(const LayoutConfig& config, int64_t index) {
    const auto numbers = [&](at::IntArrayRef sizes) {
      return at::sin(at::arange(c10::multiply_integers(sizes)) * 0.37 + static_cast<double>(index))
          .view(sizes);
    };
    const auto ids = [&](int64_t count) {
      return (at::arange(count) * 199 + index * 31) % kVocabulary;
    };
    if (config.kind == "transformer") return {{"x", ids(config.tokens)}, {"y", ids(config.tokens)}};
    const at::Tensor y = at::scalar_tensor(index % kVocabulary, at::kLong);
    if (config.kind == "unet") return {{"x", numbers({4, kImage, kImage})}, {"y", y}};
    if (config.kind == "dlrm") return {{"x", ids(4)}, {"y", y}};
    return {{"x", numbers({kNumbers})}, {"y", y}};
  }

  std::vector<dataset::NamedTensors> made_;
};

class Layouts : public train::AnnotatedTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<Layouts>(*this); }
  void add_keys(train::Keys& keys) override { keys.add("model", config_); }
  void open(bool /*evaluates*/) override { samples_ = std::make_shared<Samples>(config_); }
  const dataset::Source& training() const override { return *samples_; }
  const dataset::Source* validation() const override { return nullptr; }
  train::TaskTraits traits() const override { return {.data_name = "samples"}; }

  train::AnnotatedNet make_net() const override {
    if (config_.kind == "transformer") return std::make_shared<Transformer>(config_.width);
    if (config_.kind == "unet") return std::make_shared<UNet>(config_.width);
    if (config_.kind == "dlrm") return std::make_shared<Dlrm>(config_.width);
    return std::make_shared<Mlp>(config_.width);
  }
  spmd::Annotations annotations() const override {
    using spmd::split;
    spmd::Annotations notes{.inputs = {{"x", {}}}};
    if (config_.given == "columns") notes.parameters = {{"up.*", split(0, "tensor")}};
    if (config_.given == "rows") notes.parameters = {{"down.weight", split(1, "tensor")}};
    if (config_.given == "blocks") {
      notes.parameters = {{"up.*", split(0, "tensor")},
                          {"down.weight", split(1, "tensor")},
                          {"head.weight", split(0, "tensor")}};
    }
    if (config_.given == "samples") notes.inputs = {{"x", split(0, "tensor")}};
    return notes;
  }
  at::Tensor loss_sum(const at::Tensor& logits, const train::StageInput& batch) const override {
    return at::nll_loss(at::log_softmax(logits, 1), batch["y"].flatten(), {}, at::Reduction::Sum);
  }

 private:
  LayoutConfig config_;
  std::shared_ptr<const Samples> samples_;
};

constexpr train::TaskKind kTasks[] = {
    {"layouts", "planned layouts",
     []() -> std::unique_ptr<train::Task> { return std::make_unique<Layouts>(); }}};

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program(argc, argv, {.tasks = kTasks, .description = "Planned layouts."});
}
