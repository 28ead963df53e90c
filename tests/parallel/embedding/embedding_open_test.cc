// Tables with open vocabularies: against rows in a plain map, and with the same bits for every
// placement and number of ranks.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/embedding/embedding_runs.h"
#include "tests/parallel/embedding/open_oracle.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/parallel/embedding/open/open_key.h"

namespace trireme::parallel {
namespace {

using namespace harness;
using State = std::map<std::string, at::Tensor>;

std::vector<TableConfig> open_tables() {
  const auto open = [](std::string name, int64_t width, Pooling pooling, int64_t expire_steps,
                       int64_t min_uses, int64_t max_rows = 0) {
    TableConfig table{.name = std::move(name), .rows = kOpenRows, .width = width};
    table.pooling = pooling;
    table.is_open = true;
    table.open_expire_steps = expire_steps;
    table.open_min_uses = min_uses;
    table.open_max_rows = max_rows;
    return table;
  };
  const auto rarest = [](TableConfig table, int64_t halve_steps) {
    table.open_when_full = FullTable::kEvictRarest;
    table.open_halve_steps = halve_steps;
    return table;
  };
  return {open("user", 5, Pooling::kSum, 0, 1),
          open("item", 4, Pooling::kMean, 2, 1),
          open("page", 2, Pooling::kSum, 4, 1, 3),
          rarest(open("shop", 3, Pooling::kSum, 0, 1, 4), 3),
          rarest(open("city", 1, Pooling::kSum, 7, 2, 2), 0),
          open("word", 3, Pooling::kNone, 3, 2),
          {.name = "fixed", .rows = 7, .width = 2}};
}

// Few ids, of which a step draws from a part, so that some are not used for several steps.
JaggedIds draw_open_ids(Draw& draw, const std::vector<TableConfig>& tables, int64_t num_samples,
                        int step, at::ScalarType dtype) {
  using Limits = std::numeric_limits<int64_t>;
  static constexpr int64_t kIds[] = {Limits::min(),    Limits::max(), -1,    0,  1,
                                     int64_t{1} << 40, -987654321987, 12345, 77, -77};
  std::vector<int64_t> values, lengths;
  for (const TableConfig& table : tables) {
    for (int64_t s = 0; s < num_samples; ++s) {
      lengths.push_back(draw.below<int64_t>(4));
      for (int64_t k = 0; k < lengths.back(); ++k) {
        values.push_back(table.is_open ? kIds[(2 * step + draw.below(5)) % std::ssize(kIds)]
                                       : draw.below(table.rows));
      }
    }
  }
  const at::Tensor ids = at::tensor(values, at::kLong);
  return jagged_ids(ids, at::tensor(lengths, at::kLong).view({std::ssize(tables), num_samples}),
                    at::ones({ids.numel()}, dtype));
}

State whole_state(EmbeddingTables& tables) {
  State state;
  for (const TableTensor& tensor : tables.open_state()) state[tensor.name] = values_of(tensor);
  for (const TableTensor& tensor : tables.state()) {
    state[tensor.name] = values_of(tensor).clone();
  }
  return state;
}

OneRun run_open(Draw& draw, const std::vector<TableConfig>& tables, const EmbeddingOptions& options,
                int64_t num_samples, int num_steps) {
  OneRun run;
  EmbeddingTables one(tables, nullptr, options);
  for (int step = 0; step < num_steps; ++step) {
    run.batches.push_back(draw_open_ids(draw, tables, num_samples, step, options.dtype));
    run.outputs.push_back(one.look_up(run.batches.back()));
    run.gradients.push_back(gradients_of(run.outputs.back(), step));
    run_backward(run.outputs.back(), run.gradients.back());
  }
  run.state = whole_state(one);
  return run;
}

void expect_open_state(EmbeddingTables& tables, const State& expected) {
  std::vector<TableTensor> state = tables.open_state();
  for (const TableTensor& tensor : tables.state()) state.push_back(tensor);
  EXPECT_EQ(state.size(), expected.size());
  for (const TableTensor& tensor : state) {
    const at::Tensor& whole = expected.at(tensor.name);
    ASSERT_EQ(at::IntArrayRef(tensor.layout.shape()), whole.sizes()) << tensor.name;
    assert_same_bits(values_of(tensor), box_of(whole, tensor.layout, tensor.rank), tensor.name);
  }
}

class OpenRules : public testing::TestWithParam<RowRule> {};

// In memory, and with memory for little more than the rows of a step.
TEST_P(OpenRules, AreThoseOfAPlainMap) {
  const TemporaryFolder folder;
  for (const int64_t memory : {0, 7}) {
    const EmbeddingOptions options{
        .dtype = at::kDouble,
        .seed = 7,
        .optimizer = {.rule = GetParam(), .learning_rate = 0.1, .initial_accumulator = 0.1}};
    const std::vector<TableConfig> tables = on_disk(open_tables(), options, memory, folder.path());
    Draw draw(1);
    const OneRun run = run_open(draw, tables, options, 4, 9);
    std::vector<int64_t> columns{0};
    for (size_t t = 0; tables[t].is_open; ++t) {
      const bool is_apart = tables[t].pooling == Pooling::kNone;
      columns.push_back(columns.back() + (is_apart ? 0 : tables[t].width));
      OpenOracle oracle(tables[t], options);
      for (size_t step = 0; step < run.batches.size(); ++step) {
        const TableIds ids = view_table(run.batches[step], static_cast<int64_t>(t));
        const auto part = [&](const Embeddings& all) {
          return is_apart ? all.apart[0].detach()
                          : all.pooled_BW.detach().narrow(1, columns[t], tables[t].width);
        };
        at::Tensor expected = at::zeros_like(part(run.outputs[step]));
        std::map<int64_t, std::vector<double>> gradients;
        for (size_t s = 0; s + 1 < ids.offsets.size(); ++s) {
          for (int64_t k = ids.offsets[s]; k < ids.offsets[s + 1]; ++k) {
            const int64_t place = k - ids.offsets[0];
            const int64_t id = ids.values[static_cast<size_t>(place)];
            const auto index = is_apart ? place : static_cast<int64_t>(s);
            const double weight =
                tables[t].pooling == Pooling::kMean
                    ? 1.0 / static_cast<double>(ids.offsets[s + 1] - ids.offsets[s])
                    : 1.0;
            const auto row = oracle.read(id, static_cast<int64_t>(step));
            expected[index] += weight * at::tensor(row, at::kDouble);
            const at::Tensor gradient = weight * part(run.gradients[step])[index];
            auto& sum = gradients.try_emplace(id, row.size(), 0.0).first->second;
            for (size_t i = 0; i < sum.size(); ++i) {
              sum[i] += gradient[static_cast<int64_t>(i)].item<double>();
            }
          }
        }
        expect_close(part(run.outputs[step]), expected, tables[t].name);
        oracle.step(gradients, static_cast<int64_t>(step) + 1);
      }
      std::map<int64_t, int64_t> id_of_key;
      for (const auto& [id, row] : oracle.rows()) id_of_key[open_key(id)] = id;
      std::vector<int64_t> ids, last_uses, waiting_ids, waiting_last_uses, waiting_uses;
      std::vector<double> weights, uses;
      for (const auto& [key, id] : id_of_key) {
        const OpenOracle::Row& row = oracle.rows().at(id);
        (row.is_row ? ids : waiting_ids).push_back(id);
        (row.is_row ? last_uses : waiting_last_uses).push_back(row.last_use);
        if (row.is_row) uses.push_back(oracle.uses(row, row.last_use));
        if (!row.is_row) waiting_uses.push_back(row.uses);
        weights.insert(weights.end(), row.w.begin(), row.w.end());
      }
      const std::string& name = tables[t].name;
      // The limits did something.
      EXPECT_EQ(waiting_ids.empty(), tables[t].open_min_uses == 1);
      EXPECT_EQ(ids.size() + waiting_ids.size() < 10,
                tables[t].open_expire_steps + tables[t].open_max_rows > 0);
      if (tables[t].open_max_rows > 0) EXPECT_EQ(std::ssize(ids), tables[t].open_max_rows);
      const auto saved_uses = run.state.find(name + ".uses");
      EXPECT_EQ(saved_uses != run.state.end(), tables[t].open_when_full == FullTable::kEvictRarest);
      if (saved_uses != run.state.end()) {
        EXPECT_TRUE(at::equal(saved_uses->second, at::tensor(uses).to(at::kFloat))) << name;
        EXPECT_GT(std::ranges::max(uses), 1) << name;
      }
      EXPECT_EQ(numbers(run.state.at(name + ".ids")), ids);
      EXPECT_EQ(numbers(run.state.at(name + ".last_uses")), last_uses);
      EXPECT_EQ(numbers(run.state.at(name + ".waiting_ids")), waiting_ids);
      EXPECT_EQ(numbers(run.state.at(name + ".waiting_last_uses")), waiting_last_uses);
      EXPECT_EQ(numbers(run.state.at(name + ".waiting_uses")), waiting_uses);
      expect_close(run.state.at(name + ".weight"),
                   at::tensor(weights, at::kDouble).view({-1, tables[t].width}), name);
    }
  }
}

void check_open_rank(const OneRun& run, const std::vector<TableConfig>& tables,
                     const EmbeddingOptions& options, const std::vector<int64_t>& cuts,
                     comm::Communicator& group) {
  const auto T = std::ssize(tables);
  const auto rank = static_cast<size_t>(group.rank());
  const int64_t begin = cuts[rank], end = cuts[rank + 1];
  EmbeddingTables many(tables, &group, options);
  StartedLookUp started = many.start(samples_of(run.batches[0], T, begin, end));
  for (size_t step = 0; step < run.batches.size(); ++step) {
    const Embeddings outputs = many.finish(started);
    const JaggedIds& ids = run.batches[step];
    expect_same_bits(outputs, samples_of(run.outputs[step], ids, tables, begin, end));
    if (step + 1 < run.batches.size()) {
      started = many.start(samples_of(run.batches[step + 1], T, begin, end));
    }
    run_backward(outputs, samples_of(run.gradients[step], ids, tables, begin, end));
    if (options.update == UpdateTime::kOnStep) many.step();
  }
  expect_open_state(many, run.state);
}

TEST_P(OpenRules, HaveTheSameBitsForEveryPlacementAndNumberOfRanks) {
  Draw draw(2);
  for (const int world : {1, 2, 3, 4}) {
    for (int round = 0; round < 8; ++round) {
      EmbeddingOptions options{.dtype = round % 2 == 0 ? at::kFloat : at::kDouble,
                               .seed = 7,
                               .optimizer = {.rule = GetParam(), .learning_rate = 0.1},
                               .symmetric = round % 3 != 0};
      const int64_t num_samples = draw.below<int64_t>(20);
      const OneRun run = run_open(draw, open_tables(), options, num_samples, 8);
      const TemporaryFolder folder;
      // Each rank may ask for five rows that are not there.
      const int64_t memory = round % 2 == 0 ? 0 : 5 * world + 2 + draw.below<int64_t>(3);
      const auto tables = on_disk(place(draw, open_tables(), world, /*may_columns=*/false), options,
                                  memory, folder.path());
      const std::vector<int64_t> cuts = draw_cuts(draw, num_samples, world);
      if (round % 4 == 1) options.update = UpdateTime::kOnStep;
      const OneThread one_thread;
      run_ranks(world, [&](comm::Communicator& group) {
        check_open_rank(run, tables, options, cuts, group);
      });
    }
  }
}

TEST(EmbeddingOpen, HasTheBitsOfOneRankOnProcessesToo) {
  Draw draw(4);
  const EmbeddingOptions options{.seed = 3, .optimizer = {.rule = RowRule::kAdam}};
  const OneRun run = run_open(draw, open_tables(), options, 11, 6);
  const auto tables = place(draw, open_tables(), 3, /*may_columns=*/false);
  const std::vector<int64_t> cuts = draw_cuts(draw, 11, 3);
  const auto status = fork_ranks(
      3, [&](comm::Communicator& group) { check_open_rank(run, tables, options, cuts, group); });
  EXPECT_EQ(status, std::vector<ExitStatus>(3, 0));
}

// As train/state/run_state.h has it.
struct StoredTensor : checkpoint::OffloadedTensor {
  explicit StoredTensor(TableTensor of) : tensor(std::move(of)) {}
  at::Tensor read() const override { return values_of(tensor); }
  void write(const at::Tensor& values) override { tensor.stored->write(0, values); }
  bool goes_by_rows() const override { return true; }
  at::Tensor read_rows(int64_t begin, int64_t end) const override {
    return tensor.stored->read(begin, end);
  }
  void write_rows(int64_t begin, const at::Tensor& values) override {
    tensor.stored->write(begin, values);
  }
  TableTensor tensor;
};

std::vector<checkpoint::Entry> open_entries_of(const std::vector<TableTensor>& tensors) {
  std::vector<checkpoint::Entry> entries;
  for (const TableTensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.local, tensor.layout, tensor.rank});
    if (tensor.stored) entries.back().offloaded = std::make_shared<StoredTensor>(tensor);
  }
  return entries;
}

