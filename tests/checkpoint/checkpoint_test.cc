#include "trireme/checkpoint/checkpoint.h"

#include <mutex>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/checkpoint/saved_tensors.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/publish.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using harness::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A draw per call, the same in every run.
class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(random_key(seed, "dice")) {}
  int64_t draw(int64_t below) { return random_bits(key_, next_++)[0] % below; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// The world's ranks on two axes, and a random placement for each.
mesh::Layout random_layout(const std::vector<int64_t>& shape, int size, Dice& dice) {
  int inner = 1 + static_cast<int>(dice.draw(size));
  while (size % inner != 0) --inner;
  std::vector<mesh::Placement> placements;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t dim = dice.draw(static_cast<int64_t>(shape.size()) + 1);
    placements.push_back(dim == static_cast<int64_t>(shape.size())
                             ? mesh::Placement::replicated()
                             : mesh::Placement::sharded(static_cast<int>(dim)));
  }
  return {shape, {{"data", size / inner}, {"tensor", inner}}, placements};
}

TEST(Checkpoint, LoadsAtAnyLayoutWithTheSameBits) {
  constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kLong, at::kByte,
                                        at::kDouble};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const int saved_size = 1 + static_cast<int>(seed % 4);
    const int loaded_size = 1 + static_cast<int>(seed / 4 % 4);
    std::vector<Global> saved, loaded;
    for (int i = 0; i < 6; ++i) {
      std::vector<int64_t> shape(dice.draw(4));  // none is a scalar
      for (int64_t& length : shape) length = dice.draw(8);
      const std::string name = "w" + std::to_string(i);
      const at::Tensor tensor = random_tensor(name, shape, kDtypes[i % 5], seed);
      saved.push_back({name, tensor, random_layout(shape, saved_size, dice)});
      loaded.push_back({name, tensor, random_layout(shape, loaded_size, dice)});
    }
    const TemporaryFolder root;
    save_all(root.path(), 7, saved, saved_size);
    expect_loads(root / "step-000007", loaded, loaded_size);
    const auto whole = load_global(root / "step-000007");
    for (const Global& global : saved)
      harness::assert_same_bits(whole.at(global.name), global.tensor, global.name);
    EXPECT_THAT(verify(root / "step-000007").problems, ElementsAre());
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Two stages: each rank has one block, and both have the tied embedding.
TEST(Checkpoint, RanksMayHoldDifferentTensorsAndLoadThemTogether) {
  const TemporaryFolder root;
  const mesh::Layout layout({4, 2}, {});
  std::vector<Global> all;
  for (const char* name : {"block.0", "block.1", "embedding"})
    all.push_back({name, random_tensor(name, {4, 2}, at::kFloat), layout});
  harness::run_ranks(2, [&](comm::Communicator& world) {
    std::vector<Entry> entries = parts(all, world.rank());
    entries.erase(entries.begin() + 1 - world.rank());
    save(root.path(), 1, entries, R"({"seed":1})", world, kFast);
    for (Entry& entry : entries) entry.local.zero_();
    load(root / "step-000001", entries, world);
    harness::assert_same_bits(entries[0].local, all[world.rank()].tensor, "block");
  });
  expect_loads(root / "step-000001", all, 1);
}

TEST(Checkpoint, LoadKeepsTheTensorAndItsGradientFlag) {
  const TemporaryFolder root;
  const Global w{"w", random_tensor("w", {3}, at::kInt).view(at::kFloat), mesh::Layout({3}, {})};
  save_all(root.path(), 1, {&w, 1}, 1);
  at::Tensor parameter = w.tensor.clone().zero_();
  parameter.set_requires_grad(true);
  const void* address = parameter.const_data_ptr();
  std::vector<Entry> entries{{"w", parameter, w.layout}};
  harness::run_ranks(1, [&](comm::Communicator& world) {
    load(root / "step-000001", entries, world);
    save(root.path(), 2, entries, "{}", world, kFast);
  });
  EXPECT_EQ(parameter.const_data_ptr(), address);
  EXPECT_TRUE(parameter.requires_grad());
  harness::assert_same_bits(parameter, w.tensor, "parameter");
}

