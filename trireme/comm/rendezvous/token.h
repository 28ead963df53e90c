// The secret that the ranks of a job share. Only processes that know it can join (store_server.h).
#pragma once

#include <string>

namespace trireme::comm::inline internal {

// How to make a token, for errors.
inline constexpr const char* kTokenAdvice =
    "make one with `(umask 077; head -c 32 /dev/urandom | base64 > ~/.trireme-token)` and set "
    "TRIREME_TOKEN_FILE=~/.trireme-token on all ranks";

// The value of TRIREME_TOKEN, or else the content of the file TRIREME_TOKEN_FILE without
// surrounding white space; empty when neither is set. The file must belong to this user, and nobody
// else may read it.
// Throws: ConfigError, which never shows the token
std::string job_token();

}  // namespace trireme::comm::inline internal
