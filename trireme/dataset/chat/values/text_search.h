// Searches a text in time that is linear in it, whatever is searched for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::dataset::chat {

enum class SearchFrom { kLeft, kRight };

// Source: Knuth, Morris and Pratt 1977, SIAM Journal on Computing 6(2)
class TextSearch {
 public:
  static constexpr size_t kNone = std::string_view::npos;

  // `part` must outlive this, and not be empty.
  explicit TextSearch(std::string_view part, SearchFrom from = SearchFrom::kLeft);

  // Where `part` begins: its first place from `begin` on, or its last in all of `text`. kNone: it
  // is not there.
  size_t find(std::string_view text, size_t begin = 0) const;

 private:
  char part_at(size_t index) const { return part_[from_right_ ? part_.size() - 1 - index : index]; }

  std::string_view part_;
  bool from_right_;
  // For each beginning of the part: the length of the longest shorter beginning that it ends in.
  std::vector<uint32_t> overlaps_;
};

// Whether it is there; an empty part always is.
bool has_part(std::string_view text, std::string_view part);

}  // namespace trireme::dataset::chat
