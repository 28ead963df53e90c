#include "trireme/comm/rendezvous.h"

#include <charconv>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/comm/mpi_group.h"
#include "trireme/comm/shm_group.h"

namespace trireme::comm {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number(const char* name, int minimum) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TRIREME_CHECK(
      !text.empty() && error == std::errc() && end == text.data() + text.size() && value >= minimum,
      "environment variable ", name, " is ", text.empty() ? "not set" : "\"" + text + "\"",
      "; expected a whole number from ", minimum,
      " on (torchrun and `trireme train --ranks N` set it)");
  return value;
}

std::string job_name() {
  if (const std::string job = variable("TRIREME_JOB"); !job.empty()) return job;
  const std::string address = variable("MASTER_ADDR");
  const std::string port = variable("MASTER_PORT");
  TRIREME_CHECK(
      !address.empty() && !port.empty(),
      "environment variables TRIREME_JOB, MASTER_ADDR and MASTER_PORT are not set; expected the "
      "first, or the other two");
  return address + "-" + port;
}

}  // namespace

WorldInfo world_info() {
  const WorldInfo info{number("RANK", 0), number("WORLD_SIZE", 1), number("LOCAL_RANK", 0),
                       number("LOCAL_WORLD_SIZE", 1), job_name()};
  TRIREME_CHECK(info.rank < info.size, "environment variable RANK is ", info.rank,
                "; expected below WORLD_SIZE = ", info.size);
  return info;
}

std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options) {
  if (transport == "mpi") {
    auto world = make_mpi_group(options);
    TRIREME_CHECK(world->size() == info.size, "the job has ", info.size, " ranks and MPI ",
                  world->size(), "; start the ranks of transport mpi with mpirun");
    return world;
  }
  TRIREME_CHECK(transport == "auto" || transport == "shm", "transport \"", transport,
                "\" is unknown; expected auto, shm or mpi");
  TRIREME_CHECK(info.local_size == info.size, "the job has ", info.size, " ranks, of which ",
                info.local_size, " on this host; this version joins the ranks of one host");
  return make_shm_group(info.job, info.rank, info.size, options);
}

}  // namespace trireme::comm
