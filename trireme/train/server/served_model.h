// A run's model and optimizer as parameter servers have them: pieces, with the run's update rule.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/parallel/data/shard.h"
#include "trireme/parallel/server/server_client.h"
#include "trireme/parallel/server/state/key_ranges.h"
#include "trireme/parallel/server/state/piece_update.h"
#include "trireme/train/config/config.h"
#include "trireme/train/optimizer/optimizer.h"

namespace trireme::train::inline internal {

// The trained shards, which are whole parameters.
std::vector<const parallel::Shard*> trained_shards(std::span<const parallel::Shard> shards);
std::vector<parallel::ServedParameter> served_parameters(std::span<const parallel::Shard> shards);

// Makes pieces of the shards' weights and the optimizer's states as they are now. Elementwise
// rules give the bits that the optimizer would. The pieces share no memory with the model, which
// must outlive the function.
parallel::MakePiece make_pieces(const RunConfig& config, std::span<const parallel::Shard> shards,
                                const Optimizer& optimizer);

// Fills the shards' weights and the optimizer's states with what the servers have.
void pull_into(parallel::ServerClient& client, std::span<const parallel::Shard> shards,
               const Optimizer& optimizer);

}  // namespace trireme::train::inline internal
