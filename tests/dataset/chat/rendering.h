// Short ways to render a template in a test.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/dataset/chat/chat_template.h"

namespace trireme::dataset {

inline nlohmann::ordered_json some_variables() {
  return nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
    "n": 3, "s": "h\u00e9llo", "l": [3, 1, 2], "d": {"b": 1, "a": [null, true, 1.5]}})");
}

inline std::string render_text(std::string_view text, const ChatTemplateLimits& limits = {}) {
  return ChatTemplate(text, "chat.jinja", limits).render(some_variables()).text;
}

// The message of the error in which reading or rendering ends; a failure when there is none.
inline std::string error_of(std::string_view text, const ChatTemplateLimits& limits = {}) {
  try {
    ADD_FAILURE() << "renders: " << render_text(text, limits);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("chat.jinja: line ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1500u) << message;
    return message;
  }
  return "";
}

inline void expect_error(std::string_view text, std::string_view part,
                         const ChatTemplateLimits& limits = {}) {
  const std::string message = error_of(text, limits);
  EXPECT_NE(message.find(part), std::string::npos) << text.substr(0, 200) << "\n" << message;
}

inline std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

}  // namespace trireme::dataset
