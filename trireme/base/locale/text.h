// Text that does not depend on the locale of the program that links Trireme: numbers as people and
// machines read them, UTF-8, and the classic locale for other libraries' code.
#pragma once

#include <cstddef>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

#include <locale.h>

namespace trireme {

// Text that people and machines read, independent of the locale of the program that links Trireme:
// a program with std::locale::global(std::locale("de_DE.UTF-8")) would otherwise write 5,51 for a
// loss and 32.896 into the name of a file. Standard streams, std::to_string of a floating-point
// number, std::stod and printf's %f follow that locale, so tools/check_locale.py refuses them.
// In place of std::ostringstream.
class TextWriter : public std::ostringstream {
 public:
  TextWriter();
};

// In place of std::istringstream.
class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text);
};

// printf's text, of any length.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// UTF-8 as defined in RFC 3629.

// Number of bytes of the well-formed character at the start of `text`; 0 if there is none.
size_t utf8_character_bytes(std::string_view text);

// Whether `text` can become a well-formed character when more bytes follow.
bool is_utf8_beginning(std::string_view text);

// Whether all of `text` is well-formed.
bool is_utf8(std::string_view text);

// Number of bytes of `text` to keep when it must be cut: at most `max_bytes`, and only whole
// characters.
size_t utf8_prefix_bytes(std::string_view text, size_t max_bytes);

// The classic locale "C" for a scope, around other libraries' code that follows the program's.
// For the C functions that this thread calls: printf, strtod, tolower. Streams keep theirs.
class ClassicThread {
 public:
  ClassicThread();
  ~ClassicThread();
  ClassicThread(const ClassicThread&) = delete;
  ClassicThread& operator=(const ClassicThread&) = delete;

 private:
  locale_t previous_;
};

// For everything in this process, streams that are made meanwhile included. Only where no other
// thread of the program counts on its locale.
class ClassicProcess {
 public:
  ClassicProcess();
  ~ClassicProcess();
  ClassicProcess(const ClassicProcess&) = delete;
  ClassicProcess& operator=(const ClassicProcess&) = delete;

 private:
  std::string c_previous_;  // setlocale() may have been called without std::locale::global()
  std::locale previous_;
};

}  // namespace trireme
