# Sourced: sets `clang_format` and `clang_tidy` to the pinned version, so that every machine formats alike.
readonly clang_version=14
find_clang() { # find_clang clang-format: prints the program of the pinned version
  local candidate
  for candidate in "$1-$clang_version" "$1"; do
    if command -v "$candidate" >/dev/null && [[ $("$candidate" --version) =~ version\ $clang_version\. ]]; then
      echo "$candidate"
      return 0
    fi
  done
  echo "check: $1 $clang_version is needed and not found; apt-get install $1-$clang_version" >&2
  return 1
}
