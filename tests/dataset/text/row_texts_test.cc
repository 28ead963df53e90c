#include "trireme/dataset/text/row_texts.h"

#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/dataset/data.h"
#include "trireme/dataset/bpe.h"
#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

using Texts = std::vector<std::string>;

class PrepareRows : public testing::Test {
 protected:
  PrepareOptions options() const {
    return {.form = DocumentForm::kJsonLines, .inputs = {folder_ / "in"}, .output = output_};
  }
  static std::string row_of(const std::string& text) {
    return nlohmann::json{{"url", "x"}, {"text", text}}.dump() + "\n";
  }
  void write_rows(const std::string& name, const Texts& texts) const {
    std::string rows;
    for (const std::string& text : texts) rows += row_of(text);
    write_text(folder_ / concat("in/", name, ".jsonl"), rows);
  }
  static Texts some_texts(int count) {
    Texts texts;
    for (int i = 0; i < count; ++i) texts.push_back(concat("document ", i, "\n", i % 3, "\n"));
    return texts;
  }
  static Texts documents_of(const std::string& prefix) {
    const IndexedFile file(prefix);
    Texts texts;
    for (int64_t i = 0; i < file.num_documents(); ++i) {
      const IndexedFile::Extent extent = file.document(i);
      std::vector<int64_t> tokens(static_cast<size_t>(extent.size));
      file.read(extent.offset, tokens);
      EXPECT_EQ(tokens.back(), 256) << "the end of a document";
      texts.emplace_back(tokens.begin(), tokens.end() - 1);
    }
    return texts;
  }
  TemporaryFolder folder_;
  std::string output_ = folder_ / "out/x";
};