// Saved by some ranks after `saved_at` steps, and loaded by others.
void check_checkpoint(Draw& draw, const EmbeddingOptions& options, int from, int to,
                      size_t saved_at) {
  const OneRun all = run_open(draw, open_tables(), options, 6, 8);
  const TemporaryFolder folder;
  const auto run_steps = [&](EmbeddingTables& tables, comm::Communicator& group, size_t first,
                             size_t end) {
    const mesh::Range own = mesh::split_range(6, group.size(), group.rank());
    const int64_t last = own.offset + own.size;
    for (size_t step = first; step < end; ++step) {
      const JaggedIds& ids = all.batches[step];
      const Embeddings outputs =
          tables.look_up(samples_of(ids, std::ssize(open_tables()), own.offset, last));
      run_backward(outputs, samples_of(all.gradients[step], ids, open_tables(), own.offset, last));
    }
  };
  const OneThread one_thread;
  const auto draw_memory = [&](int world) {
    const int64_t memory = draw.below(3) == 0 ? 0 : 5 * world + 2 + draw.below<int64_t>(4);
    return on_disk(place(draw, open_tables(), world, false), options, memory, folder / "rows");
  };
  const auto before = draw_memory(from);
  run_ranks(from, [&](comm::Communicator& group) {
    EmbeddingTables tables(before, &group, options);
    run_steps(tables, group, 0, saved_at);
    std::vector<TableTensor> state = tables.open_state();
    for (const TableTensor& tensor : tables.state()) state.push_back(tensor);
    checkpoint::save(folder.path(), 1, open_entries_of(state), "{}", group, {.fsync = false});
  });
  const auto after = draw_memory(to);
  run_ranks(to, [&](comm::Communicator& group) {
    EmbeddingTables tables(after, &group, options);
    const auto saved = *checkpoint::latest(folder.path());
    const std::vector<TableTensor> open = tables.open_state_to_load(
        [&](const std::string& name) { return checkpoint::load_tensor(saved, name); });
    std::vector<TableTensor> state = open;
    for (const TableTensor& tensor : tables.state()) state.push_back(tensor);
    std::vector<checkpoint::Entry> entries = open_entries_of(state);
    checkpoint::load(saved, entries, group);
    tables.load_open_state(open);
    tables.set_num_steps(static_cast<int64_t>(saved_at));
    run_steps(tables, group, saved_at, 8);
    expect_open_state(tables, all.state);
  });
}

