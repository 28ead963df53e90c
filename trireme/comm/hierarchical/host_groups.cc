#include "trireme/comm/hierarchical/host_groups.h"

#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"

namespace trireme::comm {
namespace {

bool has_equal_hosts(const HostMap& hosts) {
  const size_t size = hosts.ranks_of(0).size();
  for (int host = 0; host < hosts.num_hosts(); ++host) {
    if (hosts.ranks_of(host).size() != size) return false;
  }
  return hosts.num_hosts() > 1 && size > 1 && hosts.is_contiguous();
}

}  // namespace

HostGroups split_by_host(Communicator& group, const std::string& host) {
  const HostMap hosts(all_gather_strings(group, host));
  if (!has_equal_hosts(hosts)) return {};
  const int rank = group.rank();
  return {.within = group.split(hosts.host_of(rank), rank, concat(group.name(), ".host")),
          .between = group.split(hosts.local_rank_of(rank), rank, concat(group.name(), ".hosts"))};
}

}  // namespace trireme::comm
