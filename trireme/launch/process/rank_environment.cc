#include "trireme/launch/process/rank_environment.h"

#include <algorithm>
#include <system_error>

#include <netinet/in.h>
#include <sys/socket.h>

#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"

namespace trireme::launch {
namespace {

// TMPDIR may name a folder that no longer exists. Most groups need none.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder;
}

}  // namespace

Environment rank_environment(Environment variables, const RankPlace& place,
                             const std::string& job) {
  // Set by another launcher, if one of its ranks started this one.
  std::erase_if(variables,
                [](const auto& each) { return each.first.starts_with("TORCHELASTIC_"); });
  variables["RANK"] = std::to_string(place.rank);
  variables["LOCAL_RANK"] = std::to_string(place.local_rank);
  variables["WORLD_SIZE"] = std::to_string(place.size);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(place.local_size);
  variables["TRIREME_JOB"] = job;
  // emplace: the user's own number stays. Without one, every rank would start threads for all
  // cores.
  variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, num_cores() / place.local_size)));
  return variables;
}

MeetingFile::MeetingFile(const std::string& job)
    : path_(temporary_folder() / ("trireme-" + job + ".store")) {}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

int free_port() {
  // The kernel's choice. The port is free again when the socket closes here, which is all that can
  // be done for a program that listens later.
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), any, length) != 0 || getsockname(socket.get(), any, &length) != 0)
    return 0;
  return ntohs(address.sin_port);
}

}  // namespace trireme::launch
