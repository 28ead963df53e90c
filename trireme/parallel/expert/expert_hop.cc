#include "trireme/parallel/expert/expert_hop.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::parallel {

// A hop moves tokens along one axis. A token that several experts of one rank want travels once;
// only the list of places says to which rows it belongs. Rows of an expert must be in one order
// whatever the ranks are, or sums would depend on the layout: they are ordered by origin first,
// then by rank. Counts go ahead in a small collective, since the sizes of the large one depend on
// them. Values that belong to rows travel behind the rows in the same message, padded to whole
// rows, because a second collective would cost its latency again.

namespace {

int64_t total(const std::vector<int64_t>& counts) {
  return std::reduce(counts.begin(), counts.end());
}

at::Tensor bytes_of(const at::Tensor& x) { return x.view({-1}).view(at::kByte); }

// Values and places are equally large, so each table has its rows at the same places.
int64_t value_size(const at::Tensor& table) { return table.scalar_type() == at::kDouble ? 8 : 4; }

// Number of table rows that hold `num_values` values.
int64_t rows_of_values(int64_t num_values, const at::Tensor& table) {
  const int64_t row_bytes = table.size(1) * table.element_size();
  return (num_values * value_size(table) + row_bytes - 1) / row_bytes;
}

at::Tensor on_device_of(const at::Tensor& x, const at::Tensor& index) {
  return index.to(x.device());
}

}  // namespace

ExpertHop::ExpertHop(HopAxis axis, const RowList& list) : axis_(std::move(axis)) {
  const ExpertRows& rows = list.rows;
  const auto p = static_cast<size_t>(axis_.group->size());
  const auto self = static_cast<size_t>(axis_.group->rank());
  list_tokens(list);
  // The message to each owner: the rows for each of its experts, by origin, and the number of
  // tokens.
  const int64_t num_own = (axis_.first[self + 1] - axis_.first[self]) * rows.origins;
  std::vector<at::Tensor> mine, theirs;
  for (size_t r = 0; r < p; ++r) {
    std::vector<int64_t> message(rows.counts.begin() + axis_.first[r] * rows.origins,
                                 rows.counts.begin() + axis_.first[r + 1] * rows.origins);
    message.push_back(token_blocks_.sent[r]);
    mine.push_back(at::tensor(message, at::kLong));
    theirs.push_back(at::empty({num_own + 1}, at::kLong));
  }
  const auto start = std::chrono::steady_clock::now();
  axis_.group->all_to_all(theirs, mine)->wait();
  if (axis_.waiting) *axis_.waiting += std::chrono::steady_clock::now() - start;
  std::vector<std::vector<int64_t>> counts;
  // The sizes are needed before anything can be sent.
  for (const at::Tensor& message : theirs) {
    const auto* const numbers = message.const_data_ptr<int64_t>();
    counts.emplace_back(numbers, numbers + num_own);
    token_blocks_.received.push_back(numbers[num_own]);
    token_blocks_.received_values.push_back(total(counts.back()));
  }
  row_blocks_ = {.sent = token_blocks_.received_values,
                 .received = token_blocks_.sent_values,
                 .sent_values = std::vector<int64_t>(p),
                 .received_values = std::vector<int64_t>(p)};
  arrived_.rows.origins = rows.origins * static_cast<int64_t>(p);
  order_arrived(counts);
}

