// Length: both directions of one look-up, whose exchanges mirror each other.
#include "trireme/parallel/embedding/table_look_up.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/parallel/embedding/open/open_key.h"
#include "trireme/parallel/embedding/pooling.h"
#include "trireme/parallel/embedding/row_gradients.h"

namespace trireme::parallel {

// One look-up is four exchanges at most: ids go out in the constructor (IdExchange), rows come back
// in finish(), and in backward the gradients go to the owners. Rows that several ids of this rank
// need are asked for once. Sizes of everything are known on both sides from the ids, so no message
// says how long it is. Slots are valid only from fetch_rows() to the end of finish(): another
// look-up may evict rows. What backward needs of rows, for gradients of weights, is therefore
// copied. Sums are made in a fixed tree over the samples of all ranks, and each rank sends one sum
// per subtree and id, which the owner's tree takes as if it were a sample.

namespace {

// Copies of rows are short, so a task takes many.
constexpr int64_t kRowsPerCopy = 512;

// Copies rows of `weights`, one after the other, to `out`.
template <typename scalar>
void copy_rows(const at::Tensor& weights, std::span<const int64_t> rows, scalar* out) {
  const int64_t width = weights.size(1);
  const auto* const from = weights.const_data_ptr<scalar>();
  at::parallel_for(0, std::ssize(rows), kRowsPerCopy, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(from + rows[static_cast<size_t>(i)] * width, width, out + i * width);
    }
  });
}

// The beginning of each table's block in the message from a rank, given the sizes of the blocks.
template <typename scalar, typename SizeOf>
std::vector<const scalar*> table_blocks(const std::vector<at::Tensor>& arrived, size_t num_tables,
                                        const SizeOf& size_of) {
  std::vector<const scalar*> blocks;  // [p * tables]
  for (size_t r = 0; r < arrived.size(); ++r) {
    const auto* block = arrived[r].const_data_ptr<scalar>();
    for (size_t t = 0; t < num_tables; ++t) {
      blocks.push_back(block);
      block += size_of(r, t);
    }
  }
  return blocks;
}

std::vector<int64_t> rows_of(const OwnIds& own, mesh::Range asked, int64_t first_row) {
  const auto begin = own.groups.ids.begin() + asked.offset;
  std::vector<int64_t> rows(begin, begin + asked.size);
  for (int64_t& row : rows) row -= first_row;
  return rows;
}

// The ids of open tables as keys, and the weights in the rows' dtype, even if there are none.
JaggedIds with_keys(JaggedIds ids, const std::vector<TableConfig>& tables, at::ScalarType dtype) {
  // Ranks must agree on whether there are weights.
  if (!ids.weights.defined() && ids.values.numel() == 0) ids.weights = at::empty({0});
  if (ids.weights.defined()) ids.weights = ids.weights.to(dtype);
  if (std::ranges::none_of(tables, &TableConfig::is_open)) return ids;
  const at::Tensor values = ids.values.clone();
  auto* const out = values.mutable_data_ptr<int64_t>();
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t].is_open) continue;
    const TableIds list = view_table(ids, static_cast<int64_t>(t));
    std::ranges::transform(list.values, out + list.offsets[0], open_key);
  }
  ids.values = values;
  return ids;
}

}  // namespace

TableLookUp::TableLookUp(std::shared_ptr<TableGroup> tables, JaggedIds ids, bool needs_gradient)
    : tables_(std::move(tables)),
      ids_(with_keys(std::move(ids), tables_->configs, tables_->dtype)),
      ids_exchange_(tables_->configs, tables_->parts, tables_->group, ids_, needs_gradient),
      has_weight_gradient_(needs_gradient && ids_.weights.defined() &&
                           ids_.weights.requires_grad() &&
                           std::ranges::any_of(tables_->configs, &TableConfig::is_weighted)),
      weighted_rows_(tables_->tables.size()) {}

