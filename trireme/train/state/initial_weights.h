// The first weights of a new run, from a checkpoint of another one ([init]). Knows no model: names
// and shapes decide.
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// The checkpoint that init.folder leads to.
// Throws: CheckpointError when there is none
std::filesystem::path find_initial_weights(const InitConfig& init);

// This rank's tensors to fill, named as the parameters and buffers.
struct InitialWeights {
  std::vector<checkpoint::Entry> weights;
  std::vector<checkpoint::Entry> masters{};  // what the optimizer keeps in fp32, if it does
};

// Fills them, at any layout and converted to their dtypes. Where a weight has another dtype in the
// checkpoint, the optimizer's master of it is read, if there is one. Parameters that init.missing
// names keep their values if the checkpoint lacks them or init.names leaves them out. The
// checkpoint's other states are ignored.
// Collective: every rank of `world`
// Throws:     on all ranks: CheckpointError, listing parameters that the checkpoint lacks, tensors
//             that the model lacks, and those with another shape; so when it is damaged
void load_initial_weights(const std::filesystem::path& checkpoint, const InitConfig& init,
                          InitialWeights wanted, comm::Communicator& world,
                          const checkpoint::OnWait& on_wait = {});

}  // namespace trireme::train::inline internal