TEST_P(OpenRules, GoOnFromACheckpointOnOtherRanks) {
  Draw draw(6);
  const EmbeddingOptions options{.seed = 3,
                                 .optimizer = {.rule = GetParam(), .learning_rate = 0.1}};
  check_checkpoint(draw, options, 3, 2, 4);
  check_checkpoint(draw, options, 1, 4, 3);
  check_checkpoint(draw, options, 4, 1, 5);
  check_checkpoint(draw, options, 2, 3, 0);  // nothing is there yet
}

INSTANTIATE_TEST_SUITE_P(EachRule, OpenRules, testing::ValuesIn(kEachRule), rule_name);

TEST(EmbeddingOpen, ALookUpWithoutAStepMakesNoRow) {
  TableConfig table = open_tables()[0];
  EmbeddingTables tables({table}, nullptr, {.optimizer = {.rule = RowRule::kSgd}});
  const JaggedIds ids = one_sample({-5});
  at::Tensor before;
  {
    const c10::AutoGradMode no_grad(false);
    before = tables.look_up(ids).pooled_BW.clone();
  }
  const at::Tensor unused = tables.look_up(ids).pooled_BW;
  assert_same_bits(unused.detach(), before, "before a row is there");
  EXPECT_EQ(tables.open_state()[0].local.numel(), 0);
  unused.sum().backward();
  EXPECT_EQ(numbers(tables.open_state()[0].local), std::vector<int64_t>{-5});
  assert_same_bits(tables.look_up(ids).pooled_BW.detach(), before - 0.01F, "after a step");
}