std::vector<Global> two_tensors(uint64_t seed = 0) {
  const std::vector<mesh::Axis> axes{{"data", 1}, {"tensor", 2}};
  const std::vector<mesh::Placement> placements{mesh::Placement::replicated(),
                                                mesh::Placement::sharded(0)};
  return {{"a", random_tensor("a", {5, 3}, at::kFloat, seed), {{5, 3}, axes, placements}},
          {"b", random_tensor("b", {4}, at::kHalf, seed), {{4}, axes, placements}}};
}

TEST(Checkpoint, KeepsTheNewestAndTheOneJustSaved) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  for (int64_t step : {1, 2, 10, 9})
    save_all(root.path(), step, globals, 2, {.keep = 2, .fsync = true});
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000009", root / "step-000010"));
  save_all(root.path(), 3, globals, 2, {.keep = 1});
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000003"));
}

TEST(Checkpoint, TheHigherEpochWins) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  for (const auto& [step, epoch] : {std::pair(60, 1), {50, 2}, {50, 1}, {40, 2}})
    save_all(root.path(), step, globals, 2, {.keep = 0, .epoch = epoch});
  EXPECT_THAT(list(root.path()),
              ElementsAre(root / "step-000050", root / "step-000060", root / "step-000040-epoch-2",
                          root / "step-000050-epoch-2"));
  EXPECT_EQ(inspect(*latest(root.path())).step, 50);
}

// Of an epoch before, and it was paused meanwhile.
TEST(Checkpoint, AWriterLeavesWhatALaterEpochHasWritten) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 50, globals, 2, {.epoch = 2});
  const fs::path unfinished = prepare_temporary(root.path(), 60, 2);
  save_all(root.path(), 50, two_tensors(/*seed=*/1), 2, {.keep = 1, .epoch = 1});
  save_all(root.path(), 70, two_tensors(/*seed=*/1), 2, {.keep = 1, .epoch = 1});
  EXPECT_TRUE(fs::exists(unfinished));
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000070", root / "step-000050-epoch-2"));
  expect_loads(root / "step-000050-epoch-2", globals, 2);
  // The later one removes what is left of the earlier ones.
  prepare_temporary(root.path(), 80, 1);
  save_all(root.path(), 60, globals, 2, {.keep = 1, .epoch = 2});
  EXPECT_FALSE(fs::exists(temporary_folder(root.path(), 80, 1)));
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000060-epoch-2"));
}

TEST(Checkpoint, LatestIsTheHighestStepThatIsComplete) {
  const TemporaryFolder root;
  EXPECT_EQ(latest(root / "none"), std::nullopt);
  EXPECT_EQ(latest(root.path()), std::nullopt);
  save_all(root.path(), 2, two_tensors(), 2);
  save_all(root.path(), 1'000'000, two_tensors(), 2);
  fs::create_directory(root / "step-2000000");       // no manifest
  fs::create_directory(root / ".step-3000000.tmp");  // on its way
  fs::create_directory(root / "step-x");
  EXPECT_EQ(latest(root.path()), root / "step-1000000");
}

TEST(Checkpoint, SavingAStepAgainReplacesItAndLeavesNothingBehind) {
  const TemporaryFolder root;
  save_all(root.path(), 5, two_tensors(1), 2);
  fs::create_directories(root / ".step-000004.tmp" / "inside");
  const auto newer = two_tensors(2);
  save_all(root.path(), 5, newer, 2);
  expect_loads(root / "step-000005", newer, 2);
  EXPECT_EQ(harness::names_in(root.path()), std::vector<std::string>{"step-000005"});
}

TEST(Checkpoint, InspectListsWhatIsInIt) {
  const TemporaryFolder root;
  save_all(root.path(), 5, two_tensors(), 2);
  const Summary summary = inspect(root / "step-000005");
  EXPECT_EQ(summary.step, 5);
  EXPECT_EQ(summary.world_size, 2);
  EXPECT_EQ(summary.num_elements, 19);
  EXPECT_EQ(summary.num_bytes, 15 * 4 + 4 * 2);
  EXPECT_EQ(summary.state, R"({"seed":1})");
  ASSERT_EQ(summary.tensors.size(), 2u);
  EXPECT_EQ(summary.tensors[0].layout, "data=1 replicated, tensor=2 sharded(0)");
  EXPECT_EQ(summary.tensors[0].num_pieces, 2);
  EXPECT_EQ(summary.tensors[1].dtype, "F16");
}

