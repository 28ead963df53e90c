// Preparation from a store: the same files as from a folder, whatever the store does.
#include <string>
#include <vector>

#include "tests/dataset/data.h"
#include "tests/dataset/memory_store.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/prepare.h"

namespace trireme::dataset {
namespace {

class PrepareFromStore : public testing::Test {
 protected:
  // In the store and in the folder `in`.
  void put(const std::string& name, const std::string& content) {
    store_->put("data/" + name, content);
    write_text(folder_ / ("in/" + name), content);
  }
  PrepareOptions local() const {
    return {.inputs = {folder_ / "in"},
            .output = folder_ / "out/local",
            .validation_fraction = 0.2,
            .num_threads = 2};
  }
  PrepareOptions remote(const std::string& input = "s3://bucket/data/") const {
    PrepareOptions options = local();
    options.inputs = {input};
    options.stores = store_;
    options.output = folder_ / "out/remote";
    return options;
  }
  void expect_same_files() const {
    for (const char* name : {".bin", ".idx", ".validation.bin", ".validation.idx"}) {
      EXPECT_TRUE(read_file(folder_ / concat("out/remote", name)) ==
                  read_file(folder_ / concat("out/local", name)))
          << name;
    }
  }
  // Rows of about so many bytes in all.
  void put_rows(const std::string& name, size_t num_bytes) {
    std::string rows;
    for (int i = 0; rows.size() < num_bytes; ++i)
      rows += concat(R"({"text": "row )", i, std::string(200, 'x'), "\"}\n");
    put(name, rows);
  }

  TemporaryFolder folder_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

TEST_F(PrepareFromStore, TextIsThatOfAFolder) {
  for (int i = 0; i < 30; ++i)
    put(concat("a/", i % 3, "/", i, ".txt"), concat("document ", i, std::string(i * 1000, 'y')));
  put(".hidden/x.txt", "not this");
  put("empty.txt", "");
  put("b.py", "nor this");
  PrepareOptions here = local(), there = remote();
  here.globs = there.globs = {"*.txt"};
  prepare(here);
  const PrepareReport report = prepare(there);
  expect_same_files();
  EXPECT_EQ(report.documents + report.validation_documents, 30);
  EXPECT_EQ(store_->num_found, 0);  // the list tells sizes and versions
}

TEST_F(PrepareFromStore, RowsAreThoseOfAFolderAndAreReadOnce) {
  put_rows("one.jsonl", 9'000'000);
  put_rows("two.jsonl", 100);
  PrepareOptions here = local(), there = remote();
  here.form = there.form = DocumentForm::kJsonLines;
  here.seed = there.seed = 3;
  prepare(here);
  int64_t last = 0, total = 0;
  prepare(there, [&](int64_t done, int64_t all) { last = done, total = all; });
  expect_same_files();
  EXPECT_EQ(last, total);
  there.validation_fraction = 0;
  store_->num_bytes_read = 0;
  prepare(there);
  EXPECT_EQ(store_->num_bytes_read, static_cast<uint64_t>(total));
  there.inputs = {"s3://bucket/data/two.jsonl"};
  EXPECT_EQ(prepare(there).documents, 1);
  EXPECT_EQ(store_->num_found, 1);
}

TEST_F(PrepareFromStore, GoesOnWhenTheStoreAnswersAgain) {
  put_rows("rows.jsonl", 30'000'000);
  for (const bool has_version : {true, false}) {
    if (!has_version) store_->put("data/rows.jsonl", read_file(folder_ / "in/rows.jsonl"), "");
    PrepareOptions here = local(), there = remote();
    here.form = there.form = DocumentForm::kJsonLines;
    there.journal_bytes = 1'000'000;
    here.validation_fraction = there.validation_fraction = 0.1;
    prepare(here);
    store_->num_reads = 0;
    store_->last_read = 12;
    std::string message;
    try {
      prepare(there);
      ADD_FAILURE() << "no error";
    } catch (const CommError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("no answer for s3://bucket/data/rows.jsonl"), std::string::npos);
    EXPECT_NE(message.find("keeps what was done"), std::string::npos) << message;
    store_->last_read = 0;
    const PrepareReport report = prepare(there);
    // What has no version may be another file now.
    EXPECT_EQ(report.bytes_resumed > 0, has_version) << report.bytes_resumed;
    expect_same_files();
  }
}

TEST_F(PrepareFromStore, AnObjectThatChangesOrGoesEndsIt) {
  for (const bool is_changed : {true, false}) {
    put_rows("rows.jsonl", 30'000'000);
    PrepareOptions there = remote();
    there.form = DocumentForm::kJsonLines;
    there.validation_fraction = 0;
    const auto damage = [&](int64_t /*done*/, int64_t /*total*/) {
      if (is_changed) return store_->put("data/rows.jsonl", "other", "\"2\"");
      store_->remove("data/rows.jsonl");
    };
    expect_config_error([&] { prepare(there, damage); },
                        {"s3://bucket/data/rows.jsonl", is_changed ? "has changed" : "is gone"});
    EXPECT_FALSE(is_file(folder_ / "out/remote.bin"));
  }
}

TEST_F(PrepareFromStore, WhatCannotBeReadIsOneLine) {
  put("table.csv", "a,b\n1,2\n");
  put("short.jsonl.gz", "\x1f\x8b\x08");
  expect_config_error([&] { prepare(remote("s3://bucket/data/none.txt")); },
                      {"input s3://bucket/data/none.txt does not exist", "\"/\" at its end"});
  expect_config_error([&] { prepare(remote("s3://bucket/nothing/")); }, {"no text found"});
  expect_config_error([&] { prepare(remote("s3://bucket/data/table.csv")); },
                      {"s3://bucket/data/table.csv looks like a table"});
  PrepareOptions options = remote("s3://bucket/data/short.jsonl.gz");
  options.form = DocumentForm::kJsonLines;
  expect_config_error([&] { prepare(options); }, {"s3://bucket/data/short.jsonl.gz"});
  options.stores = nullptr;
  expect_config_error([&] { prepare(options); }, {"is in a store", "copy it to a disk"});
}

}  // namespace
}  // namespace trireme::dataset
