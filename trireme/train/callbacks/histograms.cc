#include "trireme/train/callbacks/histograms.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// This rank's part of the histogram of each parameter of the whole model. tensor: which of a
// shard's.
std::vector<Histogram> local_histograms(RunView& run, at::Tensor parallel::Shard::*tensor,
                                        double factor) {
  const std::span<const std::string> names = run.parameter_names();
  std::vector<Histogram> histograms(names.size());
  for (const parallel::Shard& shard : run.shards()) {
    const at::Tensor& values = shard.*tensor;
    if (!values.defined() || !run.counts(shard)) continue;
    const auto at = std::ranges::find(names, shard.name) - names.begin();
    histograms[static_cast<size_t>(at)].add(histogram_of(values, factor));
  }
  return histograms;
}

}  // namespace

void Histograms::check(const RunConfig& /*config*/,
                       std::span<const std::string> /*metrics*/) const {
  TRIREME_CHECK(config_.weights || config_.gradients, "histogram.interval is ", config_.interval,
                ", but histogram.weights and histogram.gradients are both false; set one to true, "
                "or histogram.interval to 0");
}

void Histograms::on_gradients(RunView& run) {
  gradients_ = local_histograms(run, &parallel::Shard::gradient, run.gradient_factor());
}

void Histograms::on_step(RunView& run) {
  if (!is_due(run.step())) return;
  std::vector<std::string> tags;
  std::vector<Histogram> histograms;
  const auto append = [&](const char* kind, std::vector<Histogram> of_parameters) {
    for (const std::string& name : run.parameter_names()) tags.push_back(concat(kind, "/", name));
    std::ranges::move(of_parameters, std::back_inserter(histograms));
  };
  if (config_.weights) append("weights", local_histograms(run, &parallel::Shard::weights, 1));
  if (config_.gradients) append("gradients", std::exchange(gradients_, {}));
  sum_on_root(run.world(), histograms);
  std::vector<NamedHistogram> named;
  for (size_t i = 0; i < histograms.size(); ++i) {
    named.push_back({std::move(tags[i]), std::move(histograms[i])});
  }
  run.add_histograms(named);
}

}  // namespace trireme::train
