#include "trireme/base/machine/machine_memory.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include <malloc.h>
#include <sys/resource.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::inline internal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string read_or_nothing(const fs::path& path) {
  try {
    return read_file(path, size_t{1} << 20);
  } catch (const Error&) {
    return "";
  }
}

// The number that `text` begins with, after spaces. Empty when there is none, as for "max".
std::optional<int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// "MemTotal:       8000000 kB".
std::optional<int64_t> bytes_in(const std::string& meminfo, const std::string& name) {
  const size_t at = meminfo.find(name + ":");
  if (at == std::string::npos) return std::nullopt;
  const auto kilobytes = number_in(std::string_view(meminfo).substr(at + name.size() + 1));
  if (!kilobytes || *kilobytes > kUnlimited / 1024) return std::nullopt;
  return *kilobytes * 1024;
}

// The lowest limit of the group at `path` and of its parents. A container may see only its own
// group, mounted as the root.
int64_t least_limit(const fs::path& root, fs::path path, const char* file) {
  int64_t limit = kUnlimited;
  for (path = path.relative_path();; path = path.parent_path()) {
    limit = std::min(limit, number_in(read_or_nothing(root / path / file)).value_or(kUnlimited));
    if (path.empty()) return limit;
  }
}

bool has_resource_limit() {
  for (const auto resource : {RLIMIT_DATA, RLIMIT_AS}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return true;
  }
  return false;
}

}  // namespace

int64_t machine_memory_bytes(const fs::path& root) {
  const std::string meminfo = read_or_nothing(root / "proc/meminfo");
  const int64_t memory = bytes_in(meminfo, "MemTotal").value_or(kUnlimited);
  const int64_t swap = bytes_in(meminfo, "SwapTotal").value_or(0);
  int64_t limit = memory;
  std::istringstream groups(read_or_nothing(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,memory:/path", "0::/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") {
      limit = std::min(limit, least_limit(root / "sys/fs/cgroup", path, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit = std::min(limit,
                       least_limit(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
  }
  return limit > kUnlimited - swap ? kUnlimited : limit + swap;
}

void set_freed_memory(FreedMemory fate) {
#ifdef __GLIBC__
  // Setting one of the two ends glibc's own adaption of both.
  if (fate == FreedMemory::kReturned || has_resource_limit()) {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    return;
  }
  const int64_t most = std::min<int64_t>(machine_memory_bytes() / 16, INT_MAX);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc takes no more
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(most));
#endif
}

}  // namespace trireme::inline internal
