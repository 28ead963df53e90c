// Every rank of an mpirun runs this: a disk slower than the timeout, over transport mpi.
#include <optional>

#include "tests/checkpoint/slow_disk.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/comm/message/mpi_group.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {
namespace {

TEST(MpiSlowDisk, ASaveAndALoadThatTakeLongerThanTheTimeoutComplete) {
  const auto world = comm::make_mpi_group({.timeout = kTimeout});
  std::optional<harness::TemporaryFolder> own;
  if (world->rank() == 0) own.emplace();
  const std::filesystem::path folder =
      comm::all_gather_strings(*world, own ? own->path().string() : "").front();
  save_and_load_slowly(*world, folder);
  if (own) check_saved(folder);
}

}  // namespace
}  // namespace trireme::checkpoint
