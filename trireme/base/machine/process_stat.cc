#include "trireme/base/machine/process_stat.h"

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/base/file/descriptor.h"

namespace trireme::inline internal {

std::optional<ProcessStat> process_stat(int64_t process_id) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(process_id));
  const Descriptor file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> line{};  // 52 numbers and a name of at most 64 bytes
  const auto num_bytes = file.is_open() ? ::read(file.get(), line.data(), line.size()) : -1;
  if (num_bytes <= 0) return std::nullopt;
  const std::string text(line.data(), static_cast<size_t>(num_bytes));
  const size_t name_end = text.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  std::string skipped;
  int64_t user = 0, system = 0;
  fields >> stat.state >> stat.parent;  // fields 3 and 4
  for (int field = 5; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  static const int64_t ticks_per_second = ::sysconf(_SC_CLK_TCK);
  stat.cpu_time = std::chrono::nanoseconds((user + system) * (1'000'000'000 / ticks_per_second));
  return fields ? std::optional(stat) : std::nullopt;
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace trireme::inline internal
