#include "trireme/train/state/checkpoint_store.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/remote/bucket.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kUrl = "s3://bucket/runs/mine";

class CheckpointStoreTest : public testing::Test {
 protected:
  fs::path folder(const std::string& name) {
    make_folders(root_.path() / name);
    return root_.path() / name;
  }
  // A folder that list() takes for a checkpoint.
  fs::path make_checkpoint(const fs::path& run, const std::string& name,
                           const std::string& content = "weights") {
    const fs::path checkpoint = run / "checkpoints" / name;
    make_folders(checkpoint);
    write_file_atomically(checkpoint / "rank-000-of-001.safetensors", content + " of " + name);
    write_file_atomically(checkpoint / "manifest.json", "manifest of " + name);
    return checkpoint;
  }
  std::unique_ptr<CheckpointStore> open(const fs::path& run,
                                        std::chrono::seconds lease = std::chrono::seconds(120)) {
    return std::make_unique<CheckpointStore>(
        CheckpointStoreOptions{.url = kUrl,
                               .folder = run,
                               .keep = 2,
                               .lease = lease,
                               .store = {.patience = std::chrono::seconds(5),
                                         .first_pause = std::chrono::milliseconds(2)}},
        bucket_.settings());
  }
  // The names of complete and other checkpoints in the store.
  std::set<std::string> stored(bool complete) {
    std::set<std::string> all, whole;
    const std::string prefix = "runs/mine/checkpoints/";
    for (const auto& [name, content] : bucket_.objects()) {
      if (!name.starts_with(prefix)) continue;
      const std::string checkpoint =
          name.substr(prefix.size(), name.find('/', prefix.size()) - prefix.size());
      all.insert(checkpoint);
      if (name.ends_with("/manifest.json")) whole.insert(checkpoint);
    }
    for (const std::string& name : complete ? std::set<std::string>() : whole) all.erase(name);
    return complete ? whole : all;
  }
  bool has_claim() { return bucket_.objects().contains("runs/mine/claim"); }
  template <typename Kind = ConfigError>
  std::string failure_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Kind& error) {
      return error.what();
    }
    return "no failure";
  }

  harness::TemporaryFolder root_;
  remote::Bucket bucket_;
};

TEST_F(CheckpointStoreTest, CopiesCheckpointsAndKeepsTheNewest) {
  const fs::path run = folder("run");
  write_file_atomically(run / "config.toml", "[model]\n");
  const auto store = open(run);
  EXPECT_TRUE(has_claim());
  for (const char* name : {"step-000010", "step-000020", "step-000030"}) {
    store->copy(make_checkpoint(run, name));
    while (!stored(true).contains(name)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  store->finish();
  EXPECT_THAT(stored(true), ElementsAre("step-000020", "step-000030"));
  EXPECT_THAT(stored(false), IsEmpty());
  const auto objects = bucket_.objects();
  EXPECT_EQ(objects.at("runs/mine/checkpoints/step-000030/rank-000-of-001.safetensors"),
            "weights of step-000030");
  EXPECT_EQ(objects.at("runs/mine/run/config.toml"), "[model]\n");
  EXPECT_FALSE(has_claim());
  const std::vector<std::string> notes = store->take_notes();
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_THAT(notes[2],
              HasSubstr("stored  s3://bucket/runs/mine/checkpoints/step-000030, 0.0 MB in "));
}

TEST_F(CheckpointStoreTest, AnEmptyFolderGoesOnWithTheNewest) {
  const fs::path run = folder("run"), other = folder("other");
  write_file_atomically(run / "epochs.jsonl", "{}\n");
  {
    const auto store = open(run);
    store->copy(make_checkpoint(run, "step-000010"));
    store->finish();
    const auto again = open(run);
    again->copy(make_checkpoint(run, "step-000005-epoch-2"));
    again->finish();
  }
  const auto store = open(other);
  EXPECT_THAT(
      store->take_notes(),
      ElementsAre(HasSubstr("fetched s3://bucket/runs/mine/checkpoints/step-000005-epoch-2")));
  const auto found = checkpoint::list(other / "checkpoints");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].filename(), "step-000005-epoch-2");
  EXPECT_EQ(read_file(found[0] / "rank-000-of-001.safetensors"), "weights of step-000005-epoch-2");
  EXPECT_EQ(read_file(other / "epochs.jsonl"), "{}\n");
  EXPECT_EQ(read_file(other / "run_id"), read_file(run / "run_id"));
}

