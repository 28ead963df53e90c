#include "tests/parallel/embedding/embedding_oracle.h"

#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/random/random.h"

namespace trireme::harness {

using namespace parallel;

JaggedIds draw_ids(Draw& draw, const std::vector<TableConfig>& tables, int64_t num_samples,
                   at::ScalarType dtype) {
  std::vector<int64_t> values, lengths;
  for (const TableConfig& table : tables) {
    for (int64_t s = 0; s < num_samples; ++s) {
      lengths.push_back(draw.below<int64_t>(4));
      for (int64_t k = 0; k < lengths.back(); ++k) {
        const bool is_repeated = k > 0 && draw.below(4) == 0;
        values.push_back(is_repeated ? values.back() : draw.below(table.rows));
      }
    }
  }
  const at::Tensor ids = at::tensor(values, at::kLong);
  const at::Tensor weights = at::arange(ids.numel(), at::kDouble).mul(1.3).sin().add(0.2);
  return jagged_ids(ids, at::tensor(lengths, at::kLong).view({std::ssize(tables), num_samples}),
                    weights.to(dtype));
}

JaggedIds samples_of(const JaggedIds& ids, int64_t num_tables, int64_t begin, int64_t end) {
  std::vector<at::Tensor> values, weights;
  const at::Tensor lengths = ids.offsets.diff().view({num_tables, ids.num_samples});
  for (int64_t t = 0; t < num_tables; ++t) {
    const int64_t first = ids.offsets[t * ids.num_samples + begin].item<int64_t>();
    const int64_t count = ids.offsets[t * ids.num_samples + end].item<int64_t>() - first;
    values.push_back(ids.values.narrow(0, first, count));
    weights.push_back(ids.weights.narrow(0, first, count));
  }
  return jagged_ids(at::cat(values), lengths.narrow(1, begin, end - begin), at::cat(weights));
}

Embeddings samples_of(const Embeddings& whole, const JaggedIds& ids,
                      const std::vector<TableConfig>& tables, int64_t begin, int64_t end) {
  Embeddings part{whole.pooled_BW.narrow(0, begin, end - begin), {}};
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].pooling != Pooling::kNone) continue;
    const TableIds list = view_table(ids, static_cast<int64_t>(t));
    const int64_t first = list.offsets[static_cast<size_t>(begin)] - list.offsets[0];
    const int64_t last = list.offsets[static_cast<size_t>(end)] - list.offsets[0];
    part.apart.push_back(whole.apart[part.apart.size()].narrow(0, first, last - first));
  }
  return part;
}

EmbeddingOracle::EmbeddingOracle(std::vector<TableConfig> tables, const EmbeddingOptions& options)
    : tables_(std::move(tables)), options_(options) {
  for (const TableConfig& table : tables_) {
    const at::Tensor weights = at::empty({table.rows, table.width}, at::kDouble);
    const double scale = table.initial_scale > 0 ? table.initial_scale
                                                 : 1 / std::sqrt(static_cast<double>(table.rows));
    const RandomKey key = random_key(options.seed, table.name + ".weight");
    auto* const out = weights.mutable_data_ptr<double>();
    for (int64_t i = 0; i < weights.numel(); ++i) {
      out[i] = scale * (2 * random_uniform(key, static_cast<uint64_t>(i)) - 1);
    }
    weights_.push_back(weights.to(options.dtype).requires_grad_());
  }
}

Embeddings EmbeddingOracle::look_up(const JaggedIds& ids) {
  std::vector<at::Tensor> pooled{at::empty({ids.num_samples, 0}, options_.dtype)};
  Embeddings result;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const int64_t first = static_cast<int64_t>(t) * ids.num_samples;
    const at::Tensor offsets = ids.offsets.narrow(0, first, ids.num_samples + 1);
    const int64_t begin = offsets[0].item<int64_t>();
    const int64_t count = offsets[ids.num_samples].item<int64_t>() - begin;
    const at::Tensor values = ids.values.narrow(0, begin, count);
    if (tables_[t].pooling == Pooling::kNone) {
      result.apart.push_back(at::embedding(weights_[t], values));
      continue;
    }
    const auto weights = tables_[t].is_weighted
                             ? std::optional<at::Tensor>(ids.weights.narrow(0, begin, count))
                             : std::nullopt;
    pooled.push_back(std::get<0>(
        at::embedding_bag(weights_[t], values, offsets - begin, /*scale_grad_by_freq=*/false,
                          tables_[t].pooling == Pooling::kMean ? 1 : 0, /*sparse=*/false, weights,
                          /*include_last_offset=*/true)));
  }
  result.pooled_BW = at::cat(pooled, 1);
  return result;
}

at::Tensor& EmbeddingOracle::state(const char* name, size_t table) {
  const at::Tensor& w = weights_[table];
  const bool is_per_row = options_.optimizer.rule == RowRule::kRowWiseAdaGrad;
  at::Tensor& state = states_[std::string(name) + "." + tables_[table].name + ".weight"];
  if (!state.defined()) {
    const double initial =
        std::string_view(name) == "sum" ? options_.optimizer.initial_accumulator : 0;
    state = is_per_row ? at::full({w.size(0)}, initial, w.options().requires_grad(false))
                       : at::full_like(w, initial).requires_grad_(false);
  }
  return state;
}

void EmbeddingOracle::step(const JaggedIds& ids) {
  const c10::AutoGradMode no_grad(false);
  const RowOptimizerConfig& o = options_.optimizer;
  const auto k = static_cast<double>(++num_steps_);
  for (size_t t = 0; t < tables_.size(); ++t) {
    at::Tensor& w = weights_[t];
    const at::Tensor g = w.grad().clone();
    w.mutable_grad().reset();
    if (o.rule == RowRule::kSgd) w -= o.learning_rate * g;
    if (o.rule == RowRule::kAdaGrad) {
      at::Tensor& a = state("sum", t);
      a += g * g;
      w -= o.learning_rate * g / (a.sqrt() + o.epsilon);
    }
    if (o.rule == RowRule::kRowWiseAdaGrad) {
      at::Tensor& a = state("sum", t);
      a += (g * g).mean(1);
      w -= (o.learning_rate / (a.sqrt() + o.epsilon)).unsqueeze(1) * g;
    }
    if (o.rule != RowRule::kAdam && o.rule != RowRule::kLazyAdam) continue;
    const at::Tensor is_used = at::zeros({w.size(0), 1}, at::kBool);
    if (o.rule == RowRule::kAdam) is_used.fill_(true);
    const TableIds list = view_table(ids, static_cast<int64_t>(t));
    for (const int64_t id : list.values) is_used[id].fill_(true);
    at::Tensor& m = state("exp_avg", t);
    at::Tensor& v = state("exp_avg_sq", t);
    m = at::where(is_used, o.beta1 * m + (1 - o.beta1) * g, m);
    v = at::where(is_used, o.beta2 * v + (1 - o.beta2) * g * g, v);
    const at::Tensor mean = m / (1 - std::pow(o.beta1, k));
    const at::Tensor root = (v / (1 - std::pow(o.beta2, k))).sqrt();
    w -= at::where(is_used, o.learning_rate * mean / (root + o.epsilon), 0);
  }
}

std::map<std::string, at::Tensor> EmbeddingOracle::state() const {
  std::map<std::string, at::Tensor> result = states_;
  for (size_t t = 0; t < tables_.size(); ++t) {
    result[tables_[t].name + ".weight"] = weights_[t].detach();
  }
  return result;
}

}  // namespace trireme::harness
