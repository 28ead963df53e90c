// Where the planner has placed a run's tables: as text, which rank 0 sends to the others and keeps
// in the run's folder, and in comparison with what the run measures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/parallel/embedding/embedding_tables.h"
#include "trireme/parallel/embedding/table_config.h"
#include "trireme/plan/tables/table_search.h"

namespace trireme::tasks::inline internal {

inline constexpr const char* kTableChoiceFile = "table_placements.json";

// Counts of one rank in a step of training.
struct RankLookUps {
  double look_ups = 0;  // rows read and gradients added
  double sent_bytes = 0;
};

struct TableChoice {
  std::vector<plan::TablePlace> places{};  // of each table
  std::vector<RankLookUps> predicted{};    // of each rank
};

TableChoice choice_of(const plan::TablePlan& plan);

// The text of kTableChoiceFile (docs/planner.md).
std::string to_json(const TableChoice& choice, std::span<const parallel::TableConfig> tables);
// Throws: ConfigError, which begins with `source`, if the text is not a choice, or is one for other
//         tables or another number of ranks
TableChoice parse_choice(const std::string& text, const std::string& source,
                         std::span<const parallel::TableConfig> tables, int num_ranks);

// "26 tables: 20 by rows, 6 whole".
std::string describe(std::span<const plan::TablePlace> places);

// The mean counts per step of this rank's tables.
RankLookUps look_ups_of(const parallel::TableCounts& counts);
// The line for the user at the end of a run; "" for one rank or without look-ups.
// predicted: of each rank; empty if nothing was predicted
std::string compare_look_ups(std::span<const RankLookUps> measured,
                             std::span<const RankLookUps> predicted);

}  // namespace trireme::tasks::inline internal
