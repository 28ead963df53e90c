#include "trireme/train/server/server_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::train {
namespace {

parallel::Shard shard_of(const std::string& name, std::vector<int64_t> sizes, bool trained = true) {
  const at::Tensor weights = at::sin(at::arange(at::prod(at::tensor(sizes)).item<int64_t>()) * 1.7);
  return {.name = name,
          .weights = weights.to(at::kFloat).view(sizes),
          .gradient = at::cos(weights * 3).to(at::kFloat).view(sizes),
          .layout = mesh::Layout(sizes, {}),
          .is_trained = trained};
}

TEST(ServedModel, PiecesAreUpdatedAsTheOptimizerUpdatesTheWhole) {
  for (const std::string name : {"adamw", "sgd", "lion"}) {
    RunConfig config;
    config.optimizer.name = name;
    config.optimizer.weight_decay = 0.3;
    config.optimizer.groups = "b*: decay=0.1, rate=2";
    std::vector<parallel::Shard> shards{shard_of("a.weight", {31, 7}), shard_of("b.weight", {70}),
                                        shard_of("weight", {9}), shard_of("frozen", {5}, false)};
    Optimizer optimizer(shards, config.optimizer);
    optimizer.step(0.1);  // a state to begin with
    const auto parameters = served_parameters(shards);
    ASSERT_EQ(parameters.size(), 3U);
    const auto pieces = parallel::key_ranges(parameters, std::vector<double>{1, 1}, 256);
    const parallel::MakePiece make = make_pieces(config, shards, optimizer);
    std::vector<parallel::ServedPiece> served;
    for (size_t i = 0; i < pieces.size(); ++i) {
      served.push_back(make(pieces[i], static_cast<int64_t>(i)));
    }
    for (int64_t step = 1; step <= 3; ++step) {
      optimizer.step(0.05);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const parallel::Piece& piece = pieces[i];
        const at::Tensor gradient =
            shards[static_cast<size_t>(piece.parameter)].gradient.view({-1});
        served[i].update->apply(
            served[i].weights,
            {.values = gradient.narrow(0, piece.first_row, piece.rows).view({-1, 1})}, 0.05, step);
      }
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      const parallel::Piece& piece = pieces[i];
      const at::Tensor whole = shards[static_cast<size_t>(piece.parameter)].weights.view({-1});
      harness::assert_same_bits(served[i].weights.view({-1}),
                                whole.narrow(0, piece.first_row, piece.rows).contiguous(), name);
    }
  }
}

}  // namespace
}  // namespace trireme::train
