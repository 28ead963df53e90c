#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/save_job.h"

namespace trireme::checkpoint {

void save(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options) {
  EarlierSaves earlier;
  SaveJob job({{root, options}}, step, entries, state, world, /*memory=*/nullptr, earlier);
  if (options.replicas == 0) return job.finish(world, world);
  job.finish(world, *world.split(0, world.rank(), "files"));
}

}  // namespace trireme::checkpoint
