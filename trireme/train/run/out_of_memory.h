// What to do when memory runs out.
#pragma once

namespace trireme::train {

// To be called while an exception is handled: throws it again, a failed allocation as a ConfigError
// that says what makes a rank need less.
[[noreturn]] void rethrow_with_memory_advice();

}  // namespace trireme::train
