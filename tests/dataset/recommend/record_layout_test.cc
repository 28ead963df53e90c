#include "trireme/dataset/recommend/record_file.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/dataset/recommend/features.h"
#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

TEST(RecordLayout, OfCriteoIsTheBinaryFormatOfItsBenchmarks) {
  FeatureSchema schema{.label = LabelKind::kBinary, .num_training = 1};
  for (int i = 0; i < 13; ++i) schema.dense.push_back(concat("I", i + 1));
  for (int i = 0; i < 26; ++i) schema.tables.push_back({.name = concat("C", i + 1), .rows = 10});
  const SampleLayout layout(schema);
  EXPECT_EQ(layout.label_at, 0U);
  EXPECT_EQ(layout.dense_at, 4U);
  EXPECT_EQ(layout.item_at, SampleLayout::kNone);
  EXPECT_EQ(layout.num_bytes(), 160U);  // 4 + 13 * 4 + 26 * 4
}

TEST(RecordLayout, PutsIdsBeforeLengthsAndEndsAtAMultipleOfFour) {
  EXPECT_EQ(SampleLayout(click_schema()).num_bytes(), 4U + 8U + 4U + 12U + 4U);
  const SampleLayout pairs(pair_schema());
  EXPECT_EQ(pairs.label_at, SampleLayout::kNone);
  EXPECT_EQ(pairs.item_at, 0U);
  EXPECT_EQ(pairs.num_bytes(), 8U);
  EXPECT_EQ(item_layout(pair_schema()).end(), 4U + 8U + 4U);
}

TEST(RecordLayout, UnpacksWhatItHasPacked) {
  harness::Draw draw(4);
  for (int round = 0; round < 100; ++round) {
    FeatureSchema schema{.num_training = 1};
    std::vector<std::vector<int64_t>> ids;
    std::vector<int64_t> packed;
    std::vector<int64_t> lengths;
    for (int64_t t = draw.below(5); t >= 0; --t) {
      const int64_t max_ids = 1 + draw.below(4);
      const int64_t min_ids = draw.below(max_ids + 1);
      schema.tables.push_back({.name = concat(t),
                               .rows = 1 + draw.below(kMaxTableRows),
                               .min_ids = min_ids,
                               .max_ids = max_ids,
                               .is_hashed = draw.below(3) == 0});
      ids.emplace_back(min_ids + draw.below(max_ids - min_ids + 1));
      for (int64_t& id : ids.back()) {
        id = draw.below(schema.tables.back().rows);
        if (schema.tables.back().is_hashed) id = (id - (int64_t{1} << 31)) << 32 | draw.below(9);
        packed.push_back(id);
      }
      lengths.push_back(std::ssize(ids.back()));
    }
    const IdLayout layout(schema, TableSide::kQuery, 12);
    std::vector<std::byte> record(layout.end());
    layout.pack(ids, record);
    std::vector<int64_t> out(static_cast<size_t>(layout.num_ids()));
    std::vector<int64_t> out_lengths(lengths.size());
    const int64_t count = layout.unpack(record, out, out_lengths, [] { return "here"; });
    out.resize(static_cast<size_t>(count));
    EXPECT_EQ(out, packed);
    EXPECT_EQ(out_lengths, lengths);
  }
}

TEST(RecordLayout, PacksNothingOutOfRange) {
  const IdLayout layout(click_schema(), TableSide::kQuery, 0);
  std::vector<std::byte> record(layout.end());
  const auto pack = [&](const std::vector<std::vector<int64_t>>& ids) { layout.pack(ids, record); };
  EXPECT_THROW(pack({{5}, {}}), InternalError);
  EXPECT_THROW(pack({{}, {}}), InternalError);
  EXPECT_THROW(pack({{1}, {1, 2, 3, 4}}), InternalError);
  EXPECT_THROW(pack({{1}}), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
