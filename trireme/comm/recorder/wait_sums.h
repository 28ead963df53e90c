// How long this rank has waited for each other rank, summed by group: who of them came last, or was
// waited for, in the collectives of the transports that find it out. Shared memory and messages do;
// libtorch's backends and MPI's own collectives do not, and add nothing. A wait in the background
// counts too, though it may have delayed nobody.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::comm {

// Thread safety: any thread may call any method.
// Memory: 8 bytes for each rank up to the largest that was waited for, for each name of a group
class WaitSums {
 public:
  struct Sum {
    std::string group;
    int world_rank = 0;
    double seconds = 0;
    bool operator==(const Sum&) const = default;
  };

  // A group of more names than kMostGroups is counted as "other". Never throws: a sum for which
  // there is no memory is left out.
  void add(std::string_view group, int world_rank, std::chrono::nanoseconds waited) noexcept;
  // The `most` largest sums above 0, the largest first, and forgets these. The others go on.
  std::vector<Sum> take_largest(size_t most);

  static constexpr size_t kMostGroups = 64;

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::chrono::nanoseconds>, std::less<>> groups_;
};

}  // namespace trireme::comm
