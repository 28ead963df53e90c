// Byte-pair encoding by a table of merges.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace trireme::dataset {

// Two tokens that become one.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Working memory of merging. One thread uses it at a time.
struct MergeMemory {
  struct Symbol {
    int32_t token;  // -1: has become a part of another
    int32_t previous;
    int32_t next;  // -1: none
  };
  struct Candidate {
    int32_t rank;
    int32_t position;
    int32_t result;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class MergeTable {
 public:
  // In the order of their ranks. Of two merges of the same pair the last counts.
  explicit MergeTable(std::span<const Merge> merges);

  // Merges neighbours in `tokens` until none can be: always those of the lowest rank, and the first
  // of several. Takes O(n log n) time. At most 2^31 - 1 tokens.
  // Source: Sennrich et al. 2016, arXiv:1508.07909, algorithm 1
  void apply(std::vector<int32_t>& tokens, MergeMemory& memory) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t result;
  };
  const Rule* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> rules_;
};

}  // namespace trireme::dataset
