// The task of recommendation: tell whether a user clicks, what class a thing is of, or which items
// fit a query. The models have tables of embeddings for the ids in the data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/parallel/embedding/row_optimizer.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

enum class RecommendFamily { kDlrm, kDlrmDcnV2, kWideDeep, kTwoTower };
inline constexpr Choice<RecommendFamily> kRecommendFamilies[] = {
    {"dlrm", RecommendFamily::kDlrm},
    {"dlrm-dcnv2", RecommendFamily::kDlrmDcnV2},
    {"wide-deep", RecommendFamily::kWideDeep},
    {"two-tower", RecommendFamily::kTwoTower}};

struct RecommendModelConfig {
  TRIREME_KEYS_BEGIN(RecommendModelConfig)
  TRIREME_KEY(
      RecommendFamily, family, RecommendFamily::kDlrm, kMustStay,
      "model architecture; dlrm = dot products of all pairs of embeddings, dlrm-dcnv2 = cross "
      "network, wide-deep = linear model beside a deep one, two-tower = retrieval of items",
      kRecommendFamilies)
  TRIREME_KEY(int64_t, width, 64, kMustStay, "width of the embeddings", Range{1, kMaxWidth})
  TRIREME_KEY(
      std::string, bottom, "512,256", kMustStay,
      "dlrm, dlrm-dcnv2: comma-separated widths of the hidden layers over the dense features; a "
      "layer of model.width follows")
  TRIREME_KEY(
      std::string, top, "512,256", kMustStay,
      "comma-separated widths of the hidden layers before the output; two-tower: of each tower")
  TRIREME_KEY(int64_t, cross_layers, 3, kMustStay,
              "dlrm-dcnv2: number of layers of the cross network", Range{1, 64})
  TRIREME_KEY(int64_t, cross_rank, 512, kMustStay,
              "dlrm-dcnv2: rank of the factorised weights of the cross network",
              Range{1, kMaxWidth})
  TRIREME_KEY(double, temperature, 0.05, kMustStay,
              "two-tower: temperature that divides the cosine similarity of query and item",
              Range{.minimum = 0, .maximum = 1e3, .above_minimum = true})
  TRIREME_KEYS_END()
};

struct RecommendDataConfig {
  TRIREME_KEYS_BEGIN(RecommendDataConfig)
  TRIREME_KEY(std::string, path, "data/clicks", kMustStay,
              "folder written by `trireme data prepare`")
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
  TRIREME_KEY(
      TablePlacement, placement, TablePlacement::kRows, kMayChange,
      "distribution of the embedding tables over data-parallel ranks; rows, columns = "
      "split each table, whole = assign whole tables round-robin, replicated = a copy of all "
      "tables per rank, auto = let the planner choose from the data (docs/guide/planner.md)",
      kTablePlacements)
  TRIREME_KEY(parallel::RowRule, optimizer, parallel::RowRule::kRowWiseAdaGrad, kMustStay,
              "update rule for the rows that a step uses", parallel::kRowRules)
  TRIREME_KEY(double, learning_rate, 0, kMayChange,
              "peak learning rate of the tables, on the schedule of [optimizer]; 0 = "
              "optimizer.learning_rate",
              Range{0, 1e6})
  TRIREME_KEY(double, epsilon, 1e-8, kMayChange,
              "epsilon added to the denominator of AdaGrad and Adam", kEpsilon)
  TRIREME_KEY(double, initial_accumulator, 0, kMustStay,
              "AdaGrad: initial value of the sums of squares", Range{0, 1e30})
  TRIREME_KEY(
      double, initial_scale, 0, kMustStay,
      "tables start uniform in [-scale, scale); 0 = 1 / sqrt(rows), or 0.01 for open tables",
      Range{0, 1e3})
  TRIREME_KEY(int64_t, memory, 0, kMayChange,
              "memory limit per rank for rows and their optimizer states, in bytes; further rows "
              "go to disk; 0 = no limit",
              Range{0, kMaxMemory})
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "folder for the rows on disk; empty = `tables` in output.folder")
  TRIREME_KEY(parallel::Pooling, pooling, parallel::Pooling::kSum, kMustStay,
              "how to combine the rows of a feature that has several ids per sample", kSumOrMean)
  TRIREME_KEY(std::string, open, "", kMustStay,
              "features with an open vocabulary, whose tables grow with the ids (any 64-bit "
              "number): comma-separated names, or all")
  TRIREME_KEY(int64_t, open_max_rows, 0, kMustStay,
              "open tables: maximum rows per table after a step, over all ranks; 0 = no limit",
              Range{0, kMaxOpenRows})
  TRIREME_KEY(parallel::FullTable, open_when_full, parallel::FullTable::kEvict, kMustStay,
              "open tables with more rows than open_max_rows; evict = drop the least recently used "
              "rows, evict-rarest = drop those with the fewest recent uses, refuse = end the run",
              parallel::kFullTables)
  TRIREME_KEY(int64_t, open_halve_steps, parallel::kOpenHalveSteps, kMustStay,
              "evict-rarest: halve all use counts every N steps; 0 = never", Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, open_expire_steps, 0, kMustStay,
              "open tables: drop rows unused for N steps; 0 = never", Range{0, kMaxSteps})
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

std::unique_ptr<train::Task> make_recommend_task();
inline constexpr train::TaskKind kRecommend = {
    "recommend", "predict clicks, classes or items from ids", make_recommend_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
RecommendConfig& recommend_of(train::RunConfig& config);

}  // namespace trireme::tasks
