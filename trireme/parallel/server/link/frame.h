// The messages between workers, servers and the director. A frame is a header of fixed size and a
// payload of bounded size. Byte offsets: docs/design/server-protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

enum class FrameKind : uint16_t {
  kBeat = 1,   // sign of life; not counted
  kRegister,   // member -> director; a server's payload is its address
  kView,       // director -> members: who is where
  kSuspect,    // member -> director: the link to server `piece` is broken
  kFilled,     // server -> director: its copy of `shard` is complete
  kGoodbye,    // worker -> director: it leaves and has no unanswered push
  kEnd,        // director -> members: the run ends; the payload says why it failed, if it did
  kEvent,      // worker -> head, and down the chain: see EventKind
  kDone,       // tail -> worker: every copy has the event
  kPull,       // worker -> tail
  kWeights,    // tail -> worker
  kPullState,  // worker -> tail: a tensor of the optimizer
  kState,      // tail -> worker
  kAttach,     // server -> successor: which events of `shard` do you have?
  kHave,       // successor -> server: all up to `sequence`; -1: none
  kEventDone,  // successor -> server: the tail has `sequence`
  kConfirm,    // down the chain: an event that the worker sent twice; the tail answers kDone
  kSnapshot,   // server -> successor: part of a shard's state
  kRefused,    // server -> worker: the reason; see Refusal
};
inline constexpr uint16_t kNumFrameKinds = static_cast<uint16_t>(FrameKind::kRefused);

// The `part` of kRefused.
enum class Refusal : uint16_t {
  kRequest,  // the request does not fit
  kWorker,   // the worker is no longer in the run
};

// All numbers are little-endian. Fields that a kind does not use are 0.
struct FrameHeader {
  uint32_t payload_bytes = 0;
  FrameKind kind = FrameKind::kBeat;
  // EventKind, part of a snapshot, Refusal, or number of a pull, which its answer repeats
  uint16_t part = 0;
  uint32_t shard = 0;
  uint32_t view = 0;  // of the sender
  uint32_t worker = 0;
  uint32_t incarnation = 0;
  uint32_t piece = 0;
  uint32_t num_rows = 0;  // of weights in rounds: workers with a part in their last change
  int64_t step = 0;
  int64_t sequence = 0;  // of an event in its shard; of weights: their version
  // Of a push in rounds: the version from which its difference counts. Of weights in rounds: 1 if
  // the worker's last push is not in them yet.
  int64_t base = 0;
  double learning_rate = 0;  // of a push in rounds: its weight in the mean
};
static_assert(sizeof(FrameHeader) == 64);
inline constexpr size_t kFrameHeaderBytes = sizeof(FrameHeader);

// A sparse piece of 4 MiB has at most 2^20 rows of 4 bytes, each with an index of 8 bytes.
inline constexpr size_t kMaxPayloadBytes = size_t{16} << 20;

// Payloads are shared: do not write to one that was sent or received.
struct Frame {
  FrameHeader header;
  at::Tensor payload;  // uint8 [payload_bytes]; undefined: none
};

// Whether a peer of this version may send this header.
bool is_valid(const FrameHeader& header);

// The bytes of a contiguous tensor, sharing its memory.
at::Tensor bytes_of(const at::Tensor& tensor);
at::Tensor bytes_of(std::string_view text);
std::string text_of(const at::Tensor& payload);
const char* name_of(FrameKind kind);

}  // namespace trireme::parallel
