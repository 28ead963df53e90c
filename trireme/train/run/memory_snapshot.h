// What a rank held when its memory was fullest, or when more could not be had (watch.memory =
// "snapshot"): its largest tensors, each with the operator and the part of the model that made it.
// The file is there while the run is still in the step, so that it outlives a process that the
// kernel kills for its memory.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/base/machine/memory_ledger.h"

namespace trireme::train {

inline constexpr const char* kMemoryFolder = "memory";

// Removes those of an earlier run, perhaps of more ranks. Call on rank 0, before any rank writes.
void remove_memory_snapshots(const std::filesystem::path& run_folder);

// From here on keeps RUN/memory/rank-00003.json (docs/guide/watch.md) up to date: at most
// MemoryBlocks::kMostBlocks tensors, written anew with each snapshot (MemoryBlocks::add()). What
// the disk does not take is left out. Call once for a ledger.
void write_memory_snapshots(MemoryLedger& ledger, const std::filesystem::path& run_folder,
                            int rank);

// One line for an error: the three largest tensors, or without snapshots the three largest kinds.
// "" when nothing was counted.
std::string largest_words(const MemoryLedger& ledger);

}  // namespace trireme::train
