#include "trireme/comm/shared/peer_memory.h"

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::comm::inline internal {

std::string text_of_peer(std::span<const char> shared) {
  // Copy first, so that the text that is checked is the text that is returned.
  std::string text(shared.begin(), shared.end());
  text.resize(strnlen(text.c_str(), text.size()));
  return shown(text, text.size());
}

std::span<std::byte> span_of_peer(Exchange& exchange, const Heap& heap, const PeerBytes& bytes,
                                  const char* operation) {
  std::byte* const data = heap.find(bytes.place, bytes.num_bytes, bytes.alignment);
  if (data == nullptr) [[unlikely]] {
    const std::string reason = concat(
        exchange.title_of(bytes.peer), " says that its ", bytes.num_bytes, " bytes lie at ",
        bytes.place, " in symmetric memory, where they cannot; its memory or program is damaged");
    if (operation == nullptr) exchange.fail(reason);
    exchange.fail(operation, reason);
  }
  return {data, bytes.num_bytes};
}

}  // namespace trireme::comm::inline internal