// What all ranks say when they load `globals`; checks that they agree and, unless the checkpoint is
// damaged, that nothing changed.
std::string load_error(const fs::path& folder, const std::vector<Global>& globals, int size,
                       const LoadOptions& options = {}) {
  std::vector<std::string> errors(size);
  harness::run_ranks(size, [&](comm::Communicator& world) {
    std::vector<Entry> entries = parts(globals, world.rank());
    for (Entry& entry : entries) entry.local.zero_();
    errors[world.rank()] = checkpoint_error([&] { load(folder, entries, world, options); });
    if (errors[world.rank()].find("damaged") != std::string::npos) return;
    for (const Entry& entry : entries)
      harness::assert_same_bits(entry.local, entry.local.clone().zero_(), entry.name);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  EXPECT_THAT(errors[0], Not(HasSubstr("\n")));
  return errors[0];
}

TEST(Checkpoint, DamageThatOneRankMeetsStopsAllRanks) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 1, globals, 2);
  const fs::path folder = root / "step-000001";
  const fs::path shard = folder / "rank-001-of-002.safetensors";
  const std::string content = read_file(shard);
  overwrite(shard, with_flipped_bit(content, content.size() * 8 - 1));
  EXPECT_THAT(load_error(folder, globals, 2),
              AllOf(HasSubstr("rank 1: "), HasSubstr(shard.string()), HasSubstr("damaged")));
  EXPECT_EQ(verify(folder).problems.size(), 1u);
  EXPECT_THAT(checkpoint_error([&] { load_global(folder); }), HasSubstr("damaged"));
  overwrite(shard, content.substr(0, content.size() - 1));
  EXPECT_THAT(load_error(folder, globals, 2), HasSubstr("truncated"));
  overwrite(shard, content);
  EXPECT_THAT(verify(folder).problems, ElementsAre());

  const std::string manifest = read_file(folder / kManifestName);
  overwrite(folder / kManifestName, with_flipped_bit(manifest, 999));
  EXPECT_THAT(load_error(folder, globals, 2), HasSubstr("the manifest is damaged"));
  EXPECT_EQ(verify(folder).problems.size(), 1u);
}

TEST(Checkpoint, StrictLoadListsMissingSurplusAndChangedTensors) {
  const TemporaryFolder root;
  std::vector<Global> saved, wanted;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "w" + std::to_string(i);
    saved.push_back({name, random_tensor(name, {4}, at::kFloat), mesh::Layout({4}, {})});
  }
  save_all(root.path(), 1, saved, 1);
  wanted = saved;
  wanted[0].name = "new";
  wanted[1].tensor = wanted[1].tensor.to(at::kDouble);
  wanted[2] = {"w2", random_tensor("w2", {5}, at::kFloat), mesh::Layout({5}, {})};
  const std::string error = load_error(root / "step-000001", wanted, 2);
  EXPECT_THAT(error, HasSubstr("1 missing: \"new\""));
  EXPECT_THAT(error, HasSubstr("1 surplus: \"w0\""));
  EXPECT_THAT(error, HasSubstr("\"w1\" is F32 [4], expected F64 [4]"));
  EXPECT_THAT(error, HasSubstr("\"w2\" is F32 [4], expected F32 [5]"));
  EXPECT_THAT(error, Not(HasSubstr("another model")));
}

TEST(Checkpoint, AnotherModelIsCalledSoAndLongListsAreCut) {
  const TemporaryFolder root;
  std::vector<Global> wanted;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "w" + std::to_string(i);
    wanted.push_back({name, random_tensor(name, {4}, at::kFloat), mesh::Layout({4}, {})});
  }
  save_all(root.path(), 1, two_tensors(), 2);
  EXPECT_THAT(load_error(root / "step-000001", wanted, 1),
              AllOf(HasSubstr("20 missing: "), HasSubstr(", ..."), HasSubstr("2 surplus: "),
                    HasSubstr("another model"), Not(HasSubstr("w19"))));
}

