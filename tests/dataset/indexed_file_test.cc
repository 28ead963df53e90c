#include "trireme/dataset/indexed_file.h"

#include <algorithm>
#include <functional>

#include "tests/dataset/data.h"
#include "tests/dataset/memory_store.h"

namespace trireme::dataset {
namespace {

// Little-endian bytes of `value`.
std::string bytes_of(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// Documents {7, 300}, {} and {65000, 1, 2 | 3}, the last in two sequences, laid out by hand.
std::string index_by_hand(int type, int token_bytes) {
  std::string idx("MMIDIDX\0\0", 9);
  idx += bytes_of(1, 8) + bytes_of(type, 1) + bytes_of(4, 8) + bytes_of(4, 8);
  for (const int length : {2, 0, 3, 1}) idx += bytes_of(length, 4);
  for (const int pointer : {0, 2, 2, 5}) idx += bytes_of(pointer * token_bytes, 8);
  for (const int document : {0, 1, 2, 4}) idx += bytes_of(document, 8);
  return idx;
}

std::string tokens_by_hand(int token_bytes) {
  std::string bin;
  for (const int token : {7, 300, 65000, 1, 2, 3}) bin += bytes_of(token, token_bytes);
  return bin;
}

void write_by_hand(const std::string& prefix, const std::string& idx, const std::string& bin) {
  write_text(idx_path(prefix), idx);
  write_text(bin_path(prefix), bin);
}

TEST(IndexedFile, ReadsTheIndexOfAStoreOnce) {
  MemoryStore store;
  const std::string idx = index_by_hand(8, 2), bin = tokens_by_hand(2);
  store.put("a.idx", idx);
  store.put("a.bin", bin);
  const auto file = IndexedFile::find("s3://bucket/a", store);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(store.num_found, 2);
  EXPECT_EQ(file->index_checksum(), checksum(std::as_bytes(std::span(idx))));
  EXPECT_EQ(file->document(0), (IndexedFile::Extent{0, 2}));
  EXPECT_EQ(file->document_sizes(), (std::vector<int64_t>{2, 0, 4}));
  EXPECT_EQ(store.num_bytes_read, idx.size());
  EXPECT_EQ(read_all(*file), (std::vector<int64_t>{7, 300, 65000, 1, 2, 3}));
  EXPECT_EQ(IndexedFile::find("s3://bucket/b", store), nullptr);
  store.put("b.idx", idx);
  expect_config_error([&] { IndexedFile::find("s3://bucket/b", store); },
                      {"token file s3://bucket/b.bin does not exist"});
}

TEST(IndexedFile, ReadsBytesAsMegatronWritesThem) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  for (const auto& [type, token_bytes] : {std::pair{8, 2}, {4, 4}, {5, 8}}) {
    write_by_hand(prefix, index_by_hand(type, token_bytes), tokens_by_hand(token_bytes));
    const IndexedFile file(prefix);
    EXPECT_EQ(static_cast<int>(file.token_type()), type);
    EXPECT_EQ(file.num_sequences(), 4);
    ASSERT_EQ(file.num_documents(), 3);
    EXPECT_EQ(read_all(file), (std::vector<int64_t>{7, 300, 65000, 1, 2, 3}));
    EXPECT_EQ(file.document(0), (IndexedFile::Extent{0, 2}));
    EXPECT_EQ(file.document(1), (IndexedFile::Extent{2, 0}));
    EXPECT_EQ(file.document(2), (IndexedFile::Extent{2, 4}));
    std::vector<int64_t> middle(2);
    file.read(1, middle);
    EXPECT_EQ(middle, (std::vector<int64_t>{300, 65000}));
  }
}

TEST(IndexedFile, ReadsNarrowAndSignedTokens) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  std::string idx("MMIDIDX\0\0", 9);
  const auto header = [&](int type, int tokens) {
    return idx + bytes_of(1, 8) + bytes_of(type, 1) + bytes_of(1, 8) + bytes_of(2, 8) +
           bytes_of(tokens, 4) + bytes_of(0, 8) + bytes_of(0, 8) + bytes_of(1, 8);
  };
  write_by_hand(prefix, header(1, 2), "\xFF\x01");
  EXPECT_EQ(read_all(IndexedFile(prefix)), (std::vector<int64_t>{255, 1}));
  write_by_hand(prefix, header(2, 2), "\xFF\x01");
  EXPECT_EQ(read_all(IndexedFile(prefix)), (std::vector<int64_t>{-1, 1}));
  write_by_hand(prefix, header(3, 1), "\xFE\xFF");
  EXPECT_EQ(read_all(IndexedFile(prefix)), (std::vector<int64_t>{-2}));
}

TEST(IndexedFile, AcceptsTheModesOfMegatronsMultimodalFiles) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_by_hand(prefix, index_by_hand(8, 2) + std::string(4, '\0'), tokens_by_hand(2));
  EXPECT_EQ(IndexedFile(prefix).num_tokens(), 6);
}

