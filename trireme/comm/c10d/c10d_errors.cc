#include "trireme/comm/c10d/c10d_errors.h"

#include <array>
#include <charconv>
#include <cmath>

#include <c10/util/Exception.h>

#include "trireme/base/error.h"

namespace trireme::comm::inline internal {
namespace {

struct Sign {
  std::string_view phrase;
  FailureKind kind;
};

// The first entry found in the text decides. The text says that a peer gave up, and then why; the
// reason decides.
constexpr std::array<Sign, 7> kSigns{{
    {"call different operations", FailureKind::kMismatch},
    {" expects ", FailureKind::kMismatch},
    {"timed out after ", FailureKind::kTimedOut},
    {"did not come within ", FailureKind::kNeverCame},
    {"never came within ", FailureKind::kNeverCame},
    {"was aborted by a peer", FailureKind::kPeerLost},
    {"was aborted", FailureKind::kAborted},
}};

// Null when the text has none of the phrases.
const Sign* sign_of(std::string_view failure) {
  for (const Sign& sign : kSigns) {
    if (failure.find(sign.phrase) != std::string_view::npos) return &sign;
  }
  return nullptr;
}

// " 1500ms" for a text in which "1.5 s" follows the sign's phrase.
std::string milliseconds_in(std::string_view failure, const Sign& sign) {
  const std::string_view rest = failure.substr(failure.find(sign.phrase) + sign.phrase.size());
  double seconds = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), seconds);
  return parsed.ec == std::errc() ? concat(" ", std::llround(seconds * 1000), "ms") : "";
}

}  // namespace

FailureKind kind_of(std::string_view failure) {
  const Sign* const sign = sign_of(failure);
  return sign == nullptr ? FailureKind::kPeerLost : sign->kind;
}

std::string in_words_of_gloo(const std::string& failure) {
  const Sign* const sign = sign_of(failure);
  const auto say = [&](const std::string& phrase) {
    return concat("[trireme] ", phrase, ": ", failure);
  };
  switch (kind_of(failure)) {
    case FailureKind::kTimedOut: return say("Timed out waiting" + milliseconds_in(failure, *sign));
    case FailureKind::kNeverCame:
      return say("wait timeout after" + milliseconds_in(failure, *sign));
    // Gloo itself never detects a mismatch. These are the words of torch's checks in debug mode.
    case FailureKind::kMismatch: return say("Detected mismatch between collectives on ranks");
    case FailureKind::kAborted: return failure;
    case FailureKind::kPeerLost: break;
  }
  return say("Connection closed by peer");
}

void as_c10d_errors(const std::function<void()>& operation) {
  try {
    operation();
  } catch (const CommError& error) {
    C10_THROW_ERROR(DistBackendError, in_words_of_gloo(error.what()));
  }
}

}  // namespace trireme::comm::inline internal
