#include "trireme/train/run/out_of_memory.h"

#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "trireme/base/error.h"

namespace trireme::train::inline internal {
namespace {

constexpr const char* kAdvice =
    "; a rank needs less with --parallel.zero=3 and more ranks, --train.recompute=full, a smaller "
    "--train.micro_batch, or --offload.optimizer=disk";

// libtorch has a special exception only for GPU memory.
bool is_out_of_memory(const std::string& message) {
  return message.find("can't allocate memory") != std::string::npos ||
         message.find("not enough memory") != std::string::npos;
}

// "you tried to allocate 4096 bytes", without the check that failed.
std::string wish_of(const std::string& message) {
  const size_t begin = message.find("you tried to allocate");
  const size_t end = message.find(" bytes", begin);
  if (begin == std::string::npos || end == std::string::npos) return message;
  return message.substr(begin, end - begin) + " bytes at once";
}

}  // namespace

void rethrow_with_memory_advice() {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw ConfigError(
        concat("out of the device's memory: ", error.what_without_backtrace(), kAdvice));
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (!is_out_of_memory(message)) throw;
    throw ConfigError(concat("out of memory: ", wish_of(message), kAdvice));
  } catch (const std::bad_alloc&) {
    throw ConfigError(concat("out of memory", kAdvice));
  }
}

}  // namespace trireme::train::inline internal