TEST_F(PrepareRows, ARowIsADocumentThatEndsInItsToken) {
  write_rows("b", {"x\ny", "gr\u00fcn"});
  write_rows("a", {"1"});
  const PrepareReport report = prepare(options());
  EXPECT_EQ(documents_of(output_), (Texts{"1", "x\ny", "gr\u00fcn"}));
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.bytes, 1 + 3 + 5);
  EXPECT_EQ(report.tokens, report.bytes + 3);
  EXPECT_EQ(report.bytes_read, std::ssize(row_of("x\ny") + row_of("gr\u00fcn") + row_of("1")));
  EXPECT_EQ(names_in(folder_ / "out"), (Texts{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(PrepareRows, HaveTheTokensOfFilesWithTheirTexts) {
  // One has several pieces (DocumentReader::kPieceBytes).
  Texts texts = some_texts(20);
  std::string large;
  while (std::ssize(large) < DocumentReader::kPieceBytes * 5 / 4)
    large += concat("line ", large.size(), " of a large document\n");
  texts.insert(texts.begin() + 7, large);
  write_rows("rows", texts);
  const bool has_bpe = bpe_available();
  PrepareOptions rows = options();
  rows.tokenizer = has_bpe ? TokenizerKind::kBpe : TokenizerKind::kBytes;
  rows.vocab_size = has_bpe ? 300 : 0;
  rows.tokenizer_sample_bytes = 200'000;
  prepare(rows);
  for (size_t i = 0; i < texts.size(); ++i)
    write_text(folder_ / concat("files/", 1000 + i, ".txt"), texts[i]);
  PrepareOptions files = rows;
  files.form = DocumentForm::kFiles;
  files.inputs = {folder_ / "files"};
  files.output = folder_ / "out/y";
  if (has_bpe) files.tokenizer_model = tokenizer_model_path(output_);
  prepare(files);
  EXPECT_EQ(read_file(bin_path(files.output)), read_file(bin_path(output_)));
  EXPECT_EQ(read_file(idx_path(files.output)), read_file(idx_path(output_)));
}

TEST_F(PrepareRows, AreTheSameWithAnyNumberOfThreads) {
  Texts texts;
  for (int i = 0; i < 3000; ++i)
    texts.push_back(random_bytes({1}, 0) + std::string(1500, 'a' + i % 26));
  write_rows("rows", texts);
  PrepareOptions rows = options();
  rows.validation_fraction = 0.1;
  std::vector<std::string> outcomes;
  for (const int num_threads : {1, 2, 7}) {
    rows.num_threads = num_threads;
    std::vector<int64_t> done;
    const PrepareReport report = prepare(rows, [&](int64_t now, int64_t) { done.push_back(now); });
    EXPECT_TRUE(std::ranges::is_sorted(done));
    EXPECT_EQ(done.back(), report.bytes_read);
    std::string outcome;
    for (const std::string& prefix : {output_, validation_prefix(output_)})
      outcome += read_file(bin_path(prefix)) + read_file(idx_path(prefix));
    outcomes.push_back(outcome);
  }
  EXPECT_EQ(outcomes[1], outcomes[0]);
  EXPECT_EQ(outcomes[2], outcomes[0]);
}

TEST_F(PrepareRows, TheSplitDependsOnTheTextOnly) {
  const Texts texts = some_texts(400);
  PrepareOptions rows = options();
  rows.validation_fraction = 0.25;
  write_rows("a", texts);
  const PrepareReport report = prepare(rows);
  EXPECT_EQ(report.documents + report.validation_documents, 400);
  // Binomial: 100 expected, standard deviation 8.7; the seed is fixed.
  EXPECT_NEAR(report.validation_documents, 100, 40);
  const auto sorted = [](Texts some) {
    std::ranges::sort(some);
    return some;
  };
  const Texts validation = sorted(documents_of(validation_prefix(output_)));
  // In other files, in another order, and with half of them twice.
  write_rows("a", Texts(texts.rbegin(), texts.rend()));
  write_rows("b", Texts(texts.begin(), texts.begin() + 200));
  prepare(rows);
  Texts again = sorted(documents_of(validation_prefix(output_)));
  again.erase(std::unique(again.begin(), again.end()), again.end());
  EXPECT_EQ(again, validation);
  for (const std::string& text : documents_of(output_))
    EXPECT_FALSE(std::ranges::binary_search(validation, text)) << text;
  rows.seed = 2;
  prepare(rows);
  EXPECT_NE(sorted(documents_of(validation_prefix(output_))), again);
}

TEST_F(PrepareRows, BothSidesGetADocumentWhateverTheFraction) {
  write_rows("a", {"one", "two", "one"});
  for (const double fraction : {1e-9, 0.5, 0.9999}) {
    PrepareOptions rows = options();
    rows.validation_fraction = fraction;
    prepare(rows);
    const Texts training = documents_of(output_),
                validation = documents_of(validation_prefix(output_));
    ASSERT_FALSE(training.empty()) << fraction;
    ASSERT_FALSE(validation.empty()) << fraction;
    EXPECT_NE(training[0], validation[0]) << "the same text on both sides";
    EXPECT_EQ(training.size() + validation.size(), 3U);
  }
  write_rows("a", {"one", "one"});
  PrepareOptions rows = options();
  rows.validation_fraction = 0.1;
  expect_config_error([&] { prepare(rows); }, {"a.jsonl has 1 text", "--validation-fraction 0"});
}

TEST_F(PrepareRows, ThatCannotBeUsedEndItOrAreSkipped) {
  const std::string bad[] = {"{\"text\": \"a\"", "{\"text\": \"\xff\"}", R"({"content": "a"})",
                             R"({"text": null})", R"(["a"])"};
  for (const std::string& row : bad) {
    write_text(folder_ / "in/a.jsonl", concat(row_of("one"), " \n", row, "\r\n", row_of("two")));
    expect_config_error([&] { prepare(options()); }, {"in/a.jsonl:3", "--skip-bad-rows"});
    EXPECT_TRUE(names_in(folder_ / "out").empty());
    PrepareOptions skip = options();
    skip.skip_bad_rows = true;
    skip.validation_fraction = 0.5;
    const PrepareReport report = prepare(skip);
    EXPECT_EQ(report.bad_rows, 1) << row;
    EXPECT_NE(report.first_bad_row.find("in/a.jsonl:3"), std::string::npos) << row;
    EXPECT_EQ(report.documents, 1);
    EXPECT_EQ(report.validation_documents, 1);
    std::filesystem::remove_all(folder_ / "out");
  }
  write_text(folder_ / "in/a.jsonl", concat(bad[0], "\n", bad[2], "\n", row_of("")));
  PrepareOptions skip = options();
  skip.skip_bad_rows = true;
  for (const double fraction : {0.0, 0.5}) {
    skip.validation_fraction = fraction;
    expect_config_error([&] { prepare(skip); }, {"has no row with a text", "a.jsonl:1"});
  }
}

TEST_F(PrepareRows, WithAnEmptyTextAreLeftOut) {
  write_rows("a", {"", "x", ""});
  const PrepareReport report = prepare(options());
  EXPECT_EQ(report.empty_rows, 2);
  EXPECT_EQ(documents_of(output_), (Texts{"x"}));
}

TEST_F(PrepareRows, OfAFolderAreThoseOfFilesWithTheirNames) {
  write_rows("a", {"1"});
  write_text(folder_ / "in/b.ndjson", row_of("2"));
  write_text(folder_ / "in/c.json", row_of("3"));
  write_text(folder_ / "in/d.txt", "4");
  prepare(options());
  EXPECT_EQ(documents_of(output_), (Texts{"1", "2"}));
  PrepareOptions rows = options();
  rows.globs = {"*.json"};
  prepare(rows);
  EXPECT_EQ(documents_of(output_), (Texts{"3"}));
  rows.globs = {};
  rows.excludes = {"b*"};
  prepare(rows);
  EXPECT_EQ(documents_of(output_), (Texts{"1"}));
  rows.inputs = {folder_ / "in/d.txt"};
  expect_config_error([&] { prepare(rows); }, {"d.txt:1 is not an object", "JSON lines"});
}

// What a preparation leaves and says.
struct Outcome {
  std::string files{};
  int64_t documents = 0, validation_documents = 0, bytes = 0, duplicates = 0, bad_rows = 0;
  std::string first_bad_row{};
  bool operator==(const Outcome&) const = default;
};

TEST_F(PrepareRows, GoOnWhereTheyWereInterrupted) {
  Texts texts = some_texts(3000);
  for (size_t i = 0; i < texts.size(); ++i) texts[i] += std::string(1000 + i % 7 * 400, 'x');
  texts[100].resize(9 << 20, 'y');  // of several pieces
  write_rows("a", texts);
  write_rows("b", Texts(texts.begin() + 1000, texts.begin() + 2000));
  write_text(folder_ / "in/c.jsonl", concat("{}\n", row_of("last")));
  PrepareOptions rows = options();
  rows.validation_fraction = 0.1;
  rows.dedupe = true;
  rows.skip_bad_rows = true;
  rows.journal_bytes = 1 << 20;
  const auto outcome_of = [&](const PrepareReport& report) {
    Outcome outcome{.documents = report.documents,
                    .validation_documents = report.validation_documents,
                    .bytes = report.bytes,
                    .duplicates = report.duplicates,
                    .bad_rows = report.bad_rows,
                    .first_bad_row = report.first_bad_row};
    for (const std::string& prefix : {output_, validation_prefix(output_)})
      outcome.files += read_file(bin_path(prefix)) + read_file(idx_path(prefix));
    return outcome;
  };
  const Outcome whole = outcome_of(prepare(rows));
  EXPECT_EQ(whole.duplicates, 1000);
  std::filesystem::remove_all(folder_ / "out");
  // Interrupted again and again, each time a little later.
  int64_t resumed = 0;
  int num_interruptions = 0;
  for (double share = 0.05;; share += 0.07) {
    rows.num_threads = 1 + num_interruptions % 3;
    try {
      const PrepareReport report = prepare(rows, [&](int64_t done, int64_t total) {
        if (static_cast<double>(done) > share * static_cast<double>(total))
          throw Error("the disk is full");
      });
      EXPECT_GE(report.bytes_resumed, resumed);
      resumed = report.bytes_resumed;
      EXPECT_EQ(outcome_of(report), whole);
      break;
    } catch (const Error& error) {
      ++num_interruptions;
      EXPECT_FALSE(is_file(bin_path(output_)));
      if (share > 0.5)
        EXPECT_NE(std::string(error.what()).find("run the same command"), std::string::npos);
    }
  }
  EXPECT_GE(num_interruptions, 10);
  EXPECT_GT(resumed, whole.bytes * 3 / 4);
  EXPECT_EQ(names_in(folder_ / "out"),
            (Texts{"x.bin", "x.idx", "x.tokenizer.json", "x.validation.bin", "x.validation.idx"}));
}

// What has been seen is forgotten with the tokens: else texts would be taken for repeated ones.
TEST_F(PrepareRows, ThatBeginAnewAfterDamageLeaveNoTextOut) {
  Texts texts = some_texts(3000);
  for (std::string& text : texts) text += std::string(2000, 'x');
  write_rows("a", texts);
  PrepareOptions rows = options();
  rows.dedupe = true;
  rows.journal_bytes = 1 << 20;
  const auto interrupt = [&](double share) {
    EXPECT_THROW(prepare(rows,
                         [&](int64_t done, int64_t total) {
                           if (static_cast<double>(done) > share * static_cast<double>(total))
                             throw Error("the disk is full");
                         }),
                 Error);
  };
  interrupt(0.8);
  const std::string work = folder_ / "out/.x.tmp";
  std::filesystem::resize_file(concat(work, "/", names_in(work).front(), "/training.bin"), 1000);
  interrupt(0.4);
  const PrepareReport report = prepare(rows);
  EXPECT_GT(report.bytes_resumed, 0);
  EXPECT_EQ(report.duplicates, 0);
  EXPECT_EQ(documents_of(output_), texts);
}

TEST_F(PrepareRows, ATokenizerThatWasTrainedIsKeptForTheNext) {
  if (!bpe_available()) GTEST_SKIP() << "built without SentencePiece";
  Texts texts = some_texts(2000);
  for (std::string& text : texts)
    for (int i = 0; i < 6; ++i) text += text;
  write_rows("a", texts);
  PrepareOptions rows = options();
  rows.tokenizer = TokenizerKind::kBpe;
  rows.vocab_size = 285;
  rows.tokenizer_sample_bytes = 100'000;
  rows.journal_bytes = 1;
  prepare(rows);
  const auto files = [&] { return read_file(bin_path(output_)) + read_file(idx_path(output_)); };
  const std::string whole = files();
  EXPECT_THROW(prepare(rows,
                       [](int64_t done, int64_t total) {
                         if (done == total) throw Error("the disk is full");
                       }),
               Error);
  const std::string work = folder_ / "out/.x.tmp";
  EXPECT_EQ(read_file(concat(work, "/", names_in(work).front(), "/trained.model")),
            read_file(tokenizer_model_path(output_)));
  prepare(rows);
  EXPECT_EQ(files(), whole);
}

TEST_F(PrepareRows, OfOtherFilesOrOptionsBeginAnew) {
  write_rows("a", Texts(16, std::string(256 << 10, 'x')));
  PrepareOptions rows = options();
  rows.journal_bytes = 1 << 20;
  const auto interrupt = [&] {
    EXPECT_THROW(prepare(rows,
                         [&](int64_t done, int64_t total) {
                           if (done > total / 2) throw Error("the disk is full");
                         }),
                 Error);
  };
  interrupt();
  PrepareOptions wrong = rows;
  wrong.text_key = "nothing";
  expect_config_error([&] { prepare(wrong); }, {"has no \"nothing\""});
  EXPECT_GT(prepare(rows).bytes_resumed, 0) << "a mistake throws nothing away";
  interrupt();
  rows.append_end_of_document = false;
  EXPECT_EQ(prepare(rows).bytes_resumed, 0);
  interrupt();
  write_rows("a", Texts(20, std::string(256 << 10, 'x')));
  EXPECT_EQ(prepare(rows).bytes_resumed, 0);
  interrupt();
  const auto left = [&](const char* name) {
    return folder_ / concat("out/.x.tmp/", names_in(folder_ / "out/.x.tmp").front(), "/", name);
  };
  const std::string journal = left("journal.json");
  write_text(journal, read_file(journal).substr(0, 40));
  EXPECT_EQ(prepare(rows).bytes_resumed, 0) << "a damaged journal";
  interrupt();
  std::filesystem::resize_file(left("training.bin"), 1000);
  EXPECT_EQ(prepare(rows).bytes_resumed, 0) << "fewer tokens than the journal says";
}

TEST_F(PrepareRows, ATokenizerIsTrainedOnTextForTraining) {
  if (!bpe_available()) GTEST_SKIP() << "built without SentencePiece";
  write_rows("a", some_texts(200));
  PrepareOptions rows = options();
  rows.validation_fraction = 0.2;
  prepare(rows);
  const Texts validation = documents_of(validation_prefix(output_));
  const RowTextOptions all{.form = {.key = TextKey("text")}, .split = {.fraction = 0.2}};
  const std::vector<Document> files = find_documents({.inputs = {folder_ / "in"}, .as_text = true});
  size_t count = 0;
  const auto next = sample_rows(files, all, int64_t{1} << 20);
  for (std::string text = next(); !text.empty(); text = next(), ++count)
    EXPECT_EQ(std::ranges::count(validation, text), 0) << text;
  EXPECT_EQ(count + validation.size(), 200U) << "all of it, when it is small";
  // A quarter of the bytes.
  int64_t stored = 0;
  for (const Document& file : files) stored += file.size();
  const auto part = sample_rows(files, all, stored / 4);
  count = 0;
  for (std::string text = part(); !text.empty(); text = part()) ++count;
  // Binomial: 40 expected of 160, standard deviation 5.5; the rows are fixed.
  EXPECT_NEAR(static_cast<double>(count), 40, 22);
}

}  // namespace
}  // namespace trireme::dataset
