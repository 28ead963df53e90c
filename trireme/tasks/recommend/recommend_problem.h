// The problem of a run of the recommendation task: its keys, the features of its data, and the ids
// of a batch of prepared records, in the form that embedding tables accept.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/parallel/embedding/jagged_ids.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/tables/planned_tables.h"

namespace trireme::tasks {

struct RecommendProblem {
  RecommendConfig config{};
  dataset::FeatureSchema schema{};
  // The planner's choice if tables.placement is "auto" and there are several ranks; empty until it
  // is made.
  TableChoice choice{};
  // The model writes what it says of rows, as "scores", and reads no labels.
  bool is_answering = false;

  // Whether the table of a column has an open vocabulary.
  bool is_open(int64_t column) const;
  bool is_two_tower() const { return config.model.family == RecommendFamily::kTwoTower; }
  // Numbers that the model outputs per sample; 1 for clicks.
  int64_t num_outputs() const {
    return schema.label == dataset::LabelKind::kClass ? std::ssize(schema.classes) : 1;
  }
};

// The tables of a model, and the column of the data that each reads.
struct TableList {
  std::vector<parallel::TableConfig> tables{};
  std::vector<int64_t> columns{};

  int64_t width() const;  // of all tables side by side
};
// Returns the tables of the model; for two-tower, first those of the queries.
// num_ranks: number of ranks that share the tables
TableList tables_of(const RecommendProblem& problem, int num_ranks);

// Divides tables.memory among the tables: small ones stay in memory, and the others get equal
// limits. Open tables without open_max_rows are never small.
// folder: for rows on the disk
void limit_memory(const RecommendProblem& problem, int num_ranks, int64_t bytes_per_number,
                  const std::string& folder, TableList& list);

// Checks the keys of open tables against the data.
// source: the data's name, for errors
// Throws: ConfigError if tables.open names a feature that the data lacks, if a column of hashes has
//         no open table, or if a key cannot be combined with open tables
void check_open_tables(const RecommendProblem& problem, const std::string& source);

// The columns of one side: of the items or of the queries.
std::vector<int64_t> columns_of(const dataset::FeatureSchema& schema, dataset::TableSide side);

// Returns the ids of some columns of a batch, in the order of `columns`. A column may occur twice.
// Shapes: ids_BK [B, K] int64: for each sample its ids, column after column, then any values;
//         lengths_BC [B, C] int64: the number of ids of each column
// Throws: ConfigError if a length is negative or the lengths of a sample exceed K
parallel::JaggedIds ids_of_columns(const at::Tensor& ids_BK, const at::Tensor& lengths_BC,
                                   std::span<const int64_t> columns);

}  // namespace trireme::tasks
