// A group's failures as torch.distributed's own type, in the words that programs written for Gloo
// look for: the known phrase, then ours. Texts elsewhere stay as they are.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::comm {

enum class FailureKind {
  kPeerLost,   // died, left or gave up
  kTimedOut,   // in a call
  kNeverCame,  // to the group's first meeting
  kMismatch,   // the ranks called different operations
  kAborted,    // by a rank that asked for it
};

// What a CommError's text tells of. A failure travels between ranks as its text, on every
// transport, so a rank that hears of it from a peer has nothing else to know it by.
FailureKind kind_of(std::string_view failure);

// "[trireme] Connection closed by peer: all_reduce #2 of group 0 (3 ranks), ...: rank 2 died"
std::string in_words_of_gloo(const std::string& failure);

// Runs `operation`; a CommError comes out as c10::DistBackendError, in Gloo's words and ours.
void as_c10d_errors(const std::function<void()>& operation);

}  // namespace trireme::comm