// Slots are made anew while other tables' and ranks' rows are read.
TEST(EmbeddingOpen, ManyRowsCome) {
  TableConfig table = open_tables()[0];
  for (const int world : {1, 3}) {
    const OneThread one_thread;
    run_ranks(world, [&](comm::Communicator& group) {
      TableConfig placed = table;
      placed.placement = mesh::Placement::sharded(0);
      EmbeddingTables tables({placed}, &group, {.optimizer = {.rule = RowRule::kAdaGrad}});
      for (int64_t step = 0; step < 5; ++step) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < 1000; ++i) ids.push_back(500 * step + i);
        tables.look_up(one_sample(ids)).pooled_BW.sum().backward();
      }
      const TableTensor state = tables.open_state()[0];
      EXPECT_EQ(state.layout.shape()[0], 3000);
      EXPECT_LT(state.local.size(0), 3000 / world + 200);
    });
  }
}

TEST(EmbeddingOpen, SavedIdsOutOfOrderAreRefused) {
  EmbeddingTables tables({open_tables()[0]}, nullptr, {.optimizer = {.rule = RowRule::kSgd}});
  tables.look_up(one_sample({1, 2, 3})).pooled_BW.sum().backward();
  std::vector<TableTensor> state = tables.open_state();
  state[0].local = state[0].local.flip(0);
  const auto read = [&](const std::string& name) {
    return std::ranges::find(state, name, &TableTensor::name)->local;
  };
  EXPECT_THROW(tables.open_state_to_load(read), CheckpointError);
  EXPECT_THROW(tables.load_open_state(state), CheckpointError);
  state[0].local = state[0].local.flip(0).narrow(0, 0, 2);
  EXPECT_THROW(tables.load_open_state(state), CheckpointError);
  state.erase(state.begin());
  EXPECT_THROW(tables.load_open_state(state), CheckpointError);
  EXPECT_EQ(tables.open_state()[0].local.numel(), 3);
}

