// Which of several ranks differ from the others, who should all have the same bits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

// Places in `digests` whose digest is not the most frequent one; none when all are equal. On a tie
// the lowest digest wins.
std::vector<size_t> minority(std::span<const std::string_view> digests);

// "replicas differ: "w" has different bits on rank 3; check that host's memory ...". ranks: of the
// minority, out of num_holders.
std::string replicas_differ(const std::string& name, std::span<const int> ranks,
                            size_t num_holders);

}  // namespace trireme::checkpoint
