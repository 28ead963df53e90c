// Saves that store only the rows that have changed since the checkpoint before.
#include "trireme/checkpoint/write/patch_bases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/hosts.h"
#include "tests/checkpoint/table_run.h"
#include "trireme/checkpoint/offline/rewrite.h"
#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const mesh::Placement kRows = mesh::Placement::sharded(0);
const mesh::Placement kColumns = mesh::Placement::sharded(1);

class ChangedRows : public ::testing::Test {
 protected:
  fs::path step(int64_t number) const { return root_ / folder_name(number); }
  // On every rank of a world: `act` with its run and its saver.
  void on_ranks(int ranks, const mesh::Placement& placement,
                const std::function<void(TableRun&, Saver&, comm::Communicator&)>& act,
                const TableShape& shape = {}) const {
    harness::run_ranks(ranks, [&](comm::Communicator& world) {
      TableRun run(ranks, world.rank(), placement, shape);
      Saver saver(world);
      act(run, saver, world);
    });
  }

  harness::TemporaryFolder root_;
};

TEST_F(ChangedRows, AreSavedAloneAndLoadAtEveryLayout) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<mesh::Placement> placements{kRows, kColumns};
    if (ranks == 3) placements.push_back(mesh::Placement::sharded(0, {0, 20'000, 45'001, 70'000}));
    for (const mesh::Placement& placement : placements) {
      on_ranks(ranks, placement, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
        save_now(saver, root_.path(), 1, run);
        for (int64_t number = 2; number <= 5; ++number) {
          const auto rows = TableRun::some_rows(700, 70'000, number);
          run.touch(rows);
          save_now(saver, root_.path(), number, run);
          if (world.rank() != 0) continue;
          EXPECT_THAT(verify(step(number)).problems, IsEmpty());
          EXPECT_EQ(num_patches(step(number)), number - 1);
          // 64 bytes of values, 8 of numbers for each box; what is dense; headers and the manifest.
          const int64_t num_boxes = placement == kColumns ? ranks : 1;
          EXPECT_LE(own_bytes(step(number)), std::ssize(rows) * (64 + 8 * num_boxes) + 60'000);
          for (const int loaded : {1, 2, 3}) {
            expect_loads(step(number), run.globals_at(loaded, kRows), loaded);
            expect_loads(step(number), run.globals_at(loaded, kColumns), loaded);
          }
        }
      });
      for (int64_t number = 1; number <= 5; ++number) fs::remove_all(step(number));
    }
  }
}

// The state's rows are those of the weights, and are stored once.
TEST_F(ChangedRows, OfANumberPerRowShareTheRowsOfTheWeights) {
  const TableShape shape{.rows = 600'000, .width = 8, .has_row_state = true};
  const auto act = [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    save_now(saver, root_.path(), 1, run);
    const auto rows = TableRun::some_rows(20'000, shape.rows, 3);
    run.touch(rows);
    save_now(saver, root_.path(), 2, run);
    if (world.rank() != 0) return;
    EXPECT_EQ(num_patches(step(2), "table.weight"), 1);
    EXPECT_EQ(num_patches(step(2), "table.sum"), 1);
    EXPECT_LE(own_bytes(step(2)), std::ssize(rows) * (8 * 4 + 4 + 8) + 60'000);
    expect_loads(step(2), run.globals(), 2);
    expect_loads(step(2), run.globals_at(3, kRows), 3);
  };
  on_ranks(2, kRows, act, shape);
}

TEST_F(ChangedRows, WithoutChangesNothingIsWritten) {
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    save_now(saver, root_.path(), 1, run);
    save_now(saver, root_.path(), 2, run);
    if (world.rank() != 0) return;
    EXPECT_EQ(num_patches(step(2)), 0);
    EXPECT_LE(own_bytes(step(2)), 20'000);
    expect_loads(step(2), run.globals(), 2);
  });
}

TEST_F(ChangedRows, AreSavedWithAllOthersWhenTheyAreHalfOrManyTimes) {
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    std::vector<int64_t> patches;
    for (int64_t number = 1; number <= 8; ++number) {
      std::vector<int64_t> rows;  // a seventh
      for (int64_t row = number; row < 70'000; row += 7) rows.push_back(row);
      run.touch(rows);
      save_now(saver, root_.path(), number, run, {.keep = 2, .fsync = false});
      if (world.rank() == 0) patches.push_back(num_patches(step(number)));
      if (world.rank() == 0) expect_loads(step(number), run.globals(), 2);
    }
    if (world.rank() == 0) EXPECT_THAT(patches, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  });
  fs::remove_all(step(7));
  fs::remove_all(step(8));
  on_ranks(1, kRows, [&](TableRun& run, Saver& saver, comm::Communicator&) {
    for (int64_t number = 0; number <= 35; ++number) {
      run.touch({number});
      save_now(saver, root_.path(), number, run, {.keep = 1, .fsync = false});
      EXPECT_EQ(num_patches(step(number)), number % 33);
    }
    expect_loads(step(35), run.globals(), 1);
  });
}

TEST_F(ChangedRows, OutliveTheCheckpointsOnWhichTheyStand) {
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    for (int64_t number = 1; number <= 6; ++number) {
      run.touch(TableRun::some_rows(300, 70'000, number));
      save_now(saver, root_.path(), number, run, {.keep = 1, .fsync = false});
    }
    if (world.rank() != 0) return;
    EXPECT_THAT(list(root_.path()), ElementsAre(step(6)));
    EXPECT_EQ(num_patches(step(6)), 5);
    const fs::path copy = root_ / "copy";
    fs::copy(step(6), copy);
    fs::remove_all(step(6));
    expect_loads(copy, run.globals(), 2);
    expect_loads(copy, run.globals_at(3, kColumns), 3);
  });
}

// A process that begins again knows neither what has changed nor what it would stand on.
TEST_F(ChangedRows, AreUnknownToAProcessThatBeginsAgain) {
  for (const bool forgets : {false, true}) {
    on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
      save_now(saver, root_.path(), 1, run);
      run.touch({5});
      save_now(saver, root_.path(), 2, run);
      if (world.rank() == 0) EXPECT_EQ(num_patches(step(2)), 1);
      Saver other(world);
      if (forgets) run.forget();
      run.touch({6});
      save_now(forgets ? saver : other, root_.path(), 3, run);
      if (world.rank() != 0) return;
      EXPECT_EQ(num_patches(step(3)), 0);
      expect_loads(step(3), run.globals(), 2);
    });
    for (int64_t number = 1; number <= 3; ++number) fs::remove_all(step(number));
  }
}

TEST_F(ChangedRows, OfAnotherBoxOrWithoutTheFilesBeforeAreSavedWithAllOthers) {
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    std::vector<int64_t> patches;
    const auto save_next = [&](int64_t number, const SaveOptions& options = kFast) {
      run.touch({number});
      save_now(saver, root_.path(), number, run, options);
      world.barrier()->wait();
      patches.push_back(num_patches(step(number)));
      world.barrier()->wait();
    };
    save_next(1);
    SaveOptions alone = kFast;
    alone.incremental = false;
    save_next(2, alone);
    save_next(3);
    // Another process has saved a newer one, and later one that takes the place of step 6.
    save(root_.path(), 4, run.entries(), "{}", world, kFast);
    save_next(5);
    save_next(6);
    save(root_.path(), 6, run.entries(), "{}", world, kFast);
    save_next(7);
    EXPECT_THAT(patches, ElementsAre(0, 0, 1, 0, 1, 0));
    if (world.rank() == 0) expect_loads(step(7), run.globals(), 2);
  });
}

