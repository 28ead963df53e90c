#include "trireme/dataset/chat/chat_template.h"

#include <thread>
#include <vector>

#include "tests/dataset/chat/rendering.h"

namespace trireme::dataset {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono;

TEST(ChatTemplate, RendersAConversation) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "chat.jinja");
  ordered_json variables = some_variables();
  EXPECT_EQ(chat.render(variables).text, "<user>Hi<assistant>Hello");
  variables["add_generation_prompt"] = true;
  EXPECT_EQ(chat.render(variables).text, "<user>Hi<assistant>Hello<assistant>");
}

TEST(ChatTemplate, SaysWhichBytesTheAssistantSays) {
  const ChatTemplate chat(
      "\u00e9{% for m in messages %}{% generation %}{{ m.content }}\u00df{% endgeneration %}|"
      "{% endfor %}",
      "chat.jinja");
  const auto rendered = chat.render(some_variables());
  EXPECT_EQ(rendered.text, "\u00e9Hi\u00df|Hello\u00df|");
  const std::vector<std::pair<size_t, size_t>> expected = {{2, 6}, {7, 14}};
  EXPECT_EQ(rendered.generated, expected);
}

TEST(ChatTemplate, KeepsVariablesOfAGenerationBlockInside) {
  EXPECT_EQ(render_text("{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}"),
            "False");
}

TEST(ChatTemplate, RefusesAGenerationBlockWhosePlaceIsUnknown) {
  expect_error("{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}{{ f() }}",
               "generation block is inside");
  expect_error("{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
               "generation block is inside");
}

TEST(ChatTemplate, HandsReasoningUnderEachOfItsNames) {
  const ChatTemplate chat("{{ messages[0] }}", "chat.jinja");
  const auto text = [&](ordered_json message) {
    return chat.render({{"messages", ordered_json::array({std::move(message)})}}).text;
  };
  EXPECT_EQ(text({{"role", "a"}, {"reasoning", "x"}}),
            "{'thinking': 'x', 'role': 'a', 'reasoning': 'x', 'reasoning_content': 'x'}");
  EXPECT_EQ(text({{"reasoning_content", "x"}, {"thinking", "y"}}),
            "{'thinking': 'y', 'reasoning_content': 'x'}");
  EXPECT_EQ(text({{"role", "a"}, {"thinking", nullptr}}), "{'role': 'a', 'thinking': None}");
}

TEST(ChatTemplate, FormatsTheTimeItIsGiven) {
  const ChatTemplate chat("{{ strftime_now('%d %b %Y, %-d %A %j %H:%M:%S') }}", "chat.jinja");
  EXPECT_EQ(chat.render(some_variables(), local_days(2024y / December / 31d) + hours(23)).text,
            "31 Dec 2024, 31 Tuesday 366 23:00:00");
  EXPECT_EQ(chat.render(some_variables(), local_days(2025y / March / 9d) + seconds(62)).text,
            "09 Mar 2025, 9 Sunday 068 00:01:02");
}

TEST(ChatTemplate, RefusesATimeThatItIsNotGiven) {
  expect_error("a\n{{ strftime_now('%Y') }}", "line 2 of the chat template: asks for the time");
}

TEST(ChatTemplate, BoundsTheFormatOfTheTime) {
  const auto refuses = [](const std::string& format) {
    const ChatTemplate chat("{{ strftime_now('" + format + "') }}", "chat.jinja");
    EXPECT_THROW(chat.render(some_variables(), local_seconds()), ConfigError) << format;
  };
  for (const char* format : {"%", "%-", "%99999999d", "%E", "%N", "%_d"}) refuses(format);
  refuses(repeated("%Y", 200));
}

TEST(ChatTemplate, TurnsRaiseExceptionIntoAConfigErrorWithItsWords) {
  expect_error("x\n{{ raise_exception('only\nuser roles') }}",
               "chat.jinja: line 2 of the chat template: the template refuses: only?user roles");
}

TEST(ChatTemplate, RefusesVariablesThatAreNoConversation) {
  const ChatTemplate chat("", "chat.jinja");
  EXPECT_THROW(chat.render(ordered_json::array()), ConfigError);
  EXPECT_THROW(chat.render(ordered_json::object()), ConfigError);
  EXPECT_THROW(chat.render({{"messages", 1}}), ConfigError);
  EXPECT_THROW(chat.render({{"messages", ordered_json::array({1})}}), ConfigError);
}

TEST(ChatTemplate, RefusesValuesThatPythonWouldShowOtherwise) {
  const ChatTemplate chat("{{ x }}", "chat.jinja");
  const auto render = [&](ordered_json x) {
    return chat.render({{"messages", ordered_json::array()}, {"x", std::move(x)}}).text;
  };
  EXPECT_EQ(render(9223372036854775807u), "9223372036854775807");
  EXPECT_THROW(render(9223372036854775808u), ConfigError);
  EXPECT_THROW(render("\xff"), ConfigError);
  ordered_json deep;
  for (int i = 0; i < 150; ++i) deep = ordered_json::array({deep});
  EXPECT_THROW(render(deep), ConfigError);
}

TEST(ChatTemplate, RendersTheSameInEachThread) {
  const ChatTemplate chat("{% for m in messages %}{{ m | tojson }}{% endfor %}", "chat.jinja");
  const std::string expected = chat.render(some_variables()).text;
  std::vector<std::string> texts(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& text : texts) {
      threads.emplace_back([&] { text = chat.render(some_variables()).text; });
    }
  }
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace trireme::dataset
