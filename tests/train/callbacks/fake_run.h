// A run for tests of callbacks: it keeps what they ask for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/language_config.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/callbacks/callback.h"

namespace trireme::train {

class FakeRun final : public RunView {
 public:
  explicit FakeRun(comm::Communicator* world = nullptr)
      : own_(world == nullptr ? std::move(comm::make_thread_group(1).front()) : nullptr),
        world_(world == nullptr ? *own_ : *world) {}

  const RunConfig& config() const override { return config_; }
  std::filesystem::path folder() const override { return folder_; }
  comm::Communicator& world() override { return world_; }
  int64_t step() const override { return metrics_.step; }
  const StepMetrics& metrics() const override { return metrics_; }
  const std::vector<parallel::Shard>& shards() override { return shards_; }
  std::vector<std::pair<std::string, at::Tensor>> parameters() override { return parameters_; }
  std::span<const std::string> parameter_names() const override { return names_; }
  int64_t activation_copies() const override { return activation_copies_; }
  bool counts(const parallel::Shard&) const override { return true; }
  double gradient_factor() const override { return gradient_factor_; }
  void add_histograms(std::span<const NamedHistogram> histograms) override {
    histograms_.assign(histograms.begin(), histograms.end());
  }
  void spread_weights() override {}
  std::optional<double> evaluate() override { return std::nullopt; }
  void add_metric(std::string name, double value) override {
    metrics_.others.emplace_back(std::move(name), value);
  }
  void add_list(std::string name, std::vector<double> values) override {
    metrics_.lists.emplace_back(std::move(name), std::move(values));
  }
  void tell(const std::string& line) override { lines_.push_back(line); }
  double longest_save_seconds() const override { return save_seconds_; }
  void request_checkpoint() override { ++num_requested_; }
  void stop(std::string reason, bool for_good) override {
    stop_reason_ = std::move(reason);
    for_good_ = for_good;
  }

  std::unique_ptr<comm::Communicator> own_;
  comm::Communicator& world_;
  RunConfig config_ = language_config();
  std::filesystem::path folder_;
  StepMetrics metrics_;
  std::vector<parallel::Shard> shards_;
  std::vector<std::string> names_;  // of the parameters
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  int64_t activation_copies_ = 1;
  double gradient_factor_ = 1;
  double save_seconds_ = 0;
  std::vector<NamedHistogram> histograms_;
  std::vector<std::string> lines_;
  int num_requested_ = 0;
  std::string stop_reason_;
  bool for_good_ = false;
};

// Sets keys of a callback from text.
inline void set_keys(Callback& callback,
                     const std::vector<std::pair<std::string, double>>& values) {
  Keys keys;
  callback.add_keys(keys);
  for (Field& field : keys.take()) {
    for (const auto& [key, value] : values) {
      if (field.key != key) continue;
      if (auto* const* whole = std::get_if<int64_t*>(&field.value))
        **whole = static_cast<int64_t>(value);
      if (auto* const* real = std::get_if<double*>(&field.value)) **real = value;
    }
  }
}

}  // namespace trireme::train
