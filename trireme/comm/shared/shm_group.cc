#include "trireme/comm/shared/shm_group.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/shared/shared_communicator.h"

namespace trireme::comm {

std::unique_ptr<Communicator> make_shm_group(const std::string& job, int rank, int size,
                                             const GroupOptions& options) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  TRIREME_CHECK(!job.empty() && job.size() <= 100 && std::ranges::all_of(job, is_allowed),
                "job name \"", job, "\"; expected 1 to 100 letters, digits, '.', '_' or '-'");
  // Before the group takes memory that the dead may still hold.
  if (rank == 0) sweep_orphans();
  return SharedCommunicator::join({job, make_shm_segments(), nullptr}, job, rank, size, options);
}

}  // namespace trireme::comm
