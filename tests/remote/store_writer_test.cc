#include "trireme/remote/store_writer.h"

#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/remote/bucket.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::remote {
namespace {

using testing::HasSubstr;

class StoreWriterTest : public testing::Test {
 protected:
  std::unique_ptr<ByteSource> file_of(const std::string& content) {
    const std::string path = (folder_.path() / "file").string();
    write_file_atomically(path, content);
    return local_files().open(path);
  }
  template <typename Action>
  std::string failure_of(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no failure";
  }

  harness::TemporaryFolder folder_;
  Bucket bucket_;
  StoreWriter writer_{
      bucket_.settings(),
      {.patience = std::chrono::seconds(5), .first_pause = std::chrono::milliseconds(2)}};
};

TEST_F(StoreWriterTest, WritesWholeObjectsAndInParts) {
  writer_.put("s3://bucket/a+b&c", *file_of("whole"));
  const std::string large = std::string(1000, 'x') + "end";
  writer_.put("s3://bucket/large", *file_of(large), 100);
  writer_.put("s3://bucket/empty", *file_of(""));
  const std::map<std::string, std::string> expected = {
      {"a+b&c", "whole"}, {"empty", ""}, {"large", large}};
  EXPECT_EQ(bucket_.objects(), expected);
  EXPECT_EQ(bucket_.num_uploads(), 0);
}

TEST_F(StoreWriterTest, AFailedUploadInPartsLeavesNothing) {
  std::atomic<int> num_asked{0};
  bucket_.on_request([&](const std::string& method, const std::string&) {
    return method == "PUT" && ++num_asked == 3
               ? plain_answer("403 Forbidden", "", "<Code>AccessDenied</Code>")
               : std::string();
  });
  EXPECT_THAT(
      failure_of([&] { writer_.put("s3://bucket/large", *file_of(std::string(1000, 'x')), 100); }),
      HasSubstr("cannot write s3://bucket/large: the store refuses (status 403 AccessDenied)"));
  EXPECT_TRUE(bucket_.objects().empty());
  EXPECT_EQ(bucket_.num_uploads(), 0);
}

TEST_F(StoreWriterTest, TriesAgainWhenAStoreIsBusy) {
  std::atomic<int> num_asked{0};
  bucket_.on_request([&](const std::string&, const std::string&) {
    return ++num_asked % 2 == 1 ? plain_answer("503 Slow Down") : std::string();
  });
  writer_.put("s3://bucket/large", *file_of(std::string(1000, 'x')), 300);
  EXPECT_EQ(bucket_.objects().at("large").size(), 1000U);
}

TEST_F(StoreWriterTest, ConditionsDecideWhoWrites) {
  const auto first = writer_.put_if("s3://bucket/claim", "one", {.is_absent = true});
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(writer_.put_if("s3://bucket/claim", "two", {.is_absent = true}).has_value());
  const auto second = writer_.put_if("s3://bucket/claim", "two", {.tag = *first});
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(writer_.put_if("s3://bucket/claim", "three", {.tag = *first}).has_value());
  const auto found = writer_.get("s3://bucket/claim");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->text, "two");
  EXPECT_EQ(found->tag, *second);
  EXPECT_EQ(found->age_seconds, 0);
  bucket_.age(77);
  EXPECT_EQ(writer_.get("s3://bucket/claim")->age_seconds, 77);
  writer_.remove("s3://bucket/claim");
  EXPECT_FALSE(writer_.get("s3://bucket/claim").has_value());
  EXPECT_FALSE(writer_.put_if("s3://bucket/claim", "four", {.tag = *second}).has_value());
  writer_.remove("s3://bucket/claim");  // one that is not there
}

TEST_F(StoreWriterTest, ListsAllPages) {
  for (const char* name : {"run/a", "run/b+c d&e", "run/c", "run/d/e", "run/f", "other"})
    bucket_.put(name, name);
  std::vector<std::string> names;
  for (const ListedObject& object : writer_.list("s3://bucket/run/")) {
    names.push_back(object.name);
    EXPECT_EQ(object.num_bytes, object.name.size() + 4);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b+c d&e", "c", "d/e", "f"}));
  EXPECT_TRUE(writer_.list("s3://bucket/none/").empty());
  EXPECT_THAT(failure_of([&] { writer_.list("s3://bucket/run/", 3); }),
              HasSubstr("more than 3 objects"));
}

TEST_F(StoreWriterTest, ListingsThatMakeNoSenseAreRefused) {
  std::string listing;
  bucket_.on_request(
      [&](const std::string&, const std::string&) { return plain_answer("200 OK", "", listing); });
  const auto failure = [&](const std::string& text) {
    listing = text;
    return failure_of([&] { writer_.list("s3://bucket/run/"); });
  };
  EXPECT_THAT(failure("<Contents><Key>elsewhere</Key><Size>1</Size></Contents>"),
              HasSubstr("not asked for"));
  EXPECT_THAT(failure("<Contents><Key>run/x</Key></Contents>"), HasSubstr("without a size"));
  EXPECT_THAT(failure("<NextContinuationToken>x</NextContinuationToken>"),
              HasSubstr("again and again"));
  EXPECT_THAT(failure(std::string(4 << 20, 'x')), HasSubstr("answers with more than"));
}

TEST_F(StoreWriterTest, WebServersAreNoBuckets) {
  EXPECT_THAT(failure_of([&] { writer_.remove("https://host/x"); }),
              HasSubstr("is not in a bucket"));
}

TEST_F(StoreWriterTest, AStoreWithoutConditionsIsRefused) {
  bucket_.on_request(
      [](const std::string&, const std::string&) { return plain_answer("501 Not Implemented"); });
  EXPECT_THAT(failure_of([&] { writer_.put_if("s3://bucket/x", "", {.is_absent = true}); }),
              HasSubstr("does not know conditions"));
}

}  // namespace
}  // namespace trireme::remote
