# A header is for what at least two other files use; what one file uses stands in it.
check() { python3 "$REPO/tests/structure/headers.py" "$1"; }

test_every_header_has_two_users() { expect 0 check "$REPO"; }
test_a_header_with_one_user_would_be_found() {
  mkdir -p tree/src/core tree/tests
  echo '#include "core/planted.h"' | tee tree/src/core/planted.cpp >tree/src/core/user.cpp
  : >tree/src/core/planted.h
  expect 1 check tree
  out_has 'src/core/planted.h: used by src/core/user.cpp alone'
  echo '#include "core/planted.h"' >tree/tests/planted_test.cpp
  expect 0 check tree
}
