#include "trireme/comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/hierarchical_communicator.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/message/mpi_group.h"
#include "trireme/comm/rendezvous/store_group.h"
#include "trireme/comm/shared/shared_communicator.h"
#include "trireme/comm/shared/shm_group.h"

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
  static constexpr const char* kTransports[] = {"auto", "shm", "gloo", "hierarchical", "nccl"};
  TRIREME_CHECK(std::ranges::find(kTransports, transport) != std::end(kTransports), "transport \"",
                transport, "\" is unknown; expected auto, shm, gloo, hierarchical, nccl or mpi");
  const bool may_need_no_store = transport == "auto" || transport == "shm";
  if (may_need_no_store && (info.store.empty() || info.is_one_host)) {
    TRIREME_CHECK(info.local_size == info.size, "the job has ", info.size, " ranks, of which ",
                  info.local_size,
                  " on this host, and no store to meet over; set MASTER_ADDR and "
                  "MASTER_PORT, or TRIREME_STORE=file:PATH");
    return make_shm_group(info.job, info.rank, info.size, options);
  }
  return make_store_group(connect_store(info, options.timeout), info.rank, info.size, options,
                          {.transport = transport, .job = info.job, .interface = info.interface});
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
