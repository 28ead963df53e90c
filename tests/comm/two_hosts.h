// Two hosts on this one: a network namespace each, joined by a veth pair, and within each a
// /dev/shm of its own (or this host's, as containers with --ipc=host have). Needs root and
// iproute2. Everything is gone at the end of the scope; what a killed test left is removed by the
// next.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/harness/ranks.h"

namespace trireme::comm {

class TwoHosts {
 public:
  enum class Memory { kOwn, kShared };
  explicit TwoHosts(Memory memory = Memory::kOwn);
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;
  ~TwoHosts();

  // Runs `function(world rank)` on ranks_of[0] processes of the first host and ranks_of[1] of the
  // second; ranks are numbered host by host.
  std::vector<harness::ExitStatus> run(const std::vector<int>& ranks_of,
                                       const std::function<void(int)>& function) const;

  std::string address(int host) const { return "10.231.77." + std::to_string(host + 1); }
  // The same name in both.
  static constexpr const char* kInterface = "oar0";

 private:
  std::string space(int host) const { return prefix_ + "-" + std::to_string(host); }
  void enter(int host) const;

  const Memory memory_;
  std::string prefix_;
};

}  // namespace trireme::comm
