#include "trireme/dataset/indexed_file_writer.h"

#include <unistd.h>
#include <algorithm>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

TEST(IndexedFileWriter, WritesTheBytesMegatronWrites) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_token_file(prefix, {{1, 258}, {3}});
  EXPECT_EQ(read_file(bin_path(prefix)), std::string("\1\0\2\1\3\0", 6));
  std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18);
  idx += std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16);
  idx += std::string("\2\0\0\0\1\0\0\0", 8);
  idx += std::string("\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16);
  idx += std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(read_file(idx_path(prefix)), idx);
}

TEST(IndexedFileWriter, WhatIsWrittenReadsBackInBothWidths) {
  const TemporaryFolder folder;
  const RandomKey key = random_key(1, "documents");
  for (const int64_t vocab_size : {int64_t{257}, int64_t{65499}, int64_t{65500}, int64_t{200000}}) {
    const std::string prefix = folder / std::to_string(vocab_size);
    std::vector<std::vector<int32_t>> documents;
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < 300; ++i) {
      auto& document = documents.emplace_back(random_bits(key, i)[0] % 4000 * (i % 7 != 3));
      for (size_t j = 0; j < document.size(); ++j)
        document[j] = random_bits(key, i * 4000 + j)[1] % vocab_size;
      expected.insert(expected.end(), document.begin(), document.end());
    }
    documents[1] = {static_cast<int32_t>(vocab_size - 1)};
    expected.clear();
    for (const auto& document : documents)
      expected.insert(expected.end(), document.begin(), document.end());
    write_token_file(prefix, documents, vocab_size);
    const IndexedFile file(prefix);
    EXPECT_EQ(file.token_type(), token_type_for(vocab_size));
    EXPECT_EQ(read_all(file), expected);
    ASSERT_EQ(file.num_documents(), 300);
    int64_t offset = 0;
    for (int64_t i = 0; i < 300; ++i) {
      const auto size = static_cast<int64_t>(documents[i].size());
      EXPECT_EQ(file.document(i), (IndexedFile::Extent{offset, size}));
      offset += size;
    }
  }
}

TEST(IndexedFileWriter, ADocumentInPiecesIsOneDocument) {
  const TemporaryFolder folder;
  const std::string whole = folder / "whole", pieces = folder / "pieces";
  write_token_file(whole, {{1, 2, 3, 4}, {5}});
  IndexedFileWriter writer(pieces, 1000);
  writer.append(std::vector<int32_t>{1, 2});
  writer.append({});
  writer.append(std::vector<int32_t>{3, 4});
  writer.end_document();
  writer.append(std::vector<int32_t>{5});
  EXPECT_EQ(writer.num_documents(), 1);
  writer.finish();  // ends the last one
  EXPECT_EQ(writer.num_documents(), 2);
  EXPECT_EQ(writer.num_tokens(), 5);
  EXPECT_EQ(read_file(bin_path(pieces)), read_file(bin_path(whole)));
  EXPECT_EQ(read_file(idx_path(pieces)), read_file(idx_path(whole)));
}

TEST(IndexedFileWriter, BytesAreTokens) {
  const TemporaryFolder folder;
  std::string bytes;  // more than is kept before the disk begins to take it
  for (size_t i = 0; i < (size_t{5} << 20) + 3; ++i)
    bytes.push_back(static_cast<char>(i * 7 + i / 1000));
  const std::span all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const std::vector<int32_t> tokens(all.begin(), all.end());
  for (const int64_t vocab_size : {256, 257, 70'000}) {
    const std::string prefix = folder / concat(vocab_size);
    {
      IndexedFileWriter writer(prefix, vocab_size);
      writer.append_bytes(std::string_view(bytes).substr(0, 1));
      writer.append_bytes("");
      writer.append_bytes(std::string_view(bytes).substr(1));
      EXPECT_EQ(writer.num_tokens(), std::ssize(tokens));
      writer.finish();
    }
    const std::string of_tokens = prefix + ".tokens";
    IndexedFileWriter writer(of_tokens, vocab_size);
    writer.add_document(tokens);
    writer.finish();
    EXPECT_TRUE(read_file(bin_path(prefix)) == read_file(bin_path(of_tokens))) << vocab_size;
    EXPECT_EQ(read_file(idx_path(prefix)), read_file(idx_path(of_tokens)));
    const std::vector<int64_t> read = read_all(IndexedFile(prefix));
    EXPECT_TRUE(std::ranges::equal(read, tokens)) << vocab_size;
  }
  IndexedFileWriter small(folder / "small", 255);
  EXPECT_THROW(small.append_bytes("a"), InternalError);
}

TEST(IndexedFileWriter, LeavesNothingBehindWhenItIsNotFinished) {
  const TemporaryFolder folder;
  {
    IndexedFileWriter writer(folder / "a", 1000);
    writer.add_document(std::vector<int32_t>(1 << 20, 5));
    writer.complete();
    EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a.idx"));
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{});
}

TEST(IndexedFileWriter, KeepsTheOldFilesUntilItIsFinished) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_token_file(prefix, {{1, 2, 3}});
  IndexedFileWriter writer(prefix, 1000);
  writer.add_document(std::vector<int32_t>{9, 8});
  EXPECT_EQ(read_all(IndexedFile(prefix)), (std::vector<int64_t>{1, 2, 3}));
  writer.finish();
  EXPECT_EQ(read_all(IndexedFile(prefix)), (std::vector<int64_t>{9, 8}));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a.bin", "a.idx"}));
}

TEST(IndexedFileWriter, TwoWithOnePrefixDoNotMix) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  IndexedFileWriter first(prefix, 1000), second(prefix, 1000);
  first.append(std::vector<int32_t>(1 << 20, 1));
  second.add_document(std::vector<int32_t>{2});
  first.append(std::vector<int32_t>{1});
  second.complete();
  first.complete();
  first.publish();
  EXPECT_EQ(read_all(IndexedFile(prefix)), std::vector<int64_t>((1 << 20) + 1, 1));
  second.publish();
  EXPECT_EQ(read_all(IndexedFile(prefix)), std::vector<int64_t>{2});
}

TEST(IndexedFileWriter, RefusesTokensOutsideTheVocabulary) {
  const TemporaryFolder folder;
  IndexedFileWriter writer(folder / "a", 10);
  writer.append(std::vector<int32_t>{9});
  expect_config_error([&] { writer.append(std::vector<int32_t>{10}); },
                      {"token 10 at position 1", "vocabulary of 10"});
  expect_config_error([&] { writer.append(std::vector<int32_t>{-1}); }, {"token -1"});
}

TEST(IndexedFileWriter, RefusesAnOutputThatCannotBeWritten) {
  const TemporaryFolder folder;
  expect_config_error([&] { IndexedFileWriter(folder / "no/such/folder/a", 10); },
                      {"no/such/folder/a is not writable", "--output"});
}

}  // namespace
}  // namespace trireme::dataset