template <typename scalar, typename Fill>
std::vector<at::Tensor> TableLookUp::exchange(std::span<const int64_t> sent,
                                              std::span<const int64_t> received, const Fill& fill) {
  std::vector<at::Tensor> inputs, outputs;
  const at::TensorOptions options(tables_->dtype);
  for (size_t r = 0; r < num_ranks(); ++r) {
    // The inputs are what others read in place.
    inputs.push_back(tables_->symmetric ? tables_->group->symmetric_empty({sent[r]}, tables_->dtype)
                                        : at::empty({sent[r]}, options));
    outputs.push_back(at::empty({received[r]}, options));
    if (sent[r] > 0) fill(r, inputs.back().template mutable_data_ptr<scalar>());
  }
  tables_->group->all_to_all(outputs, inputs)->wait();
  return outputs;
}

std::vector<at::Tensor> TableLookUp::finish() {
  ids_exchange_.finish();
  fetch_rows();
  std::vector<at::Tensor> outputs;
  AT_DISPATCH_FLOATING_TYPES(tables_->dtype, "TableLookUp::finish",
                             [&] { outputs = finish_rows<scalar_t>(); });
  slots_.clear();
  return outputs;
}

std::vector<int64_t> TableLookUp::wanted_rows(size_t rank, size_t table) const {
  // Replicas are read at home, so other ranks' ids bring none here.
  if (rank != self()) {
    return tables_->parts[table].is_replicated ? std::vector<int64_t>()
                                               : ids_exchange_.arrived(rank, table).rows;
  }
  const OwnIds& own = ids_exchange_.own(table);
  return rows_of(own, own.asked[rank], tables_->parts[table].first_row(rank));
}

void TableLookUp::prefetch() {
  ids_exchange_.finish();
  for (size_t t = 0; t < num_tables(); ++t) {
    if (!tables_->tables[t].reads_ahead()) continue;
    for (size_t r = 0; r < num_ranks(); ++r) tables_->tables[t].prefetch(wanted_rows(r, t));
  }
}

void TableLookUp::fetch_rows() {
  slots_.resize(num_ranks() * num_tables());
  for (size_t t = 0; t < num_tables(); ++t) {
    EmbeddingTable& table = tables_->tables[t];
    // What an earlier look-up held is free.
    table.release();
    for (size_t r = 0; r < num_ranks(); ++r) {
      FetchedRows& fetched = slots_[r * num_tables() + t];
      fetched.rows = wanted_rows(r, t);
      fetched.slots = table.fetch(fetched.rows, fetched.memory);
      // Before the rows are read: a dense rule would have changed them.
      if (!table.optimizer().catches_up()) continue;
      table.optimizer().catch_up(fetched.slots);
      table.mark_changed(fetched.rows, fetched.slots);
    }
  }
  // All tables have been asked; one wait for all.
  if (tables_->remote) tables_->remote->wait_pulled();
}

template <typename scalar>
std::vector<at::Tensor> TableLookUp::fetch_vectors(std::vector<const scalar*>& blocks) {
  std::vector<int64_t> sent(num_ranks()), received(num_ranks());
  const auto received_size = [&](size_t r, size_t t) -> int64_t {
    if (r == self() || tables_->parts[t].is_replicated) return 0;
    return ids_exchange_.own(t).asked[r].size * width_on(r, t);
  };
  const auto rows_for = [&](size_t r, size_t t) -> std::span<const int64_t> {
    // Its own rows are read where they are.
    if (r == self()) return {};
    return slots_for(r, t);
  };
  for (size_t r = 0; r < num_ranks(); ++r) {
    for (size_t t = 0; t < num_tables(); ++t) {
      sent[r] += std::ssize(rows_for(r, t)) * width_on(self(), t);
      received[r] += received_size(r, t);
    }
  }
  std::vector<at::Tensor> arrived = exchange<scalar>(sent, received, [&](size_t r, scalar* out) {
    for (size_t t = 0; t < num_tables(); ++t) {
      copy_rows(tables_->tables[t].weights(), rows_for(r, t), out);
      out += std::ssize(rows_for(r, t)) * width_on(self(), t);
    }
  });
  blocks = table_blocks<scalar>(arrived, num_tables(), received_size);
  return arrived;
}

