#include "trireme/comm/rendezvous/meeting.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/message/message_exchange.h"
#include "trireme/comm/net/tcp_socket.h"
#include "trireme/comm/rendezvous/rendezvous_variables.h"
#include "trireme/comm/store/store_client.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

TcpAddress address_of(const MeetingOptions& options) {
  return parse_tcp_address("tcp://" + options.address);
}

// Where the server listens.
TcpAddress listener_of(const MeetingOptions& options) {
  TcpAddress address = address_of(options);
  if (!options.listen.empty()) address.host = options.listen;
  return address;
}

// The source address of packets to `endpoints`. Sends none.
std::string source_address(const std::vector<Endpoint>& endpoints) {
  for (const Endpoint& endpoint : endpoints) {
    const Descriptor socket(
        ::socket(endpoint.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, /*protocol=*/0));
    const auto* to = reinterpret_cast<const sockaddr*>(&endpoint.address);
    if (!socket.is_open() || connect(socket.get(), to, endpoint.length) != 0) continue;
    Endpoint own;
    own.length = sizeof(own.address);
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.address), &own.length) == 0) {
      return own.to_string();
    }
  }
  return "127.0.0.1";
}

}  // namespace

class Meeting::State {
 public:
  State(const MeetingOptions& options, bool serves) {
    const TcpAddress address = serves ? listener_of(options) : address_of(options);
    const std::vector<Endpoint> endpoints = resolve(address);
    const std::string token = job_token();
    TRIREME_CHECK(!token.empty() || std::ranges::all_of(endpoints, &Endpoint::is_loopback),
                  "other hosts can reach the agents' store at ", address.host, ":", address.port,
                  ", and this job has no token to keep strangers out; ", kTokenAdvice);
    std::shared_ptr<StoreServer> server;
    if (serves) {
      server = std::make_shared<StoreServer>(
          listen_on(endpoints, address),
          StoreServerOptions{
              .token = token, .job = options.job, .size = 0, .on_refused = options.on_refused});
    }
    store_ = c10::make_intrusive<StoreClient>(
        StoreClientOptions{.address = address,
                           .token = token,
                           .job = options.job,
                           .rank = 0,
                           .size = 0,
                           .timeout = options.timeout,
                           .answer_patience = options.answer_patience,
                           .cancellation = options.cancellation},
        std::move(server));
    own_address_ = source_address(endpoints);
  }

  StoreClient& store() { return *store_; }
  const std::string& own_address() const { return own_address_; }

 private:
  c10::intrusive_ptr<StoreClient> store_;
  std::string own_address_;
};

namespace {

// libtorch's exceptions as ours.
template <typename Function>
std::invoke_result_t<Function> or_lost(const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(words_of(error));
  }
}

}  // namespace

Meeting::Meeting(std::unique_ptr<State> state) : state_(std::move(state)) {}
Meeting::~Meeting() = default;
Meeting::Meeting(Meeting&&) noexcept = default;

Meeting Meeting::serve(const MeetingOptions& options) {
  return Meeting(std::make_unique<State>(options, /*serves=*/true));
}

Meeting Meeting::join(const MeetingOptions& options) {
  return Meeting(std::make_unique<State>(options, /*serves=*/false));
}

bool Meeting::can_serve(const MeetingOptions& options) {
  try {
    const TcpAddress address = listener_of(options);
    return !listen_on(resolve(address), address).empty();
  } catch (const ConfigError&) {
    return false;
  }
}

void Meeting::set(const std::string& key, const std::string& value) {
  or_lost([&] { state_->store().set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

int64_t Meeting::add(const std::string& key, int64_t value) {
  return or_lost([&] { return state_->store().add(key, value); });
}

std::vector<std::string> Meeting::get(const std::vector<std::string>& keys) {
  return or_lost([&] {
    std::vector<std::string> values;
    if (keys.empty()) return values;
    for (const auto& value : state_->store().multiGet(keys)) {
      values.emplace_back(value.begin(), value.end());
    }
    return values;
  });
}

std::optional<std::string> Meeting::wait_for(const std::string& key,
                                             std::chrono::milliseconds patience) {
  // The store takes 0 for no bound at all.
  TRIREME_ASSERT(patience.count() > 0, "a wait without bound");
  return or_lost([&]() -> std::optional<std::string> {
    try {
      state_->store().wait({key}, patience);
    } catch (const c10::DistStoreError&) {
      // It did not come in time.
      return std::nullopt;
    }
    return get({key}).front();
  });
}

const std::string& Meeting::own_address() const { return state_->own_address(); }

}  // namespace trireme::comm
