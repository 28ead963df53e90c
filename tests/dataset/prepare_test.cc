#include "trireme/dataset/prepare.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/dataset/data.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

std::string text_of(const std::string& prefix) {
  const IndexedFile file(prefix);
  const auto tokens = read_all(file);
  return load_tokenizer(prefix)->decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
}

class Prepare : public testing::Test {
 protected:
  PrepareOptions options(TokenizerKind tokenizer = TokenizerKind::kBytes) const {
    return {.inputs = {folder_ / "in"}, .tokenizer = tokenizer, .output = folder_ / "out/x"};
  }
  void write_documents(int count) const {
    for (int i = 0; i < count; ++i)
      write_text(folder_ / concat("in/", 1000 + i, ".txt"), concat("document ", i, "\n"));
  }
  TemporaryFolder folder_;
  std::string output_ = folder_ / "out/x";
};

TEST_F(Prepare, AFileIsADocumentThatEndsInItsToken) {
  write_text(folder_ / "in/b", "xyz");
  write_text(folder_ / "in/a", "\xFF\n");
  const PrepareReport report = prepare(options());
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.tokens, 7);
  EXPECT_EQ(report.bytes, 5);
  EXPECT_EQ(report.vocab_size, 257);
  EXPECT_DOUBLE_EQ(report.bytes_per_token, 5.0 / 7.0);
  EXPECT_EQ(report.validation_documents, 0);
  const IndexedFile file(output_);
  EXPECT_EQ(read_all(file), (std::vector<int64_t>{255, 10, 256, 'x', 'y', 'z', 256}));
  EXPECT_EQ(file.document(1), (IndexedFile::Extent{3, 4}));
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(Prepare, LeavesOutTheEndTokenWhenAsked) {
  write_text(folder_ / "in/a", "ab");
  auto without = options();
  without.append_end_of_document = false;
  EXPECT_EQ(prepare(without).tokens, 2);
}

TEST_F(Prepare, SplitsByDocument) {
  write_documents(400);
  auto split = options();
  split.validation_fraction = 0.25;
  const PrepareReport report = prepare(split);
  EXPECT_EQ(report.documents + report.validation_documents, 400);
  // Binomial: 100 expected, standard deviation 8.7; the seed is fixed.
  EXPECT_NEAR(report.validation_documents, 100, 40);
  EXPECT_EQ(IndexedFile(validation_prefix(output_)).num_documents(), report.validation_documents);
  EXPECT_EQ(IndexedFile(validation_prefix(output_)).num_tokens(), report.validation_tokens);
  EXPECT_EQ(IndexedFile(output_).num_tokens(), report.tokens);
}

TEST_F(Prepare, AddingADocumentMovesNoOther) {
  auto split = options();
  split.validation_fraction = 0.3;
  split.append_end_of_document = true;
  const auto validation_text = [&] {
    prepare(split);
    const auto tokens = read_all(IndexedFile(validation_prefix(output_)));
    return make_bytes_tokenizer()->decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
  };
  write_documents(50);
  const std::string before = validation_text();
  write_documents(60);
  EXPECT_TRUE(validation_text().starts_with(before));
  split.seed = 2;
  EXPECT_FALSE(validation_text().starts_with(before));
}

TEST_F(Prepare, BothSidesGetADocumentWhateverTheFraction) {
  write_documents(2);
  for (const double fraction : {0.0001, 0.5, 0.9999}) {
    auto split = options();
    split.validation_fraction = fraction;
    const PrepareReport report = prepare(split);
    EXPECT_EQ(report.documents, 1) << fraction;
    EXPECT_EQ(report.validation_documents, 1) << fraction;
  }
}

