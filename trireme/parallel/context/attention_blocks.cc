#include "trireme/parallel/context/attention_blocks.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

bool continues(const mesh::Range& range, const mesh::Range& next) {
  return range.offset + range.size == next.offset;
}

// Appends `block`; joins it with the last one if the two form one rectangle.
void append(std::vector<AttentionBlock>& blocks, const AttentionBlock& block) {
  if (!blocks.empty() && block.reach.is_whole() && blocks.back().reach.is_whole() &&
      blocks.back().sequences == block.sequences) {
    AttentionBlock& last = blocks.back();
    if (last.queries == block.queries && continues(last.keys, block.keys)) {
      last.keys.size += block.keys.size;
      return;
    }
    if (last.keys == block.keys && continues(last.queries, block.queries)) {
      last.queries.size += block.queries.size;
      return;
    }
  }
  blocks.push_back(block);
}

// Appends a causal block of `tokens` as two causal halves and the block in which the second half
// reads the first.
void append_causal(std::vector<AttentionBlock>& blocks, const mesh::Range& sequences,
                   const mesh::Range& tokens, int64_t most) {
  if (tokens.size <= most) {
    append(blocks, {sequences, tokens, tokens, {.is_causal = true}});
    return;
  }
  const mesh::Range first{tokens.offset, tokens.size / 2};
  const mesh::Range second{tokens.offset + first.size, tokens.size - first.size};
  append_causal(blocks, sequences, first, most);
  append(blocks, {sequences, second, first});
  append_causal(blocks, sequences, second, most);
}

}  // namespace

struct AttentionMask::Segment {
  mesh::Range local;  // of the rank's tokens
  int64_t position;   // of its first token
  int64_t document;
};

AttentionMask::AttentionMask(const SequenceSplit& split, int64_t batch, const AttentionReach& reach,
                             int64_t causal_tokens)
    : split_(split),
      is_causal_(reach.causal),
      // A window that reaches over the whole sequence hides nothing.
      window_(reach.window < split.length() ? reach.window : 0),
      causal_tokens_(causal_tokens) {
  TRIREME_CHECK(reach.window == 0 || reach.causal, "attention has a window of ", reach.window,
                " tokens and is not causal; windows reach back from a token: leave it out");
  const at::Tensor& documents_BT = reach.documents_BT;
  const int64_t T = split.length();
  if (!documents_BT.defined()) {
    // Without documents all sequences have one mask and are computed together.
    groups_.push_back({{0, batch}, {{{0, T}, 0}}});
    return;
  }
  TRIREME_CHECK(documents_BT.scalar_type() == at::kLong, "documents are of ",
                documents_BT.scalar_type(), "; expected int64");
  TRIREME_CHECK(documents_BT.sizes() == at::IntArrayRef({batch, T}), "documents are ",
                documents_BT.sizes(), "; expected [", batch, ", ", T,
                "], a number for each token of the whole sequences");
  const at::Tensor documents = documents_BT.cpu().contiguous();
  // With documents each sequence has its own cuts.
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* document = documents.const_data_ptr<int64_t>() + b * T;
    Group& group = groups_.emplace_back(Group{{b, 1}, {}});
    for (int64_t begin = 0; begin < T;) {
      int64_t end = begin + 1;
      while (end < T && document[end] == document[begin]) ++end;
      group.runs.push_back({{begin, end - begin}, document[begin]});
      begin = end;
    }
  }
}

std::vector<AttentionMask::Segment> AttentionMask::segments(const SequenceSplit& split, int rank,
                                                            const Group& group) {
  std::vector<Segment> result;
  int64_t local = 0;
  auto run = group.runs.begin();
  for (const mesh::Range& range : split.ranges(rank)) {
    const int64_t end = range.offset + range.size;
    for (int64_t position = range.offset; position < end;) {
      while (run->tokens.offset + run->tokens.size <= position) ++run;
      const int64_t size = std::min(end, run->tokens.offset + run->tokens.size) - position;
      result.push_back({{local, size}, position, run->document});
      position += size;
      local += size;
    }
  }
  return result;
}

