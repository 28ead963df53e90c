#include "trireme/checkpoint/foreign/pickler.h"

#include <bit>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {

static_assert(std::endian::native == std::endian::little, "pickles are little-endian");

Pickler& Pickler::integer(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max())
    return code('K').number(static_cast<uint8_t>(value));
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max())
    return code('J').number(static_cast<int32_t>(value));
  return code('\x8a').number(static_cast<uint8_t>(sizeof(value))).number(value);
}

Pickler& Pickler::text(std::string_view value) {
  TRIREME_ASSERT(value.size() <= std::numeric_limits<uint32_t>::max(), "a text of ", value.size(),
                 " bytes");
  code('X').number(static_cast<uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

Pickler& Pickler::integers(std::span<const int64_t> values) {
  mark();
  for (const int64_t value : values) integer(value);
  return tuple();
}

Pickler& Pickler::global(std::string_view module, std::string_view name) {
  code('c');
  bytes_.append(module).append("\n").append(name).append("\n");
  return *this;
}

}  // namespace trireme::checkpoint::inline internal