// The tokens of a rank lie in the order of their first rows there.
void ExpertHop::list_tokens(const RowList& list) {
  const ExpertRows& rows = list.rows;
  const at::Tensor tokens_R = list.tokens.cpu();
  const int64_t R = tokens_R.size(0);
  const auto* const token_of = tokens_R.const_data_ptr<int64_t>();
  const int64_t num_tokens = R == 0 ? 0 : tokens_R.max().item<int64_t>() + 1;
  std::vector<int64_t> place(static_cast<size_t>(num_tokens));
  std::vector<size_t> sent_to(static_cast<size_t>(num_tokens), ~size_t{0});
  std::vector<int64_t> tokens;
  tokens.reserve(static_cast<size_t>(R));
  places_ = at::empty({R}, at::kLong);
  auto* const place_of = places_.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (size_t r = 0; r + 1 < axis_.first.size(); ++r) {
    const int64_t num_rows = std::reduce(rows.counts.begin() + axis_.first[r] * rows.origins,
                                         rows.counts.begin() + axis_.first[r + 1] * rows.origins);
    const int64_t first = std::ssize(tokens);
    for (const int64_t end = row + num_rows; row < end; ++row) {
      const auto token = static_cast<size_t>(token_of[row]);
      // The first row of this token at this rank.
      if (sent_to[token] != r) {
        sent_to[token] = r;
        place[token] = std::ssize(tokens) - first;
        tokens.push_back(token_of[row]);
      }
      place_of[row] = place[token];
    }
    token_blocks_.sent.push_back(std::ssize(tokens) - first);
    token_blocks_.sent_values.push_back(num_rows);
  }
  tokens_ = at::tensor(tokens, at::kLong);
}

// counts[r]: the rows of rank r for this rank's experts, by expert and in one by origin, the order
// in which they come. Experts read them by origin, and those of one origin by rank.
void ExpertHop::order_arrived(const std::vector<std::vector<int64_t>>& counts) {
  std::vector<int64_t> next{0};  // the next row of each rank
  for (const auto& of_rank : counts) next.push_back(next.back() + total(of_rank));
  const int64_t num_rows = next.back();
  order_ = at::empty({num_rows}, at::kLong);
  reverse_ = at::empty({num_rows}, at::kLong);
  auto* const order = order_.mutable_data_ptr<int64_t>();
  auto* const reverse = reverse_.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (size_t i = 0; i < counts[0].size(); ++i) {
    for (size_t r = 0; r < counts.size(); ++r) {
      arrived_.rows.counts.push_back(counts[r][i]);
      for (int64_t j = 0; j < counts[r][i]; ++j, ++row) {
        order[row] = next[r];
        reverse[next[r]++] = row;
      }
    }
  }
}

// Sends the rows `index` of `source`. A rank's own rows are gathered to where the others arrive.
void ExpertHop::start(const at::Tensor& source, const at::Tensor& index, const at::Tensor& values,
                      const HopBlocks& blocks, bool background) {
  const auto p = static_cast<size_t>(axis_.group->size());
  const auto self = static_cast<size_t>(axis_.group->rank());
  std::vector<int64_t> out, in;  // rows of each block, with values
  for (size_t r = 0; r < p; ++r) {
    const bool is_self = r == self;
    const int64_t out_values = is_self ? 0 : rows_of_values(blocks.sent_values[r], source);
    const int64_t in_values = is_self ? 0 : rows_of_values(blocks.received_values[r], source);
    out.push_back((is_self ? 0 : blocks.sent[r]) + out_values);
    in.push_back(blocks.received[r] + in_values);
  }
  const int64_t D = source.size(1);
  const bool symmetric = axis_.symmetric && source.is_cpu();
  sent_ = symmetric ? axis_.group->symmetric_empty({total(out), D}, source.scalar_type())
                    : at::empty({total(out), D}, source.options());
  arriving_ = at::empty({total(in), D}, source.options());
  std::vector<at::Tensor> inputs = sent_.split_with_sizes(out);
  std::vector<at::Tensor> outputs = arriving_.split_with_sizes(in);
  int64_t row = 0, value = 0;
  for (size_t r = 0; r < p; ++r) {
    const int64_t num_rows = blocks.sent[r], num_values = blocks.sent_values[r];
    const at::Tensor& block = r == self ? outputs[r] : inputs[r];
    at::Tensor rows = block.narrow(0, 0, num_rows);
    at::index_select_out(rows, source, 0, index.narrow(0, row, num_rows));
    if (r == self) {
      own_values_ = values.defined() ? values.narrow(0, value, num_values) : values;
      // Its own block needs no message.
      outputs[r] = outputs[r].narrow(0, 0, 0);
    } else if (num_values > 0) {
      const at::Tensor after = bytes_of(block.narrow(0, num_rows, block.size(0) - num_rows));
      const at::Tensor bytes = bytes_of(values.narrow(0, value, num_values));
      after.narrow(0, 0, bytes.size(0)).copy_(bytes);
    }
    row += num_rows;
    value += num_values;
  }
  const auto begin = std::chrono::steady_clock::now();
  work_ = axis_.group->all_to_all(outputs, inputs, {.background = background});
  if (axis_.waiting) *axis_.waiting += std::chrono::steady_clock::now() - begin;
}

