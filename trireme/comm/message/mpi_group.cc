#include "trireme/comm/message/mpi_group.h"

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_MPI

#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include <mpi.h>

#include "trireme/base/machine/machine.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/message/mpi_channel.h"

namespace trireme::comm {
namespace {

const char* name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

// MPI_Finalize waits for all ranks, and after a failure they may never come. Without finalising,
// mpirun ends the job.
void finalize_at_success(int exit_code, void*) {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (exit_code == 0 && is_finalized == 0) MPI_Finalize();
}

void initialize() {
  static std::mutex mutex;  // MPI belongs to the process
  const std::lock_guard lock(mutex);
  int is_finalized = 0;
  int is_initialized = 0;
  MPI_Finalized(&is_finalized);
  TRIREME_CHECK(is_finalized == 0,
                "MPI was finalised; it can be used once in a process, so finalise it at its end");
  MPI_Initialized(&is_initialized);
  int level = MPI_THREAD_SINGLE;
  if (is_initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    // on_exit and not atexit: whether to finalise depends on the exit code.
    on_exit(finalize_at_success, nullptr);
  }
  TRIREME_CHECK(level == MPI_THREAD_MULTIPLE, "MPI runs with ", name_of_level(level),
                "; expected MPI_THREAD_MULTIPLE: call MPI_Init_thread with it, or use an MPI that "
                "has it");
}

bool host_has_core_each() {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  int size = 0;
  check_mpi(MPI_Comm_size(host, &size));
  const CoreSet own = allowed_cores();
  std::vector<CoreSet> all(size);
  check_mpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, host));
  MPI_Comm_free(&host);
  return have_core_each(all);
}

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<Communicator> make_mpi_group(const GroupOptions& options) {
  initialize();
  try {
    int* largest_tag = nullptr;
    int is_set = 0;
    check_mpi(
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &is_set));
    // The exchange's tags have 31 bits.
    TRIREME_CHECK(is_set != 0 && *largest_tag == 0x7fffffff, "this MPI's largest tag is ",
                  is_set != 0 ? *largest_tag : 0, "; expected 2147483647, as Open MPI's is");
    int size = 0;
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size));
    const GroupRecorder recorder(options.recorder, options.name, size, options.world_ranks);
    return recorder.join([&] {
      // Before any wait, which spins or yields by it.
      const bool has_core_each = host_has_core_each();
      MPI_Comm data = MPI_COMM_NULL;
      MPI_Comm control = MPI_COMM_NULL;
      // Copies, so that our tags never meet the program's.
      check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &data));
      check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control));
      return std::make_unique<MessageCommunicator>(
          std::make_unique<MpiChannel>(data, control, has_core_each), options.name, options.timeout,
          recorder);
    });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(concat("joining group ", options.name, " over MPI: ", error.what()));
  }
}

}  // namespace trireme::comm

#else

namespace trireme::comm {

bool has_mpi() { return false; }

std::unique_ptr<Communicator> make_mpi_group(const GroupOptions&) {
  throw ConfigError(
      "this build has no MPI, which transport mpi needs; install it (apt-get install "
      "libopenmpi-dev openmpi-bin) and build again");
}

}  // namespace trireme::comm

#endif
