#include "trireme/cli/language/whole_characters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "trireme/base/locale/text.h"

namespace trireme::cli {

std::string WholeCharacters::add(std::string_view piece) {
  held_ += piece;
  // A character has at most four bytes, so its beginning at most three.
  size_t kept = std::min<size_t>(3, held_.size());
  while (kept > 0 && !is_utf8_beginning(std::string_view(held_).substr(held_.size() - kept)))
    --kept;
  std::string whole = held_.substr(0, held_.size() - kept);
  held_.erase(0, whole.size());
  return whole;
}

std::string WholeCharacters::finish() { return std::exchange(held_, ""); }

}  // namespace trireme::cli
