// The secret that the ranks of a job share: who does not know it does not join (store_server.h).
#pragma once

#include <string>

namespace trireme::comm {

// How to make one, for errors.
inline constexpr const char* kTokenAdvice =
    "make one with `(umask 077; head -c 32 /dev/urandom | base64 > ~/.trireme-token)` and set "
    "TRIREME_TOKEN_FILE=~/.trireme-token on all ranks";

// TRIREME_TOKEN, or else what stands in the file TRIREME_TOKEN_FILE, without the white space around
// it; empty when neither is set. The file must be this user's and nobody else may read it.
// Throws: ConfigError, which never shows the token
std::string job_token();

}  // namespace trireme::comm