template <typename scalar>
std::vector<at::Tensor> TableLookUp::finish_rows() {
  std::vector<const scalar*> blocks(num_ranks() * num_tables());
  std::vector<at::Tensor> arrived;  // holds what the blocks point into
  if (num_ranks() > 1) arrived = fetch_vectors(blocks);
  const at::TensorOptions options(tables_->dtype);
  std::vector<at::Tensor> outputs{at::empty({ids_.num_samples, tables_->num_columns}, options)};
  for (size_t t = 0; t < num_tables(); ++t) {
    if (tables_->configs[t].pooling == Pooling::kNone) {
      const int64_t count = std::ssize(ids_exchange_.own(t).groups.places);
      outputs.push_back(at::empty({count, tables_->configs[t].width}, options));
    }
    std::vector<const scalar*> of_table;
    for (size_t r = 0; r < num_ranks(); ++r) of_table.push_back(blocks[r * num_tables() + t]);
    pool_table<scalar>(t, of_table, outputs[tables_->outputs[t]]);
  }
  return outputs;
}

// arrived: [p] the vectors from each rank
template <typename scalar>
void TableLookUp::pool_table(size_t table, std::span<const scalar* const> arrived,
                             at::Tensor& out) {
  const OwnIds& own = ids_exchange_.own(table);
  const TableParts& parts = tables_->parts[table];
  const TableConfig& config = tables_->configs[table];
  const TableIds list = view_table(ids_, static_cast<int64_t>(table));
  const std::vector<int32_t> group_of_place = own.groups.group_of_place();
  const int64_t skipped = list.offsets[0];
  std::vector<const scalar*> rows(own.groups.ids.size());
  Pooled<scalar> pooled{
      .rows = rows,
      .group_of_place = group_of_place,
      .offsets = list.offsets,
      .weights = config.is_weighted ? ids_.weights.const_data_ptr<scalar>() + skipped : nullptr,
      .pooling = config.pooling,
      .width = config.width,
      .stride = out.size(1)};
  auto* const begin = out.mutable_data_ptr<scalar>() + tables_->columns[table];
  const auto find_rows = [&](size_t r) {
    const mesh::Range asked = own.asked[r];
    const int64_t width = parts.columns[r].size;
    const auto* const weights = tables_->tables[table].weights().template const_data_ptr<scalar>();
    for (int64_t i = 0; i < asked.size; ++i) {
      const auto at = static_cast<size_t>(asked.offset + i);
      rows[at] = r == self() ? weights + slots_for(r, table)[static_cast<size_t>(i)] * width
                             : arrived[r] + i * width;
    }
  };
  // Only weights with a gradient need rows later.
  const bool keeps_rows = has_weight_gradient_ && config.is_weighted;
  if (!parts.is_by_columns) {
    for (size_t r = 0; r < num_ranks(); ++r) {
      if (!parts.is_replicated || r == self()) find_rows(r);
    }
    if (keeps_rows) keep_rows<scalar>(table, {0, config.width}, rows);
    pooled.out = begin;
    pool_rows(pooled);
    return;
  }
  for (size_t r = 0; r < num_ranks(); ++r) {
    // A row's parts lie at several ranks and are pooled apart: columns do not depend on each other.
    if (!parts.has_part(r)) continue;
    find_rows(r);
    if (keeps_rows) keep_rows<scalar>(table, parts.columns[r], rows);
    pooled.width = parts.columns[r].size;
    pooled.out = begin + parts.columns[r].offset;
    pool_rows(pooled);
  }
}

template <typename scalar>
void TableLookUp::keep_rows(size_t table, mesh::Range columns,
                            std::span<const scalar* const> rows) {
  at::Tensor& kept = weighted_rows_[table];
  const int64_t width = tables_->configs[table].width;
  if (!kept.defined())
    kept = at::empty({std::ssize(rows), width}, at::TensorOptions(tables_->dtype));
  auto* out = kept.mutable_data_ptr<scalar>() + columns.offset;
  for (const scalar* const row : rows) {
    std::copy_n(row, columns.size, out);
    out += width;
  }
}

