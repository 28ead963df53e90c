#include "tests/parallel/pipeline/net.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/split.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x w, whose weight's gradient waits where it may.
class DeferredMatmul : public torch::autograd::Function<DeferredMatmul> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            int64_t deferred) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["deferred"] = deferred;
    return x.mm(weight);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = saved[0], weight = saved[1], grad = gradients[0];
    auto* deferred = reinterpret_cast<DeferredWork*>(ctx->saved_data["deferred"].toInt());
    const auto gradient = [x, grad] { return x.t().mm(grad); };
    at::Tensor grad_weight;
    if (!deferred->defer(weight, gradient)) grad_weight = gradient();
    return {grad.mm(weight.t()), grad_weight, at::Tensor()};
  }
};

constexpr int64_t kVocabulary = 11;
// Widths between layers; the skip connection joins equal ones, behind layers 1 and 6.
constexpr int64_t kWidths[] = {kVocabulary, 5, 7, 7, 4, 6, 5, 7, 3, 1};
constexpr int kSkipFrom = 1, kTied = 2, kSkipTo = 6, kLast = Net::kLayers - 1;

std::string edge_after(int layer) { return concat("x", layer); }

// The edges that a layer reads and writes.
std::vector<std::string> reads(int layer) {
  std::vector<std::string> edges = {layer == 0 ? "tokens" : edge_after(layer - 1)};
  if (layer == kSkipTo) edges.push_back(edge_after(kSkipFrom));
  if (layer == kLast) edges.insert(edges.end(), {"classes", "targets"});
  return edges;
}
std::vector<std::string> writes(int layer) {
  if (layer == kLast) return {"loss", "predictions"};
  if (layer == 0) return {edge_after(0), "classes"};
  return {edge_after(layer)};
}

}  // namespace

std::vector<int> layers_of_stages(int num_stages) {
  return split_layers(std::vector<LayerCost>(Net::kLayers), {.num_stages = num_stages});
}

Net::Net(at::ScalarType dtype, DeferredWork* deferred) : deferred_(deferred) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const at::Tensor index = at::arange(kWidths[layer] * kWidths[layer + 1], at::kDouble);
    const at::Tensor values = (index * 1.7 + layer).sin() * 0.6;
    weights_.push_back(
        values.view({kWidths[layer], kWidths[layer + 1]}).to(dtype).requires_grad_());
  }
}

at::Tensor Net::matmul(const at::Tensor& x, const at::Tensor& weight) const {
  if (deferred_ == nullptr) return x.mm(weight);
  return DeferredMatmul::apply(x, weight, reinterpret_cast<int64_t>(deferred_));
}

void Net::layer(int index, std::map<std::string, at::Tensor>& values) const {
  const at::Tensor& weight = weights_[index];
  const at::Tensor& input = values.at(reads(index).front());
  if (index == 0) {
    values["x0"] = weight.index_select(0, input);
    values["classes"] = input.remainder(3);  // int64: no gradient
    return;
  }
  at::Tensor y = matmul(index == kTied ? at::tanh(matmul(input, weight)) : input, weight);
  if (index == kSkipTo) y = y + values.at(edge_after(kSkipFrom));
  if (index != kLast) {
    values[edge_after(index)] = at::tanh(y);
    return;
  }
  const at::Tensor error = y.squeeze(1) - values.at("targets") * values.at("classes");
  values["predictions"] = y.squeeze(1);
  values["loss"] = error.square().sum();
}

std::vector<PipelineStage> Net::stages(int num_stages) {
  std::vector<PipelineStage> stages;
  int begin = 0;
  for (const int count : layers_of_stages(num_stages)) {
    const int end = begin + count;
    std::map<std::string, bool> own;  // written here
    PipelineStage stage{.name = concat("layers ", begin, " to ", end - 1),
                        .inputs = {},
                        .outputs = {},
                        .forward = {}};
    for (int layer = begin; layer < end; ++layer) {
      for (const std::string& edge : reads(layer)) {
        if (!own.contains(edge) && std::ranges::count(stage.inputs, edge) == 0)
          stage.inputs.push_back(edge);
      }
      for (const std::string& edge : writes(layer)) own[edge] = true;
    }
    for (const auto& [edge, unused] : own) {
      bool is_read = end == kLayers;
      for (int layer = end; layer < kLayers; ++layer)
        is_read |= std::ranges::count(reads(layer), edge) > 0;
      // What only this stage reads stays in it.
      if (is_read && (end < kLayers || edge == "loss" || edge == "predictions"))
        stage.outputs.push_back(edge);
    }
    stage.forward = [this, begin, end, inputs = stage.inputs, outputs = stage.outputs](
                        int64_t, std::vector<at::Tensor> tensors) {
      std::map<std::string, at::Tensor> values;
      for (size_t i = 0; i < inputs.size(); ++i) values[inputs[i]] = tensors[i];
      for (int index = begin; index < end; ++index) layer(index, values);
      std::vector<at::Tensor> results;
      for (const std::string& edge : outputs) results.push_back(values.at(edge));
      return results;
    };
    stages.push_back(std::move(stage));
    begin = end;
  }
  return stages;
}

// Three rows; the last of several microbatches has one, the last of five or more none.
at::Tensor Net::feed(const std::string& edge, int64_t microbatch, int64_t num_microbatches) {
  const bool is_last = num_microbatches > 1 && microbatch == num_microbatches - 1;
  const int64_t rows = !is_last ? 3 : num_microbatches >= 5 ? 0 : 1;
  const at::Tensor index = at::arange(rows, at::kLong) + 3 * microbatch;
  if (edge == "tokens") return (index * 7 + 2).remainder(kVocabulary);
  return (index * 5).remainder(4);
}

at::Tensor Net::loss(int64_t microbatch, int64_t num_microbatches) {
  std::map<std::string, at::Tensor> values;
  for (const char* edge : {"tokens", "targets"})
    values[edge] = feed(edge, microbatch, num_microbatches);
  for (int index = 0; index < kLayers; ++index) layer(index, values);
  return values.at("loss");
}

Gradients Net::gradients(int begin, int end) const {
  Gradients gradients;
  for (int layer = begin; layer < end; ++layer) {
    if (weights_[layer].grad().defined()) gradients[concat("w", layer)] = weights_[layer].grad();
  }
  return gradients;
}

}  // namespace trireme::parallel
