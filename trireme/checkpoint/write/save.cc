#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/save_job.h"

namespace trireme::checkpoint {

void save(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options) {
  WholeCheckpoints whole;
  SaveJob(root, step, entries, state, world, options, /*memory=*/nullptr, whole).finish(world);
}

}  // namespace trireme::checkpoint
