// One all-to-all of rows on their way to experts: a token goes once to each rank that has experts
// for it, and the rows that the rank needs are made of it there. Results come back row by row.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/expert/expert_order.h"

namespace trireme::parallel {

// The ranks of one hop, and the experts that each of them takes rows for.
struct HopAxis {
  comm::Communicator* group = nullptr;
  std::vector<int64_t> first;  // [p + 1] rank r takes the experts [first[r], first[r + 1])
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
  bool symmetric = true;
};

// Rows in the order in which experts read them: by expert, within one by the rank they came from.
struct RowList {
  at::Tensor tokens;  // [R] int64: the row of a table that each row is a copy of
  ExpertRows rows;
};

// The sizes that a rank exchanges with each rank of a hop.
struct HopBlocks {
  std::vector<int64_t> sent;             // [p] rows of D numbers
  std::vector<int64_t> received;         // [p]
  std::vector<int64_t> sent_values;      // [p] numbers beside them
  std::vector<int64_t> received_values;  // [p]
};

class ExpertHop {
 public:
  // list: what this rank has for the experts of all ranks.
  // Comm:       8 (origins * e + 1) bytes to the owner of e experts
  // Collective: every rank of the hop, as are the starts and finishes below, in the same order
  ExpertHop(HopAxis axis, const RowList& list);

  // The rows that experts of this rank get, as the next hop or the experts take them. `tokens` are
  // known after finish_tokens() of the first tokens.
  const RowList& arrived() const { return arrived_; }

  // Sends each rank the rows of `table` that its experts read, each once, with a number for each
  // row that is made of it.
  // table: [S, D]; values: [R], fp32, or fp64 if the table is; undefined: the rows' places, which
  //        must be sent first
  // Comm:  D*itemsize bytes for each pair of a token and another rank that has experts for it, and
  //        4 bytes (fp64: 8) for each row of theirs, filled up to whole rows of D
  void start_tokens(const at::Tensor& table, const at::Tensor& values, bool background);
  struct Tokens {
    at::Tensor table;   // arrived().tokens are its rows
    at::Tensor values;  // [number of rows], in their order; undefined: places were sent
  };
  Tokens finish_tokens();

  // Sends the experts' rows back to where they came from.
  // Shapes: rows [arrived() rows, D] -> finish_rows(): [R, D]
  // Comm:   D*itemsize bytes for each row that came from another rank
  void start_rows(const at::Tensor& rows, bool background);
  at::Tensor finish_rows();

 private:
  void list_tokens(const RowList& list);
  void order_arrived(const std::vector<std::vector<int64_t>>& counts);
  void start(const at::Tensor& source, const at::Tensor& index, const at::Tensor& values,
             const HopBlocks& blocks, bool background);
  at::Tensor finish();
  // The numbers that came beside the blocks of `table`, rank by rank.
  at::Tensor received_values(const at::Tensor& table) const;
  // The row of `table` that each arrived row is a copy of.
  at::Tensor token_rows(const at::Tensor& table, const at::Tensor& places) const;

  HopAxis axis_;
  RowList arrived_;
  at::Tensor tokens_;       // for each rank in turn, the rows of the table that go there
  at::Tensor places_;       // [R] int64: each row's place among the tokens that go to its rank
  at::Tensor order_;        // for each arrived row by expert, its place among those by rank
  at::Tensor reverse_;      // for each arrived row by rank, its place among those by expert
  HopBlocks token_blocks_;  // a value for each row
  HopBlocks row_blocks_;    // of the way back, without values

  // In transit.
  at::Tensor sent_;
  at::Tensor arriving_;
  at::Tensor own_values_;
  comm::WorkPtr work_;
};

}  // namespace trireme::parallel