TEST(IndexedFile, RefusesMissingFilesWithTheirPath) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".idx does not exist"});
  write_text(idx_path(prefix), index_by_hand(8, 2));
  expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".bin does not exist"});
  std::filesystem::create_directory(bin_path(prefix));
  expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".bin does not exist"});
}

TEST(IndexedFile, RefusesAnIndexCutAnywhere) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  const std::string idx = index_by_hand(8, 2);
  for (size_t size = 0; size < idx.size(); ++size) {
    write_by_hand(prefix, idx.substr(0, size), tokens_by_hand(2));
    expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".idx is "});
  }
  write_by_hand(prefix, idx + 'x', tokens_by_hand(2));
  expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".idx is damaged"});
}

TEST(IndexedFile, RefusesTokensCutAnywhere) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  const std::string bin = tokens_by_hand(2);
  for (size_t size = 0; size < bin.size(); ++size) {
    write_by_hand(prefix, index_by_hand(8, 2), bin.substr(0, size));
    expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".bin is truncated"});
  }
  write_by_hand(prefix, index_by_hand(8, 2), bin + 'x');
  expect_config_error([&] { IndexedFile{prefix}; }, {prefix + ".bin is too long"});
}

TEST(IndexedFile, RefusesEveryFieldOfTheIndexThatIsWrong) {
  struct Damage {
    const char* what;
    size_t offset;
    uint64_t value;
    int bytes;
    const char* message;
  };
  constexpr size_t kLengths = 34, kPointers = kLengths + 4 * 4, kDocuments = kPointers + 4 * 8;
  const std::vector<Damage> damages = {
      {"magic", 0, 'X', 1, "does not begin with MMIDIDX"},
      {"end of magic", 8, 1, 1, "does not begin with MMIDIDX"},
      {"version", 9, 2, 8, "version 2"},
      {"type 0", 17, 0, 1, "token type 0"},
      {"type float", 17, 6, 1, "token type 6"},
      {"other width", 17, 4, 1, "is damaged"},
      {"sequences", 18, 5, 8, "is truncated"},
      {"huge sequences", 18, ~uint64_t{0}, 8, "is damaged"},
      {"overflowing sequences", 18, uint64_t{1} << 62, 8, "is damaged"},
      {"boundaries", 26, 5, 8, "is truncated"},
      {"no boundary", 26, 0, 8, "is damaged"},
      {"huge boundaries", 26, ~uint64_t{0}, 8, "is damaged"},
      {"length", kLengths, 1, 4, "is damaged"},
      {"negative length", kLengths, 0xFFFFFFFF, 4, "has length -1"},
      {"last length", kLengths + 12, 2, 4, "is truncated"},
      {"pointer", kPointers + 8, 6, 8, "begins at byte 6"},
      {"first document", kDocuments, 1, 8, "is damaged"},
      {"document order", kDocuments + 8, 3, 8, "is damaged"},
      {"negative document", kDocuments + 8, ~uint64_t{0}, 8, "is damaged"},
      {"document beyond the end", kDocuments + 16, 9, 8, "is damaged"},
      {"last document", kDocuments + 24, 3, 8, "documents end at sequence 3"},
  };
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    std::string idx = index_by_hand(8, 2);
    idx.replace(damage.offset, damage.bytes, bytes_of(damage.value, damage.bytes));
    write_by_hand(prefix, idx, tokens_by_hand(2));
    expect_config_error([&] { IndexedFile{prefix}; }, {prefix, damage.message});
  }
}