// Every copy is compared with the others, for which each rank would have to know the same rows.
TEST_F(ChangedRows, OfReplicasAreSavedWithAllOthersUnlessNobodyCompares) {
  for (const bool compares : {true, false}) {
    on_ranks(2, mesh::Placement::replicated(),
             [&](TableRun& run, Saver& saver, comm::Communicator& world) {
               SaveOptions options = kFast;
               options.compare_replicas = compares;
               save_now(saver, root_.path(), 1, run, options);
               run.touch({5, 69'999});
               save_now(saver, root_.path(), 2, run, options);
               if (world.rank() != 0) return;
               EXPECT_EQ(num_patches(step(2)), compares ? 0 : 1);
               expect_loads(step(2), run.globals(), 2);
             });
    for (int64_t number = 1; number <= 2; ++number) fs::remove_all(step(number));
  }
}

TEST_F(ChangedRows, OfASaveThatFailedAreInTheNextOne) {
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    save_now(saver, root_.path(), 1, run);
    run.touch({1, 40'000});
    // A refused value: nothing is written, and nothing stays.
    std::vector<Entry> entries = run.entries();
    entries.push_back({"bad", at::full({1}, NAN), mesh::Layout({1}, {{"data", 2}}), world.rank()});
    SaveOptions strict = kFast;
    strict.allow_nonfinite = false;
    saver.start(root_.path(), 2, entries, R"({"seed":1})", strict);
    EXPECT_THROW(saver.finish(true), ConfigError);
    if (world.rank() == 0) EXPECT_EQ(std::distance(fs::directory_iterator(root_.path()), {}), 1);
    run.touch({2, 50'000});
    save_now(saver, root_.path(), 3, run);
    if (world.rank() != 0) return;
    EXPECT_EQ(num_patches(step(3)), 1);
    EXPECT_LE(own_bytes(step(3)), 60'000);
    expect_loads(step(3), run.globals(), 2);
  });
}

// As a run does that saves to memory often and to the disk less often.
TEST_F(ChangedRows, AreThoseSinceTheLastCheckpointOfEachTarget) {
  const fs::path memory = root_ / "memory", disk = root_ / "disk";
  on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
    for (int64_t number = 1; number <= 7; ++number) {
      run.touch({number, 60'000 + number});
      std::vector<SaveTarget> targets{{memory, {.keep = 2, .fsync = false}}};
      if (number % 3 == 1) targets.push_back({disk, {.keep = 2, .fsync = false}});
      saver.start(targets, number, run.entries(), R"({"seed":1})");
      saver.finish(true);
      if (world.rank() != 0) continue;
      for (const SaveTarget& target : targets) {
        const fs::path folder = target.root / folder_name(number);
        EXPECT_THAT(verify(folder).problems, IsEmpty());
        EXPECT_EQ(num_patches(folder), target.root == memory ? number - 1 : number / 3);
        expect_loads(folder, run.globals(), 2);
      }
    }
  });
}

TEST_F(ChangedRows, OfHostsWithFoldersOfTheirOwnAreSavedAndBrought) {
  Hosts hosts({0, 0, 1});
  std::vector<Global> globals;
  harness::run_ranks(3, [&](comm::Communicator& world) {
    TableRun run(3, world.rank(), kRows);
    Saver saver(world, {.has_replicas = true});
    SaveOptions options = kFast;
    options.sites = find_sites(hosts.root_of(world), world);
    options.replicas = 1;
    for (int64_t number = 1; number <= 3; ++number) {
      run.touch(TableRun::some_rows(300, 70'000, number));
      save_now(saver, hosts.root_of(world), number, run, options);
    }
    if (world.rank() == 0) globals = run.globals();
  });
  EXPECT_EQ(num_patches(hosts.root(0) / folder_name(3)), 2);
  hosts.load(globals);
  hosts.lose(0);
  hosts.load(globals);
}

// The tensor returns to earlier values, of which another chunk is new than at the first time.
TEST_F(ChangedRows, AreNotPutOverAFileThatHasOtherChunksOfTheSameTensor) {
  constexpr int64_t kRowsOfChunk = (1 << 20) / 64;
  const TableShape shape{.rows = 6 * kRowsOfChunk};
  on_ranks(
      1, kRows,
      [&](TableRun& run, Saver& saver, comm::Communicator& /*world*/) {
        save_now(saver, root_.path(), 1, run);
        int64_t number = 1;
        for (const auto& [row, change] :
             {std::pair(kRowsOfChunk, 1), std::pair(int64_t{0}, 1), std::pair(int64_t{0}, -1)}) {
          run.forget();
          run.touch({row}, change);
          save_now(saver, root_.path(), ++number, run);
          EXPECT_EQ(num_patches(step(number)), 0);
        }
        run.touch({3 * kRowsOfChunk});
        save_now(saver, root_.path(), ++number, run);
        EXPECT_EQ(num_patches(step(number)), 1);
        EXPECT_THAT(verify(step(number)).problems, IsEmpty());
        expect_loads(step(number), run.globals(), 1);
      },
      shape);
}

// A table on a disk is loaded some rows at a time, and its patches may have many.
TEST_F(ChangedRows, OfAPartOfTheTableAreReadWithoutThoseOfTheRest) {
  at::Tensor table;
  on_ranks(1, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& /*world*/) {
    save_now(saver, root_.path(), 1, run);
    run.touch(TableRun::some_rows(10'000, 70'000, 1));
    save_now(saver, root_.path(), 2, run);
    table = run.globals()[0].tensor;
  });
  const Manifest manifest = read_manifest(step(2));
  const TensorRecord& record = manifest.tensors.at("table.weight");
  const Patch& patch = record.pieces[0].patches.at(0);
  ASSERT_GE(patch.rows.size(), 4U);
  Shards shards(step(2), manifest);
  for (int64_t begin = 0; begin < 70'000; begin += 10'000) {
    const at::Tensor part = at::zeros({10'000, 16}, at::kInt);
    shards.read_box("table.weight", record, {{begin, 0}, {10'000, 16}}, part);
    harness::assert_same_bits(part, table.narrow(0, begin, 10'000), "part");
  }
  const int64_t before = shards.num_bytes_read();
  shards.read_patches("table.weight", record, {{69'900, 0}, {100, 16}},
                      at::zeros({100, 16}, at::kInt));
  EXPECT_EQ(shards.num_bytes_read() - before,
            patch.rows.back().num_bytes + patch.values.back().num_bytes);
}

TEST_F(ChangedRows, AreReadByEveryTool) {
  for (const Compression compression : {Compression::kNone, Compression::kZstd}) {
    if (compression == Compression::kZstd && !has_zstd()) continue;
    SaveOptions options = kFast;
    options.compression = compression;
    std::vector<Global> globals;
    on_ranks(2, kRows, [&](TableRun& run, Saver& saver, comm::Communicator& world) {
      for (int64_t number = 1; number <= 3; ++number) {
        run.touch(TableRun::some_rows(5000, 70'000, number));
        save_now(saver, root_.path(), number, run, options);
      }
      if (world.rank() == 0) globals = run.globals();
    });
    EXPECT_EQ(num_patches(step(3)), 2);
    const auto all = load_global(step(3));
    for (const Global& global : globals) {
      harness::assert_same_bits(all.at(global.name), global.tensor, global.name);
      harness::assert_same_bits(load_tensor(step(3), global.name), global.tensor, global.name);
    }
    const SavedTensors source(step(3));
    for (const int ranks : {kAsSaved, 1, 3}) {
      const fs::path out = root_ / ("out" + std::to_string(ranks));
      rewrite(source, out, {.num_ranks = ranks, .compression = compression});
      EXPECT_EQ(num_patches(out / folder_name(3)), 0);
      expect_loads(out / folder_name(3), globals, 2);
      EXPECT_TRUE(diff(source, SavedTensors(out / folder_name(3))).is_same());
      fs::remove_all(out);
    }
    // Unpacked beside it, most chunks are linked.
    rewrite(source, root_.path(), {.incremental = true});
    expect_loads(step(3), globals, 2);
    for (int64_t number = 1; number <= 3; ++number) fs::remove_all(step(number));
  }
}

}  // namespace
}  // namespace trireme::checkpoint
