// Advice for when memory runs out.
#pragma once

namespace trireme::train::inline internal {

// Call while an exception is handled. Rethrows it; a failed allocation becomes a ConfigError that
// says how a rank can need less.
[[noreturn]] void rethrow_with_memory_advice();

}  // namespace trireme::train::inline internal
