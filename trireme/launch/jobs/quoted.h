// Text from users in files that a shell, YAML or a scheduler reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

// The word as POSIX shells read it back: as it is, or in single quotes.
std::string shell_word(std::string_view word);
// Words with blanks between them.
std::string shell_words(const std::vector<std::string>& words);

// A double-quoted scalar of YAML, in ASCII. Every `$` is doubled: Kubernetes and Compose replace
// $(NAME) and ${NAME} in strings, and read `$$` as `$`.
// text: well-formed UTF-8 without control characters
std::string yaml_text(std::string_view text);
// For a comment of YAML or a shell: ASCII as it is, other characters as "\U000000e9". None of them
// can end the line (YAML 1.1 ends it at U+0085, U+2028 and U+2029 too) or hide a part of it.
// text: well-formed UTF-8 without control characters
std::string comment_text(std::string_view text);
// "[a, b]" of quoted scalars.
std::string yaml_list(const std::vector<std::string>& texts);

// Throws: ConfigError unless `text` is well-formed UTF-8 of at most 4096 bytes without control
//         characters; `what` names it
void check_quotable(std::string_view what, std::string_view text);
// For schedulers' own lines, which do not understand quotes.
// Throws: ConfigError unless `text` has 1 to 255 letters, digits and . _ - + , : @ / = only and
//         begins with a letter or a digit
void check_directive_word(std::string_view what, std::string_view text);

}  // namespace trireme::launch
