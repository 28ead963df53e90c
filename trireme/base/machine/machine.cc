#include "trireme/base/machine/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"

namespace trireme {

CoreSet allowed_cores() {
  CoreSet allowed;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    for (size_t core = 0; core < allowed.size(); ++core) allowed[core] = CPU_ISSET(core, &cores);
  }
  if (allowed.none()) allowed.set(0);
  return allowed;
}

int num_cores() { return static_cast<int>(allowed_cores().count()); }

// Matches threads to cores. A thread takes a free core, or one whose owner can take another.
bool have_core_each(std::span<const CoreSet> sets) {
  std::vector<int> owners(CoreSet().size(), -1);
  CoreSet tried;
  const std::function<bool(int)> place = [&](int thread) {
    for (size_t core = 0; core < tried.size(); ++core) {
      if (!sets[thread][core] || tried[core]) continue;
      tried.set(core);
      if (owners[core] < 0 || place(owners[core])) {
        owners[core] = thread;
        return true;
      }
    }
    return false;
  };
  for (size_t thread = 0; thread < sets.size(); ++thread) {
    tried.reset();
    if (!place(static_cast<int>(thread))) return false;
  }
  return true;
}

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

std::atomic<bool> freed_memory_is_kept = false;  // of the process, as mallopt()'s are

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
  TextReader groups(read_or_nothing(root / "proc/self/cgroup"));
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
  const bool is_kept = fate == FreedMemory::kKept && !has_resource_limit();
  freed_memory_is_kept = is_kept;
#ifdef __GLIBC__
  // Setting one of the two ends glibc's own adaption of both.
  if (!is_kept) {
    ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kFewestReusedBytes));
    return;
  }
  const int64_t most = std::min<int64_t>(machine_memory_bytes() / 16, INT_MAX);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc takes no more
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(most));
#endif
}

bool keeps_freed_memory() { return freed_memory_is_kept.load(std::memory_order_relaxed); }

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
  TextReader fields(text.substr(name_end + 1));
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

}  // namespace trireme
