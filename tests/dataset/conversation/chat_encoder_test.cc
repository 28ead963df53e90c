#include "trireme/dataset/conversation/chat_encoder.h"

#include "tests/dataset/conversation/chat_folder.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;

class ChatEncoderTest : public testing::Test {
 protected:
  ChatEncoder encoder(std::string_view chat_template, const std::string& end = "") const {
    write_chat_folder(folder_.path(), chat_template);
    return {read_chat_format({.tokenizer = folder_.path()}), end};
  }
  // Messages of user and assistant in turn.
  static Conversation turns(const std::vector<std::string>& contents) {
    ordered_json messages = ordered_json::array();
    for (const std::string& content : contents) {
      messages.push_back(
          {{"role", messages.size() % 2 == 0 ? "user" : "assistant"}, {"content", content}});
    }
    return {.variables = {{"messages", messages}}};
  }
  // The text that is learnt, with "~" where something is left out.
  static std::string learnt(const ChatEncoder& encoder, const Conversation& conversation) {
    const ChatTokens found = encoder.encode(conversation, "a:1");
    const ByteLevelBpe bpe(read_tokenizer_file(small_tokenizer_text(), ""), kEndOfDocument, "",
                           UsualEnd::kIsToken);
    std::string text;
    for (size_t i = 0; i < found.tokens.size(); ++i) {
      if (found.learnt[i] == 1) {
        text += bpe.decode({&found.tokens[i], 1});
      } else if (!text.ends_with('~')) {
        text += '~';
      }
    }
    return text;
  }
  TemporaryFolder folder_;
};

TEST_F(ChatEncoderTest, SpecialTokensOfTheTemplateAreOneEach) {
  const ChatTokens found = encoder(kMarkedTemplate).encode(turns({"a", "b"}), "a:1");
  std::vector<int32_t> expected = {kStart};
  for (const char c : std::string("user|a")) expected.push_back(c);
  expected.insert(expected.end(), {kEndOfTurn, kStart});
  for (const char c : std::string("assistant|b")) expected.push_back(c);
  expected.push_back(kEndOfTurn);
  EXPECT_EQ(found.tokens, expected);
  std::vector<int32_t> learnt(expected.size());
  learnt[learnt.size() - 1] = learnt[learnt.size() - 2] = 1;
  EXPECT_EQ(found.learnt, learnt);
}

TEST_F(ChatEncoderTest, APromptEndsWhereTheAnswerBegins) {
  const std::vector<int32_t> found =
      encoder(kMarkedTemplate).encode_prompt(turns({"a", "b", "c"}), "a:1");
  std::vector<int32_t> expected =
      encoder(kMarkedTemplate).encode(turns({"a", "b", "c"}), "").tokens;
  expected.push_back(kStart);
  for (const char c : std::string("assistant|")) expected.push_back(c);
  EXPECT_EQ(found, expected);
}

TEST_F(ChatEncoderTest, TheUsualEndOfADocumentIsATokenToo) {
  const ChatTokens found =
      encoder("{{ messages[0].content }}").encode(turns({"<|endoftext|>"}), "a");
  EXPECT_EQ(found.tokens, std::vector<int32_t>{kEndOfText});
}

TEST_F(ChatEncoderTest, MarksAndPrefixesSayTheSame) {
  const Conversation conversation = turns({"Hi", "Hello", "", "", "x", "yz"});
  const std::string expected = "~Hello</s>~</s>~yz</s>";
  EXPECT_EQ(learnt(encoder(kMarkedTemplate), conversation), expected);
  EXPECT_EQ(learnt(encoder(kPlainTemplate), conversation), expected);
}

TEST_F(ChatEncoderTest, TheGenerationPromptIsNotLearnt) {
  const std::string thinks =
      "{% for m in messages %}<|im_start|>{{ m.role }}|"
      "{% if m.role == 'assistant' %}<think>{% endif %}{{ m.content }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant|<think>{% endif %}";
  EXPECT_EQ(learnt(encoder(thinks), turns({"u", "hm"})), "~hm</s>");
}