TEST(Checkpoint, LenientLoadTakesWhatBothHave) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 1, globals, 2);
  harness::run_ranks(2, [&](comm::Communicator& world) {
    auto entries = parts({&globals[1], 1}, world.rank());
    const at::Tensor expected = entries[0].local.clone();
    entries[0].local.zero_();
    entries.push_back(part_of("new", at::empty({2}), mesh::Layout({2}, {}), world.rank()));
    entries[1].local.fill_(3);
    load(root / "step-000001", entries, world, {.strict = false});
    harness::assert_same_bits(entries[0].local, expected, "b");
    EXPECT_EQ(entries[1].local.const_data_ptr<float>()[1], 3);
  });
}

TEST(Checkpoint, OneTensorIsReadWhole) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 1, globals, 2);
  harness::assert_same_bits(load_tensor(root / "step-000001", "a"), globals[0].tensor, "a");
  EXPECT_THAT(checkpoint_error([&] { load_tensor(root / "step-000001", "c"); }),
              HasSubstr("no tensor \"c\""));
}

std::string save_error(const fs::path& root, const std::function<void(Entry&)>& edit,
                       const std::string& state = "{}") {
  std::string result;
  harness::run_ranks(1, [&](comm::Communicator& world) {
    Entry entry = part_of("w", random_tensor("w", {4}, at::kFloat), mesh::Layout({4}, {}), 0);
    edit(entry);
    result = harness::message_of([&] { save(root, 1, {&entry, 1}, state, world, kFast); });
  });
  EXPECT_EQ(latest(root), std::nullopt);
  return result;
}

TEST(Checkpoint, EntriesThatMakeNoSenseAreRefused) {
  const TemporaryFolder root;
  const auto layout = [](int ranks, mesh::Placement placement) {
    return mesh::Layout({4}, {{"tensor", ranks}}, {placement});
  };
  EXPECT_THAT(save_error(root.path(), [](Entry& e) { e.local = e.local.narrow(0, 0, 2); }),
              HasSubstr("has the shape [2], its layout gives this rank [4]"));
  EXPECT_THAT(save_error(root.path(),
                         [&](Entry& e) { e.layout = layout(2, mesh::Placement::replicated()); }),
              HasSubstr("a layout of 2 ranks in a world of 1"));
  EXPECT_THAT(
      save_error(root.path(), [&](Entry& e) { e.layout = layout(1, mesh::Placement::partial()); }),
      HasSubstr("partial sum"));
  EXPECT_THAT(save_error(
                  root.path(), [](Entry&) {}, "{"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(save_error(root.path(), [](Entry& e) { e.name = "w\x1b[2J"; }),
              HasSubstr("control characters"));
}

// What no reader takes is refused before it replaces what they take.
TEST(Checkpoint, ASaveThatCouldNotBeReadLeavesThePreviousOne) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 1, globals, 2);
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const std::vector<Entry> entries = parts(globals, world.rank());
    EXPECT_THAT(checkpoint_error([&] {
                  save(root.path(), 2, entries, deep, world, {.keep = 1, .fsync = false});
                }),
                HasSubstr("deep"));
  });
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000001"));
  expect_loads(root / "step-000001", globals, 2);
}

TEST(Checkpoint, AFolderThatCannotBeMadeOrReadIsNamed) {
  const TemporaryFolder folder;
  overwrite(folder / "file", "");
  EXPECT_THAT(save_error(folder / "file" / "root", [](Entry&) {}),
              HasSubstr((folder / "file").string()));
  EXPECT_THAT(checkpoint_error([&] { list(folder / "file"); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("/file")));
  EXPECT_THAT(load_error(folder / "none", two_tensors(), 2),
              AllOf(HasSubstr("/none"), HasSubstr("No such file")));
}

// The checkpoint is whole: a program that may open more files reads it.
TEST(Checkpoint, TooManyOpenFilesAreNotTheCheckpointsFault) {
  const TemporaryFolder root;
  save_all(root.path(), 1, two_tensors(), 2);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next_free = dup(0);
  close(next_free);
  const rlimit none{static_cast<rlim_t>(next_free), old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::vector<std::string> kinds, errors;
  for (const bool verifies : {false, true}) {
    try {
      if (verifies) verify(root / "step-000001");
      if (!verifies) load_global(root / "step-000001");
    } catch (const CheckpointError& error) {
      kinds.emplace_back("CheckpointError");
    } catch (const Error& error) {
      kinds.emplace_back("Error");
      errors.emplace_back(error.what());
    }
  }
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_THAT(kinds, ElementsAre("Error", "Error"));
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("manifest.json"), HasSubstr("Too many open files")));
}

