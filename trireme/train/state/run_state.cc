#include "trireme/train/state/run_state.h"

#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include <ATen/ops/cat.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/parallel/embedding/rows/touched_rows.h"
#include "trireme/train/config/shares.h"

namespace trireme::train {
namespace {

nlohmann::json identity_to_json(const DataIdentity& data) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, sum] : data.checksums) object[name] = sum;
  for (const auto& [name, count] : data.counts) object[name] = count;
  return object;
}

}  // namespace

std::string to_json(const RunState& state) {
  return nlohmann::json{{"step", state.step},
                        {"next_sample", state.next_sample},
                        {"optimizer_steps", state.optimizer_steps},
                        {"config", state.config},
                        {"loss_scale", state.loss_scale},
                        {"loss_scale_steps", state.loss_scale_steps},
                        {"mean_grad_norm", state.bad_steps.mean_norm},
                        {"good_steps", state.bad_steps.num_good},
                        {"skipped_steps", state.bad_steps.num_skipped},
                        {"bad_samples", state.bad_samples},
                        {"noise_squared_gradient", state.noise.squared_gradient},
                        {"noise_trace", state.noise.trace},
                        {"noise_weight", state.noise.weight},
                        {"data", identity_to_json(state.data)},
                        {"validation", identity_to_json(state.validation)},
                        {"teacher", identity_to_json(state.teacher)},
                        {"callbacks", state.callbacks},
                        {"shares", to_text(state.shares)}}
      .dump();
}

namespace {

DataIdentity parse_identity(const JsonView& data) {
  constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max();
  DataIdentity identity;
  for (const auto& [name, value] : data.members()) {
    if (value.value().is_string()) {
      identity.checksums[name] = value.text();
    } else {
      identity.counts[name] = value.integer(0, kMaxCount);
    }
  }
  // Earlier versions wrote empty checksums for unknown data.
  std::erase_if(identity.checksums, [](const auto& part) { return part.second.empty(); });
  if (identity.checksums.empty()) return {};
  return identity;
}

}  // namespace

RunState parse_state(const std::string& json, const std::string& where) {
  constexpr int64_t kMaxSamples = int64_t{1} << 62;
  constexpr double kMaxNumber = std::numeric_limits<double>::max();
  const std::string source = where + ": the state of the run";
  try {
    const nlohmann::json value = parse_json(json, source);
    const JsonView root(value, source);
    const auto count = [&](const char* key) {
      const auto found = root.find(key);
      return found ? found->integer(0, kMaxSamples) : 0;
    };
    const auto number = [&](const char* key, double minimum) {
      const auto found = root.find(key);
      return found ? found->number(minimum, kMaxNumber) : 0;
    };
    std::map<std::string, std::string> callbacks;
    if (const auto found = root.find("callbacks")) {
      for (const auto& [name, text] : found->members()) callbacks[name] = text.text();
    }
    std::vector<dataset::Shares> shares;
    if (const auto found = root.find("shares"); found && !found->text().empty()) {
      shares = parse_shares(found->text(), source + ": shares");
    }
    const auto identity = [&](const char* key) {
      const auto found = root.find(key);
      return found ? parse_identity(*found) : DataIdentity();
    };
    // Keys that later versions added have defaults, so that earlier checkpoints stay readable.
    return {.step = root.at("step").integer(0, kMaxSamples),
            .next_sample = root.at("next_sample").integer(0, kMaxSamples),
            .optimizer_steps = root.at("optimizer_steps").integer(0, kMaxSamples),
            .config = root.at("config").text(),
            .loss_scale = number("loss_scale", 0),
            .loss_scale_steps = count("loss_scale_steps"),
            .bad_steps = {.mean_norm = number("mean_grad_norm", 0),
                          .num_good = count("good_steps"),
                          .num_skipped = count("skipped_steps")},
            .bad_samples = count("bad_samples"),
            .noise = {.squared_gradient = number("noise_squared_gradient", -kMaxNumber),
                      .trace = number("noise_trace", -kMaxNumber),
                      .weight = number("noise_weight", 0)},
            .data = identity("data"),
            .validation = identity("validation"),
            .teacher = identity("teacher"),
            .callbacks = std::move(callbacks),
            .shares = std::move(shares)};
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

RunState parse_state(const std::string& json, const std::string& where, int64_t step) {
  RunState state = parse_state(json, where);
  if (state.step == step) return state;
  throw CheckpointError(concat(where, ": the state of the run is of step ", state.step,
                               " and the manifest of step ", step, "; use another checkpoint"));
}

std::vector<checkpoint::Entry> checkpoint_entries(const std::vector<parallel::Shard>& shards,
                                                  std::vector<checkpoint::Entry> states) {
  std::vector<checkpoint::Entry> entries;
  for (const parallel::Shard& shard : shards) {
    entries.push_back({shard.name, shard.weights, shard.layout, shard.rank});
  }
  for (checkpoint::Entry& entry : states) {
    entry.name = kOptimizerPrefix + entry.name;
    entries.push_back(std::move(entry));
  }
  return entries;
}

namespace {

// Rows on a disk or on servers, as a checkpoint reads and writes them.
class StoredTable : public checkpoint::OffloadedTensor {
 public:
  StoredTable(std::shared_ptr<parallel::StoredRows> rows, int64_t num_rows)
      : rows_(std::move(rows)), num_rows_(num_rows) {}
  at::Tensor read() const override { return rows_->read(0, num_rows_); }
  void write(const at::Tensor& values) override { rows_->write(0, values); }
  bool goes_by_rows() const override { return true; }
  at::Tensor read_rows(int64_t begin, int64_t end) const override {
    return rows_->read(begin, end);
  }
  void write_rows(int64_t begin, const at::Tensor& values) override { rows_->write(begin, values); }
  std::vector<mesh::Range> wanted_rows(int64_t num_rows) const override {
    return rows_->wanted_rows(num_rows);
  }

 private:
  std::shared_ptr<parallel::StoredRows> rows_;
  int64_t num_rows_;
};

}  // namespace

checkpoint::Entry table_entry(std::string name, const parallel::TableTensor& tensor) {
  checkpoint::Entry entry{std::move(name), tensor.local, tensor.layout, tensor.rank};
  if (tensor.stored) {
    entry.offloaded = std::make_shared<StoredTable>(tensor.stored, tensor.local.size(0));
  }
  return entry;
}

std::vector<checkpoint::Entry> table_entries(parallel::EmbeddingTables& tables) {
  std::set<std::string> weights;
  for (const parallel::TableConfig& table : tables.configs())
    weights.insert(table.name + ".weight");
  std::vector<checkpoint::Entry> entries;
  for (parallel::TableTensor& tensor : tables.state()) {
    std::string name = weights.contains(tensor.name) ? tensor.name : kOptimizerPrefix + tensor.name;
    checkpoint::Entry entry = table_entry(std::move(name), tensor);
    if (const auto touched = tensor.touched) {
      entry.changes = {.source = touched,
                       .mark = [touched] { return touched->mark(); },
                       .since = [touched](int64_t mark) { return touched->since(mark); }};
      if (const auto stored = tensor.stored) {
        entry.changes.read = [stored](std::span<const int64_t> rows) { return stored->read(rows); };
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<checkpoint::Entry> whole_entries(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<checkpoint::Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor, mesh::Layout(tensor.sizes().vec(), {{"tensor", 1}}), 0});
  }
  return entries;
}

}  // namespace trireme::train
