#include "trireme/tasks/recommend/recommend_problem.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {
namespace {

// number: of the table, among all
mesh::Placement placement_of(TablePlacement placement, int64_t number, int64_t rows,
                             int num_ranks) {
  switch (placement) {
    case TablePlacement::kReplicated: return mesh::Placement::replicated();
    case TablePlacement::kRows: return mesh::Placement::sharded(0);
    case TablePlacement::kColumns: return mesh::Placement::sharded(1);
    case TablePlacement::kWhole:
      return parallel::whole_on(static_cast<int>(number % num_ranks), rows, num_ranks);
  }
  throw InternalError("a placement of tables without a name");
}

class ListMaker {
 public:
  ListMaker(const RecommendProblem& problem, int num_ranks)
      : problem_(problem), num_ranks_(num_ranks) {}

  void add(const std::string& prefix, int64_t column, int64_t width) {
    const dataset::FeatureTable& feature = problem_.schema.tables[static_cast<size_t>(column)];
    const TablesConfig& config = problem_.config.tables;
    list_.tables.push_back({.name = concat(prefix, ".", feature.name),
                            .rows = feature.rows,
                            .width = width,
                            .pooling = config.pooling,
                            .placement = placement_of(config.placement, std::ssize(list_.tables),
                                                      feature.rows, num_ranks_),
                            .initial_scale = config.initial_scale});
    list_.columns.push_back(column);
  }
  TableList take() { return std::move(list_); }

 private:
  const RecommendProblem& problem_;
  int num_ranks_;
  TableList list_;
};

}  // namespace

int64_t TableList::width() const {
  int64_t sum = 0;
  for (const parallel::TableConfig& table : tables) sum += table.width;
  return sum;
}

std::vector<int64_t> columns_of(const dataset::FeatureSchema& schema, dataset::TableSide side) {
  std::vector<int64_t> columns;
  for (size_t i = 0; i < schema.tables.size(); ++i) {
    if (schema.tables[i].side == side) columns.push_back(static_cast<int64_t>(i));
  }
  return columns;
}

TableList tables_of(const RecommendProblem& problem, int num_ranks) {
  using Side = dataset::TableSide;
  ListMaker maker(problem, num_ranks);
  const int64_t D = problem.config.model.width;
  for (const Side side : {Side::kQuery, Side::kItem}) {
    for (const int64_t column : columns_of(problem.schema, side)) {
      maker.add("embedding", column, D);
    }
  }
  if (problem.config.model.family != RecommendFamily::kWideDeep) return maker.take();
  for (size_t column = 0; column < problem.schema.tables.size(); ++column) {
    maker.add("wide", static_cast<int64_t>(column), problem.num_outputs());
  }
  return maker.take();
}

}  // namespace trireme::tasks::inline internal
