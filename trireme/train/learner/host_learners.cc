#include "trireme/train/learner/host_learners.h"

#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/objects.h"

namespace trireme::train {

int learners_of(const comm::HostMap& hosts) {
  std::string counts;
  std::set<size_t> different;
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    const size_t count = hosts.ranks_of(host).size();
    counts += concat(host == 0 ? "" : ", ", count);
    different.insert(count);
  }
  TRIREME_CHECK(hosts.num_hosts() > 1,
                "parallel.learners is \"hosts\", and all ranks are on one; start ranks on several "
                "hosts (trireme run --nnodes), or set it to a number");
  TRIREME_CHECK(different.size() == 1, "parallel.learners is \"hosts\", and the ",
                hosts.num_hosts(), " hosts have ", shown(counts),
                " ranks; start equally many on each, or set it to a number");
  TRIREME_CHECK(
      hosts.is_contiguous(),
      "parallel.learners is \"hosts\", and the ranks of a host are not consecutive; number "
      "them host by host, or set it to a number");
  return hosts.num_hosts();
}

void place_learners(RunConfig& config, comm::Communicator& world, const std::string& host) {
  if (config.parallel.learners != 0) return;
  TRIREME_CHECK(
      !config.outer.meets(),
      "parallel.learners is \"hosts\" with outer.meeting, where it is the number of places "
      "of `trireme meet`; set it to that number");
  std::vector<std::string> hosts = comm::all_gather_strings(world, host);
  // The last ranks are servers (outer.method = "decoupled"), and no learner has them.
  const int64_t servers = config.parallel.servers;
  if (servers > 0 && servers < world.size())
    hosts.resize(hosts.size() - static_cast<size_t>(servers));
  config.parallel.learners = learners_of(comm::HostMap(hosts));
}

}  // namespace trireme::train
