// The first weights of a new run, from a checkpoint of another one or from those of another program
// ([init]). Knows no model: names and shapes decide.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// The checkpoint that init.folder leads to.
// Throws: CheckpointError when there is none
std::filesystem::path find_initial_weights(const InitConfig& init);

// This rank's tensors to fill, named as the parameters and buffers.
struct InitialWeights {
  std::vector<checkpoint::Entry> weights{};
  std::vector<checkpoint::Entry> masters{};  // what the optimizer keeps in fp32, if it does
  std::string key = "init.folder";           // that names the source, for messages
  std::string unread{};  // patterns of the source's tensors that the model may lack
};

// Opens weights of another program under the names of this one.
using OpenWeights = std::function<std::unique_ptr<checkpoint::TensorSource>()>;

// Fills them, at any layout and converted to their dtypes. Where a weight has another dtype in the
// checkpoint, the optimizer's master of it is read, if there is one. Parameters that init.missing
// names keep their values if the checkpoint lacks them or init.names leaves them out. The
// checkpoint's other states are ignored. Returns the names of those that keep their values.
// source: a checkpoint; with `open`, the folder that it opens. Every rank then has one of its
// tensors at a time in memory.
// Collective: every rank of `world`
// Throws:     on all ranks: CheckpointError, listing parameters that the checkpoint lacks, tensors
//             that the model lacks, and those with another shape; so when it is damaged;
//             ConfigError when a value does not fit its dtype; errors of open()
std::set<std::string> load_initial_weights(const std::filesystem::path& source,
                                           const InitConfig& init, InitialWeights wanted,
                                           comm::Communicator& world,
                                           const checkpoint::OnWait& on_wait = {},
                                           const OpenWeights& open = {});

}  // namespace trireme::train