TEST_F(Prepare, OneDocumentGivesItsTailAtALineEnd) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += concat("line ", i, "\n");
  write_text(folder_ / "in/a", text);
  auto split = options();
  split.validation_fraction = 0.1;
  prepare(split);
  const auto tokens = read_all(IndexedFile(validation_prefix(output_)));
  const std::string tail =
      make_bytes_tokenizer()->decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
  EXPECT_EQ(text_of(output_) + tail, text);
  EXPECT_TRUE(tail.starts_with("line "));
  EXPECT_NEAR(tail.size(), text.size() * 0.1, 10);
}

TEST_F(Prepare, RemovesTheValidationFilesOfAnEarlierRun) {
  write_documents(10);
  auto split = options();
  split.validation_fraction = 0.5;
  prepare(split);
  prepare(options());
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(Prepare, DoesNotReadItsOwnOutput) {
  write_documents(3);
  auto inside = options();
  inside.output = folder_ / "in/x";
  const PrepareReport first = prepare(inside);
  EXPECT_EQ(prepare(inside).bytes, first.bytes);
}

TEST_F(Prepare, ReportsProgressUpToTheEnd) {
  write_documents(5);
  std::vector<int64_t> done;
  const PrepareReport report = prepare(options(), [&](int64_t bytes_done, int64_t bytes_total) {
    done.push_back(bytes_done);
    EXPECT_EQ(bytes_total, 5 * 11);
  });
  EXPECT_EQ(done, (std::vector<int64_t>{11, 22, 33, 44, 55}));
  EXPECT_EQ(report.bytes, 55);
}

TEST_F(Prepare, RefusesOptionsThatContradictEachOther) {
  write_documents(1);
  const auto refuse = [&](auto&& change, const std::vector<std::string>& parts) {
    PrepareOptions changed = options();
    change(changed);
    expect_config_error([&] { prepare(changed); }, parts);
  };
  refuse([](auto& o) { o.vocab_size = 300; }, {"vocab_size is 300", "257"});
  refuse([](auto& o) { o.tokenizer_model = "m"; }, {"--tokenizer bpe"});
  refuse([](auto& o) { o.validation_fraction = 1; }, {"validation_fraction is 1"});
  refuse([](auto& o) { o.validation_fraction = -0.1; }, {"validation_fraction is -0.1"});
  refuse([](auto& o) { o.output = ""; }, {"output is \"\""});
  refuse([](auto& o) { o.output = "folder/"; }, {"folder/"});
  refuse([](auto& o) { o.inputs = {"/no/such/input"}; }, {"/no/such/input", "does not exist"});
  refuse([](auto& o) { o.globs = {"*.c"}; }, {"no text found"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(Prepare, RefusesAnOutputThatCannotBeWritten) {
  write_documents(1);
  write_text(folder_ / "file", "x");
  auto bad = options();
  bad.output = folder_ / "file/x";
  expect_config_error([&] { prepare(bad); }, {folder_ / "file/x", "not writable"});
}

TEST_F(Prepare, ReadsAPipe) {
  auto from_pipe = options();
  from_pipe.inputs = {folder_ / "pipe"};
  from_pipe.validation_fraction = 0.5;
  ASSERT_EQ(mkfifo(from_pipe.inputs[0].c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(from_pipe.inputs[0]) << "one\ntwo\nthree\nfour\n"; });
  const PrepareReport report = prepare(from_pipe);
  writer.join();
  EXPECT_EQ(report.bytes, 19);
  EXPECT_EQ(report.validation_tokens, 6);
  EXPECT_EQ(text_of(output_), "one\ntwo\nthree\n");
  EXPECT_EQ(names_in(folder_ / "out").size(), 5u) << "and no copy of the pipe";
}

TEST_F(Prepare, OneOutputIsPreparedByOneProcessAtATime) {
  write_documents(3);
  prepare(options());
  const std::string before = text_of(output_);
  {
    const WorkFolder another(output_);
    write_text(folder_ / "in/more", "text");
    expect_config_error([&] { prepare(options()); }, {"x.tmp is being written by another program"});
    EXPECT_EQ(text_of(output_), before);
  }
  prepare(options());
  EXPECT_NE(text_of(output_), before);
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(Prepare, RefusesATextTooSmallToSplit) {
  write_text(folder_ / "in/a", "x");
  auto split = options();
  split.validation_fraction = 0.1;
  expect_config_error([&] { prepare(split); }, {"too few", "validation_fraction"});
}

TEST_F(Prepare, KeepsTheOldFilesWhenItFails) {
  write_documents(3);
  prepare(options());
  const std::string before = text_of(output_);
  EXPECT_THROW(prepare(options(), [](int64_t, int64_t) { throw Error("interrupted"); }), Error);
  EXPECT_EQ(text_of(output_), before);
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(Prepare, EncodesTheStandardLibraryWithATokenizerOfItsOwn) {
  if (!bpe_available()) {
    expect_config_error([&] { prepare(options(TokenizerKind::kBpe)); }, {"SentencePiece"});
    return;
  }
  auto source = options(TokenizerKind::kBpe);
  source.inputs = {std::string(TRIREME_STDLIB) + "/asyncio"};
  source.globs = {"*.py"};
  source.vocab_size = 1000;
  source.tokenizer_sample_bytes = 200000;  // less than there is: a sample is drawn
  source.validation_fraction = 0.2;
  const PrepareReport report = prepare(source);
  EXPECT_EQ(report.vocab_size, 1000);
  EXPECT_GT(report.bytes, source.tokenizer_sample_bytes);
  EXPECT_GT(report.bytes_per_token, 2.0);
  const IndexedFile file(output_);
  EXPECT_EQ(file.num_documents(), report.documents);
  EXPECT_NE(text_of(output_).find("import"), std::string::npos);

  // Again, with the model it has made, into another place: the same bytes.
  auto again = source;
  again.output = folder_ / "again/y";
  prepare(again);
  EXPECT_EQ(read_file(bin_path(again.output)), read_file(bin_path(output_)));
  EXPECT_EQ(read_file(tokenizer_model_path(again.output)),
            read_file(tokenizer_model_path(output_)));
  again.vocab_size = 0;
  again.tokenizer_model = tokenizer_model_path(output_);
  prepare(again);
  EXPECT_EQ(read_file(bin_path(again.output)), read_file(bin_path(output_)));
  again.vocab_size = 999;
  expect_config_error([&] { prepare(again); }, {"vocab_size is 999", "has 1000"});
  again.tokenizer_model = folder_ / "nothing";
  expect_config_error([&] { prepare(again); }, {"tokenizer model", "nothing"});
}

// Sanitizers keep freed memory, so what they use says nothing.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Prepare, MemoryStaysBelowTheSizeOfTheInput) {
  constexpr int64_t kMegabyte = int64_t{1} << 20;
  constexpr int64_t kInputMegabytes = 96, kAllowedMegabytes = 64;
  {
    std::string block;
    for (int i = 0; static_cast<int64_t>(block.size()) < kMegabyte; ++i)
      block += concat("line ", i, " of a large file\n");
    block.resize(kMegabyte);
    std::filesystem::create_directories(folder_ / "in");
    OutputFile file(folder_ / "in/large");
    for (int64_t i = 0; i < kInputMegabytes; ++i) file.write(block);
  }
  const auto peak_megabytes = [] {
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // its own process, so that other tests' peaks do not hide this one's
    int code = 100;
    try {
      const auto before = peak_megabytes();
      const PrepareReport report = prepare(options());
      const auto growth = peak_megabytes() - before;
      code = report.bytes != kInputMegabytes * kMegabyte ? 101
             : growth > kAllowedMegabytes                ? 102
                                                         : 0;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "100 threw, 101 wrong size, 102 too much memory";
  EXPECT_EQ(IndexedFile(output_).num_tokens(), kInputMegabytes * kMegabyte + 1);
}
#endif

}  // namespace
}  // namespace trireme::dataset
