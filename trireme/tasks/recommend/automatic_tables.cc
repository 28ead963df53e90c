#include "trireme/tasks/recommend/automatic_tables.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/plan/device/cluster.h"
#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/tables/planned_tables.h"

namespace trireme::tasks {
namespace {

// The rest is for activations and for vectors in transit.
constexpr double kMemoryShare = 0.9;

// tables.memory: rows lie on the disk, as many as there are.
constexpr double kDisk = 1e18;

plan::TableSearch search_on_hosts(const TablesConfig& tables, int num_ranks, int num_hosts,
                                  double dense_bytes) {
  const int per_host = std::max(1, num_ranks / num_hosts);
  const double bytes = static_cast<double>(machine_memory_bytes()) / per_host;
  return {.ranks = {.num_ranks = num_ranks, .ranks_per_node = per_host},
          .rates = plan::rates_of(plan::make_cluster({})),
          .memory_bytes = tables.memory > 0 ? kDisk : kMemoryShare * bytes - dense_bytes};
}

// columns: the statistics of each column of the data
MeasuredTables tables_with(const RecommendProblem& problem, const train::RunConfig& config,
                           const std::vector<plan::TableStatistics>& columns) {
  const TableList list = tables_of(problem, /*num_ranks=*/1);
  const auto dtype = config.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  MeasuredTables measured;
  for (size_t t = 0; t < list.tables.size(); ++t) {
    plan::TableStatistics column = columns[static_cast<size_t>(list.columns[t])];
    if (const int64_t most = list.tables[t].open_max_rows; most > 0) {
      column.rows_in_use = std::min(column.rows_in_use, static_cast<double>(most));
    }
    measured.statistics.push_back(column);
    measured.loads.push_back(
        load_of(list.tables[t], problem.config.tables.optimizer, dtype, column));
  }
  return measured;
}

std::vector<bool> open_columns(const RecommendProblem& problem) {
  std::vector<bool> is_open;
  for (int64_t column = 0; column < problem.schema.num_tables(); ++column) {
    is_open.push_back(problem.is_open(column));
  }
  return is_open;
}

RecommendProblem open_problem(train::RunConfig& config) {
  config.task->open(/*evaluates=*/false);
  const RecommendConfig& keys = recommend_of(config);
  return {.config = keys, .schema = dataset::read_schema(keys.data.path)};
}

// The text of the file in output.folder; "" when there is none for these tables and ranks.
std::string begun_choice(const train::RunConfig& config,
                         const std::vector<parallel::TableConfig>& tables, int num_ranks) {
  const std::filesystem::path path = std::filesystem::path(config.output.folder) / kTableChoiceFile;
  try {
    std::string text = read_file(path);
    parse_choice(text, path.string(), tables, num_ranks);
    return text;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

MeasuredTables measure_tables(const RecommendProblem& problem, const dataset::Source& training,
                              const train::RunConfig& config, int num_ranks,
                              const std::function<void(int64_t, int64_t)>& on_progress) {
  return tables_with(problem, config,
                     measure_columns(training, problem.schema, config.data.seed,
                                     step_shape(config.train.global_batch, num_ranks), on_progress,
                                     {}, open_columns(problem)));
}

TableChoice choose_tables(const RecommendProblem& problem, const dataset::Source& training,
                          const train::RunConfig& config, double dense_bytes,
                          comm::Communicator& group) {
  const int p = group.size();
  const comm::HostMap hosts(comm::all_gather_strings(group, comm::host_identity()));
  const std::vector<parallel::TableConfig> tables = tables_of(problem, p).tables;
  const std::string text = checkpoint::from_root(group, [&](const checkpoint::Peers& peers) {
    if (std::string begun = begun_choice(config, tables, p); !begun.empty()) return begun;
    const MeasuredTables measured =
        measure_tables(problem, training, config, p, [&](int64_t, int64_t) { peers.check(); });
    return to_json(choice_of(plan::place_tables(
                       measured.loads,
                       search_on_hosts(problem.config.tables, p, hosts.num_hosts(), dense_bytes))),
                   tables);
  });
  return parse_choice(text, kTableChoiceFile, tables, p);
}

MeasuredTables measure_tables(train::RunConfig& config, int num_ranks,
                              const std::function<void(int64_t done, int64_t total)>& on_progress) {
  const RecommendProblem problem = open_problem(config);
  return measure_tables(problem, config.task->training(), config, num_ranks, on_progress);
}

MeasuredTables assume_tables(train::RunConfig& config, int num_ranks, double exponent) {
  const RecommendProblem problem = open_problem(config);
  const plan::StepShape shape = step_shape(config.train.global_batch, num_ranks);
  std::vector<plan::TableStatistics> columns;
  for (int64_t c = 0; c < problem.schema.num_tables(); ++c) {
    const dataset::FeatureTable& table = problem.schema.tables[static_cast<size_t>(c)];
    const double ids = static_cast<double>(table.min_ids + table.max_ids) / 2;
    const int64_t most = problem.config.tables.open_max_rows;
    const int64_t rows = table.is_hashed ? most : table.rows;
    TRIREME_CHECK(rows > 0, "the data does not say how many different ids \"", shown(table.name),
                  "\" has, which --zipf needs; set tables.open_max_rows, or plan without --zipf");
    plan::TableStatistics& column =
        columns.emplace_back(plan::assume_zipf(rows, exponent, ids, shape));
    if (!problem.is_open(c)) continue;
    column.rows_in_use = static_cast<double>(rows);
    column.use = plan::RowUse::even(parallel::kOpenRows, column.use.all(), column.use.subtrees());
  }
  return tables_with(problem, config, columns);
}

double dense_bytes(const train::RunConfig& config) {
  double sum = 0;
  for (const parallel::LayerCost& layer : config.task->model().layer_costs(config))
    sum += layer.memory;
  return sum;
}

}  // namespace trireme::tasks
