#include "trireme/dataset/chat/syntax/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "trireme/base/bounded_json.h"
#include "trireme/base/locale/text.h"
#include "trireme/dataset/chat/syntax/literal.h"
#include "trireme/dataset/chat/values/characters.h"

namespace trireme::dataset::chat {

// Jinja's lexer is a list of regular expressions. This one takes the same decisions by hand, in
// time that is linear in the text.

namespace {

constexpr size_t kNotFound = std::string_view::npos;

// All line ends as \n, and without the last.
std::string with_plain_line_ends(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      plain.push_back(text[i]);
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      plain.push_back('\n');
    }
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_sign(char c) { return c == '-' || c == '+'; }

class Lexer {
 public:
  Lexer(Run& run, std::string_view text) : run_(run), text_(text) {}

  std::vector<Token> split() {
    while (read_data()) {
      const char kind = at(position_ + 1);
      const std::string_view tag = text_.substr(position_);
      if (const auto end = raw_begin_end(tag)) {
        read_raw(position_ + *end);
      } else if (kind == '#') {
        skip_comment();
      } else {
        read_tag(kind == '%');
      }
    }
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  char at(size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  bool has(size_t position, std::string_view word) const {
    return text_.substr(std::min(position, text_.size())).starts_with(word);
  }

  // Moves on, and keeps the line.
  void move_to(size_t position) {
    const std::string_view passed = text_.substr(position_, position - position_);
    line_ += static_cast<size_t>(std::ranges::count(passed, '\n'));
    run_.set_line(line_);
    position_ = position;
  }

  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }

  size_t skip_space(size_t position) const {
    while (position < text_.size()) {
      size_t next = position;
      if (!is_space(next_character(text_, next))) break;
      position = next;
    }
    return position;
  }

  // Where the next tag begins; the end when there is none.
  size_t find_tag(size_t position) const {
    for (; (position = text_.find('{', position)) != kNotFound; ++position) {
      const char kind = at(position + 1);
      if (kind == '{' || kind == '%' || kind == '#') return position;
    }
    return text_.size();
  }

  // Reads text up to the next tag. False: there is none.
  bool read_data() {
    const size_t tag = find_tag(position_);
    const std::string_view data = text_.substr(position_, tag - position_);
    if (tag == text_.size()) {
      if (!data.empty()) add(TokenKind::kData, std::string(data));
      move_to(tag);
      return false;
    }
    add_data(data, at(tag + 2), /*strips_line=*/at(tag + 1) != '{');
    move_to(tag);
    return true;
  }

  // Text before a tag with `sign` behind its brace.
  void add_data(std::string_view data, char sign, bool strips_line) {
    if (sign == '-') {
      data = strip(data, {}, {.left = false});
    } else if (sign != '+' && strips_line) {
      const size_t line_end = data.rfind('\n');
      const size_t begin = line_end == kNotFound ? 0 : line_end + 1;
      const bool at_line_start = begin > 0 || line_starts_;
      if (at_line_start && strip(data.substr(begin)).empty()) data = data.substr(0, begin);
    }
    if (!data.empty()) add(TokenKind::kData, std::string(data));
  }

  // Where the content of a tag begins, behind its sign.
  size_t behind_sign(size_t position) const { return position + (is_sign(at(position)) ? 1 : 0); }

  // Ends a tag at `position`: white space goes behind a '-', a line end behind a block.
  void finish_tag(size_t position, bool strips_all, bool strips_line_end) {
    if (strips_all) {
      position = skip_space(position);
    } else if (strips_line_end && at(position) == '\n') {
      ++position;
    }
    line_starts_ = position > 0 && text_[position - 1] == '\n';
    move_to(position);
  }

  // The length of a {% raw %} at the start of `tag`, which ends before white space.
  std::optional<size_t> raw_begin_end(std::string_view tag) const {
    const size_t begin = static_cast<size_t>(tag.data() - text_.data());
    if (!tag.starts_with("{%")) return std::nullopt;
    size_t end = skip_space(behind_sign(begin + 2));
    if (!has(end, "raw")) return std::nullopt;
    end = skip_space(end + 3);
    if (has(end, "-%}")) return end + 3 - begin;
    if (has(end, "%}")) return end + 2 - begin;
    return std::nullopt;
  }

  // The content of a raw block is data.
  void read_raw(size_t begin) {
    finish_tag(begin, at(begin - 3) == '-', /*strips_line_end=*/false);
    for (size_t tag = position_; (tag = text_.find("{%", tag)) != kNotFound; ++tag) {
      size_t end = skip_space(behind_sign(tag + 2));
      if (!has(end, "endraw")) continue;
      end = skip_space(end + 6);
      const char sign = is_sign(at(end)) ? at(end) : '\0';
      if (sign != '\0') ++end;
      if (!has(end, "%}")) continue;
      add_data(text_.substr(position_, tag - position_), at(tag + 2), /*strips_line=*/true);
      finish_tag(end + 2, sign == '-', sign == '\0');
      return;
    }
    run_.fail("a raw block has no end; close it with {% endraw %}");
  }

  void skip_comment() {
    const size_t begin = behind_sign(position_ + 2);
    const size_t end = text_.find("#}", begin);
    if (end == kNotFound) run_.fail("a comment has no end; close it with #}");
    const char sign = end > begin && is_sign(text_[end - 1]) ? text_[end - 1] : '\0';
    finish_tag(end + 2, sign == '-', sign == '\0');
  }

  void read_tag(bool is_block) {
    add(is_block ? TokenKind::kBlockBegin : TokenKind::kOutputBegin);
    move_to(behind_sign(position_ + 2));
    while (position_ < text_.size() && !read_tag_end(is_block)) {
      const size_t next = skip_space(position_);
      if (next > position_) {
        move_to(next);
      } else {
        read_token();
      }
    }
  }

  // An end inside of brackets is none: "{{ {'a': {}} }}".
  bool read_tag_end(bool is_block) {
    if (!open_.empty()) return false;
    const std::string_view end = is_block ? "%}" : "}}";
    const char sign = at(position_);
    const bool has_sign = sign == '-' || (is_block && sign == '+');
    if (!has(position_ + (has_sign ? 1 : 0), end)) return false;
    add(is_block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd);
    finish_tag(position_ + (has_sign ? 3 : 2), sign == '-', is_block && !has_sign);
    return true;
  }

  void read_token() {
    const char c = at(position_);
    if (is_digit(c)) {
      read_number();
    } else if (begins_name(c)) {
      size_t end = position_;
      while (begins_name(at(end)) || is_digit(at(end))) ++end;
      add(TokenKind::kName, std::string(text_.substr(position_, end - position_)));
      move_to(end);
    } else if (c == '\'' || c == '"') {
      read_text(c);
    } else {
      read_operator();
    }
  }

  void read_text(char quote) {
    size_t end = position_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) run_.fail("a text has no end; close it with ", quote);
    const std::string_view literal = text_.substr(position_ + 1, end - position_ - 1);
    add(TokenKind::kText, unescaped(run_, literal));
    move_to(end + 1);
  }