TEST_F(CheckpointStoreTest, AFolderThatIsAheadOfTheStoreIsCopied) {
  const fs::path run = folder("run");
  make_checkpoint(run, "step-000010");
  const auto store = open(run);
  store->finish();
  EXPECT_THAT(stored(true), ElementsAre("step-000010"));
}

TEST_F(CheckpointStoreTest, ASecondRunIsRefusedWhileTheFirstLives) {
  const auto first = open(folder("first"));
  EXPECT_THAT(failure_of([&] { open(folder("second")); }),
              HasSubstr("where another run keeps its checkpoints"));
  bucket_.age(121);
  const auto second = open(folder("second"));  // the first seems to be dead
  first->copy(make_checkpoint(folder("first"), "step-000010"));
  EXPECT_THAT(failure_of([&] { first->finish(); }),
              HasSubstr("another run has taken checkpoint.store"));
  EXPECT_TRUE(first->has_lost_claim());
  EXPECT_THAT(failure_of([&] { first->check(); }), HasSubstr("another run has taken"));
  EXPECT_THAT(stored(true), IsEmpty());  // nothing is committed for it
  EXPECT_TRUE(has_claim());
  second->finish();
  EXPECT_FALSE(has_claim());
}

TEST_F(CheckpointStoreTest, ARunThatWasKilledStartsAgainAtOnce) {
  const fs::path run = folder("run");
  { const auto killed = open(run); }  // without finish()
  EXPECT_TRUE(has_claim());
  const auto again = open(run);
  again->finish();
  EXPECT_FALSE(has_claim());
}

