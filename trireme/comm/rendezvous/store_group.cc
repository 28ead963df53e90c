#include "trireme/comm/rendezvous/store_group.h"

#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/hierarchical/hierarchical_communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/rendezvous/session.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm::inline internal {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// A rank's knowledge of the group it is joining.
struct Meeting {
  StorePtr store;
  int rank;
  int size;
  std::chrono::milliseconds timeout;

  std::vector<std::string> all_gather(const std::string& key, const std::string& mine) const {
    return all_gather_over_store(store, key, mine, rank, size, timeout);
  }
};

// The interface that this rank's peers connect to.
NetworkInterface interface_of(StorePtr store, const StoreGroupOptions& how, const HostMap& hosts) {
  if (!how.interface.empty()) return find_interface(how.interface);
  if (hosts.num_hosts() == 1) return find_interface_to("127.0.0.1");
  if (!how.host.empty()) return find_interface_to(how.host);
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefixed->getUnderlyingNonPrefixStore();
  }
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
  TRIREME_CHECK(tcp != nullptr, "the ranks are on ", hosts.num_hosts(),
                " hosts and meet at a store which names no network; set GLOO_SOCKET_IFNAME to the "
                "interface to use");
  return find_interface_to(tcp->getHost());
}

// If any rank cannot be reached, throws the same error on every rank.
NetworkInterface agree_on_interface(const Meeting& meeting, const StoreGroupOptions& how,
                                    const HostMap& hosts) {
  NetworkInterface mine;
  std::string problem;
  try {
    mine = interface_of(meeting.store, how, hosts);
    if (mine.is_loopback && hosts.num_hosts() > 1) {
      problem = concat("rank ", meeting.rank, " would use interface ", to_string(mine),
                       ", which the other hosts cannot reach: MASTER_ADDR leads there; set "
                       "MASTER_ADDR to a network address of rank 0's host, or GLOO_SOCKET_IFNAME");
    }
  } catch (const ConfigError& error) {
    problem = concat("rank ", meeting.rank, ": ", error.what());
  }
  for (const std::string& each : meeting.all_gather("interface", problem + " ")) {
    TRIREME_CHECK(each == " ", each.substr(0, each.size() - 1));
  }
  return mine;
}

}  // namespace

std::unique_ptr<Communicator> make_store_group(const StorePtr& store, int rank, int size,
                                               const GroupOptions& options,
                                               const StoreGroupOptions& how) {
  TRIREME_CHECK(size >= 1 && rank >= 0 && rank < size, "rank ", rank, " of ", size,
                " ranks; expected 0 <= rank < size");
  const auto meetings = c10::make_intrusive<c10d::PrefixStore>("trireme", store);
  const std::string session = agree_on_session(meetings, rank, size, options.timeout);
  const auto round = c10::make_intrusive<c10d::PrefixStore>(session, meetings);
  const auto new_recorder = [&] {
    return GroupRecorder(options.recorder, options.name, size, options.world_ranks);
  };
  if (how.transport == Transport::kNccl) {
    return make_nccl_group(c10::make_intrusive<c10d::PrefixStore>("nccl", round), rank, size,
                           {options.name, options.timeout, new_recorder(), options.cancellation});
  }
  const Meeting meeting{round, rank, size, options.timeout};
  const HostMap hosts(meeting.all_gather("host", host_identity()));
  const int host = hosts.host_of(rank);
  const auto make_shm = [&](std::shared_ptr<Recorder> recorder) {
    const std::vector<int>& local_ranks = hosts.ranks_of(host);
    GroupOptions local = options;
    local.recorder = std::move(recorder);
    local.world_ranks = local_ranks;
    for (int& member : local.world_ranks) {
      if (!options.world_ranks.empty()) member = options.world_ranks.at(member);
    }
    return make_shm_group(concat(session, ".host", host), hosts.local_rank_of(rank),
                          static_cast<int>(local_ranks.size()), local);
  };
  TRIREME_CHECK(how.transport != Transport::kShm || hosts.num_hosts() == 1,
                "transport \"shm\" connects the ranks of one host, and these are on ",
                hosts.num_hosts(), "; expected auto, hierarchical or gloo");
  if (how.transport != Transport::kGloo && hosts.num_hosts() == 1)
    return make_shm(options.recorder);
  TRIREME_CHECK(how.make_gloo || has_gloo(), "the ranks are on ", hosts.num_hosts(),
                " hosts and transport \"", name_of(kTransports, how.transport),
                "\" needs Gloo, which this build lacks; install libgloo-dev and build with "
                "TRIREME_WITH_GLOO=ON");
  const NetworkInterface interface = agree_on_interface(meeting, how, hosts);
  const auto make_gloo = [&](const GroupRecorder& recorder) {
    const GlooOptions gloo{options.name, options.timeout, interface, recorder,
                           options.cancellation};
    const auto make = how.make_gloo ? how.make_gloo : make_gloo_group;
    return make(c10::make_intrusive<c10d::PrefixStore>("gloo", round), rank, size, gloo);
  };
  const GroupRecorder recorder = new_recorder();
  if (how.transport == Transport::kGloo) return make_gloo(recorder);
  // Only the whole group's calls are recorded. The calls of the two groups are part of them.
  return recorder.join([&] {
    auto outer = make_gloo({});
    return make_hierarchical_group(make_shm(nullptr), std::move(outer), hosts, options.name,
                                   recorder);
  });
}

}  // namespace trireme::comm::inline internal
