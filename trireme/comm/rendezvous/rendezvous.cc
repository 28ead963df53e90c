#include "trireme/comm/rendezvous/rendezvous.h"

#include <optional>
#include <type_traits>
#include <utility>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/network_interface.h"
#include "trireme/comm/hierarchical/hierarchical_communicator.h"
#include "trireme/comm/message/message_communicator.h"
#include "trireme/comm/message/mpi_group.h"
#include "trireme/comm/rendezvous/job_store.h"
#include "trireme/comm/rendezvous/store_group.h"
#include "trireme/comm/shared/shared_communicator.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

Transport transport_named(const std::string& name) {
  const auto* const found = find_choice(kTransports, name);
  TRIREME_CHECK(found != nullptr, "transport \"", name, "\" is unknown; expected ",
                in_words(names_of(kTransports)));
  return found->value;
}

}  // namespace

class Rendezvous::State {
 public:
  State(WorldInfo info, RendezvousOptions options)
      : info_(std::move(info)), options_(std::move(options)) {}

  const JobStore& joined() {
    // Only when it is needed: the ranks of one host may have none.
    if (!joined_) {
      joined_ =
          join_job_store(info_, {options_.timeout, options_.on_refused, options_.cancellation});
    }
    return *joined_;
  }

  std::string job(Transport transport) {
    // Without a store, the launcher's name is all that the ranks have in common.
    if (transport == Transport::kMpi || needs_no_store(transport)) return info_.job;
    if (job_.empty()) {
      job_ = with_refusals([&] {
        return agree_on_session(joined().store, info_.rank, info_.size, options_.timeout);
      });
    }
    return job_;
  }

  std::string address() const {
    if (!info_.interface.empty()) return find_interface(info_.interface).address;
    return joined_ && !joined_->host.empty() ? find_interface_to(joined_->host).address : "";
  }

  std::unique_ptr<Communicator> connect(Transport transport, const GroupOptions& options) {
    if (transport == Transport::kMpi) {
      auto world = make_mpi_group(options);
      TRIREME_CHECK(world->size() == info_.size, "the job has ", info_.size, " ranks and MPI ",
                    world->size(), "; start the ranks of transport mpi with mpirun");
      return world;
    }
    if (needs_no_store(transport)) {
      return make_shm_group(info_.job, info_.rank, info_.size, options);
    }
    return with_refusals([&] {
      return make_store_group(
          joined().store, info_.rank, info_.size, options,
          {.transport = transport, .interface = info_.interface, .host = joined().host});
    });
  }

 private:
  bool needs_no_store(Transport transport) const {
    const bool may_need_none = transport == Transport::kAuto || transport == Transport::kShm;
    if (!may_need_none || !(info_.store.empty() || info_.is_one_host)) return false;
    TRIREME_CHECK(info_.local_size == info_.size, "the job has ", info_.size, " ranks, of which ",
                  info_.local_size,
                  " on this host, and no store to meet over; set MASTER_ADDR and MASTER_PORT, or "
                  "TRIREME_STORE=file:PATH");
    return true;
  }

  // The store may have refused a rank that did not come.
  template <typename Function>
  std::invoke_result_t<Function> with_refusals(const Function& function) {
    try {
      return function();
    } catch (const CommError& error) {
      const bool is_server = joined_ && joined_->server != nullptr;
      const std::string refusals = is_server ? joined_->server->refusals() : "";
      if (refusals.empty()) throw;
      throw CommError(concat(error.what(), "; ", refusals));
    }
  }

  const WorldInfo info_;
  const RendezvousOptions options_;
  std::optional<JobStore> joined_;
  std::string job_;
};

Rendezvous::Rendezvous(WorldInfo info, RendezvousOptions options)
    : state_(std::make_unique<State>(std::move(info), std::move(options))) {}

Rendezvous::~Rendezvous() = default;
Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;

c10::intrusive_ptr<c10d::Store> Rendezvous::store() { return state_->joined().store; }
std::string Rendezvous::address() const { return state_->address(); }

std::string Rendezvous::job(const std::string& transport) {
  return state_->job(transport_named(transport));
}

std::unique_ptr<Communicator> Rendezvous::connect(const std::string& transport,
                                                  const GroupOptions& options) {
  return state_->connect(transport_named(transport), options);
}

std::unique_ptr<Communicator> connect_world(const WorldInfo& info, const std::string& transport,
                                            const GroupOptions& options) {
  return Rendezvous(info, {.timeout = options.timeout}).connect(transport, options);
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
