#include "trireme/cli/terminal_text.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "trireme/base/locale/text.h"

namespace trireme::cli {
namespace {

// Control characters: those of ASCII, and U+0080 to U+009F, which terminals also obey.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return character.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0;
}

void append_escaped(std::string& text, std::string_view bytes) {
  for (const char byte : bytes) {
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned char>(byte));
    text += escape;
  }
}

// Appends the first character of `text`, or the invalid byte there. Those in `kept` are not
// escaped.
size_t append_next(std::string& out, std::string_view text, std::string_view kept) {
  const size_t length = utf8_character_bytes(text);
  const std::string_view next = text.substr(0, length == 0 ? 1 : length);
  const bool is_kept = kept.find(next) != std::string_view::npos;
  if (length == 0 || (is_control(next) && !is_kept)) {
    append_escaped(out, next);
  } else {
    out += next;
  }
  return next.size();
}

constexpr size_t kDefaultColumns = 80, kLeastColumns = 40;
constexpr size_t kSecondColumn = 20;  // the least indentation of a second column
constexpr size_t kCommandIndent = 4;  // of what is broken off a command, below its beginning

// Words that are filled into lines. The first line begins with `head`.
struct Paragraph {
  std::string head{};
  size_t column = 0;  // of the words, in every line
  bool is_prose = false;
  bool is_command = false;
  size_t last_length = 0;  // of the last line that was read
  std::vector<std::string> words{};
};

size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

void add_words(Paragraph& paragraph, std::string_view line) {
  TextReader words{std::string(line)};
  for (std::string word; words >> word;) paragraph.words.push_back(std::move(word));
  paragraph.last_length = line.size();
}

// Where the second column of a line begins, after at least two spaces; 0: it has one column.
size_t second_column(std::string_view line) {
  const size_t gap = line.find("  ", indent_of(line));
  if (gap == line.npos) return 0;
  const size_t column = line.find_first_not_of(' ', gap);
  return column == line.npos || column < kSecondColumn ? 0 : column;
}

// column: of the text to which the line belongs
bool looks_like_command(std::string_view line, size_t column) {
  const size_t indent = indent_of(line);
  if (indent != column + 2) return false;
  const std::string_view text = line.substr(indent);
  return text.starts_with("...") || (text.find(' ') != text.npos && text.front() != '-');
}

// column: the second one of a list, where the line may have an example of an entry; or 0
Paragraph paragraph_of(std::string_view line, size_t column_of_list) {
  Paragraph paragraph;
  const size_t indent = indent_of(line);
  if (const size_t column = second_column(line); column > 0) {
    paragraph.head = std::string(line.substr(0, column));
    paragraph.column = column;
    add_words(paragraph, line.substr(column));
    return paragraph;
  }
  paragraph.is_prose = indent == 0;
  paragraph.is_command = looks_like_command(line, 0) ||
                         (column_of_list > 0 && looks_like_command(line, column_of_list));
  paragraph.column = indent;
  paragraph.head = std::string(indent, ' ');
  add_words(paragraph, line);
  return paragraph;
}

// CLI11 puts it directly below a command's description.
bool is_usage(std::string_view line) { return line.starts_with("Usage:"); }

// Whether the line is more of the paragraph before it.
bool continues(const Paragraph& paragraph, std::string_view line) {
  constexpr size_t kFullLine = 55;  // a shorter one ends its paragraph, or is a heading
  if (paragraph.words.empty() || paragraph.is_command || is_usage(line)) return false;
  if (paragraph.is_prose) {
    return indent_of(line) == 0 && second_column(line) == 0 && paragraph.last_length > kFullLine;
  }
  return paragraph.column >= kSecondColumn && indent_of(line) == paragraph.column;
}

void append_paragraph(std::string& out, const Paragraph& paragraph, size_t columns) {
  std::string line = paragraph.head;
  const size_t indent = paragraph.column + (paragraph.is_command ? kCommandIndent : 0);
  const size_t most = columns - (paragraph.is_command ? 2 : 0);  // room for " \"
  bool is_empty = true;
  const std::vector<std::string>& words = paragraph.words;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    size_t needed = word.size();
    // An option of a command stays with its value.
    if (paragraph.is_command && word.starts_with("--") && i + 1 < words.size() &&
        !words[i + 1].starts_with('-')) {
      needed += 1 + words[i + 1].size();
    }
    if (!is_empty && line.size() + 1 + needed > most) {
      out += line + (paragraph.is_command ? " \\\n" : "\n");
      line = std::string(indent, ' ');
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
    is_empty = false;
  }
  out += line + "\n";
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) text.remove_prefix(append_next(out, text, ""));
  return out;
}

std::string json_text(const nlohmann::json& object) {
  return object.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string TerminalText::add(std::string_view piece) {
  held_ += piece;
  std::string out;
  std::string_view text = held_;
  while (!text.empty() && !is_utf8_beginning(text)) {
    text.remove_prefix(append_next(out, text, "\n\t"));
  }
  held_ = std::string(text);
  return out;
}

std::string TerminalText::finish() { return printable(std::exchange(held_, {})); }

size_t output_columns() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::max<size_t>(kLeastColumns, size.ws_col) : kDefaultColumns;
}

std::string wrapped_help(std::string_view text, size_t columns) {
  std::string out;
  Paragraph open;
  size_t column_of_list = 0;
  const auto close = [&] {
    if (!open.words.empty()) append_paragraph(out, open, columns);
    open = {};
  };
  TextReader lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (indent_of(line) == line.size()) {
      close();
      out += "\n";
    } else if (continues(open, line)) {
      add_words(open, line);
    } else {
      close();
      if (is_usage(line) && !out.empty() && !out.ends_with("\n\n")) out += "\n";
      open = paragraph_of(line, column_of_list);
      if (!open.is_command) column_of_list = open.column >= kSecondColumn ? open.column : 0;
    }
  }
  close();
  return out;
}

std::string wrapped_line(std::string_view line, size_t columns) {
  constexpr size_t kLabel = 8;
  const bool has_label = line.size() > kLabel && line[kLabel - 1] == ' ';
  const std::string_view text = line.substr(has_label ? kLabel : 0);
  if (line.size() <= columns || text.find("  ") != text.npos) return std::string(line);
  Paragraph paragraph{.head = std::string(line.substr(0, line.size() - text.size())),
                      .column = kLabel};
  add_words(paragraph, text);
  std::string out;
  append_paragraph(out, paragraph, columns);
  out.pop_back();  // the end of its last line
  return out;
}

std::string fitted_line(std::span<const LinePart> parts, size_t columns) {
  std::vector<LinePart> kept(parts.begin(), parts.end());
  for (;;) {
    std::string line;
    for (const LinePart& part : kept) line += (line.empty() ? "" : "  ") + part.text;
    if (line.size() <= columns || kept.size() <= 1) return line;
    kept.erase(std::ranges::max_element(kept, {}, &LinePart::order));
  }
}

}  // namespace trireme::cli
