// A rank of a learner at the service where learners meet (round_service.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/comm/net/tcp_socket.h"
#include "trireme/comm/rounds/round_wire.h"

namespace trireme::comm {

struct RoundClientOptions {
  std::string address{};  // "HOST:PORT" of the service
  // How long the service may be away, and a wait for others may take.
  std::chrono::milliseconds timeout{300'000};
  // Asked while the service is away, or this learner is not yet one of the others: true ends the
  // wait with a CommError. For the thread that waits.
  std::function<bool()> is_stopped{};
};

// A connection to the service, made anew where it breaks. Not thread safe.
class RoundConnection {
 public:
  explicit RoundConnection(const RoundClientOptions& options);

  // The reply, without its length. Asks again as long as the service does not answer.
  // Throws: ConfigError (as StoreClient); CommError when it does not answer within the timeout
  wire::Bytes ask(wire::FrameWriter& request);

 private:
  std::optional<wire::Bytes> try_to_ask(const wire::Bytes& frame);

  const RoundClientOptions options_;
  const std::vector<Endpoint> endpoints_;
  const std::string token_;
  Descriptor socket_;
};

// Says from a thread of its own, time and again, that this rank is there. All other functions are
// for one thread, and throw ConfigError when the service refuses this rank, and CommError when the
// service is away, or others are late, for longer than the timeout. A service that has begun anew
// is told who this is; what was sent to the one before must be sent again.
class RoundClient {
 public:
  // Throws: as above; ConfigError also when the address does not resolve
  RoundClient(const RoundClientOptions& options, RoundMember member);
  ~RoundClient();
  RoundClient(const RoundClient&) = delete;
  RoundClient& operator=(const RoundClient&) = delete;

  // Says which common weights this rank has now.
  wire::RoundWelcome enroll(int64_t step, const std::string& hash);
  // The same as before; waits until this rank's learner is in, or may fetch a state.
  wire::RoundWelcome await_welcome();

  // False: the service does not take it, or not any more.
  // Comm: the bytes
  bool send(wire::RoundBytes what, int64_t step, std::span<const uint8_t> bytes);
  // What has become of the round, once it is not open. Sends the message again where it is lost.
  RoundOutcome await_outcome(int64_t step, std::span<const uint8_t> message);
  // After the last round: returns once the service has the state, for those that come later; sends
  // it if it is this rank's turn.
  void hand_down(int64_t step, std::span<const uint8_t> state);
  // What the rank of equal place in the learner `place` has sent: `size` bytes, or nothing when it
  // is gone.
  // Comm:   the bytes
  // Throws: CommError also when it has another size
  std::optional<wire::Bytes> fetch(wire::RoundBytes what, int64_t step, int place, int64_t size);
  // The learner ends: nobody waits for it.
  void leave() noexcept;

 private:
  class Pause;
  wire::RoundWelcome enroll_now();
  wire::Bytes ask(wire::RoundRequest request, const std::vector<int64_t>& numbers,
                  std::optional<std::span<const uint8_t>> bytes, wire::RoundReply& reply);
  void beat();
  void end_thread();
  void check_refusal();

  const RoundClientOptions options_;
  RoundConnection connection_;
  RoundConnection short_;  // for words that may be lost: those of the thread, and the last one
  std::mutex mutex_;
  std::condition_variable changed_;
  RoundMember member_;
  std::string refusal_;  // of the thread
  std::chrono::milliseconds lease_{1000};
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace trireme::comm
