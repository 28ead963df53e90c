#include "trireme/dataset/conversation/prepare_chat.h"

#include <algorithm>
#include <chrono>

#include "tests/dataset/conversation/chat_folder.h"
#include "trireme/dataset/conversation/conversation.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_stream.h"
#include "trireme/dataset/tokenizer.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

class PrepareChat : public testing::Test {
 protected:
  PrepareChat() { write_chat_folder(folder_ / "model"); }
  PrepareChatOptions options() const {
    return {.inputs = {folder_ / "chat.jsonl"},
            .tokenizer_model = folder_ / "model",
            .output = folder_ / "out/x"};
  }
  void write_lines(const std::vector<std::string>& lines) const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_text(folder_ / "chat.jsonl", text);
  }
  static std::string line(const std::string& user, const std::string& assistant) {
    return ordered_json({{"messages",
                          {{{"role", "user"}, {"content", user}},
                           {{"role", "assistant"}, {"content", assistant}}}}})
        .dump();
  }
  void write_many(int count) const {
    std::vector<std::string> lines;
    for (int i = 0; i < count; ++i) lines.push_back(line(concat("u", i), concat("a", i)));
    write_lines(lines);
  }
  // The text of the first conversation behind its first "|".
  std::vector<int64_t> masked(const std::string& prefix) const {
    const TokenStream stream(prefix, 0);
    std::vector<int64_t> mask(static_cast<size_t>(stream.file().num_tokens()));
    stream.mask()->read(0, mask);
    return mask;
  }
  TemporaryFolder folder_;
  std::string output_ = folder_ / "out/x";
};

