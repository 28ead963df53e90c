#include "trireme/parallel/embedding/id_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/embedding/open/open_key.h"
#include "trireme/parallel/embedding/sums/sample_tree.h"

namespace trireme::parallel {

// Each rank sends every owner the ids that it needs, each once however often a batch has it. Sorted
// ids make that cheap: a rank's rows are a range, so what an owner gets is a slice. With the ids
// goes, for each, the set of subtrees of the global batch in which it occurs. The owner then knows
// how many partial sums will come back in backward, without another exchange, and adds them by the
// shape of one tree over all samples. The sum of a row thus does not depend on how the samples are
// spread over ranks.

namespace {

// Bytes of a set of subtrees on the wire; none where there is nothing to tell.
int64_t set_bytes(const std::vector<int64_t>& subtrees, bool needs_gradient) {
  const int64_t count = std::ssize(subtrees);
  return needs_gradient && count > 1 ? (count + 7) / 8 : 0;
}

template <typename number>
void write_ids(std::span<const int64_t> ids, int64_t first_row, std::byte* out) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<number>(ids[i] - first_row);
    std::memcpy(out + i * sizeof(number), &row, sizeof(number));
  }
}

template <typename number>
void read_ids(const std::byte* in, std::span<int64_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    number row;
    std::memcpy(&row, in + i * sizeof(number), sizeof(number));
    rows[i] = row;
  }
}

// The low `bytes` bytes of each number, lowest first, and the reverse.
void write_sets(std::span<const uint64_t> sets, int64_t bytes, std::byte* out) {
  for (const uint64_t set : sets) {
    for (int64_t b = 0; b < bytes; ++b) *out++ = static_cast<std::byte>(set >> (8 * b));
  }
}
void read_sets(const std::byte* in, int64_t bytes, std::span<uint64_t> sets) {
  for (uint64_t& set : sets) {
    // One sum per id when there is one subtree, so nothing needs to be told.
    set = bytes == 0 ? 1 : 0;
    for (int64_t b = 0; b < bytes; ++b) set |= static_cast<uint64_t>(*in++) << (8 * b);
  }
}

// The ids within `rows`, out of ascending ids.
mesh::Range groups_in(const std::vector<int64_t>& ids, mesh::Range rows, bool is_open) {
  const auto first_from = [&](int64_t row) {
    return (is_open ? std::ranges::lower_bound(ids, row, {}, place_of_open_key)
                    : std::ranges::lower_bound(ids, row)) -
           ids.begin();
  };
  // Both cut the space of keys at the same places.
  static_assert(kOpenRows == int64_t{1} << kOpenPlaceBits);
  const int64_t first = first_from(rows.offset);
  return {first, first_from(rows.offset + rows.size) - first};
}

std::byte* bytes_in(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

TableParts::TableParts(const mesh::Layout& layout, bool is_open) : is_open(is_open) {
  const mesh::Placement& placement = layout.placements()[0];
  is_replicated = placement.kind == mesh::Placement::Kind::kReplicated;
  is_by_columns = !is_replicated && placement.dim == 1;
  for (int rank = 0; rank < layout.num_ranks(); ++rank) {
    const mesh::Box box = layout.local_box(rank);
    rows.push_back({box.offset[0], box.size[0]});
    columns.push_back({box.offset[1], box.size[1]});
  }
}

IdExchange::IdExchange(std::span<const TableConfig> tables, std::span<const TableParts> parts,
                       comm::Communicator* group, const JaggedIds& ids, bool needs_gradient)
    : group_(group),
      rank_(group == nullptr ? 0 : group->rank()),
      size_(group == nullptr ? 1 : group->size()),
      needs_gradient_(needs_gradient),
      arrived_(static_cast<size_t>(size_)),
      subtrees_(static_cast<size_t>(size_)) {
  group_own(tables, parts, ids);
  if (size_ == 1) return;
  exchange_counts(ids);
  if (needs_gradient_) mark_subtrees(ids.num_samples);
  send();
}

void IdExchange::group_own(std::span<const TableConfig> tables, std::span<const TableParts> parts,
                           const JaggedIds& ids) {
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableIds list = view_table(ids, static_cast<int64_t>(t));
    const int64_t limit = parts[t].is_open ? std::numeric_limits<int64_t>::max() : tables[t].rows;
    OwnIds own{.groups = group_ids(list.values, limit)};
    own.sample_of_place.resize(list.values.size());
    for (int64_t s = 0; s < ids.num_samples; ++s) {
      const auto at = static_cast<size_t>(s);
      std::fill(own.sample_of_place.begin() + (list.offsets[at] - list.offsets[0]),
                own.sample_of_place.begin() + (list.offsets[at + 1] - list.offsets[0]),
                static_cast<int32_t>(s));
    }
    for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
      const mesh::Range rows = parts[t].gets_ids(r) ? parts[t].rows[r] : mesh::Range{};
      own.asked.push_back(groups_in(own.groups.ids, rows, parts[t].is_open));
      first_row_.push_back(parts[t].is_open ? 0 : rows.offset);
    }
    own_.push_back(std::move(own));
    is_replicated_.push_back(parts[t].is_replicated);
    // Half the bytes for every table of fewer than two billion rows.
    id_bytes_.push_back(tables[t].rows <= int64_t{1} << 31 ? 4 : 8);
  }
}

