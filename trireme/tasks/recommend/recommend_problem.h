// What a run of the recommendation task learns: its keys and the features of its data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/tasks/recommend/recommend_config.h"
#include "trireme/tasks/recommend/tables/table_choice.h"

namespace trireme::tasks::inline internal {

struct RecommendProblem {
  RecommendConfig config{};
  dataset::FeatureSchema schema{};
  // The planner's, with tables.placement = "auto" on several ranks; without places until then.
  TableChoice choice{};

  // Whether the table of a column has an open vocabulary.
  bool is_open(int64_t column) const;
  bool is_two_tower() const { return config.model.family == RecommendFamily::kTwoTower; }
  // Numbers that the model gives for a sample: 1 for clicks.
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
// num_ranks: among which they are shared out. two-tower: first the tables of queries.
TableList tables_of(const RecommendProblem& problem, int num_ranks);

// Shares out tables.memory: a table whose part of a rank is small keeps all of it, the others have
// the same limit. Open tables have none. folder: for the other rows
void limit_memory(const RecommendProblem& problem, int num_ranks, int64_t bytes_per_number,
                  const std::string& folder, TableList& list);

// Throws: ConfigError when tables.open names what the data lacks, when a column of hashes has no
//         open table, and for keys that do not go with open tables. source: of the data
void check_open_tables(const RecommendProblem& problem, const std::string& source);

// The columns of the items, or of the queries.
std::vector<int64_t> columns_of(const dataset::FeatureSchema& schema, dataset::TableSide side);

}  // namespace trireme::tasks::inline internal
