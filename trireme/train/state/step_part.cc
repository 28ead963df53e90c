#include "trireme/train/state/step_part.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/parallel/replica_check.h"
#include "trireme/train/state/open_tables.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {

std::vector<checkpoint::Entry> DensePart::to_save() {
  auto entries = checkpoint_entries(model_.shards(), optimizer_.state());
  std::ranges::move(whole_entries(model_.buffers()), std::back_inserter(entries));
  return entries;
}

PartLoad DensePart::to_load(const PartSource& source) {
  std::map<std::string, at::ScalarType> dtypes;
  for (const checkpoint::TensorSummary& tensor : source.saved.tensors) {
    dtypes[tensor.name] = checkpoint::parse_dtype(tensor.dtype);
  }
  Optimizer::StatesToLoad states =
      optimizer_.state_from([&](const std::string& name) -> std::optional<at::ScalarType> {
        const auto found = dtypes.find(kOptimizerPrefix + name);
        return found == dtypes.end() ? std::nullopt : std::optional(found->second);
      });
  // A rank reads its own part of the weights; spread_weights() brings it to the ranks that need it.
  PartLoad load{.entries = checkpoint_entries(model_.shards(), std::move(states.entries)),
                .finish = [this, convert = std::move(states.finish)] {
                  convert();
                  model_.spread_weights();
                }};
  std::ranges::move(whole_entries(model_.buffers()), std::back_inserter(load.entries));
  return load;
}

PartLoad DensePart::to_begin(const std::filesystem::path& /*weights*/) {
  PartLoad load{.finish = [this] { model_.spread_weights(); }};
  for (const parallel::Shard& shard : model_.shards()) {
    load.entries.push_back({shard.name, shard.weights, shard.layout, shard.rank});
  }
  std::ranges::move(whole_entries(model_.buffers()), std::back_inserter(load.entries));
  const std::string prefix = concat(kMasterState, ".");
  for (checkpoint::Entry& entry : optimizer_.state()) {
    if (!entry.name.starts_with(prefix)) continue;
    entry.name.erase(0, prefix.size());
    load.masters.push_back(std::move(entry));
  }
  return load;
}

void DensePart::check_replicas() const {
  train::check_replicas(model_, /*sharded=*/config_.parallel.zero == 3);
}

TablePart::TablePart(const RunConfig& config, std::vector<StageTables> stages,
                     comm::Communicator& world, checkpoint::OnWait on_wait)
    : config_(config), stages_(std::move(stages)), world_(world), on_wait_(std::move(on_wait)) {
  for (const StageTables& stage : stages_) all_.push_back(stage.tables);
}

std::vector<std::string> TablePart::gradient_names() const {
  std::vector<std::string> names;
  for (const parallel::EmbeddingTables* const tables : all_) {
    if (tables->options().remote) continue;
    for (const parallel::TableConfig& table : tables->configs()) {
      names.push_back(table.name + ".weight");
    }
  }
  return names;
}

std::vector<double> TablePart::gradient_squares() const {
  std::vector<double> squares;
  for (const parallel::EmbeddingTables* const tables : all_) {
    if (tables->options().remote) continue;
    std::ranges::copy(table_squares(*tables, world_), std::back_inserter(squares));
  }
  return squares;
}

void TablePart::step(double learning_rate, double factor) {
  for (const StageTables& stage : stages_) {
    stage.tables->set_learning_rate(learning_rate * stage.rate_factor);
    stage.tables->step(factor);
  }
}

void TablePart::discard_gradients() {
  for (parallel::EmbeddingTables* const tables : all_) tables->discard_gradients();
}

void TablePart::set_num_steps(int64_t num_steps) {
  for (parallel::EmbeddingTables* const tables : all_) tables->set_num_steps(num_steps);
}

std::vector<checkpoint::Entry> TablePart::closed_entries() const {
  std::vector<checkpoint::Entry> entries;
  for (parallel::EmbeddingTables* const tables : all_) {
    std::ranges::move(table_entries(*tables), std::back_inserter(entries));
  }
  return entries;
}

std::vector<checkpoint::Entry> TablePart::to_save() {
  for (parallel::EmbeddingTables* const tables : all_) tables->settle();
  std::vector<checkpoint::Entry> entries = closed_entries();
  for (parallel::EmbeddingTables* const tables : all_) {
    std::ranges::move(open_table_entries(*tables), std::back_inserter(entries));
  }
  return entries;
}

PartLoad TablePart::to_load(const PartSource& source) {
  const auto open = std::make_shared<OpenTablesLoad>(all_, source.path, source.saved, source.place,
                                                     world_, on_wait_);
  PartLoad load{.entries = closed_entries(), .ignored = open->ignored(), .finish = [this, open] {
                  open->finish(world_, on_wait_);
                }};
  std::ranges::move(open->entries(), std::back_inserter(load.entries));
  return load;
}

PartLoad TablePart::to_begin(const std::filesystem::path& weights) {
  const auto open =
      std::make_shared<InitialOpenRows>(all_, weights, config_.init, world_, on_wait_);
  PartLoad load{.entries = closed_entries(), .finish = [open] { open->finish(); }};
  std::erase_if(load.entries, [](const checkpoint::Entry& entry) {
    return entry.name.starts_with(kOptimizerPrefix);
  });
  std::ranges::move(open->entries(), std::back_inserter(load.entries));
  return load;
}

void TablePart::check_replicas() const {
  train::check_replicas(replicated_tables(all_, world_), world_, world_.rank());
}

int64_t TablePart::memory_bytes() const {
  int64_t bytes = 0;
  for (const parallel::EmbeddingTables* const tables : all_) bytes += tables->memory_bytes();
  return bytes;
}

std::vector<std::string> TablePart::report(RunPoint when) const {
  std::vector<std::string> lines;
  for (const StageTables& stage : stages_) {
    if (stage.report) std::ranges::move(stage.report(when), std::back_inserter(lines));
  }
  return lines;
}

std::vector<NamedTensor> replicated_tables(std::span<parallel::EmbeddingTables* const> all,
                                           comm::Communicator& world) {
  std::vector<parallel::TableTensor> whole;
  std::string on_disk;  // for each of them
  for (parallel::EmbeddingTables* const tables : all) {
    std::vector<parallel::TableTensor> state = tables->state();
    std::ranges::move(tables->open_state(), std::back_inserter(state));
    for (parallel::TableTensor& tensor : state) {
      if (tensor.layout.placements()[0].kind != mesh::Placement::Kind::kReplicated) continue;
      on_disk += tensor.stored ? '1' : '0';
      whole.push_back(std::move(tensor));
    }
  }
  if (whole.empty()) return {};
  const std::vector<std::string> on_disks = comm::all_gather_strings(world, on_disk);
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool is_on_disk = std::ranges::any_of(
        on_disks, [i](const std::string& of_rank) { return of_rank.at(i) == '1'; });
    if (!is_on_disk) tensors.emplace_back(whole[i].name, whole[i].local);
  }
  return tensors;
}

}  // namespace trireme::train
