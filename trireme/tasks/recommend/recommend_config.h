// The keys of the recommendation task.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"

namespace trireme::tasks {

enum class RecommendFamily { kDlrm, kDlrmDcnV2, kWideDeep, kTwoTower };
inline constexpr Choice<RecommendFamily> kRecommendFamilies[] = {
    {"dlrm", RecommendFamily::kDlrm},
    {"dlrm-dcnv2", RecommendFamily::kDlrmDcnV2},
    {"wide-deep", RecommendFamily::kWideDeep},
    {"two-tower", RecommendFamily::kTwoTower}};

struct RecommendModelConfig {
  TRIREME_KEYS_BEGIN(RecommendModelConfig)
  TRIREME_KEY(RecommendFamily, family, RecommendFamily::kDlrm, kMustStay,
              "dlrm: dot products of all pairs of embeddings; dlrm-dcnv2: a cross network; "
              "wide-deep: a linear model beside a deep one; two-tower: retrieval of items",
              kRecommendFamilies)
  TRIREME_KEY(int64_t, width, 64, kMustStay, "numbers in an embedding", Range{1, kMaxWidth})
  TRIREME_KEY(
      std::string, bottom, "512,256", kMustStay,
      "dlrm: widths of hidden layers over the dense features; a last layer of the embeddings' "
      "width follows")
  TRIREME_KEY(std::string, top, "512,256", kMustStay,
              "widths of hidden layers before the output; two-tower: of each tower")
  TRIREME_KEY(int64_t, cross_layers, 3, kMustStay, "dlrm-dcnv2: layers of the cross network",
              Range{1, 64})
  TRIREME_KEY(int64_t, cross_rank, 512, kMustStay, "dlrm-dcnv2: columns of its thin matrices",
              Range{1, kMaxWidth})
  TRIREME_KEY(double, temperature, 0.05, kMustStay,
              "two-tower: divides the cosine of a query and an item",
              Range{.minimum = 0, .maximum = 1e3, .above_minimum = true})
  TRIREME_KEYS_END()
};

struct RecommendDataConfig {
  TRIREME_KEYS_BEGIN(RecommendDataConfig)
  TRIREME_KEY(std::string, path, "data/clicks", kMustStay,
              "folder that `trireme data prepare` has written")
  TRIREME_KEYS_END()
};

enum class TablePlacement { kReplicated, kRows, kColumns, kWhole, kAuto };
inline constexpr Choice<TablePlacement> kTablePlacements[] = {
    {"rows", TablePlacement::kRows},
    {"columns", TablePlacement::kColumns},
    {"whole", TablePlacement::kWhole},
    {"replicated", TablePlacement::kReplicated},
    {"auto", TablePlacement::kAuto}};

inline constexpr Choice<parallel::Pooling> kSumOrMean[] = {{"sum", parallel::Pooling::kSum},
                                                           {"mean", parallel::Pooling::kMean}};

inline constexpr int64_t kMaxOpenRows = int64_t{1} << 40;
inline constexpr const char* kAllFeatures = "all";

struct TablesConfig {
  TRIREME_KEYS_BEGIN(TablesConfig)
  TRIREME_KEY(TablePlacement, placement, TablePlacement::kRows, kMayChange,
              "how data ranks share the tables: by rows or columns of each table, whole tables in "
              "turn, a replica of all on each rank, or auto: the planner chooses from the data "
              "(docs/planner.md)",
              kTablePlacements)
  TRIREME_KEY(parallel::RowRule, optimizer, parallel::RowRule::kRowWiseAdaGrad, kMustStay,
              "update of the rows that a step has used", parallel::kRowRules)
  TRIREME_KEY(double, learning_rate, 0, kMayChange,
              "peak learning rate of the tables, on the optimizer's schedule; 0 = that of the "
              "optimizer",
              Range{0, 1e6})
  TRIREME_KEY(double, epsilon, 1e-8, kMayChange, "added to the root in AdaGrad and Adam",
              Range{0, 1})
  TRIREME_KEY(double, initial_accumulator, 0, kMustStay, "AdaGrad: sum of squares before step 1",
              Range{0, 1e30})
  TRIREME_KEY(double, initial_scale, 0, kMustStay,
              "initial values are uniform in [-scale, scale); 0 = 1 / sqrt(rows), or 0.01 for open "
              "tables",
              Range{0, 1e3})
  TRIREME_KEY(
      int64_t, memory, 0, kMayChange,
      "limit on rows and their optimizer states in a rank's memory, in bytes; the others are "
      "on its disk; 0 = no limit",
      Range{0, kMaxMemory})
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "folder for the rows on the disk; empty = `tables` in output.folder")
  TRIREME_KEY(parallel::Pooling, pooling, parallel::Pooling::kSum, kMustStay,
              "how to combine the rows of a sample with several ids of one feature", kSumOrMean)
  TRIREME_KEY(std::string, open, "", kMustStay,
              "features that accept any 64-bit id and get rows as ids are used: names separated by "
              "commas, or all")
  TRIREME_KEY(int64_t, open_max_rows, 0, kMustStay,
              "open tables: limit on the rows of each after a step, over all ranks; 0 = no limit",
              Range{0, kMaxOpenRows})
  TRIREME_KEY(
      parallel::FullTable, open_when_full, parallel::FullTable::kEvict, kMustStay,
      "open tables beyond that limit: evict the least recently used rows, evict-rarest: those "
      "with the fewest recent uses, or refuse",
      parallel::kFullTables)
  TRIREME_KEY(int64_t, open_halve_steps, parallel::kOpenHalveSteps, kMustStay,
              "evict-rarest: halve the uses counted so far every N steps; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, open_expire_steps, 0, kMustStay,
              "open tables: drop rows that were not used for this many steps; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, open_min_uses, 1, kMustStay,
              "open tables: number of steps that must use an id before it gets a row",
              Range{1, kMaxSteps})
  TRIREME_KEYS_END()
};

struct RecommendConfig {
  RecommendModelConfig model;
  RecommendDataConfig data;
  TablesConfig tables;
};

}  // namespace trireme::tasks
