// The text of a row of JSON, such as {"text": "...", "url": "..."}, which becomes a document.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace trireme::dataset {

inline constexpr size_t kMaxTextRowBytes = size_t{64} << 20;  // of a line, or of a value
inline constexpr size_t kJsonPadding = 64;

// The member of a row that has the text. Thread safe.
class TextKey {
 public:
  // name: "text", or "data.text" for the member "text" of the member "data" of rows that have no
  //       member "data.text"
  // Throws: ConfigError when it is no name, or has an empty part
  explicit TextKey(std::string name);

  // Puts the text into the place of the line's beginning; it is never longer. Behind the line,
  // kJsonPadding bytes can be read.
  // where: file and line, the start of every message
  // Throws: ConfigError when the line is not an object in which that member is a text
  std::string_view text_in(std::span<char> line, const std::function<std::string()>& where) const;

  const std::string& name() const { return name_; }

 private:
  // By the parser that says what is wrong.
  std::string explained_text(std::string_view line, const std::string& where) const;

  std::string name_;
};

// ` has no "text" but "content", "url"`: for a message about an object without a member.
std::string lacks_member(const nlohmann::json& object, std::string_view name);
std::string lacks_member(const nlohmann::ordered_json& object, std::string_view name);

}  // namespace trireme::dataset
