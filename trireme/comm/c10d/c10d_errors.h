// Turns a group's failures into torch.distributed's error type. Their text begins with the phrase
// that programs written for Gloo look for, followed by our own text.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::comm::inline internal {

enum class FailureKind {
  kPeerLost,   // died, left or gave up
  kTimedOut,   // in a call
  kNeverCame,  // to the group's first meeting
  kMismatch,   // the ranks called different operations
  kAborted,    // by a rank that asked for it
};

// The kind of failure that a CommError's text describes. On every transport failures travel between
// ranks as text, so a rank that hears of one from a peer has only the text.
FailureKind kind_of(std::string_view failure);

// "[trireme] Connection closed by peer: all_reduce #2 of group 0 (3 ranks), ...: rank 2 died"
std::string in_words_of_gloo(const std::string& failure);

// Runs `operation`. Turns a CommError into a c10::DistBackendError with Gloo's words and ours.
void as_c10d_errors(const std::function<void()>& operation);

}  // namespace trireme::comm::inline internal