at::Tensor ExpertHop::finish() {
  const auto start = std::chrono::steady_clock::now();
  std::exchange(work_, nullptr)->wait();
  if (axis_.waiting) *axis_.waiting += std::chrono::steady_clock::now() - start;
  sent_.reset();
  return std::exchange(arriving_, {});
}

at::Tensor ExpertHop::received_values(const at::Tensor& table) const {
  std::vector<at::Tensor> values;
  int64_t row = 0;
  for (size_t r = 0; r < token_blocks_.received.size(); ++r) {
    row += token_blocks_.received[r];
    if (r == static_cast<size_t>(axis_.group->rank())) {
      values.push_back(own_values_);
      continue;
    }
    const int64_t num_values = token_blocks_.received_values[r];
    const int64_t num_rows = rows_of_values(num_values, table);
    const at::Tensor bytes = bytes_of(table.narrow(0, row, num_rows));
    // The copy is aligned.
    values.push_back(
        bytes.narrow(0, 0, num_values * value_size(table)).clone().view(own_values_.scalar_type()));
    row += num_rows;
  }
  return at::cat(values);
}

at::Tensor ExpertHop::token_rows(const at::Tensor& table, const at::Tensor& places) const {
  std::vector<at::Tensor> rows;
  int64_t first = 0, row = 0;
  for (size_t r = 0; r < token_blocks_.received.size(); ++r) {
    const int64_t num_rows = token_blocks_.received_values[r];
    rows.push_back(places.narrow(0, row, num_rows).to(at::kLong) + first);
    // The places of each rank count from its own first token.
    row += num_rows;
    const bool is_self = r == static_cast<size_t>(axis_.group->rank());
    first += token_blocks_.received[r] + (is_self ? 0 : rows_of_values(num_rows, table));
  }
  return at::cat(rows);
}

void ExpertHop::start_tokens(const at::Tensor& table, const at::Tensor& values, bool background) {
  const at::Tensor source = table.contiguous();
  tokens_ = on_device_of(source, tokens_);
  const at::ScalarType place = value_size(source) == 8 ? at::kLong : at::kInt;
  start(source, tokens_, values.defined() ? values : on_device_of(source, places_).to(place),
        token_blocks_, background);
}

ExpertHop::Tokens ExpertHop::finish_tokens() {
  // The table has other ranks' values between their tokens; rows are found by place, so they may
  // stay.
  const at::Tensor table = finish();
  const at::Tensor values = received_values(table);
  own_values_.reset();
  // Moved once, when the device of the rows is known.
  order_ = on_device_of(table, order_);
  // In backward the list is known from forward, and real values travel in the places' stead.
  if (arrived_.tokens.defined()) return {table, values.index_select(0, order_)};
  arrived_.tokens = token_rows(table, values).index_select(0, order_);
  places_.reset();
  return {table, {}};
}

void ExpertHop::start_rows(const at::Tensor& rows, bool background) {
  reverse_ = on_device_of(rows, reverse_);
  start(rows.contiguous(), reverse_, {}, row_blocks_, background);
}

at::Tensor ExpertHop::finish_rows() { return finish(); }

}  // namespace trireme::parallel
