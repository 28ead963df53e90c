// The service at which learners that come and go meet: the decisions of a RoundTable, and the bytes
// that learners send to each other by way of it. So only the service needs an address that others
// reach, and a learner sends its message once, however many the others are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/rounds/round_table.h"
#include "trireme/comm/rounds/round_wire.h"

namespace trireme::comm {

class StoreServer;

// The launcher's name of such a job (store-protocol.md).
inline constexpr const char* kRoundsJob = "trireme meet";

struct RoundServiceOptions {
  RoundTable::Options table{};
  int64_t memory_bytes = int64_t{8} << 30;  // for messages and states
  std::function<RoundTable::Time()> now = std::chrono::steady_clock::now;
};

// Thread safe.
// Memory: up to two messages of each rank and one state, within memory_bytes
class RoundService {
 public:
  explicit RoundService(const RoundServiceOptions& options);

  // The reply to a request, both without their lengths; empty: no learner sends it.
  wire::Bytes answer(std::span<const uint8_t> request);

  // Whether all learners have come to their last step and have left.
  bool is_done();
  // Lines for people. Call this or is_done() several times a lease: without any call for longer
  // than one, the service takes itself for stopped, and holds nobody for away because of it.
  std::vector<std::string> take_news();

 private:
  // Of one rank, as far as it has come.
  struct Parcel {
    int64_t step = -1;
    int64_t size = 0;
    wire::Bytes bytes{};
    bool is_whole() const { return std::ssize(bytes) == size; }
  };
  struct Asker {
    int place = -1;
    int rank = -1;
    std::string process{};
  };

  wire::Bytes answer_known(wire::RoundRequest request, const Asker& asker,
                           wire::FrameReader& reader);
  wire::Bytes enroll(wire::FrameReader& reader);
  wire::Bytes put(const Asker& asker, wire::FrameReader& reader);
  wire::Bytes outcome(const Asker& asker, wire::FrameReader& reader);
  wire::Bytes get(const Asker& asker, wire::FrameReader& reader);
  void check_memory(int64_t more) const;
  int64_t state_step() const;
  RoundTable::Time time();
  void follow_decision();
  void offer_again(const Asker& asker, RoundTable::Time now);

  const RoundServiceOptions options_;
  std::mutex mutex_;
  RoundTable table_;
  int num_ranks_ = 0;                               // of each learner
  std::map<int, std::string> processes_;            // by place
  std::map<std::pair<int, int>, Parcel> messages_;  // of the open round, by place and rank
  std::map<std::pair<int, int>, Parcel> decided_;   // of the last one
  std::optional<int64_t> decided_step_;
  std::map<int, Parcel> state_;  // by rank
  std::optional<RoundTable::Time> last_read_;
  RoundTable::Time::duration stopped_{0};  // in all
};

// Serves it at "HOST:PORT", and nothing else there.
// on_refused: see StoreServerOptions
// Throws: ConfigError when the address is not this host's, the port is in use, or other hosts can
//         reach it and there is no token (TRIREME_TOKEN, TRIREME_TOKEN_FILE)
std::unique_ptr<StoreServer> serve_rounds(RoundService& service, const std::string& address,
                                          std::function<void(const std::string&)> on_refused);

}  // namespace trireme::comm