at::Tensor TableLookUp::weight_gradient(std::span<const at::Tensor> gradients) const {
  at::Tensor result = at::zeros_like(ids_.weights);
  const at::Tensor gradient = gradients[0].contiguous();  // only pooled tables are weighted
  AT_DISPATCH_FLOATING_TYPES(tables_->dtype, "TableLookUp::weight_gradient", [&] {
    for (size_t t = 0; t < num_tables(); ++t) {
      if (!tables_->configs[t].is_weighted) continue;
      const OwnIds& own = ids_exchange_.own(t);
      const std::vector<int32_t> group_of_place = own.groups.group_of_place();
      const int64_t first = view_table(ids_, static_cast<int64_t>(t)).offsets[0];
      write_weight_gradients(WeightGradients<scalar_t>{
          .rows = weighted_rows_[t].const_data_ptr<scalar_t>(),
          .group_of_place = group_of_place,
          .sample_of_place = own.sample_of_place,
          .gradients = gradient.const_data_ptr<scalar_t>() + tables_->columns[t],
          .stride = gradient.size(1),
          .width = tables_->configs[t].width,
          .out = result.mutable_data_ptr<scalar_t>() + first});
    }
  });
  return result;
}

void TableLookUp::count(TableCounts& counts) const {
  const auto number_bytes = static_cast<int64_t>(c10::elementSize(tables_->dtype));
  ++counts.num_steps;
  for (size_t t = 0; t < num_tables(); ++t) {
    const OwnIds& own = ids_exchange_.own(t);
    const bool is_replicated = tables_->parts[t].is_replicated;
    for (size_t r = 0; r < num_ranks(); ++r) {
      const int64_t asked = own.asked[r].size;
      if (r == self()) {
        counts.rows_read += asked;
        // One rank sums its samples without subtrees.
        // Its rows are summed whole.
        counts.gradients_added += num_ranks() == 1 ? asked : count_sums(own, own.asked[r]);
        continue;
      }
      const ArrivedIds& arrived = ids_exchange_.arrived(r, t);
      const auto num_arrived = std::ssize(arrived.rows);
      const int64_t read = is_replicated ? 0 : num_arrived, fetched = is_replicated ? 0 : asked;
      const int64_t own_bytes = width_on(self(), t) * number_bytes;
      const int64_t other_bytes = width_on(r, t) * number_bytes;
      counts.rows_read += read;
      counts.gradients_added += arrived.num_sums;
      counts.sent_bytes += asked * ids_exchange_.bytes_of_id(self(), t) + read * own_bytes +
                           count_sums(own, own.asked[r]) * other_bytes;
      counts.received_bytes += num_arrived * ids_exchange_.bytes_of_id(r, t) +
                               fetched * other_bytes + arrived.num_sums * own_bytes;
    }
  }
  const auto others = static_cast<int64_t>(num_ranks()) - 1;
  counts.sent_bytes += others * IdExchange::count_bytes(num_tables());
  counts.received_bytes += others * IdExchange::count_bytes(num_tables());
}

void TableLookUp::backward(std::span<const at::Tensor> gradients, GradientSink& sink) {
  TRIREME_CHECK(ids_exchange_.needs_gradient(),
                "a look-up of embeddings began while gradients were disabled, so none can go back; "
                "enable at::GradMode before start()");
  AT_DISPATCH_FLOATING_TYPES(tables_->dtype, "TableLookUp::backward",
                             [&] { send_back<scalar_t>(gradients, sink); });
}

template <typename scalar>
RowTerms<scalar> TableLookUp::own_terms(size_t table, std::span<const at::Tensor> gradients) const {
  const TableConfig& config = tables_->configs[table];
  const TableIds list = view_table(ids_, static_cast<int64_t>(table));
  const at::Tensor& gradient = gradients[tables_->outputs[table]];
  OutputGradients<scalar> of_table{
      .values = gradient.const_data_ptr<scalar>() + tables_->columns[table],
      .stride = gradient.size(1)};
  if (config.is_weighted) {
    of_table.weights = ids_.weights.const_data_ptr<scalar>() + list.offsets[0];
  }
  return terms_of_own(ids_exchange_.own(table), list, config.pooling, of_table,
                      ids_exchange_.first_sample());
}

