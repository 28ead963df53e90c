// A checkpoint's content besides tensors, and the list of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/train/numerics/bad_steps.h"
#include "trireme/train/numerics/gradient_noise.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/task/data_identity.h"

namespace trireme::train {

// The position of a run, independent of the layout.
struct RunState {
  int64_t step = 0;         // finished steps
  int64_t next_sample = 0;  // data cursor: global index of the next sequence
  int64_t optimizer_steps = 0;
  std::string config{};  // resolved TOML, with the seeds and the schedule
  // The scale, and the good steps since it changed; 1 without loss scaling, 0 in old checkpoints.
  double loss_scale = 0;
  int64_t loss_scale_steps = 0;
  BadSteps::State bad_steps{};
  int64_t bad_samples = 0;  // replaced so far
  GradientNoise::State noise{};
  DataIdentity data{};
  DataIdentity validation{};                       // unknown without evaluation
  DataIdentity teacher{};                          // unknown without one
  std::map<std::string, std::string> callbacks{};  // by name, of those that were on
  std::vector<dataset::Shares> shares{};           // of the whole run; empty: equal ones
};
std::string to_json(const RunState& state);
// Throws: CheckpointError when a key is missing; `where` is the checkpoint's path
RunState parse_state(const std::string& json, const std::string& where);
// Throws: CheckpointError also when the state is not of the manifest's step
RunState parse_state(const std::string& json, const std::string& where, int64_t step);

// Prefix of the optimizer's states: "optimizer.exp_avg.lm_head.weight".
inline constexpr const char* kOptimizerPrefix = "optimizer.";

// The shards under their parameters' names, and the optimizer's states, as Optimizer::state() names
// them, under their own.
std::vector<checkpoint::Entry> checkpoint_entries(const std::vector<parallel::Shard>& shards,
                                                  std::vector<checkpoint::Entry> states);
// A table's tensor, in memory or stored elsewhere, under that name.
checkpoint::Entry table_entry(std::string name, const parallel::TableTensor& tensor);
// The tables' weights, "<table>.weight", and the states of their optimizer.
std::vector<checkpoint::Entry> table_entries(parallel::EmbeddingTables& tables);
// Tensors that every rank has whole, or every rank that has them at all.
std::vector<checkpoint::Entry> whole_entries(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace trireme::train
