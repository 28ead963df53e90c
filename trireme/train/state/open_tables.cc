#include "trireme/train/state/open_tables.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/transfer/site_checkpoints.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

// The name of a tensor of open_state() in a checkpoint.
std::string saved_name(const std::string& name, const parallel::EmbeddingTables& tables) {
  const bool is_weight =
      std::ranges::any_of(tables.configs(), [&](const parallel::TableConfig& table) {
        return name == table.name + ".ids" || name == table.name + ".weight";
      });
  return is_weight ? name : kOptimizerPrefix + name;
}

std::vector<checkpoint::Entry> entries_of(const std::vector<parallel::TableTensor>& tensors,
                                          const parallel::EmbeddingTables& tables) {
  std::vector<checkpoint::Entry> entries;
  for (const parallel::TableTensor& tensor : tensors) {
    if (!tensor.local.defined()) continue;  // it begins anew
    entries.push_back(table_entry(saved_name(tensor.name, tables), tensor));
  }
  return entries;
}

bool has_tensor(const checkpoint::Summary& saved, const std::string& name) {
  return std::ranges::find(saved.tensors, name, &checkpoint::TensorSummary::name) !=
         saved.tensors.end();
}

// The tensors that only some values of tables.open_when_full need.
constexpr const char* kUses = ".uses";

// A list of ids to fill, of the length that the checkpoint's has.
at::Tensor list_to_fill(const std::string& name, const std::filesystem::path& path,
                        const checkpoint::Summary& saved) {
  const auto found = std::ranges::find(saved.tensors, name, &checkpoint::TensorSummary::name);
  if (found == saved.tensors.end()) {
    throw CheckpointError(concat(path.string(), ": there is no tensor \"", shown(name),
                                 "\", the ids of a table with an open vocabulary; "
                                 "use another checkpoint"));
  }
  constexpr int64_t kIdBytes = sizeof(int64_t);
  if (found->shape.size() != 1 || found->num_bytes % kIdBytes != 0 ||
      found->shape[0] != found->num_bytes / kIdBytes) {
    throw CheckpointError(concat(path.string(), ": \"", shown(name), "\" has shape ",
                                 at::IntArrayRef(found->shape), " and ", found->num_bytes,
                                 " bytes; expected a list of 64-bit ids"));
  }
  return at::empty(found->shape, at::kLong);
}

}  // namespace

std::vector<checkpoint::Entry> open_table_entries(parallel::EmbeddingTables& tables) {
  return entries_of(tables.open_state(), tables);
}

OpenTablesLoad::OpenTablesLoad(const std::vector<parallel::EmbeddingTables*>& all,
                               const std::filesystem::path& path, const checkpoint::Summary& saved,
                               const FastPlace* place, comm::Communicator& world,
                               const checkpoint::OnWait& on_wait) {
  std::vector<std::pair<std::string, at::Tensor>> lists;
  for (const parallel::EmbeddingTables* tables : all) {
    for (const parallel::TableConfig& table : tables->configs()) {
      if (!table.is_open) continue;
      for (const char* const list : {".ids", ".waiting_ids"}) {
        const std::string name = saved_name(table.name + list, *tables);
        lists.emplace_back(name, list_to_fill(name, path, saved));
      }
    }
  }
  if (lists.empty()) return;
  std::vector<checkpoint::Entry> entries = whole_entries(lists);
  if (place != nullptr) checkpoint::bring(path, entries, place->sites, world, on_wait);
  checkpoint::load(path, entries, world, {.strict = false, .on_wait = on_wait});
  const std::map<std::string, at::Tensor> ids(lists.begin(), lists.end());
  const auto make_room = [&](const checkpoint::Peers&) {  // each rank has a disk of its own
    for (parallel::EmbeddingTables* tables : all) {
      parts_.push_back({tables, tables->open_state_to_load([&](const std::string& name) {
                          return ids.at(saved_name(name, *tables));
                        })});
    }
  };
  checkpoint::run_or_throw(world, make_room, on_wait);
  for (size_t i = 0; i < all.size(); ++i) {
    const parallel::EmbeddingTables* const tables = all[i];
    for (parallel::TableTensor& tensor : parts_[i].tensors) {
      const bool may_lack = tensor.name.ends_with(kUses);
      if (may_lack && !has_tensor(saved, saved_name(tensor.name, *tables)))
        tensor.local = at::Tensor();
    }
    for (const parallel::TableConfig& table : tables->configs()) {
      const std::string uses = saved_name(table.name + kUses, *tables);
      const bool counts = table.open_when_full == parallel::FullTable::kEvictRarest;
      if (table.is_open && !counts && has_tensor(saved, uses)) ignored_.push_back(uses);
    }
  }
}

std::vector<checkpoint::Entry> OpenTablesLoad::entries() const {
  std::vector<checkpoint::Entry> entries;
  for (const OpenTablesPart& part : parts_) {
    std::ranges::move(entries_of(part.tensors, *part.tables), std::back_inserter(entries));
  }
  return entries;
}

void OpenTablesLoad::finish(comm::Communicator& world, const checkpoint::OnWait& on_wait) {
  if (parts_.empty()) return;
  const auto take = [this](const checkpoint::Peers&) {
    for (const OpenTablesPart& part : parts_) part.tables->load_open_state(part.tensors);
  };
  checkpoint::run_or_throw(world, take, on_wait);
}

InitialOpenRows::InitialOpenRows(const std::vector<parallel::EmbeddingTables*>& all,
                                 const std::filesystem::path& path, const InitConfig& init,
                                 comm::Communicator& world, const checkpoint::OnWait& on_wait) {
  const auto has_open = [](const parallel::EmbeddingTables* tables) {
    return std::ranges::any_of(tables->configs(), &parallel::TableConfig::is_open);
  };
  if (std::ranges::none_of(all, has_open)) return;
  const auto read = [&](const checkpoint::Peers&) {
    const checkpoint::SavedTensors saved(path);
    const auto has = [&](const std::string& name) {
      return saved.tensors().contains(name) && matches_any(init.names, name);
    };
    for (parallel::EmbeddingTables* tables : all) {
      std::vector<parallel::TableTensor> tensors =
          tables->open_state_to_load([&](const std::string& name) {
            const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
            return has(name) && has(weight) ? saved.read(name) : at::empty({0}, at::kLong);
          });
      for (const checkpoint::Entry& entry : entries_of(tensors, *tables)) {
        if (entry.name.starts_with(kOptimizerPrefix)) continue;
        if (has(entry.name) || !matches_any(init.missing, entry.name)) entries_.push_back(entry);
      }
      parts_.push_back({tables, std::move(tensors)});
    }
  };
  checkpoint::run_or_throw(world, read, on_wait);
}

void InitialOpenRows::finish() {
  for (OpenTablesPart& part : parts_) {
    for (parallel::TableTensor& tensor : part.tensors) {
      if (!saved_name(tensor.name, *part.tables).starts_with(kOptimizerPrefix)) continue;
      const bool is_state = tensor.name.ends_with(".weight") || tensor.name.ends_with(kUses);
      tensor.local = is_state ? at::Tensor() : at::zeros_like(tensor.local);
    }
    part.tables->load_open_state(part.tensors);
    part.tables->set_num_steps(0);
  }
}

}  // namespace trireme::train
