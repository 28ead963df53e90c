#!/bin/sh
# test_suite.sh run OUT PROGRAM TESTS: runs a GoogleTest program's tests (names with colons between) and keeps what it
#   prints. Fails when the program does not come to its end, or ends with an error though every test passed (a
#   sanitizer's). Which tests failed is for `result` to say.
# test_suite.sh result OUT TEST: the result of one of them: 0, or 1 with what it printed, or 77 when it was skipped.
case $1 in
  run)
    { "$3" "--gtest_filter=$4" 2>&1 || echo "$3 ended with $?"; } | tee "$2"
    grep -q '^\[==========\] .* ran\.' "$2" || exit 1
    grep -q '^\[  FAILED  \]' "$2" || ! grep -qF "$3 ended with" "$2" ;;
  result)
    grep -qF "[       OK ] $3 (" "$2" && exit 0
    # From its own RUN line to the next test's.
    awk -v run="[ RUN      ] $3" '$0 == run {on = 1} on && /^\[ RUN/ && $0 != run {exit} on' "$2"
    grep -qF "[  SKIPPED ] $3 (" "$2" && exit 77
    exit 1 ;;
esac