TEST_F(ChatEncoderTest, ATokenCountsWithTheFirstCharacterItHolds) {
  // "ab" is one token, of which only the second character is the assistant's.
  const std::string in_a_token =
      "{% for m in messages %}a{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
  EXPECT_EQ(learnt(encoder(in_a_token), turns({"b."})), "ab.");
  // A character of several tokens counts with the first, as in transformers.
  EXPECT_EQ(learnt(encoder(in_a_token), turns({"x\u00e9"})), "~x\xc3~");
  EXPECT_EQ(learnt(encoder(in_a_token), turns({"\u00e9x"})), "~\u00e9x");
  EXPECT_EQ(learnt(encoder(in_a_token), turns({""})), "~");
}

TEST_F(ChatEncoderTest, WithoutAnAssistantNothingIsLearnt) {
  EXPECT_EQ(learnt(encoder(kMarkedTemplate), turns({"u"})), "~");
  EXPECT_EQ(learnt(encoder(kPlainTemplate), turns({"u"})), "~");
}

TEST_F(ChatEncoderTest, ATemplateThatChangesWhatIsBeforeIsRefused) {
  // As Qwen3 does with the thoughts of earlier turns.
  const std::string last =
      "{% for m in messages %}<|im_start|>{{ m.role }}|{% if loop.last %}!{% endif %}"
      "{{ m.content }}</s>{% endfor %}";
  const ChatEncoder changing = encoder(last);
  expect_config_error(
      [&] {
        changing.encode(turns({"a", "b", "c"}), "chat.jsonl:3");
      },
      {"chat.jsonl:3: the chat template does not render message 1", "{% generation %}",
       "--chat-template"});
}

TEST_F(ChatEncoderTest, ATemplateThatRefusesIsALineWithThePlace) {
  const ChatEncoder strict = encoder("{{ raise_exception('no users') }}");
  expect_config_error([&] { strict.encode(turns({"a"}), "chat.jsonl:3"); },
                      {"chat.jsonl:3: ", "chat_template.jinja: line 1", "no users"});
}

TEST_F(ChatEncoderTest, ToolsAndOptionsReachTheTemplate) {
  const ChatEncoder chat = encoder("{{ tools[0].name }} {{ mood }} {{ eos_token }}");
  Conversation conversation = turns({"a"});
  conversation.variables["tools"] = {{{"name", "f"}}};
  conversation.variables["mood"] = "calm";
  const ChatTokens found = chat.encode(conversation, "a:1");
  EXPECT_EQ(std::string(found.tokens.begin(), found.tokens.end() - 1), "f calm ");
  EXPECT_EQ(found.tokens.back(), kEndOfTurn);
}

TEST_F(ChatEncoderTest, TheEndOfATextIsTheModelsOrTheOneThatIsGiven) {
  EXPECT_EQ(encoder("x").end_of_document(), kEndOfTurn);
  EXPECT_EQ(encoder("x", "<|im_start|>").end_of_document(), kStart);
  expect_config_error([&] { encoder("x", "<none>"); }, {"no added token is \"<none>\""});
  write_chat_folder(folder_.path(), "x", R"({"eos_token": "<none>"})");
  const ChatEncoder usual(read_chat_format({.tokenizer = folder_.path()}), "");
  EXPECT_EQ(usual.end_of_document(), kEndOfText);
}

TEST_F(ChatEncoderTest, TextsThatGrowWithoutEndAreRefused) {
  // 256 MiB of texts before 40 messages.
  const std::string large = "{{ 'x' * 8000000 }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const ChatEncoder growing = encoder(large);
  expect_config_error([&] { growing.encode(turns(std::vector<std::string>(400, "a")), "a:1"); },
                      {"a:1: ", "more than 268435456 bytes"});
}

}  // namespace
}  // namespace trireme::dataset
