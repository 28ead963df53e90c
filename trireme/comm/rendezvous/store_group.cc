#include "trireme/comm/rendezvous/store_group.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/device/cuda_ipc_group.h"
#include "trireme/comm/hierarchical/hierarchical_communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/recorder/group_recorder.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
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
NetworkInterface interface_of(StorePtr store, const StoreGroupOptions& how, const HostMap& hosts,
                              bool is_one_network) {
  if (!how.interface.empty()) return find_interface(how.interface);
  if (is_one_network) return find_loopback();
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
  // "Hosts" of one network, such as the containers of a pod, reach each other over the loopback.
  const auto networks = meeting.all_gather("network", network_identity());
  const bool is_one_network = std::ranges::count(networks, networks[0]) == std::ssize(networks);
  NetworkInterface mine;
  std::string problem;
  try {
    mine = interface_of(meeting.store, how, hosts, is_one_network);
    if (mine.is_loopback && !is_one_network) {
      problem = concat("rank ", meeting.rank, " would use interface ", to_string(mine),
                       ", which the other hosts cannot reach: ",
                       how.interface.empty()
                           ? "MASTER_ADDR leads there; set MASTER_ADDR to a network address of "
                             "rank 0's host, or GLOO_SOCKET_IFNAME"
                           : "GLOO_SOCKET_IFNAME names it; name one that they reach");
    }
  } catch (const ConfigError& error) {
    problem = concat("rank ", meeting.rank, ": ", error.what());
  }
  // Also from ranks without a problem: a rank that threw alone would leave the others waiting in
  // Gloo for its connection.
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
  // So that this group never reads the keys of an earlier one.
  const auto round = c10::make_intrusive<c10d::PrefixStore>(session, meetings);
  const auto new_recorder = [&] {
    return GroupRecorder(options.recorder, options.name, size, options.world_ranks);
  };
  // NCCL finds its own ways within and between hosts.
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
  if (how.transport == Transport::kCudaIpc) {
    TRIREME_CHECK(hosts.num_hosts() == 1,
                  "transport \"cuda-ipc\" connects the ranks of one host, and these are on ",
                  hosts.num_hosts(), "; expected nccl");
    const GroupRecorder recorder = new_recorder();
    return recorder.join(
        [&] { return make_cuda_ipc_group(make_shm(nullptr), options.name, recorder); });
  }
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

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

const std::string kArrived = "arrived";  // arrived/RANK: the last number that the rank has drawn

std::string arrived(int rank) { return concat(kArrived, "/", rank); }
std::string welcome(const std::string& number) { return "welcome/" + number; }
std::string joined(const std::string& session, int rank) {
  return concat("joined/", session, "/", rank);
}

// The value of a key; "" when it does not exist.
std::string look_up(const StorePtr& store, const std::string& key) {
  return store->check({key}) ? store->get_to_str(key) : "";
}

// On rank 0: welcomes every number it sees until each rank has answered one. Numbers left by an
// earlier job are welcomed too, and nobody answers.
void gather(const StorePtr& store, const std::string& session, int size,
            std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  std::vector<std::string> welcomed(size);
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) missing.push_back(rank);
  std::chrono::milliseconds delay{1};
  while (true) {
    std::erase_if(missing, [&](int rank) {
      if (store->check({joined(session, rank)})) return true;
      const std::string number = look_up(store, arrived(rank));
      if (number.empty() || number == welcomed[rank]) return false;
      store->set(welcome(number), session);
      welcomed[rank] = number;
      return false;
    });
    if (missing.empty()) break;
    if (Clock::now() >= deadline) {
      std::string list;
      for (const int rank : missing) list += concat(" ", rank);
      throw CommError(concat("rank 0 of ", size, ": these ranks did not come within ",
                             static_cast<double>(timeout.count()) / 1000, " s:", list));
    }
    std::this_thread::sleep_for(delay);
    // Quick at first, as ranks mostly come together; later the store is spared.
    delay = std::min(2 * delay, std::chrono::milliseconds(20));
  }
  // Both have written the same key, and one of their numbers is gone.
  for (int rank = 1; rank < size; ++rank) {
    TRIREME_CHECK(store->get_to_str(joined(session, rank)) == look_up(store, arrived(rank)),
                  "two processes are rank ", rank, " of ", size,
                  " at one store; give each job a MASTER_PORT or TRIREME_STORE of its own");
  }
}

}  // namespace

std::string agree_on_session(const StorePtr& store, int rank, int size,
                             std::chrono::milliseconds timeout) {
  // Drawn anew in each start. Keys of an earlier job with the same address have other numbers, so
  // nobody takes them for a rank of this one.
  const std::string number = unique_name();
  try {
    store->set(arrived(rank), number);
    if (rank == 0) {
      const std::string session = unique_name();
      gather(store, session, size, timeout);
      return session;
    }
    store->wait({welcome(number)}, timeout);
    const std::string session = store->get_to_str(welcome(number));
    store->set(joined(session, rank), number);
    return session;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw error_of_absence(store, kArrived, rank, size, timeout, error);
  }
}

}  // namespace trireme::comm
