# Version and commit for src/core/version.cpp, read when CMake configures, so that a new commit alone rebuilds nothing.
# A build is a release if its commit has the tag v<version> and no tracked file differs from it.
set(GDNCTL_COMMIT "" CACHE STRING "commit to show in --version; empty: asked of git")
set(commit "${GDNCTL_COMMIT}")
set(release 0)
if(NOT commit)
  find_package(Git QUIET)
  if(Git_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${GIT_EXECUTABLE} describe --exact-match --dirty --tags --match v${PROJECT_VERSION}
                    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE tag OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(tag STREQUAL "v${PROJECT_VERSION}")
      set(release 1)
    endif()
  endif()
endif()
if(NOT commit)
  set(commit unknown)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/core/version.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON
  COMPILE_DEFINITIONS "GDNCTL_VERSION=\"${PROJECT_VERSION}\";GDNCTL_COMMIT=\"${commit}\";GDNCTL_RELEASE=${release}")