TEST_F(PrepareChat, AConversationIsADocumentWithAMask) {
  write_lines({line("u", "Hi"), "", line("x", "")});
  const PrepareChatReport report = prepare_chat(options());
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.chat_template.jinja", "x.idx", "x.loss.bin",
                                      "x.loss.idx", "x.tokenizer.json", "x.tokenizer.model"}));
  const TokenStream stream(output_, 264);
  // <|im_start|>user|u</s><|im_start|>assistant|Hi</s>
  EXPECT_EQ(stream.file().document(0).size, 1 + 6 + 1 + 1 + 10 + 2 + 1);
  EXPECT_EQ(stream.file().document(1).size, stream.file().document(0).size - 2);
  EXPECT_EQ(report.training.lines, 2);
  EXPECT_EQ(report.training.tokens, stream.file().num_tokens());
  EXPECT_EQ(report.training.trained_tokens, 4);
  EXPECT_EQ(report.longest_tokens, 22);
  EXPECT_EQ(report.untrained, 0);
  EXPECT_EQ(report.vocab_size, 264);
  EXPECT_TRUE(report.is_marked);
  const std::vector<int64_t> mask = masked(output_);
  EXPECT_EQ(std::ranges::count(mask, 1), 4);
  EXPECT_EQ(std::vector<int64_t>(mask.begin() + 19, mask.begin() + 22),
            (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(load_tokenizer(output_)->end_of_document(), kEndOfTurn);
  EXPECT_EQ(read_file(output_ + ".chat_template.jinja"), kMarkedTemplate);
}

TEST_F(PrepareChat, APreferenceIsTwoDocumentsWhoseAnswersAreMarked) {
  write_lines({R"({"prompt": [{"role": "user", "content": "u"}], )"
               R"("chosen": [{"role": "assistant", "content": "Hi"}], )"
               R"("rejected": [{"role": "assistant", "content": "x"}]})",
               R"({"prompt": "Q", "chosen": "R", "rejected": "ST"})"});
  PrepareChatOptions pairs = options();
  pairs.lines = ChatLines::kPreferences;
  const PrepareChatReport report = prepare_chat(pairs);
  const TokenStream stream(output_, 264);
  EXPECT_TRUE(stream.has_pairs());
  EXPECT_EQ(stream.file().num_documents(), 4);
  EXPECT_EQ(report.training.lines, 2);
  // Of the first two: Hi</s> and x</s> behind the generation prompt; of the others R</s>, ST</s>.
  EXPECT_EQ(report.training.trained_tokens, 3 + 2 + 2 + 3);
  const std::vector<int64_t> mask = masked(output_);
  EXPECT_EQ(std::ranges::count(mask, kLearntToken), 3 + 2);
  EXPECT_EQ(std::ranges::count(mask, kRejectedToken), 2 + 3);
  EXPECT_EQ(std::vector<int64_t>(mask.end() - 7, mask.end()),
            (std::vector<int64_t>{0, 1, 1, 0, 2, 2, 2}));
  EXPECT_EQ(stream.file().document(2).size, 3);
  // Conversations of such lines have no "messages".
  expect_config_error([&] { prepare_chat(options()); }, {"chat.jsonl:1 has no \"messages\""});
}

TEST_F(PrepareChat, PreferencesOfTextsNeedNoTemplate) {
  std::filesystem::remove(folder_ / "model/chat_template.jinja");
  PrepareChatOptions pairs = options();
  pairs.lines = ChatLines::kPreferences;
  write_lines({R"({"prompt": "a", "chosen": "b", "rejected": "c"})"});
  prepare_chat(pairs);
  EXPECT_FALSE(std::filesystem::exists(output_ + ".chat_template.jinja"));
  expect_config_error([&] { prepare_chat(options()); }, {"there is no chat template"});
}

TEST_F(PrepareChat, ValidationIsDrawnAndNeverEmpty) {
  write_many(200);
  PrepareChatOptions chat = options();
  chat.validation_fraction = 0.1;
  const PrepareChatReport report = prepare_chat(chat);
  EXPECT_EQ(report.training.lines + report.validation.lines, 200);
  EXPECT_NEAR(static_cast<double>(report.validation.lines), 20, 13);  // 3 sigma
  EXPECT_EQ(TokenStream(validation_prefix(output_), 0).file().num_documents(),
            report.validation.lines);
  EXPECT_EQ(TokenStream(validation_prefix(output_), 0).mask()->num_tokens(),
            report.validation.tokens);
  write_many(2);
  for (const double fraction : {1e-9, 0.999}) {
    chat.validation_fraction = fraction;
    EXPECT_EQ(prepare_chat(chat).validation.lines, 1) << fraction;
  }
  write_many(1);
  expect_config_error([&] { prepare_chat(chat); },
                      {"has 1 conversation", "--validation-fraction 0"});
}

TEST_F(PrepareChat, TheSameInputGivesTheSameBytes) {
  write_many(50);
  PrepareChatOptions chat = options();
  chat.validation_fraction = 0.2;
  prepare_chat(chat);
  const auto bytes = [&] {
    std::string all;
    for (const std::string& name : names_in(folder_ / "out")) {
      all += name + read_file(folder_ / "out" / name);
    }
    return all;
  };
  const std::string first = bytes();
  prepare_chat(chat);
  EXPECT_EQ(bytes(), first);
}

TEST_F(PrepareChat, PlainTextInItsPlaceHasNoMask) {
  write_many(10);
  PrepareChatOptions chat = options();
  chat.validation_fraction = 0.3;
  prepare_chat(chat);
  write_text(folder_ / "text", "some text");
  prepare({.inputs = {folder_ / "text"}, .output = output_});
  EXPECT_EQ(names_in(folder_ / "out"),
            (std::vector<std::string>{"x.bin", "x.idx", "x.tokenizer.json"}));
}

TEST_F(PrepareChat, ReadsFoldersOfJsonLines) {
  write_text(folder_ / "in/b.jsonl", line("u", "b"));
  write_text(folder_ / "in/a.jsonl", line("u", "a") + "\n" + line("u", "c"));
  write_text(folder_ / "in/notes.txt", "no conversation");
  PrepareChatOptions chat = options();
  chat.inputs = {folder_ / "in"};
  EXPECT_EQ(prepare_chat(chat).training.lines, 3);
}

TEST_F(PrepareChat, AnUnusableLineIsNamedAndLeavesNothing) {
  const std::string file = folder_ / "chat.jsonl";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {R"({"messages": [{"role": "wizard", "content": "x"}]})", {":3", "the role \"wizard\""}},
      {R"({"text": "x"})", {":3 has no \"messages\" but \"text\""}},
      {"{", {":3: the text is not valid JSON"}},
      {R"({"messages": [{"role": "user", "content": "\ud800"}]})", {":3: the text is not"}},
      {std::string(kMaxConversationBytes + 1, 'x'), {":3 has more than 16777216 bytes"}}};
  for (const auto& [bad, parts] : cases) {
    write_lines({line("u", "a"), line("u", "b"), bad});
    std::vector<std::string> all = {file};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_config_error([&] { prepare_chat(options()); }, all);
    EXPECT_EQ(names_in(folder_ / "out"), std::vector<std::string>{});
  }
}

TEST_F(PrepareChat, WithoutAnythingToLearnItIsRefused) {
  write_lines({R"({"messages": [{"role": "user", "content": "x"}]})"});
  expect_config_error([&] { prepare_chat(options()); }, {"has 1 conversations, and none"});
}

TEST_F(PrepareChat, UsesTheTimeItIsGiven) {
  using namespace std::chrono;
  write_chat_folder(folder_ / "model",
                    "{{ strftime_now('%Y') }}{% generation %}x{% endgeneration %}");
  write_lines({line("u", "a")});
  PrepareChatOptions chat = options();
  chat.now = local_seconds(local_days(2031y / March / 9d));
  prepare_chat(chat);
  std::vector<int64_t> tokens(5);
  TokenStream(output_, 0).read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{'2', '0', '3', '1', 'x'}));
}

TEST_F(PrepareChat, RefusesOptionsThatAreWrong) {
  write_many(3);
  PrepareChatOptions chat = options();
  chat.tokenizer_model = "";
  expect_config_error([&] { prepare_chat(chat); }, {"--tokenizer-model"});
  chat = options();
  chat.validation_fraction = 1;
  expect_config_error([&] { prepare_chat(chat); }, {"validation_fraction is 1"});
  chat = options();
  chat.output = folder_ / "out/";
  expect_config_error([&] { prepare_chat(chat); }, {"expected a prefix"});
  chat = options();
  chat.inputs = {folder_ / "none"};
  expect_config_error([&] { prepare_chat(chat); }, {"none does not exist"});
}

}  // namespace
}  // namespace trireme::dataset
