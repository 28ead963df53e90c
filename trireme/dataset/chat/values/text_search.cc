#include "trireme/dataset/chat/values/text_search.h"

namespace trireme::dataset::chat {

TextSearch::TextSearch(std::string_view part, SearchFrom from)
    : part_(part), from_right_(from == SearchFrom::kRight) {
  if (part_.size() < 2) return;  // a search for one byte needs no table
  overlaps_.assign(part_.size(), 0);
  size_t overlap = 0;
  for (size_t i = 1; i < part_.size(); ++i) {
    while (overlap > 0 && part_at(i) != part_at(overlap)) overlap = overlaps_[overlap - 1];
    if (part_at(i) == part_at(overlap)) ++overlap;
    overlaps_[i] = static_cast<uint32_t>(overlap);
  }
}

size_t TextSearch::find(std::string_view text, size_t begin) const {
  if (part_.size() < 2) {
    return from_right_ ? text.rfind(part_) : text.find(part_, begin);
  }
  size_t matched = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[from_right_ ? text.size() - 1 - i : i];
    while (matched > 0 && c != part_at(matched)) matched = overlaps_[matched - 1];
    if (c == part_at(matched)) ++matched;
    if (matched == part_.size()) return from_right_ ? text.size() - 1 - i : i + 1 - matched;
  }
  return kNone;
}

bool has_part(std::string_view text, std::string_view part) {
  return part.empty() || TextSearch(part).find(text) != TextSearch::kNone;
}

}  // namespace trireme::dataset::chat
