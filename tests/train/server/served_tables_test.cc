#include "trireme/train/server/served_tables.h"

#include <memory>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr int64_t kFirst = 3;  // parameters before the tables

parallel::EmbeddingTables make_tables(std::shared_ptr<parallel::RemoteRows> rows) {
  return {{{.name = "a", .rows = 100, .width = 4}, {.name = "b", .rows = 9, .width = 2}},
          nullptr,
          {.dtype = at::kDouble,
           .seed = 5,
           .optimizer = {.rule = parallel::RowRule::kAdaGrad, .learning_rate = 0.1},
           .update = parallel::UpdateTime::kOnStep,
           .remote = std::move(rows)}};
}

// In pieces of at most 512 bytes: 16 rows of table a.
std::vector<parallel::Piece> pieces_of(const parallel::EmbeddingTables& tables) {
  std::vector<parallel::Piece> pieces =
      parallel::key_ranges(served_tables(tables), std::vector<double>{1, 1}, 512);
  for (parallel::Piece& piece : pieces) piece.parameter += kFirst;
  return pieces;
}

TEST(ServedTables, PiecesBeginAsTheTablesAndAreUpdatedAsThey) {
  const auto owned = std::make_shared<OwnedRows>();
  const parallel::EmbeddingTables described = make_tables(owned);
  const std::vector<parallel::Piece> pieces = pieces_of(described);
  const parallel::MakePiece make = make_table_pieces(described, owned, kFirst, 0);
  parallel::EmbeddingTables plain = make_tables(nullptr);
  const auto state = plain.state();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const parallel::Piece& piece = pieces[i];
    EXPECT_TRUE(piece.is_sparse);
    parallel::ServedPiece made = make(piece, static_cast<int64_t>(i));
    const at::Tensor table = state[piece.parameter == kFirst ? 0 : 2].local;
    const at::Tensor begun = table.narrow(0, piece.first_row, piece.rows).contiguous();
    harness::assert_same_bits(made.weights, begun, "first values");
    ASSERT_EQ(made.update->states().size(), 1U);
    EXPECT_EQ(made.update->states()[0].name, "sum");
    const std::vector<int64_t> rows{0, piece.rows - 1};
    const at::Tensor gradients = at::full({2, piece.width}, 3.0, at::kDouble);
    made.update->apply(made.weights, {.rows = rows, .values = gradients}, 0.5, 1);
    // w - lr g / (sqrt(g^2) + epsilon)
    const at::Tensor moved = (begun[0] - 0.5 * 3 / (3 + 1e-8)).contiguous();
    EXPECT_TRUE(at::allclose(made.weights[0], moved, 1e-14));
    harness::assert_same_bits(made.weights[1], begun[1].contiguous(), "a row that was not pushed");
  }
}

TEST(ServedTables, DescribesAMeanStep) {
  EXPECT_EQ(describe({}, 2), "");
  EXPECT_EQ(describe({.num_steps = 10,
                      .rows_pulled = 52,
                      .rows_pushed = 30,
                      .sent_bytes = 123'456,
                      .received_bytes = 9'990'000},
                     1),
            "tables  on 1 server; mean per step of worker 0: 5 rows pulled, 3 pushed, 12 kB sent, "
            "999 kB received");
}

TEST(ServedTables, AServerTakesItsPiecesRowsFromALoadInAnyParts) {
  const auto owned = std::make_shared<OwnedRows>();
  const parallel::EmbeddingTables described = make_tables(owned);
  std::vector<parallel::Piece> own;
  for (const parallel::Piece& piece : pieces_of(described)) {
    if (piece.shard == 1) own.push_back(piece);
  }
  own.push_back({.parameter = 0, .first_row = 0, .rows = 5});  // no table
  owned->own(own, kFirst);
  const at::Tensor weights = at::rand({100, 4}, at::kDouble),
                   sums = at::rand({100, 4}, at::kDouble);
  int64_t num_wanted = 0;
  for (const mesh::Range& wanted : owned->wanted_rows(0)) num_wanted += wanted.size;
  EXPECT_GT(num_wanted, 0);
  EXPECT_LT(num_wanted, 100);
  for (int64_t begin = 0; begin < 100; begin += 7) {
    const int64_t count = std::min<int64_t>(7, 100 - begin);
    owned->write(0, 0, begin, weights.narrow(0, begin, count));
    owned->write(0, 1, begin, sums.narrow(0, begin, count));
  }
  const parallel::MakePiece make = make_table_pieces(described, owned, kFirst, 4);
  for (const parallel::Piece& piece : own) {
    if (piece.parameter != kFirst) continue;
    const parallel::ServedPiece made = make(piece, 0);
    harness::assert_same_bits(made.weights,
                              weights.narrow(0, piece.first_row, piece.rows).contiguous(), "rows");
    harness::assert_same_bits(made.update->states()[0].values,
                              sums.narrow(0, piece.first_row, piece.rows).contiguous(), "sums");
    EXPECT_THROW(make(piece, 0), InternalError) << "its rows are gone";
  }
  EXPECT_THROW(owned->read(0, 0, 0, 1), InternalError);
}

}  // namespace
}  // namespace trireme::train
