// Upper and lower case as Python's str has them: with Unicode's special cases, such as "SS" for a
// German sharp s, and the other small sigma at the end of a Greek word.
#pragma once

#include <string>
#include <string_view>

namespace trireme::dataset::chat {

// `text` must be well-formed UTF-8.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
// The first character in title case, the others lower.
std::string capitalize(std::string_view text);
// As str.title(): a letter behind one that has no case begins a word.
std::string title(std::string_view text);
// As Jinja's filter `title`: words begin behind white space and - ( { [ <.
std::string title_words(std::string_view text);

// As str.isupper() and str.islower().
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

}  // namespace trireme::dataset::chat
