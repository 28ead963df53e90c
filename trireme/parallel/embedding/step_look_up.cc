#include "trireme/parallel/embedding/step_look_up.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

// Cuts `whole` into rows for each microbatch, and makes leaves of them if it has a gradient.
// Cut from the graph: each microbatch has its own backward, and the tables get one for all.
std::vector<at::Tensor> cut(const at::Tensor& whole, const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : whole.detach().split_with_sizes(sizes)) {
    parts.push_back(part.detach().set_requires_grad(whole.requires_grad()));
  }
  return parts;
}

at::Tensor gradient_of(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& part : parts) {
    const at::Tensor& gradient = part.grad();
    // A microbatch whose output nobody used.
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(part));
  }
  return gradients.size() == 1 ? gradients.front() : at::cat(gradients);
}

}  // namespace

JaggedIds join_batches(const std::vector<JaggedIds>& microbatches, int64_t num_tables) {
  if (microbatches.size() == 1) return microbatches.front();
  std::vector<at::Tensor> values{at::empty({0}, at::kLong)}, weights;
  std::vector<int64_t> offsets{0};
  JaggedIds joined;
  for (const JaggedIds& ids : microbatches) {
    TRIREME_CHECK(ids.offsets.numel() == num_tables * ids.num_samples + 1, "a microbatch of ",
                  ids.num_samples, " samples has ", ids.offsets.numel(), " offsets; expected ",
                  num_tables * ids.num_samples + 1, " for ", num_tables, " tables");
    joined.num_samples += ids.num_samples;
  }
  for (int64_t table = 0; table < num_tables; ++table) {
    // By table first, which is the order of offsets.
    for (const JaggedIds& ids : microbatches) {
      const TableIds list = view_table(ids, table);
      const auto count = std::ssize(list.values);
      values.push_back(ids.values.narrow(0, list.offsets.front(), count));
      if (ids.weights.defined()) {
        weights.push_back(ids.weights.narrow(0, list.offsets.front(), count));
      }
      const int64_t shift = offsets.back() - list.offsets.front();
      for (const int64_t end : list.offsets.subspan(1)) offsets.push_back(end + shift);
    }
  }
  joined.values = at::cat(values);
  joined.offsets = at::tensor(offsets, at::kLong);
  if (!weights.empty()) joined.weights = at::cat(weights);
  return joined;
}

StepLookUp::StepLookUp(EmbeddingTables& tables, std::vector<JaggedIds> microbatches)
    : tables_(tables),
      microbatches_(std::move(microbatches)),
      started_(tables.start(join_batches(microbatches_, std::ssize(tables.configs())))) {}

Embeddings StepLookUp::at(size_t microbatch) {
  if (!all_) fetch();
  return parts_.at(microbatch);
}

void StepLookUp::fetch() {
  all_ = tables_.finish(started_);
  std::vector<int64_t> sizes;
  for (const JaggedIds& ids : microbatches_) sizes.push_back(ids.num_samples);
  parts_.resize(microbatches_.size());
  const std::vector<at::Tensor> pooled = cut(all_->pooled_BW, sizes);
  for (size_t m = 0; m < parts_.size(); ++m) parts_[m].pooled_BW = pooled[m];
  size_t next_apart = 0;
  for (size_t t = 0; t < tables_.configs().size(); ++t) {
    if (tables_.configs()[t].pooling != Pooling::kNone) continue;
    for (size_t m = 0; m < sizes.size(); ++m) {
      sizes[m] = std::ssize(view_table(microbatches_[m], static_cast<int64_t>(t)).values);
    }
    const std::vector<at::Tensor> apart = cut(all_->apart[next_apart++], sizes);
    for (size_t m = 0; m < parts_.size(); ++m) parts_[m].apart.push_back(apart[m]);
  }
}

void StepLookUp::backward() {
  TRIREME_ASSERT(all_, "backward of a look-up that was not fetched");
  std::vector<at::Tensor> outputs{all_->pooled_BW}, gradients, parts;
  outputs.insert(outputs.end(), all_->apart.begin(), all_->apart.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    parts.clear();
    for (const Embeddings& part : parts_) {
      parts.push_back(i == 0 ? part.pooled_BW : part.apart[i - 1]);
    }
    gradients.push_back(parts.empty() ? at::zeros_like(outputs[i]) : gradient_of(parts));
  }
  torch::autograd::backward(outputs, gradients);
  all_.reset();
  parts_.clear();
}

}  // namespace trireme::parallel
