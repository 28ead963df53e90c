// A run's model and optimizer on parameter servers: pieces with the run's update rule.
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

// The shards that are trained; each is a whole parameter.
std::vector<const parallel::Shard*> trained_shards(std::span<const parallel::Shard> shards);
std::vector<parallel::ServedParameter> served_parameters(std::span<const parallel::Shard> shards);

// Makes pieces from the present weights of the shards and states of the optimizer. Elementwise
// rules give the same bits as the optimizer. The pieces share no memory with the model, which must
// outlive the returned function.
parallel::MakePiece make_pieces(const RunConfig& config, std::span<const parallel::Shard> shards,
                                const Optimizer& optimizer);

// Pulls the shards' weights and the optimizer's states from the servers.
void pull_into(parallel::ServerClient& client, std::span<const parallel::Shard> shards,
               const Optimizer& optimizer);

}  // namespace trireme::train::inline internal