TEST_F(CheckpointStoreTest, TheClaimIsRenewed) {
  const auto first = open(folder("first"), std::chrono::seconds(1));
  const auto tag_of = [&] { return bucket_.objects().at("runs/mine/claim"); };
  const std::string before = tag_of();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (tag_of() == before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_NE(tag_of(), before);
}

TEST_F(CheckpointStoreTest, AnAnswerThatIsLostCostsNoClaim) {
  const fs::path run = folder("run");
  const auto store = open(run);
  std::atomic<int> num_lost{0};
  bucket_.on_request([&](const std::string& method, const std::string& name) {
    const bool is_claim = method == "PUT" && name.ends_with("/claim") && num_lost++ == 0;
    return is_claim ? remote::Bucket::kDoneAndLost : std::string();
  });
  store->copy(make_checkpoint(run, "step-000010"));
  store->finish();
  EXPECT_GE(num_lost, 2);
  EXPECT_THAT(stored(true), ElementsAre("step-000010"));
}

TEST_F(CheckpointStoreTest, ARunThatEndsEarlyDoesNotWaitForAStoreThatIsGone) {
  const fs::path run = folder("run");
  auto store = open(run);
  bucket_.on_request([&](const std::string&, const std::string&) {
    return remote::plain_answer("503 Slow Down", "Retry-After: 30\r\n");
  });
  store->copy(make_checkpoint(run, "step-000010"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  store.reset();
  EXPECT_THAT(stored(true), IsEmpty());
}

TEST_F(CheckpointStoreTest, CheckpointsOfAnotherRunAreNotMixedIn) {
  const fs::path first = folder("first"), second = folder("second");
  {
    const auto store = open(first);
    store->copy(make_checkpoint(first, "step-000010"));
    store->finish();
  }
  write_file_atomically(second / "run_id", "other\n");
  make_checkpoint(second, "step-000500");
  EXPECT_THAT(failure_of([&] { open(second); }),
              HasSubstr("which has the checkpoints of another run"));
  EXPECT_FALSE(has_claim());
}

TEST_F(CheckpointStoreTest, WhatAnInterruptedCopyLeftIsRemovedAndOthersObjectsStay) {
  bucket_.put("runs/mine/checkpoints/step-000040/rank-000-of-001.safetensors", "half");
  bucket_.put("runs/mine/checkpoints/notes/readme.txt", "mine");
  bucket_.put("runs/mine/checkpoints/step-000050/a/b", "mine");
  const auto store = open(folder("run"));
  store->finish();
  EXPECT_EQ(
      bucket_.objects().count("runs/mine/checkpoints/step-000040/rank-000-of-001.safetensors"), 0U);
  EXPECT_EQ(bucket_.objects().at("runs/mine/checkpoints/notes/readme.txt"), "mine");
  EXPECT_EQ(bucket_.objects().at("runs/mine/checkpoints/step-000050/a/b"), "mine");
}

TEST_F(CheckpointStoreTest, ACheckpointIsThereWholeOrNotAtAll) {
  const fs::path run = folder("run");
  const auto store = open(run);
  std::atomic<bool> is_early{false};
  bucket_.on_request([&](const std::string& method, const std::string& name) {
    // When the manifest is written, all else is there.
    if (method == "PUT" && name.ends_with("step-000010/manifest.json")) {
      is_early = !bucket_.objects().contains(
          "runs/mine/checkpoints/step-000010/rank-000-of-001.safetensors");
    }
    // A step that is copied again first loses its manifest.
    if (method == "PUT" && name.ends_with(".safetensors"))
      is_early = is_early || !stored(true).empty();
    return std::string();
  });
  const fs::path checkpoint = make_checkpoint(run, "step-000010");
  store->copy(checkpoint);
  while (stored(true).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  store->copy(checkpoint);
  store->finish();
  EXPECT_FALSE(is_early);
  EXPECT_THAT(stored(true), ElementsAre("step-000010"));
}

TEST_F(CheckpointStoreTest, ARefusalIsReportedOnceAndTheNextCopyIsTried) {
  const fs::path run = folder("run");
  const auto store = open(run);
  std::atomic<bool> is_refused{true};
  bucket_.on_request([&](const std::string& method, const std::string& name) {
    const bool refuses = is_refused && method == "PUT" && name.ends_with(".safetensors");
    return refuses ? remote::plain_answer("403 Forbidden", "", "<Code>QuotaExceeded</Code>")
                   : std::string();
  });
  store->copy(make_checkpoint(run, "step-000010"));
  EXPECT_THAT(failure_of([&] {
                for (int i = 0; i < 5000; ++i) {
                  store->check();
                  std::this_thread::sleep_for(std::chrono::milliseconds(2));
                }
              }),
              HasSubstr("403 QuotaExceeded"));
  store->check();
  is_refused = false;
  store->copy(make_checkpoint(run, "step-000020"));
  store->finish();
  EXPECT_THAT(stored(true), ElementsAre("step-000020"));
}

TEST_F(CheckpointStoreTest, NamesThatLeaveTheFolderAreNotFetched) {
  const fs::path run = folder("run");
  bucket_.put("runs/mine/checkpoints/step-000010/manifest.json", "manifest");
  bucket_.put("runs/mine/run/../../escaped", "x");
  bucket_.put("runs/mine/run/.hidden", "x");
  bucket_.put("runs/mine/run/config.toml", "theirs");
  write_file_atomically(run / "config.toml", "mine");
  const auto store = open(run);
  EXPECT_FALSE(fs::exists(root_.path() / "escaped"));
  EXPECT_FALSE(fs::exists(run / ".hidden"));
  EXPECT_EQ(read_file(run / "config.toml"), "mine");
}

}  // namespace
}  // namespace trireme::train
