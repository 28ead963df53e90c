// Documents packed into sequences against each document in a sequence of its own on one rank, with
// the same weights: loss, evaluation, gradient norm and every gradient. Some documents are in no
// loss, so that microbatches and data ranks are without targets.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "tests/harness/temporary_folder.h"
#include "tests/parity/axis_choices.h"
#include "tests/parity/layout_step.h"
#include "trireme/dataset/batch_loader.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_files.h"

namespace trireme::train {
namespace {

// Each document of a token file in a sample of its own, in the order of the file.
class AloneSource : public dataset::Source {
 public:
  AloneSource(const std::string& prefix, int64_t T) : stream_(prefix, 0), T_(T) {}

  int64_t size() const override { return stream_.file().num_documents(); }
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey>) const override {
    const auto [offset, size] = stream_.file().document(index);
    std::vector<int64_t> tokens(static_cast<size_t>(size));
    stream_.read(offset, tokens);
    std::vector<int64_t> targets(tokens.size() - 1);
    stream_.copy_targets(offset, tokens, targets);
    tokens.pop_back();
    // Without the document numbers: what is behind a document reaches back, and nothing reads it.
    return {{"tokens", padded(tokens, 0)}, {"targets", padded(targets, dataset::kNoTarget)}};
  }

 private:
  at::Tensor padded(const std::vector<int64_t>& values, int64_t padding) const {
    return at::constant_pad_nd(at::tensor(values, at::kLong),
                               {0, T_ - static_cast<int64_t>(values.size())}, padding);
  }

  dataset::TokenStream stream_;
  int64_t T_;
};

BatchesOf batches_from(const dataset::Source& source) {
  return [&source](const RunConfig& config, int64_t data_rank) {
    const std::vector<int64_t> shares = config.equal_shares().front().micro_batches;
    const dataset::BatchLoader loader(source, {.global_batch = config.train.global_batch,
                                               .micro_batch = config.train.micro_batch,
                                               .data_rank = static_cast<int>(data_rank),
                                               .data_size = static_cast<int>(shares.size()),
                                               .uneven = true,
                                               .shuffle = false});
    std::vector<dataset::Batch> batches;
    for (int64_t i = 0; i < loader.num_microbatches(0); ++i) {
      batches.push_back(loader.microbatch(0, i));
    }
    return batches;
  };
}

class PackingTest : public ::testing::Test {
 protected:
  // 37 tokens in the vocabulary, 13 places in a sequence. The longest documents come first into
  // samples, and have no targets.
  PackingTest() {
    dataset::TokenFile file(prefix_, 37, {.mask = true});
    int32_t next = 5;
    for (const size_t size : {3, 14, 6, 2, 9, 14, 7, 14, 4, 11, 5, 14, 8, 2, 10, 3, 5}) {
      std::vector<int32_t> tokens(size), mask(size);
      for (size_t i = 0; i < size; ++i) {
        next = (next * 7 + 11 * static_cast<int32_t>(i) + 3) % 37;
        tokens[i] = next;
        mask[i] = size < 14 && i % 3 != 1 ? 1 : 0;
      }
      file.add_document(tokens, mask);
    }
    file.complete();
    file.publish();
  }

  void check(std::vector<Override> overrides, int num_ranks, double relative = 1e-10) const {
    SCOPED_TRACE(concat(num_ranks, " ranks: ", describe(overrides)));
    overrides.emplace_back("data.separate_documents", "true");
    overrides.emplace_back("data.packing", "whole");
    overrides.emplace_back("train.uneven_batches", "true");
    const dataset::PackedSource packed(dataset::TokenStream(prefix_, 37),
                                       {.sequence_length = 13, .documents = true});
    const AloneSource alone(prefix_, 13);
    RunConfig config = config_of(overrides);
    config.train.global_batch = packed.size();
    RunConfig unpacked = on_one_rank(config);
    unpacked.train.global_batch = alone.size();
    data_of(unpacked) = {};
    const StepOutcome expected = run(unpacked, 1, {}, batches_from(alone));
    expect_close(run(config, num_ranks, {}, batches_from(packed)), expected, relative);
    EXPECT_LT(packed.size(), alone.size());
  }

 private:
  harness::OneThread one_thread_;
  harness::TemporaryFolder folder_;
  std::string prefix_ = folder_ / "a";
};

TEST_F(PackingTest, EveryAxisIsTheUnpackedOneRank) {
  for (const AxisChoice& choice : axis_choices()) {
    if (std::string(choice.name) == "documents") continue;
    for (const char* family : {"llama", "gpt2", "mixtral"}) {
      auto overrides = choice.overrides;
      overrides.emplace_back("model.family", family);
      if (std::string(family) == "gpt2") overrides.emplace_back("model.kv_heads", "6");
      if (std::string(family) == "mixtral") {
        overrides.emplace_back("model.experts", "5");
        overrides.emplace_back("model.balance_loss", "0");
      }
      check(overrides, choice.ranks);
    }
  }
}

// The last data ranks may have no samples, and the first ones no targets.
TEST_F(PackingTest, RanksWithoutTargetsOrSamplesChangeNothing) {
  for (const auto& [data, micro_batch] : {std::pair(3, 1), {4, 2}, {4, 3}, {2, 4}}) {
    for (const char* order : {"microbatch-first", "rank-first"}) {
      check({{"parallel.data", std::to_string(data)},
             {"train.micro_batch", std::to_string(micro_batch)},
             {"parallel.gradient_order", order}},
            data);
    }
  }
  check({{"parallel.data", "2"}, {"parallel.pipeline", "2"}, {"train.micro_batch", "2"}}, 4);
  check({{"parallel.zero", "3"}, {"parallel.data", "2"}, {"parallel.tensor", "2"}}, 4);
  check({{"parallel.context", "2"}, {"parallel.tensor", "2"}, {"train.recompute", "full"}}, 4);
}

TEST_F(PackingTest, ScaledPositionsAndWindowsCountWithinDocuments) {
  check({{"model.window", "4"}, {"parallel.context", "2"}}, 2);
  check({{"model.rope_scaling", "yarn"},
         {"model.rope_factor", "4"},
         {"model.rope_original_length", "6"},
         {"parallel.tensor", "2"}},
        2);
}

}  // namespace
}  // namespace trireme::train
