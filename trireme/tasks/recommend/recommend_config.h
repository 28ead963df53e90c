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
  TRIREME_KEY(std::string, bottom, "512,256", kMustStay,
              "dlrm: hidden layers over the dense features, whose last layer has the embeddings' "
              "width")
  TRIREME_KEY(std::string, top, "512,256", kMustStay,
              "hidden layers before the output; of each tower, in two-tower")
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
              "how the data ranks share out the tables: rows or columns of each table, whole "
              "tables in turn, a copy of all on each rank, or auto: as the planner chooses from "
              "the data (docs/planner.md)",
              kTablePlacements)
  TRIREME_KEY(parallel::RowRule, optimizer, parallel::RowRule::kRowWiseAdaGrad, kMustStay,
              "update of the rows that a step has used", parallel::kRowRules)
  TRIREME_KEY(double, learning_rate, 0, kMayChange,
              "peak of the tables' learning rate, which has the optimizer's schedule; 0 = the "
              "optimizer's",
              Range{0, 1e6})
  TRIREME_KEY(double, epsilon, 1e-8, kMayChange, "added to the root in AdaGrad and Adam",
              Range{0, 1})
  TRIREME_KEY(double, initial_accumulator, 0, kMustStay, "AdaGrad: sum of squares before step 1",
              Range{0, 1e30})
  TRIREME_KEY(double, initial_scale, 0, kMustStay,
              "first values are uniform in [-scale, scale); 0 = 1 / sqrt(rows), of open tables "
              "0.01",
              Range{0, 1e3})
  TRIREME_KEY(int64_t, memory, 0, kMayChange,
              "bytes of rows and their optimizer states that stay in a rank's memory, the others "
              "on its disk; 0 = all stay",
              Range{0, kMaxMemory})
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "folder for the rows on the disk; empty = tables in output.folder")
  TRIREME_KEY(parallel::Pooling, pooling, parallel::Pooling::kSum, kMustStay,
              "how the rows of a sample with several ids of a feature become one", kSumOrMean)
  TRIREME_KEY(std::string, open, "", kMustStay,
              "features of any 64-bit ids, whose tables get rows as ids are used: names separated "
              "by commas, or all")
  TRIREME_KEY(int64_t, open_max_rows, 0, kMustStay,
              "open tables: most rows of each after a step, over all ranks; 0 = no limit",
              Range{0, kMaxOpenRows})
  TRIREME_KEY(parallel::FullTable, open_when_full, parallel::FullTable::kEvict, kMustStay,
              "open tables with more rows: evict those that were used longest ago, or refuse",
              parallel::kFullTables)
  TRIREME_KEY(int64_t, open_expire_steps, 0, kMustStay,
              "open tables: steps without a use after which a row is dropped; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, open_min_uses, 1, kMustStay,
              "open tables: steps that use an id until it gets its row", Range{1, kMaxSteps})
  TRIREME_KEYS_END()
};

struct RecommendConfig {
  RecommendModelConfig model;
  RecommendDataConfig data;
  TablesConfig tables;
};

}  // namespace trireme::tasks
