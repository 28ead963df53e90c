#include "trireme/dataset/text/documents.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/dataset/data.h"

namespace trireme::dataset {
namespace {

std::vector<std::string> found(const DocumentOptions& options) {
  std::vector<std::string> names;
  for (const Document& document : find_documents(options)) names.push_back(document.name);
  return names;
}

std::string read_in_pieces(const Document& document, int64_t piece_bytes,
                           std::vector<std::string>* pieces = nullptr) {
  DocumentReader reader(document, piece_bytes);
  std::string text;
  for (std::string piece = reader.next(); !piece.empty(); piece = reader.next()) {
    EXPECT_LE(static_cast<int64_t>(piece.size()), piece_bytes);
    text += piece;
    if (pieces != nullptr) pieces->push_back(piece);
  }
  return text;
}

class FindDocuments : public testing::Test {
 protected:
  FindDocuments() {
    for (const char* name : {"b.py", "a.py", "c.txt", "sub/z.py", "sub/test/t.py", "tests/u.py",
                             ".git/config.py", ".hidden.py"})
      write_text(folder_ / name, "text\n");
    write_text(folder_ / "empty.py", "");
  }
  TemporaryFolder folder_;
};

TEST_F(FindDocuments, SortsAFolderByName) {
  EXPECT_EQ(found({.inputs = {folder_.path()}}),
            (std::vector<std::string>{"a.py", "b.py", "c.txt", "sub/test/t.py", "sub/z.py",
                                      "tests/u.py"}));
}

TEST_F(FindDocuments, KeepsWhatMatchesAndLeavesOutWhatIsExcluded) {
  EXPECT_EQ(found({.inputs = {folder_.path()}, .globs = {"*.py"}, .excludes = {"test", "tests"}}),
            (std::vector<std::string>{"a.py", "b.py", "sub/z.py"}));
  EXPECT_EQ(found({.inputs = {folder_.path()}, .globs = {"*.txt", "z*"}}),
            (std::vector<std::string>{"c.txt", "sub/z.py"}));
  EXPECT_EQ(found({.inputs = {folder_.path()}, .excludes = {"test*", "*.txt", "sub"}}),
            (std::vector<std::string>{"a.py", "b.py"}));
}

TEST_F(FindDocuments, TakesFilesInTheOrderGivenWhateverTheirName) {
  EXPECT_EQ(
      found({.inputs = {folder_ / "c.txt", folder_ / "a.py", folder_ / "sub"}, .globs = {"*.py"}}),
      (std::vector<std::string>{"c.txt", "a.py", "test/t.py", "z.py"}));
}

TEST_F(FindDocuments, LeavesOutIgnoredPaths) {
  EXPECT_EQ(found({.inputs = {folder_.path()},
                   .globs = {"*.py"},
                   .excludes = {"test*"},
                   .ignored = {folder_ / "sub/../b.py", folder_ / "missing"}}),
            (std::vector<std::string>{"a.py", "sub/z.py"}));
}

TEST_F(FindDocuments, SaysWhichInputIsWrong) {
  expect_config_error([] { find_documents({}); }, {"no input"});
  expect_config_error([&] { find_documents({.inputs = {folder_ / "nothing"}}); },
                      {folder_ / "nothing", "does not exist"});
  expect_config_error([&] { find_documents({.inputs = {folder_.path()}, .globs = {"*.c"}}); },
                      {"no text found", folder_.path(), "*.c", "--glob"});
  expect_config_error([&] { find_documents({.inputs = {folder_ / "empty.py"}}); },
                      {"no text found"});
}

TEST_F(FindDocuments, SaysWhereALinkLeads) {
  std::filesystem::create_symlink("gone.txt", folder_ / "link");
  expect_config_error([&] { find_documents({.inputs = {folder_ / "link"}}); },
                      {"link is a link to gone.txt, which does not exist"});
}

TEST_F(FindDocuments, TakesOtherFormatsAsTextOnlyWhenAsked) {
  write_text(folder_ / "sub/data.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  expect_config_error([&] { find_documents({.inputs = {folder_.path()}}); },
                      {"sub/data.jsonl looks like JSON lines", "--as-text", "--exclude"});
  EXPECT_EQ(found({.inputs = {folder_ / "sub"}, .excludes = {"*.jsonl"}}),
            (std::vector<std::string>{"test/t.py", "z.py"}));
  EXPECT_EQ(found({.inputs = {folder_ / "sub"}, .as_text = true}),
            (std::vector<std::string>{"data.jsonl", "test/t.py", "z.py"}));
}

TEST(KeepPipes, ReadsAPipeOnceAndKeepsItsText) {
  const TemporaryFolder folder;
  const std::string text(3 * DocumentReader::kPieceBytes / 2, 'x');
  std::vector<std::thread> writers;
  DocumentOptions options;
  for (const char* name : {"full", "empty", "jsonl"}) {
    options.inputs.push_back(folder / name);
    ASSERT_EQ(mkfifo(options.inputs.back().c_str(), 0600), 0);
  }
  const auto write = [&](const char* name, const std::string& content) {
    writers.emplace_back(
        [=, path = (folder / name).string()] { std::ofstream(path, std::ios::binary) << content; });
  };
  std::vector<Document> documents = find_documents(options);
  ASSERT_EQ(documents.size(), 3u);
  std::vector<Document> json = {documents.back()};
  documents.pop_back();
  write("full", text);
  write("empty", "");
  write("jsonl", "{\"text\": 1}\n{\"text\": 2}\n");
  std::filesystem::create_directory(folder / "kept");
  keep_pipes(documents, options, folder / "kept");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].name, "full");
  EXPECT_TRUE(read_in_pieces(documents[0], DocumentReader::kPieceBytes) == text);
  expect_config_error([&] { keep_pipes(json, options, folder / "kept"); },
                      {folder / "jsonl", "looks like JSON lines"});
  for (std::thread& writer : writers) writer.join();
}

TEST(DocumentReader, PiecesMakeTheDocument) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::string(i % 23, 'x') + "\u00E9\U0001F600\n";
  write_text(folder / "a", text);
  const auto size = static_cast<int64_t>(text.size());
  for (const int64_t piece_bytes : {1, 2, 3, 7, 64, 1000, 1 << 20})
    EXPECT_TRUE(read_in_pieces({folder / "a", "a", 0, size}, piece_bytes) == text) << piece_bytes;
  EXPECT_EQ(read_in_pieces({folder / "a", "a", 100, 777}, 50), text.substr(100, 677));
}

TEST(DocumentReader, CutsAtLineEndsThenBetweenCharacters) {
  const TemporaryFolder folder;
  write_text(folder / "a", "one\ntwo\nthree four five\n\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9");
  std::vector<std::string> pieces;
  read_in_pieces({folder / "a", "a", 0, 36}, 10, &pieces);
  EXPECT_EQ(pieces, (std::vector<std::string>{"one\ntwo\n", "three four", " five\n",
                                              "\u00E9\u00E9\u00E9\u00E9\u00E9", "\u00E9"}));
}

TEST(DocumentReader, SaysWhenAFileIsGoneOrShorter) {
  const TemporaryFolder folder;
  write_text(folder / "a", "12345");
  expect_config_error(
      [&] {
        read_in_pieces({folder / "a", "a", 0, 10}, 100);
      },
      {folder / "a", "did it change"});
  expect_config_error(
      [&] {
        DocumentReader({folder / "b", "b", 0, 10});
      },
      {folder / "b", "cannot read"});
}

}  // namespace
}  // namespace trireme::dataset
