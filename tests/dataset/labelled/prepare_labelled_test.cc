#include "trireme/dataset/labelled/prepare_labelled.h"

#include "tests/dataset/conversation/chat_folder.h"
#include "trireme/dataset/labelled/class_names.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_stream.h"

namespace trireme::dataset {
namespace {

class PrepareLabelled : public testing::Test {
 protected:
  PrepareLabelled() {
    write_chat_folder(folder_ / "model", "",
                      R"({"cls_token": "<|im_start|>", "sep_token": {"content": "</s>"}})");
  }
  PrepareLabelledOptions options() const {
    return {.inputs = {folder_ / "rows.jsonl"},
            .tokenizer_model = folder_ / "model",
            .output = folder_ / "out/x"};
  }
  void write_rows(const std::vector<std::string>& labels) const {
    std::string text;
    for (size_t i = 0; i < labels.size(); ++i) {
      text +=
          concat(R"({"text": ")", std::string(i % 5, 'q'), R"(", "label": )", labels[i], "}\n\n");
    }
    write_text(folder_ / "rows.jsonl", text);
  }
  std::vector<int64_t> labels(const std::string& prefix) const {
    return read_all(*TokenStream(prefix, 0).labels());
  }
  TemporaryFolder folder_;
  std::string output_ = folder_ / "out/x";
};

TEST_F(PrepareLabelled, ARowIsADocumentWithALabel) {
  write_rows({"\"b\"", "\"a\"", "\"c\"", "\"a\""});
  const PrepareLabelledReport report = prepare_labelled(options());
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.classes.json", "x.idx", "x.label.bin",
                                      "x.label.idx", "x.tokenizer.json", "x.tokenizer.model"}));
  const TokenStream stream(output_, 264);
  EXPECT_EQ(read_all(stream.file()),
            (std::vector<int64_t>{kStart, kEndOfTurn, kStart, 'q', kEndOfTurn, kStart, 'q', 'q',
                                  kEndOfTurn, kStart, 'q', 'q', 'q', kEndOfTurn}));
  EXPECT_EQ(stream.file().num_documents(), 4);
  EXPECT_EQ(labels(output_), (std::vector<int64_t>{1, 0, 2, 0}));
  EXPECT_EQ(report.classes, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(report.texts, 4);
  EXPECT_EQ(report.tokens, 14);
  EXPECT_EQ(report.longest_tokens, 5);
  EXPECT_EQ(load_tokenizer(output_)->end_of_document(), kEndOfTurn);
}

TEST_F(PrepareLabelled, ValidationHasTheClassesOfTraining) {
  std::vector<std::string> rows;
  for (int i = 0; i < 60; ++i) rows.push_back(std::to_string(i % 12));
  write_rows(rows);
  PrepareLabelledOptions wanted = options();
  wanted.validation_fraction = 0.2;
  const PrepareLabelledReport report = prepare_labelled(wanted);
  EXPECT_EQ(report.texts + report.validation_texts, 60);
  EXPECT_GT(report.validation_texts, 0);
  // Numbers in their order: "10" comes after "9".
  EXPECT_EQ(report.classes.back(), "11");
  std::vector<int64_t> all = labels(output_), others = labels(validation_prefix(output_));
  EXPECT_EQ(std::ssize(all), report.texts);
  all.insert(all.end(), others.begin(), others.end());
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i / 5));
  write_rows({"1", "2", "3", "4", "5", "6"});
  expect_config_error([&] { prepare_labelled(wanted); }, {"rows.jsonl:", "training does not have"});
  // The files of before are whole.
  EXPECT_EQ(std::ssize(labels(output_)), report.texts);
}

TEST_F(PrepareLabelled, WhatCannotBeUsedIsOneLine) {
  write_rows({"\"a\"", "null"});
  expect_config_error([&] { prepare_labelled(options()); }, {"rows.jsonl:3", "label"});
  write_rows({"\"a\"", "\"b\""});
  PrepareLabelledOptions other = options();
  other.tokenizer_model = "";
  expect_config_error([&] { prepare_labelled(other); }, {"--tokenizer-model"});
  other = options();
  other.end_of_document = "[END]";
  expect_config_error([&] { prepare_labelled(other); }, {"[END]"});
  write_text(folder_ / "model/tokenizer_config.json", "{}");
  expect_config_error([&] { prepare_labelled(options()); }, {"no added token [CLS] or <s>"});
  EXPECT_FALSE(std::filesystem::exists(output_ + ".bin"));
}

}  // namespace
}  // namespace trireme::dataset