TEST(EmbeddingOpen, ASavedIdThatWaitsAndHasARowIsRefused) {
  TableConfig table = open_tables()[0];
  table.open_max_rows = 2;
  EmbeddingTables tables({table}, nullptr, {.optimizer = {.rule = RowRule::kSgd}});
  tables.look_up(one_sample({1, 2})).pooled_BW.sum().backward();
  std::vector<TableTensor> state = tables.open_state();
  for (TableTensor& tensor : state) {
    if (tensor.name.ends_with(".waiting_ids")) tensor.local = state[0].local.narrow(0, 0, 1);
    if (tensor.name.ends_with(".waiting_last_uses")) tensor.local = at::ones({1}, at::kLong);
    if (tensor.name.ends_with(".waiting_uses")) tensor.local = at::ones({1}, at::kLong);
  }
  EXPECT_THAT(message_of<CheckpointError>([&] { tables.load_open_state(state); }),
              testing::HasSubstr("has a row and waits for one"));
  EXPECT_EQ(tables.open_state()[0].local.numel(), 2);
}

// Two backwards of one step are one use, and their gradients are added.
TEST(EmbeddingOpen, AStepOfSeveralBackwardsIsOneUse) {
  TableConfig table = open_tables()[0];
  table.open_min_uses = 2;
  EmbeddingOptions options{.optimizer = {.rule = RowRule::kAdaGrad}, .update = UpdateTime::kOnStep};
  std::vector<State> states;
  for (const int world : {1, 2, 3}) {
    const OneThread one_thread;
    std::vector<State> of_ranks(static_cast<size_t>(world));
    run_ranks(world, [&](comm::Communicator& group) {
      EmbeddingTables tables({table}, &group, options);
      const auto back = [&](const std::vector<int64_t>& ids) {
        const bool is_first = group.rank() == 0;
        const at::Tensor out =
            tables.look_up(one_sample(is_first ? ids : std::vector<int64_t>())).pooled_BW;
        (out * (is_first ? 1.0 : 0.0)).sum().backward();
      };
      for (int step = 0; step < 3; ++step) {
        back({-3, 4});
        back({4, 5 + step, -3});
        tables.step(0.5);
        const int64_t count = tables.open_state()[0].local.numel();
        EXPECT_EQ(count, step == 0 ? 0 : 2);  // replicated: on each rank
      }
      back({4});
      tables.discard_gradients();
      of_ranks[static_cast<size_t>(group.rank())] = whole_state(tables);
    });
    states.insert(states.end(), of_ranks.begin(), of_ranks.end());
  }
  for (const State& state : states) assert_same_bits(state, states[0]);
}

}  // namespace
}  // namespace trireme::parallel