TEST(IndexedFile, ReadsAFileWithoutDocuments) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_token_file(prefix, {});
  const IndexedFile file(prefix);
  EXPECT_EQ(file.num_tokens(), 0);
  EXPECT_EQ(file.num_documents(), 0);
}

TEST(IndexedFile, ReadingOutsideOfItIsOurBug) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_counting_file(prefix, 10);
  const IndexedFile file(prefix);
  std::vector<int64_t> out(4);
  EXPECT_THROW(file.read(7, out), InternalError);
  EXPECT_THROW(file.read(-1, out), InternalError);
  EXPECT_THROW(file.document(1), InternalError);
}

TEST(IndexedFile, ChoosesTokenTypesAsMegatronDoes) {
  EXPECT_EQ(token_type_for(257), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65499), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65500), TokenType::kInt32);
}

TEST(IndexedFile, FindsTheDocumentOfEveryTokenAmongMany) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  for (const int count : {1, 511, 512, 513, 1024, 1500}) {
    std::vector<std::vector<int32_t>> documents(static_cast<size_t>(count));
    for (size_t i = 0; i < documents.size(); ++i) documents[i].resize(i * 7 % 4, 1);  // some empty
    documents.back() = {1};
    write_token_file(prefix, documents);
    const IndexedFile file(prefix);
    int64_t offset = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
      for (size_t at = 0; at < documents[i].size(); ++at, ++offset) {
        ASSERT_EQ(file.document_at(offset), static_cast<int64_t>(i)) << count << " " << offset;
      }
    }
    EXPECT_EQ(offset, file.num_tokens());
  }
}

TEST(IndexedFile, TokensCutShortUnderARunAreALineWithTheirFile) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  write_by_hand(prefix, index_by_hand(8, 2), tokens_by_hand(2));
  const IndexedFile file(prefix);
  std::filesystem::resize_file(bin_path(prefix), 7);
  std::vector<int64_t> tokens(3);
  file.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{7, 300, 65000}));
  expect_config_error([&] { file.read(1, tokens); }, {"cannot read " + prefix + ".bin",
                                                      "it had 12 bytes", "trireme data prepare"});
  std::filesystem::resize_file(bin_path(prefix), 0);
  expect_config_error([&] { file.read(0, tokens); }, {prefix + ".bin"});
}

TEST(IndexedFile, AnIndexThatChangesUnderARunIsALineWithItsFile) {
  const TemporaryFolder folder;
  const std::string prefix = folder / "a";
  constexpr size_t kPointers = 34 + 4 * 4, kDocuments = kPointers + 4 * 8;
  for (const auto& [offset, value] : {std::pair{kDocuments + 8, ~uint64_t{0}},
                                      {kDocuments + 8, uint64_t{1} << 62},
                                      {kDocuments + 8, uint64_t{4}},
                                      {kPointers + 8, ~uint64_t{9}},
                                      {kPointers + 8, uint64_t{1} << 62}}) {
    write_by_hand(prefix, index_by_hand(8, 2), tokens_by_hand(2));
    const IndexedFile file(prefix);
    std::string idx = index_by_hand(8, 2);
    idx.replace(offset, 8, bytes_of(value, 8));
    OutputFile(idx_path(prefix)).write(idx);  // into the file that is open
    expect_config_error([&] { file.document(1); }, {prefix + ".idx changed while it was read"});
  }
  write_by_hand(prefix, index_by_hand(8, 2), tokens_by_hand(2));
  const IndexedFile file(prefix);
  std::filesystem::resize_file(idx_path(prefix), 40);
  expect_config_error([&] { file.document_at(3); }, {"cannot read " + prefix + ".idx"});
}

}  // namespace
}  // namespace trireme::dataset