int64_t IdExchange::bytes_of_id(size_t sender, size_t table) const {
  return id_bytes_[table] + set_bytes(subtrees_[sender], needs_gradient_);
}

bool IdExchange::travels(size_t table, size_t rank) const {
  // Replicas are looked up at home; only their gradients travel.
  return rank != static_cast<size_t>(rank_) && (needs_gradient_ || !is_replicated_[table]);
}

// Tells each rank how many ids it gets for each table, and how many samples this rank has.
void IdExchange::exchange_counts(const JaggedIds& ids) {
  const auto T = static_cast<int64_t>(own_.size());
  const at::Tensor sent = at::zeros({size_, T + 1}, at::kLong), received = at::empty_like(sent);
  auto* out = sent.mutable_data_ptr<int64_t>();
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    for (size_t t = 0; t < own_.size(); ++t) *out++ = travels(t, r) ? own_[t].asked[r].size : 0;
    *out++ = ids.num_samples;
  }
  // In the foreground: the sizes of everything that follows depend on it.
  group_->all_to_all(received.unbind(0), sent.unbind(0))->wait();
  const auto* in = received.const_data_ptr<int64_t>();
  int64_t sample = 0;
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    arrived_[r].resize(own_.size());
    for (ArrivedIds& arrived : arrived_[r]) arrived.rows.resize(static_cast<size_t>(*in++));
    subtrees_[r] = subtrees_of(sample, sample + *in);
    if (r == static_cast<size_t>(rank_)) first_sample_ = sample;
    sample += *in++;
  }
}

void IdExchange::mark_subtrees(int64_t num_samples) {
  // No bits to set.
  if (subtrees_[static_cast<size_t>(rank_)].size() < 2) {
    for (OwnIds& own : own_) own.subtrees.assign(own.groups.ids.size(), 1);
    return;
  }
  std::vector<uint8_t> subtree_of(static_cast<size_t>(num_samples));
  const std::vector<int64_t>& begins = subtrees_[static_cast<size_t>(rank_)];
  for (size_t k = 0; k < begins.size(); ++k) {
    std::fill(subtree_of.begin() + (begins[k] - first_sample_), subtree_of.end(),
              static_cast<uint8_t>(k));
  }
  for (OwnIds& own : own_) {
    own.subtrees.resize(own.groups.ids.size());
    for (size_t i = 0; i < own.subtrees.size(); ++i) {
      const auto first = static_cast<size_t>(own.groups.first[i]);
      const auto end = static_cast<size_t>(own.groups.first[i + 1]);
      uint64_t set = 0;
      for (size_t k = first; k < end; ++k) {
        const auto place = static_cast<size_t>(own.groups.places[k]);
        set |= uint64_t{1} << subtree_of[static_cast<size_t>(own.sample_of_place[place])];
      }
      own.subtrees[i] = set;
    }
  }
}

// A rank's block: the ids of each table, then the sets of subtrees of each.
void IdExchange::send() {
  const auto self = static_cast<size_t>(rank_);
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    int64_t out_bytes = 0, in_bytes = 0;
    for (size_t t = 0; t < own_.size(); ++t) {
      const int64_t num_sent = travels(t, r) ? own_[t].asked[r].size : 0;
      out_bytes += num_sent * (id_bytes_[t] + set_bytes(subtrees_[self], needs_gradient_));
      in_bytes += std::ssize(arrived_[r][t].rows) *
                  (id_bytes_[t] + set_bytes(subtrees_[r], needs_gradient_));
    }
    sent_.push_back(at::empty({out_bytes}, at::kByte));
    arriving_.push_back(at::empty({in_bytes}, at::kByte));
    std::byte* out = bytes_in(sent_.back());
    for (size_t t = 0; t < own_.size() && out_bytes > 0; ++t) {
      if (!travels(t, r)) continue;
      const auto [first, count] = own_[t].asked[r];
      const std::span ids(own_[t].groups.ids.data() + first, static_cast<size_t>(count));
      const auto write = id_bytes_[t] == 4 ? write_ids<int32_t> : write_ids<int64_t>;
      write(ids, first_row_[t * static_cast<size_t>(size_) + r], out);
      out += count * id_bytes_[t];
    }
    const int64_t bytes = set_bytes(subtrees_[self], needs_gradient_);
    for (size_t t = 0; t < own_.size() && bytes > 0; ++t) {
      if (!travels(t, r)) continue;
      const auto [first, count] = own_[t].asked[r];
      write_sets({own_[t].subtrees.data() + first, static_cast<size_t>(count)}, bytes, out);
      out += count * bytes;
    }
  }
  // Behind the caller's computing, which is what start() and finish() are apart for.
  work_ = group_->all_to_all(arriving_, sent_, {.background = true});
}

