// The messages between the job's store, which rank 0 serves, and the ranks that join it
// (docs/design/store-protocol.md). Pure functions. Checks every size that a peer sends before use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/sha256.h"

namespace trireme::comm::wire {

using Bytes = std::vector<uint8_t>;
using Nonce = std::array<uint8_t, 32>;

inline constexpr std::array<char, 16> kMagic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', '-',
                                                's', 't', 'o', 'r', 'e', ' ', '1', '\n'};

// Three messages of fixed size open a connection, so strangers can send no more than that. Each
// side proves that it knows the token, over numbers that the other has just drawn.
struct Greeting {  // server -> client
  std::array<char, 16> magic = kMagic;
  Nonce nonce{};
};
struct Hello {  // client -> server
  std::array<char, 16> magic = kMagic;
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t size = 0;
  std::array<char, 32> process{};  // the same in all connections of a process
  Sha256 job{};                    // sha256 of the launcher's name for the job
  Sha256 proof{};
};
enum class Verdict : uint32_t { kWelcome, kWrongToken, kOtherJob, kOtherSize, kRankTaken };
struct Answer {  // server -> client
  Verdict verdict = Verdict::kWelcome;
  Sha256 proof{};  // only in a welcome
};
static_assert(sizeof(Greeting) == 48 && sizeof(Hello) == 152 && sizeof(Answer) == 36);

Sha256 client_proof(std::string_view token, const Greeting& greeting, const Hello& hello);
Sha256 server_proof(std::string_view token, const Greeting& greeting, const Hello& hello);

// After that come requests, each answered before the next: a 32-bit length, a byte with the kind of
// request, fields. All numbers are little-endian.
enum class Request : uint8_t {
  kSet = 1,     // pairs of key and value
  kAppend,      // key, value
  kAdd,         // key, number -> the sum, as decimal text in the store
  kCompareSet,  // key, expected, desired -> the value afterwards
  kDelete,      // key -> 1 or 0
  kCheck,       // keys -> 1 when all exist, or 0
  kCount,       // -> how many keys there are
  kWait,        // milliseconds, keys: answered when all exist
  kGet,         // milliseconds, keys -> their values, when all exist
};
enum class Reply : uint8_t {
  kDone = 1,  // with the result of the request
  kLate,      // the time is over: the missing keys, as text for people
  kRefused,   // the reason, as text for people
};

inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;
inline constexpr size_t kMaxStoreBytes = size_t{256} << 20;

// Writes a message: `what` (a Request or Reply), then fields.
class FrameWriter {
 public:
  explicit FrameWriter(uint8_t what);
  FrameWriter& number(int64_t value);
  FrameWriter& bytes(std::span<const uint8_t> value);
  FrameWriter& text(std::string_view value);
  // Puts the length in front.
  // Throws: ConfigError when it exceeds kMaxFrameBytes
  const Bytes& finish();

 private:
  Bytes frame_;
};

// Reads the fields of one message (without its length) in order. A missing field is empty and sets
// ok() to false, as does every field after it.
class FrameReader {
 public:
  explicit FrameReader(std::span<const uint8_t> message) : rest_(message) {}
  uint8_t what();
  int64_t number();
  std::span<const uint8_t> bytes();
  std::string text();
  bool at_end() const { return rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::span<const uint8_t> take(size_t num_bytes);
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

// The length of the message at the start of `received`; empty until its four bytes are there. If it
// is zero or over kMaxFrameBytes, the peer is not a rank.
std::optional<size_t> frame_length(std::span<const uint8_t> received);

}  // namespace trireme::comm::wire
