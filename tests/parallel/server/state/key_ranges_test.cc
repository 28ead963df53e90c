#include "trireme/parallel/server/state/key_ranges.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

const std::vector<double> kThree{1, 1, 1};

TEST(KeyRanges, CoverEveryRowOnceInPiecesOfAtMostTheLimit) {
  const std::vector<ServedParameter> parameters{{"large", 5'000'000, 1, at::kFloat},
                                                {"empty", 0, 1, at::kFloat},
                                                {"table", 100'001, 64, at::kFloat, true},
                                                {"small", 3, 1, at::kDouble}};
  const std::vector<Piece> pieces = key_ranges(parameters, kThree);
  std::vector<int64_t> next(parameters.size());
  for (const Piece& piece : pieces) {
    EXPECT_LE(piece.num_bytes(), kMaxPieceBytes);
    EXPECT_EQ(piece.first_row, next[piece.parameter]);
    EXPECT_EQ(piece.is_sparse, parameters[piece.parameter].is_sparse);
    next[piece.parameter] += piece.rows;
  }
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(next[i], parameters[i].rows);
}

TEST(KeyRanges, SharesAreMetToWithinAPiece) {
  harness::Draw draw(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<ServedParameter> parameters;
    std::vector<double> shares(1 + draw.below<size_t>(6));
    for (double& share : shares) share = 1 + draw.below(5);
    for (size_t i = 0; i < shares.size() + draw.below<size_t>(40); ++i) {
      parameters.push_back({"p", 1 + draw.below<int64_t>(3'000), 1, at::kFloat});
    }
    const std::vector<Piece> pieces = key_ranges(parameters, shares, 400);
    const auto bytes = shard_bytes(pieces, std::ssize(shares));
    const auto total = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
    const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (size_t s = 0; s < shares.size(); ++s) {
      EXPECT_GT(bytes[s], 0);
      if (pieces.size() > 20 * shares.size()) {
        EXPECT_NEAR(static_cast<double>(bytes[s]), total * shares[s] / whole,
                    400.0 * static_cast<double>(shares.size()));
      }
    }
  }
}

TEST(KeyRanges, MoreServersThanKeysIsAnErrorOfOneLine) {
  try {
    key_ranges(std::vector<ServedParameter>{{"a", 10, 1}, {"b", 10, 1}}, kThree);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("3 servers for 2 keys"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST(KeyRanges, RefuseWhatCannotBeServed) {
  const std::vector<ServedParameter> wide{{"a", 3, 2 << 20, at::kFloat}};
  EXPECT_THROW(key_ranges(wide, kThree), ConfigError);
  const std::vector<ServedParameter> plain{{"a", 3, 1, at::kFloat}};
  EXPECT_THROW(key_ranges(plain, std::vector<double>{}), ConfigError);
  EXPECT_THROW(key_ranges(plain, std::vector<double>{0.0}), ConfigError);
  EXPECT_THROW(key_ranges(plain, std::vector<double>{std::nan("")}), ConfigError);
  EXPECT_THROW(key_ranges(plain, std::vector<double>{1}, kMaxPieceBytes + 1), ConfigError);
}

TEST(BytepsShares, AddUpAndLoadEveryMachineAlike) {
  for (int64_t n = 2; n <= 16; ++n) {
    for (int64_t k = 0; k <= n; ++k) {
      const ServerShares shares = byteps_shares(n, k);
      const auto workers = static_cast<double>(n);
      const auto cpus = static_cast<double>(k);
      EXPECT_NEAR(workers * shares.of_worker_machine + cpus * shares.of_cpu_machine, 1, 1e-12);
      // A machine with both sends what its server does not own, and its part to the others.
      const double own = shares.of_worker_machine;
      EXPECT_NEAR(1 - own + (workers - 1) * own, shares.bytes_factor, 1e-12);
      if (k > 0) EXPECT_NEAR(workers * shares.of_cpu_machine, shares.bytes_factor, 1e-12);
    }
  }
  EXPECT_NEAR(byteps_shares(4, 0).bytes_factor, 1.5, 1e-12) << "2(n-1)/n, as all-reduce";
  EXPECT_NEAR(byteps_shares(4, 4).bytes_factor, 1, 1e-12);
  EXPECT_THROW(byteps_shares(1, 0), ConfigError);
  EXPECT_THROW(byteps_shares(2, 3), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
