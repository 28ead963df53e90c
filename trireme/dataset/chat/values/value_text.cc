#include "trireme/dataset/chat/values/value_text.h"

#include <charconv>
#include <cmath>

#include "trireme/dataset/chat/values/characters.h"

namespace trireme::dataset::chat {

namespace {

void append_escaped(std::string& text, char32_t c, char quote) {
  if (c == '\\' || c == static_cast<unsigned char>(quote)) {
    text.push_back('\\');
    text.push_back(static_cast<char>(c));
  } else if (c == '\n') {
    text += "\\n";
  } else if (c == '\r') {
    text += "\\r";
  } else if (c == '\t') {
    text += "\\t";
  } else if (is_printable(c)) {
    append_character(text, c);
  } else if (c < 0x100) {
    text += "\\x";
    append_hex(text, c, 2);
  } else {
    text += c < 0x10000 ? "\\u" : "\\U";
    append_hex(text, c, c < 0x10000 ? 4 : 8);
  }
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (size_t offset = 0; offset < text.size();) {
    append_escaped(result, next_character(text, offset), quote);
  }
  return result + quote;
}

void append_items(Run& run, const Sequence& sequence, TextBuilder& text) {
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) text.add(", ");
    append_repr(run, sequence.items[i], text);
  }
}

void append_sequence(Run& run, const Value& value, const Sequence& sequence, TextBuilder& text) {
  std::string_view begin = "[", end = "]";
  switch (sequence.shape) {
    case Shape::kList: break;
    case Shape::kTuple:
      begin = "(";
      end = sequence.items.size() == 1 ? ",)" : ")";
      break;
    case Shape::kKeys: begin = "dict_keys(["; break;
    case Shape::kValues: begin = "dict_values(["; break;
    case Shape::kItems: begin = "dict_items(["; break;
    default: run.fail("prints ", kind_of(value), "; make a list of it with the filter list");
  }
  if (begin.ends_with("([")) end = "])";
  text.add(begin);
  append_items(run, sequence, text);
  text.add(end);
}

void append_dict(Run& run, const Dict& dict, TextBuilder& text) {
  text.add("{");
  bool first = true;
  for (const auto& [key, item] : dict.items()) {
    if (!first) text.add(", ");
    first = false;
    append_repr(run, key, text);
    text.add(": ");
    append_repr(run, item, text);
  }
  text.add("}");
}

// Digits and exponent in the notation that Python chooses.
std::string in_python_notation(std::string_view scientific) {
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, scientific.data() + scientific.size(), exponent);
  std::string mantissa(scientific.substr(0, e));
  const std::string sign = mantissa.starts_with('-') ? "-" : "";
  mantissa.erase(0, sign.size());
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  std::erase(mantissa, '.');
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + mantissa;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (mantissa.size() <= whole) {
    return sign + mantissa + std::string(whole - mantissa.size(), '0') + ".0";
  }
  return sign + mantissa.substr(0, whole) + "." + mantissa.substr(whole);
}

}  // namespace

void TextBuilder::add(std::string_view part) {
  if (part.size() > run_.limits().max_text_bytes - text_.size()) {
    run_.charge_text(run_.limits().max_text_bytes + 1);
  }
  uncharged_ += part.size();
  if (uncharged_ >= kBytesPerStep) {
    run_.charge_bytes(uncharged_);
    uncharged_ %= kBytesPerStep;
  }
  text_ += part;
}

void TextBuilder::add_repeated(std::string_view part, size_t times) {
  if (part.empty() || times == 0) return;
  if (times > run_.limits().max_text_bytes / part.size()) {
    run_.charge_text(run_.limits().max_text_bytes + 1);
  }
  run_.charge(times / kBytesPerStep);
  for (size_t i = 0; i < times; ++i) add(part);
}

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  return in_python_notation(std::string_view(buffer, static_cast<size_t>(end - buffer)));
}

void append_text(Run& run, const Value& value, TextBuilder& text) {
  if (const Text* held = value.as_text()) {
    text.add(held->bytes);
  } else if (!value.is_undefined()) {
    append_repr(run, value, text);
  }
}

std::string text_of(Run& run, const Value& value) {
  TextBuilder text(run);
  append_text(run, value, text);
  return text.take();
}

void append_repr(Run& run, const Value& value, TextBuilder& text) {
  run.charge(1);
  if (const Text* held = value.as_text()) {
    if (held->escaped)
      run.fail("prints an escaped text inside of a list or a dict; print it alone");
    run.charge_characters(held->bytes.size());
    text.add(quoted(held->bytes));
  } else if (value.is_undefined()) {
    text.add("Undefined");
  } else if (value.is_none()) {
    text.add("None");
  } else if (const bool* boolean = value.as_boolean()) {
    text.add(*boolean ? "True" : "False");
  } else if (const auto* integer = std::get_if<int64_t>(&value.held())) {
    text.add(std::to_string(*integer));
  } else if (const auto* number = std::get_if<double>(&value.held())) {
    text.add(number_text(*number));
  } else if (const Sequence* sequence = value.as_sequence()) {
    append_sequence(run, value, *sequence, text);
  } else if (const Dict* dict = value.as_dict()) {
    append_dict(run, *dict, text);
  } else {
    run.fail("prints ", kind_of(value), ", which has no text of its own");
  }
}

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '\'': result += "&#39;"; break;
      case '"': result += "&#34;"; break;
      default: result.push_back(c);
    }
  }
  return result;
}

}  // namespace trireme::dataset::chat