void IdExchange::finish() {
  if (work_ == nullptr) return;
  std::exchange(work_, nullptr)->wait();
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    const std::byte* in = bytes_in(arriving_[r]);
    for (size_t t = 0; t < own_.size(); ++t) {
      const auto read = id_bytes_[t] == 4 ? read_ids<int32_t> : read_ids<int64_t>;
      read(in, arrived_[r][t].rows);
      in += std::ssize(arrived_[r][t].rows) * id_bytes_[t];
    }
    if (!needs_gradient_) continue;
    const int64_t bytes = set_bytes(subtrees_[r], needs_gradient_);
    for (ArrivedIds& arrived : arrived_[r]) {
      arrived.subtrees.resize(arrived.rows.size());
      read_sets(in, bytes, arrived.subtrees);
      in += std::ssize(arrived.rows) * bytes;
      for (const uint64_t set : arrived.subtrees) arrived.num_sums += std::popcount(set);
    }
  }
  sent_.clear();
  arriving_.clear();
}

namespace {

// An id and its place in one number, which sorts by both. Needs ids below 2^32.
// 31 bits for the place and 33 for the id, of which 32 are used.
constexpr int kPlaceBits = 31;
// A table of 2,048 counters fits a first-level cache.
constexpr int kMostDigitBits = 11;
// Below that, clearing the counters costs more than sorting.
constexpr size_t kFewerThanRadix = 256;

// Sorts by id only. Places ascend already, and each pass keeps the order of equal digits.
void sort_by_radix(std::vector<uint64_t>& keys, int id_bits) {
  const int num_passes = std::max(1, (id_bits + kMostDigitBits - 1) / kMostDigitBits);
  const int digit_bits = (id_bits + num_passes - 1) / num_passes;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  std::vector<uint64_t> other(keys.size());
  for (int pass = 0; pass < num_passes; ++pass) {
    const int shift = kPlaceBits + pass * digit_bits;
    // Counts, then begins: the pass is stable, and places stay in order.
    uint32_t next[(1 << kMostDigitBits) + 1] = {};
    for (const uint64_t key : keys) ++next[((key >> shift) & mask) + 1];
    for (size_t digit = 1; digit <= mask; ++digit) next[digit] += next[digit - 1];
    for (const uint64_t key : keys) other[next[(key >> shift) & mask]++] = key;
    keys.swap(other);
  }
}

// place_at(i), id_at(i): of entry i in sorted order.
template <typename PlaceAt, typename IdAt>
IdGroups groups_of_sorted(size_t count, const PlaceAt& place_at, const IdAt& id_at) {
  IdGroups groups;
  groups.places.resize(count);
  groups.ids.reserve(count);
  groups.first.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = id_at(i);
    if (groups.ids.empty() || groups.ids.back() != id) {
      groups.ids.push_back(id);
      groups.first.push_back(static_cast<int64_t>(i));
    }
    groups.places[i] = place_at(i);
  }
  groups.first.push_back(static_cast<int64_t>(count));
  return groups;
}

}  // namespace

std::vector<int32_t> IdGroups::group_of_place() const {
  std::vector<int32_t> groups(places.size());
  for (int32_t i = 0; i < static_cast<int32_t>(size()); ++i) {
    for (int64_t k = first[static_cast<size_t>(i)]; k < first[static_cast<size_t>(i) + 1]; ++k) {
      groups[static_cast<size_t>(places[static_cast<size_t>(k)])] = i;
    }
  }
  return groups;
}

IdGroups group_ids(std::span<const int64_t> values, int64_t limit) {
  TRIREME_CHECK(values.size() < (size_t{1} << kPlaceBits), "a table has ", values.size(),
                " ids in one batch; at most 2^31 - 1 are possible");
  const int id_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(limit - 1, 0)));
  // Keys of open vocabularies have all 64 bits.
  if (id_bits > 32) {
    std::vector<int32_t> places(values.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    const auto id_of = [&](int32_t place) { return values[static_cast<size_t>(place)]; };
    std::ranges::stable_sort(places, {}, id_of);
    return groups_of_sorted(
        places.size(), [&](size_t i) { return places[i]; },
        [&](size_t i) { return id_of(places[i]); });
  }
  std::vector<uint64_t> keys(values.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = (static_cast<uint64_t>(values[i]) << kPlaceBits) | i;
  }
  if (keys.size() < kFewerThanRadix) {
    std::ranges::sort(keys);
  } else {
    sort_by_radix(keys, id_bits);
  }
  constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;
  return groups_of_sorted(
      keys.size(), [&](size_t i) { return static_cast<int32_t>(keys[i] & kPlaceMask); },
      [&](size_t i) { return static_cast<int64_t>(keys[i] >> kPlaceBits); });
}

}  // namespace trireme::parallel
