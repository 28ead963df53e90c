#include "trireme/comm/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/gloo_group.h"
#include "trireme/comm/hierarchical_communicator.h"
#include "trireme/comm/host_identity.h"
#include "trireme/comm/message_communicator.h"
#include "trireme/comm/message_exchange.h"
#include "trireme/comm/mpi_group.h"
#include "trireme/comm/shm_group.h"

namespace trireme::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct TcpAddress {
  std::string host;
  uint16_t port = 0;
};

TcpAddress tcp_address(const std::string& store) {
  const std::string text = store.substr(6);  // after tcp://
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos) {
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  }
  TRIREME_CHECK(colon != std::string::npos && port >= 1 && port <= 65535, "the store is \"", store,
                "\"; expected tcp://HOST:PORT with a port from 1 to 65535");
  return {text.substr(0, colon), static_cast<uint16_t>(port)};
}

StorePtr connect_tcp_store(const WorldInfo& info, std::chrono::milliseconds timeout) {
  const TcpAddress address = tcp_address(info.store);
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = info.rank == 0 && !info.launcher_serves_store;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address.host, options);
  } catch (const std::exception& error) {
    const std::string words = words_of(error);
    TRIREME_CHECK(words.find("EADDRINUSE") == std::string::npos, "port ", address.port,
                  " of this host is in use; set MASTER_PORT to a free one on all ranks");
    throw CommError(concat("rank ", info.rank, " of ", info.size, ": no store at ", address.host,
                           ":", address.port, ": ", words));
  }
}

// The interface that this rank's peers connect to.
NetworkInterface interface_of(const WorldInfo& info, const HostMap& hosts) {
  if (!info.interface.empty()) return find_interface(info.interface);
  if (hosts.num_hosts() == 1) return find_interface_to("127.0.0.1");
  TRIREME_CHECK(info.store.starts_with("tcp://"), "the ranks are on ", hosts.num_hosts(),
                " hosts and meet over ", info.store,
                ", which names no network; set GLOO_SOCKET_IFNAME to the interface to use");
  return find_interface_to(tcp_address(info.store).host);
}

// Throws the same on every rank when one of them cannot be reached.
NetworkInterface agree_on_interface(const WorldInfo& info, const StorePtr& store,
                                    const HostMap& hosts, std::chrono::milliseconds timeout) {
  NetworkInterface mine;
  std::string problem;
  try {
    mine = interface_of(info, hosts);
    if (mine.is_loopback && hosts.num_hosts() > 1) {
      problem = concat("rank ", info.rank, " would use interface ", to_string(mine),
                       ", which the other hosts do not reach: MASTER_ADDR leads there; set "
                       "MASTER_ADDR to a network address of rank 0's host, or GLOO_SOCKET_IFNAME");
    }
  } catch (const ConfigError& error) {
    problem = concat("rank ", info.rank, ": ", error.what());
  }
  for (const std::string& each :
       all_gather_over_store(store, "interface", problem + " ", info.rank, info.size, timeout)) {
    TRIREME_CHECK(each == " ", each.substr(0, each.size() - 1));
  }
  return mine;
}

std::unique_ptr<Communicator> connect_over_store(const WorldInfo& info,
                                                 const std::string& transport,
                                                 const GroupOptions& options) {
  const StorePtr store = connect_store(info, options.timeout);
  const HostMap hosts(
      all_gather_over_store(store, "host", host_identity(), info.rank, info.size, options.timeout));
  const int host = hosts.host_of(info.rank);
  const auto make_shm = [&] {
    return make_shm_group(concat(info.job, ".host", host), hosts.local_rank_of(info.rank),
                          static_cast<int>(hosts.ranks_of(host).size()), options);
  };
  TRIREME_CHECK(transport != "shm" || hosts.num_hosts() == 1,
                "transport \"shm\" connects the "
                "ranks of one host, and these are on ",
                hosts.num_hosts(), "; expected auto, hierarchical or gloo");
  if (transport != "gloo" && hosts.num_hosts() == 1) return make_shm();
  TRIREME_CHECK(has_gloo(), "the ranks are on ", hosts.num_hosts(), " hosts and transport \"",
                transport,
                "\" needs Gloo, which this build is without; install libgloo-dev and "
                "build with TRIREME_WITH_GLOO=ON");
  const GlooOptions gloo{options.name, options.timeout,
                         agree_on_interface(info, store, hosts, options.timeout)};
  auto outer = make_gloo_group(c10::make_intrusive<c10d::PrefixStore>("gloo", store), info.rank,
                               info.size, gloo);
  if (transport == "gloo") return outer;
  return make_hierarchical_group(make_shm(), std::move(outer), hosts, options.name);
}

}  // namespace

StorePtr connect_store(const WorldInfo& info, std::chrono::milliseconds timeout) {
  TRIREME_CHECK(info.store.starts_with("tcp://") || info.store.starts_with("file:"),
                "the ranks have no store to meet over",
                info.store.empty() ? "" : " (\"" + info.store + "\")",
                "; set MASTER_ADDR and MASTER_PORT, or TRIREME_STORE=file:PATH");
  StorePtr store;
  if (info.store.starts_with("file:")) {
    store = c10::make_intrusive<c10d::FileStore>(info.store.substr(5), info.size);
    store->setTimeout(timeout);
  } else {
    store = connect_tcp_store(info, timeout);
  }
  return c10::make_intrusive<c10d::PrefixStore>("trireme/" + info.job, store);
}

std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options) {
  if (transport == "mpi") {
    auto world = make_mpi_group(options);
    TRIREME_CHECK(world->size() == info.size, "the job has ", info.size, " ranks and MPI ",
                  world->size(), "; start the ranks of transport mpi with mpirun");
    return world;
  }
  static constexpr const char* kTransports[] = {"auto", "shm", "gloo", "hierarchical"};
  TRIREME_CHECK(std::ranges::find(kTransports, transport) != std::end(kTransports), "transport \"",
                transport, "\" is unknown; expected auto, shm, gloo, hierarchical or mpi");
  const bool may_need_no_store = transport == "auto" || transport == "shm";
  if (may_need_no_store && (info.store.empty() || info.is_one_host)) {
    TRIREME_CHECK(info.local_size == info.size, "the job has ", info.size, " ranks, of which ",
                  info.local_size,
                  " on this host, and no store to meet over; set MASTER_ADDR and "
                  "MASTER_PORT, or TRIREME_STORE=file:PATH");
    return make_shm_group(info.job, info.rank, info.size, options);
  }
  return connect_over_store(info, transport, options);
}

std::string transport_of(const Communicator& group) {
  if (const auto* both = dynamic_cast<const HierarchicalCommunicator*>(&group)) {
    return concat("hierarchical(", transport_of(both->inner()), ", ", transport_of(both->outer()),
                  ")");
  }
  if (const auto* messages = dynamic_cast<const MessageCommunicator*>(&group)) {
    return messages->channel().transport();
  }
  return dynamic_cast<const SharedCommunicator*>(&group) != nullptr ? "shared memory" : "unknown";
}

}  // namespace trireme::comm