template <typename scalar>
void TableLookUp::send_back(std::span<const at::Tensor> gradients, GradientSink& sink) {
  std::vector<at::Tensor> kept;  // the terms point into them
  // Gradients may be views with strides.
  for (const at::Tensor& gradient : gradients) kept.push_back(gradient.contiguous());
  if (num_ranks() == 1) {
    for (size_t t = 0; t < num_tables(); ++t) {
      sum_table<scalar>(t, own_terms<scalar>(t, kept), {}, sink);
    }
    return;
  }
  std::vector<RowTerms<scalar>> terms;
  for (size_t t = 0; t < num_tables(); ++t) terms.push_back(own_terms<scalar>(t, kept));
  const std::vector<at::Tensor> arrived = send_sums<scalar>(terms);
  const auto blocks = table_blocks<scalar>(arrived, num_tables(), [&](size_t r, size_t t) {
    return ids_exchange_.arrived(r, t).num_sums * width_on(self(), t);
  });
  for (size_t t = 0; t < num_tables(); ++t) {
    std::vector<const scalar*> of_table;
    for (size_t r = 0; r < num_ranks(); ++r) of_table.push_back(blocks[r * num_tables() + t]);
    sum_table<scalar>(t, terms[t], of_table, sink);
  }
}

template <typename scalar>
std::vector<at::Tensor> TableLookUp::send_sums(std::span<const RowTerms<scalar>> terms) {
  std::vector<int64_t> sent(num_ranks()), received(num_ranks());
  for (size_t r = 0; r < num_ranks(); ++r) {
    for (size_t t = 0; t < num_tables() && r != self(); ++t) {
      const OwnIds& own = ids_exchange_.own(t);
      sent[r] += count_sums(own, own.asked[r]) * width_on(r, t);
      received[r] += ids_exchange_.arrived(r, t).num_sums * width_on(self(), t);
    }
  }
  return exchange<scalar>(sent, received, [&](size_t r, scalar* out) {
    for (size_t t = 0; t < num_tables(); ++t) {
      const OwnIds& own = ids_exchange_.own(t);
      sum_subtrees(terms[t], own.asked[r], tables_->parts[t].columns[r],
                   std::span(ids_exchange_.subtrees(self())), out);
      out += count_sums(own, own.asked[r]) * width_on(r, t);
    }
  });
}

// arrived: [p] the sums from each rank, by row and then by subtree
template <typename scalar>
void TableLookUp::sum_table(size_t table, const RowTerms<scalar>& own,
                            std::span<const scalar* const> arrived, GradientSink& sink) {
  const TableParts& parts = tables_->parts[table];
  const int64_t width = width_on(self(), table);
  const auto sum_all = [&](std::span<const int64_t> rows, const RowTerms<scalar>& terms) {
    sink.begin(table, rows);
    sum_rows<scalar>(terms, width, [&](int64_t first, int64_t count, const scalar* sums) {
      sink.take(table, first, rows.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                sums);
    });
  };
  const OwnIds& ids = ids_exchange_.own(table);
  if (num_ranks() == 1) return sum_all(ids.groups.ids, own);
  TermMerger<scalar> merger;
  // Own terms are samples, others' are sums of subtrees. Both have the number by which the tree
  // orders them.
  for (size_t r = 0; r < num_ranks(); ++r) {
    if (r == self()) {
      merger.add_own(ids, ids.asked[r], parts.first_row(r), parts.columns[r].offset, own);
    } else {
      merger.add_arrived(ids_exchange_.arrived(r, table), ids_exchange_.subtrees(r), arrived[r],
                         width);
    }
  }
  const auto merged = merger.merge(parts.row_limit(self()));
  sum_all(merged.rows, merged.terms);
}

}  // namespace trireme::parallel
