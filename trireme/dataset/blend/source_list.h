// Lists of named token files, as config keys have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::dataset {

struct ListedSource {
  std::string name{};
  std::string path{};
  int64_t weight = 1;  // 0 in a list without weights
  bool operator==(const ListedSource&) const = default;
};

// Reads "code=data/code:0.7,web=data/web:0.3". Weights are decimals above 0 of any sum, with at
// most twelve digits before the point and six behind it. They become the smallest whole numbers in
// the same proportion, if their sum is then at most Blend::kLongestPeriod; otherwise as many parts
// of that as are nearest, which sum up to it. Nothing is rounded twice, and no floating-point
// number is used.
// key: for messages
// Throws: ConfigError for an empty list or one of more than Blend::kMostParts, a name that is not
//         one (a letter, then letters, digits, _ and -) or comes twice, an empty path, or another
//         weight; when a share is below a millionth and has to be rounded
std::vector<ListedSource> parse_blend(std::string_view key, std::string_view list);

// Reads "code=data/code,web=data/web".
// Throws: as parse_blend()
std::vector<ListedSource> parse_named_paths(std::string_view key, std::string_view list);

// The names in such a list, or what is in their places where it cannot be read.
std::vector<std::string> listed_names(std::string_view list);

}  // namespace trireme::dataset