TEST(Checkpoint, ADiskFullOnOneRankFailsAllRanksAndThePreviousCheckpointSurvives) {
  const TemporaryFolder root;
  const auto globals = two_tensors();
  save_all(root.path(), 1, globals, 2, {.keep = 1});
  std::vector<std::string> errors(2);
  {
    const harness::FileSizeLimit limit(64 << 10);
    harness::run_ranks(2, [&](comm::Communicator& world) {
      std::vector<Entry> entries = parts(globals, world.rank());
      // Rank 1 alone holds a tensor that does not fit.
      if (world.rank() == 1)
        entries.push_back(part_of("big", random_tensor("big", {1 << 17}, at::kByte),
                                  mesh::Layout({1 << 17}, {}), 1));
      errors[world.rank()] = harness::message_of<ConfigError>(
          [&] { save(root.path(), 2, entries, "{}", world, {.keep = 1}); });
    });
  }
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 1: cannot write"), HasSubstr("rank-001-of-002.safetensors"),
                    HasSubstr("File too large: the checkpoint needs 131140 bytes in " +
                              root.path().string() + ", which has "),
                    HasSubstr(" free; make room there, or choose another folder")));
  EXPECT_FALSE(fs::exists(root / ".step-000002.tmp"));
  EXPECT_THAT(list(root.path()), ElementsAre(root / "step-000001"));
  expect_loads(root / "step-000001", globals, 2);
}

// Every folder lets root in.
constexpr uid_t kNobody = 65534;

TEST(Checkpoint, AFolderThatMayNotBeWrittenIsTheUsersToMend) {
  const TemporaryFolder folder;
  const fs::path root = folder / "checkpoints";
  const auto globals = two_tensors();
  save_all(root, 1, globals, 2);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(root, fs::perms(0555));
  const auto ended = harness::fork_ranks(2, [&](comm::Communicator& world) {
    ASSERT_EQ(seteuid(geteuid() == 0 ? kNobody : geteuid()), 0);
    const std::vector<Entry> entries = parts(globals, world.rank());
    EXPECT_THAT(harness::message_of<ConfigError>([&] { save(root, 2, entries, "{}", world); }),
                AllOf(HasSubstr("Permission denied"),
                      HasSubstr("let this user write in " + root.string())));
  });
  EXPECT_THAT(ended, ElementsAre(0, 0));
  fs::permissions(root, fs::perms(0755));
  EXPECT_THAT(list(root), ElementsAre(root / "step-000001"));
  expect_loads(root / "step-000001", globals, 2);
}

// Else a run would go back to the one before, and overwrite this one.
TEST(Checkpoint, ACheckpointThatMayNotBeReadIsNotTakenForNone) {
  const TemporaryFolder folder;
  save_all(folder.path(), 1, two_tensors(), 2);
  save_all(folder.path(), 2, two_tensors(), 2);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "step-000002", fs::perms(0));
  const auto ended = harness::fork_processes(1, [&](int) {
    ASSERT_EQ(seteuid(geteuid() == 0 ? kNobody : geteuid()), 0);
    EXPECT_THAT(harness::message_of<Error>([&] { latest(folder.path()); }),
                AllOf(HasSubstr("step-000002/manifest.json"), HasSubstr("Permission denied")));
  });
  EXPECT_THAT(ended, ElementsAre(0));
  fs::permissions(folder / "step-000002", fs::perms(0755));
}

TEST(Checkpoint, ADiskFullUnderTheManifestFailsToo) {
  const TemporaryFolder root;
  std::string error;
  {
    const harness::FileSizeLimit limit(8 << 10);
    const std::string state = "\"" + std::string(16 << 10, 'x') + "\"";
    error = save_error(
        root.path(), [](Entry&) {}, state);
  }
  EXPECT_THAT(error, AllOf(HasSubstr(kManifestName), HasSubstr("File too large")));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

}  // namespace
}  // namespace trireme::checkpoint