  void read_number() {
    // Behind a dot, digits are an index: x.1.5 is x[1][5].
    const bool may_be_fraction = position_ == 0 || text_[position_ - 1] != '.';
    const NumberLiteral literal =
        read_number_literal(run_, text_.substr(position_), may_be_fraction);
    tokens_.push_back({.kind = literal.is_integer ? TokenKind::kInteger : TokenKind::kNumber,
                       .line = line_,
                       .integer = literal.integer,
                       .number = literal.number});
    move_to(position_ + literal.num_bytes);
  }

  void read_operator() {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto found =
        std::ranges::find_if(kOperators, [&](auto word) { return has(position_, word); });
    if (found == std::end(kOperators)) {
      size_t end = position_;
      next_character(text_, end);
      run_.fail("a tag has the character ", in_quotes(text_.substr(position_, end - position_)),
                ", which does not belong there; names have ASCII letters, digits and _");
    }
    balance(found->front());
    add(TokenKind::kOperator, std::string(*found));
    move_to(position_ + found->size());
  }

  void balance(char c) {
    if (c == '{') open_.push_back('}');
    if (c == '(') open_.push_back(')');
    if (c == '[') open_.push_back(']');
    if (c != '}' && c != ')' && c != ']') return;
    if (open_.empty() || open_.back() != c) {
      run_.fail("a tag has a ", c, " that closes nothing; check its brackets");
    }
    open_.pop_back();
  }

  Run& run_;
  std::string_view text_;
  std::vector<Token> tokens_;
  std::string open_;  // the brackets that are to come
  size_t position_ = 0;
  size_t line_ = 1;
  bool line_starts_ = true;  // whether what was read last ended a line
};

}  // namespace

std::vector<Token> split_into_tokens(Run& run, std::string_view text) {
  if (text.size() > run.limits().max_template_bytes) {
    run.fail("the template has ", text.size(), " bytes; expected at most ",
             run.limits().max_template_bytes);
  }
  if (!is_utf8(text)) run.fail("the template is not UTF-8");
  const std::string plain = with_plain_line_ends(text);
  return Lexer(run, plain).split();
}

}  // namespace trireme::dataset::chat