void AttentionMask::join(std::vector<Segment>& segments) {
  std::vector<Segment> result;
  for (const Segment& segment : segments) {
    if (!result.empty() && result.back().document == segment.document) {
      result.back().local.size += segment.local.size;
    } else {
      result.push_back(segment);
    }
  }
  segments = std::move(result);
}

// distance: of the first query from the first key. Query r reads key c if 0 <= distance + r - c <
// window_.
void AttentionMask::append_window(std::vector<AttentionBlock>& blocks, const mesh::Range& sequences,
                                  mesh::Range queries, mesh::Range keys, int64_t distance) const {
  const auto drop = [](mesh::Range& range, int64_t first, int64_t last) {
    range = {range.offset + first, range.size - first - last};
  };
  // Queries before all keys, and queries that are too late for the last key.
  const int64_t early = std::max<int64_t>(0, -distance);
  const int64_t late = std::max<int64_t>(0, queries.size - (keys.size - distance + window_ - 1));
  if (early + late >= queries.size) return;
  drop(queries, early, late);
  distance += early;
  // Keys that are too old for the first query, and keys after the last one.
  const int64_t old = std::max<int64_t>(0, distance - window_ + 1);
  const int64_t future = std::max<int64_t>(0, keys.size - (distance + queries.size));
  if (old + future >= keys.size) return;
  drop(keys, old, future);
  distance -= old;
  const auto rest = [&](mesh::Range q, mesh::Range k) {
    append_window(blocks, sequences, q, k,
                  distance + (q.offset - queries.offset) - (k.offset - keys.offset));
  };
  const auto cut_queries = [&](int64_t at) {
    rest({queries.offset, at}, keys);
    rest({queries.offset + at, queries.size - at}, keys);
  };
  const auto cut_keys = [&](int64_t at) {
    rest(queries, {keys.offset, at});
    rest(queries, {keys.offset + at, keys.size - at});
  };
  const bool is_causal = distance < keys.size - 1;  // the last key is after the first query
  const bool is_at_edge = distance + queries.size - 1 >= window_;
  const int64_t most =
      std::min(causal_tokens_, std::max<int64_t>(1, std::min(kCausalTokens, window_)));
  if (!is_causal && !is_at_edge) return append(blocks, {sequences, queries, keys});
  if (std::max(queries.size, keys.size) > most || (is_causal && is_at_edge)) {
    return queries.size >= keys.size ? cut_queries(queries.size / 2) : cut_keys(keys.size / 2);
  }
  if (is_at_edge) {
    blocks.push_back({sequences, queries, keys, {.edge = distance - window_ + 1}});
    return;
  }
  // Until queries and keys are the same tokens.
  if (distance > 0) return cut_keys(distance);
  if (queries.size > keys.size) return cut_queries(keys.size);
  blocks.push_back({sequences, queries, keys, {.is_causal = true}});
}

std::vector<AttentionBlock> AttentionMask::blocks(int query_rank, int key_rank) const {
  std::vector<AttentionBlock> result;
  for (const Group& group : groups_) {
    if (group.sequences.size == 0) continue;
    std::vector<Segment> queries = segments(split_, query_rank, group);
    std::vector<Segment> all_keys = segments(split_, key_rank, group);
    if (window_ == 0 && (query_rank == key_rank || !is_causal_)) {
      // Among a rank's own tokens only their order counts, not their distance. Without causality
      // not even their order does.
      // Fewer and larger blocks: each call of a kernel costs something.
      join(queries);
      join(all_keys);
    }
    std::map<int64_t, std::vector<Segment>> keys;  // by document
    for (const Segment& segment : all_keys) keys[segment.document].push_back(segment);
    for (const Segment& query : queries) {
      for (const Segment& key : keys[query.document]) {
        // Keys come in order of their positions, so none after this one can be read either.
        if (is_causal_ && key.position > query.position) break;
        if (window_ > 0) {
          append_window(result, group.sequences, query.local, key.local,
                        query.position - key.position);
          continue;
        }
        // Queries and keys have the same cuts, so they are equal or disjoint.
        if (is_causal_ && key.position == query.position) {
          append_causal(result, group.sequences, query.local, causal_tokens_);
        } else {
          append(result, {group.sequences, query.local, key.local});
        }
      }
    }
  }
  return result;
}

}  // namespace trireme::parallel
