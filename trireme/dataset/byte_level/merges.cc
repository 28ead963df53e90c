#include "trireme/dataset/byte_level/merges.h"

#include <algorithm>

namespace trireme::dataset {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// The order of a heap whose top is the lowest rank, and the first of several.
bool comes_later(const MergeMemory::Candidate& a, const MergeMemory::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges) {
  rules_.reserve(merges.size());
  int32_t rank = 0;
  for (const Merge& merge : merges) {
    rules_.insert_or_assign(key_of(merge.left, merge.right), Rule{rank++, merge.result});
  }
}

const MergeTable::Rule* MergeTable::find(int32_t left, int32_t right) const {
  const auto found = rules_.find(key_of(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

void MergeTable::apply(std::vector<int32_t>& tokens, MergeMemory& memory) const {
  auto& [symbols, heap] = memory;
  symbols.clear();
  heap.clear();
  const auto count = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({tokens[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto at = [&](int32_t position) -> MergeMemory::Symbol& {
    return symbols[static_cast<size_t>(position)];
  };
  const auto add = [&](int32_t position) {
    const Rule* const rule = find(at(position).token, at(at(position).next).token);
    if (rule != nullptr) heap.push_back({rule->rank, position, rule->result});
    return rule != nullptr;
  };
  const auto push = [&](int32_t position) {
    if (add(position)) std::push_heap(heap.begin(), heap.end(), comes_later);
  };

  for (int32_t i = 0; i + 1 < count; ++i) add(i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    const MergeMemory::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    heap.pop_back();
    MergeMemory::Symbol& left = at(top.position);
    if (left.token < 0 || left.next < 0) continue;
    MergeMemory::Symbol& right = at(left.next);
    // An earlier merge may have changed either. Another pair that gives the same token is taken at
    // this candidate's rank, as `tokenizers` does.
    const Rule* const rule = find(left.token, right.token);
    if (rule == nullptr || rule->result != top.result) continue;
    left.token = top.result;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(top.position);
  }

  tokens.clear();
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = at(i).next) tokens.push_back(at(i).token);
}

}  // namespace trireme::dataset
