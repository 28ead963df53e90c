// Ranks as processes of one host that share memory.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/group_options.h"

namespace trireme::comm {

// Joins the group `job` as one of its ranks. `job` must be unique among the host's running jobs. It
// may contain letters, digits, '.', '_' and '-'. Rank 0 first removes what dead jobs left in
// /dev/shm.
// Collective: all `size` ranks
// Throws:     ConfigError (name in use or malformed, /dev/shm too small), CommError (a rank never
//             came)
std::unique_ptr<Communicator> make_shm_group(const std::string& job, int rank, int size,
                                             const GroupOptions& options = {});

}  // namespace trireme::comm
