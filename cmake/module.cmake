# Functions and settings to build a folder of sources.

add_library(gdnctl_settings INTERFACE)
target_compile_options(gdnctl_settings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual)
target_include_directories(gdnctl_settings INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(gdnctl_settings INTERFACE dep_tl_expected dep_fmt_headers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With optimisation, g++ 12 reports out-of-bounds reads and copies inside its own std::string and std::optional. ASan
  # and clang-tidy check for the same faults without false alarms.
  target_compile_options(gdnctl_settings INTERFACE -Wno-maybe-uninitialized -Wno-array-bounds -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of libstdc++ 12 instantiates code that C++17 deprecates.
  target_compile_options(gdnctl_settings INTERFACE -Wno-gnu-zero-variadic-macro-arguments -Wno-deprecated-declarations)
endif()
if(GDNCTL_SANITIZE)
  target_compile_options(gdnctl_settings INTERFACE -fsanitize=${GDNCTL_SANITIZE} -fno-omit-frame-pointer)
  if(NOT GDNCTL_SANITIZE STREQUAL "thread")
    target_compile_options(gdnctl_settings INTERFACE -fno-sanitize-recover=all)
    # UBSan traps, and ASan shows the stack. Its records of source locations would be half of every program, take a fifth
    # of the compile time, and be scanned by LeakSanitizer at every exit.
    target_compile_options(gdnctl_settings INTERFACE -fsanitize-trap=undefined)
    target_sources(gdnctl_settings INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${CMAKE_SOURCE_DIR}/cmake/sanitizer_options.cpp>)
  endif()
  target_link_options(gdnctl_settings INTERFACE -fsanitize=${GDNCTL_SANITIZE})
endif()

# Only std and fmt: heavier headers in a PCH slow every file down.
if(GDNCTL_PCH)
  add_library(gdnctl_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(gdnctl_pch PRIVATE gdnctl_settings)
  target_precompile_headers(gdnctl_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
endif()
# The default linker takes three times as long, which matters with 60 programs.
find_program(GDNCTL_LLD ld.lld-19)
if(GDNCTL_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_link_options(gdnctl_settings INTERFACE --ld-path=${GDNCTL_LLD})
endif()

function(gdnctl_use_pch target)
  if(GDNCTL_PCH)
    target_precompile_headers(${target} REUSE_FROM gdnctl_pch)
  endif()
endfunction()

# Counts edges and traces comparisons for libFuzzer, so that the fuzzers link the objects that the tests use.
function(gdnctl_fuzzed target)
  if(GDNCTL_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp)
  endif()
endfunction()

# Optimises a library that works on much data; sanitizers would make it slow at -O0, the level of the rest.
if(GDNCTL_SANITIZE AND GDNCTL_PCH)
  add_library(gdnctl_pch_optimised OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(gdnctl_pch_optimised PRIVATE gdnctl_settings)
  target_compile_options(gdnctl_pch_optimised PRIVATE -O1)
  target_precompile_headers(gdnctl_pch_optimised PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
endif()
function(gdnctl_optimised target)
  target_compile_options(${target} PRIVATE -O1)
  if(GDNCTL_PCH)
    target_precompile_headers(${target} REUSE_FROM gdnctl_pch_optimised)
  endif()
endfunction()

# Compiles the sources of a folder `number` at a time.
function(gdnctl_together target number)
  if(NOT GDNCTL_TOGETHER OR NOT number)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # it mistakes sources for headers
  get_target_property(sources ${target} SOURCES)
  set(seen "")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MD5 folder "${folder}")
    string(SUBSTRING ${folder} 0 8 folder)
    list(APPEND seen ${folder})
    set(same ${seen})
    list(FILTER same INCLUDE REGEX "^${folder}$")
    list(LENGTH same count)
    math(EXPR group "(${count} - 1) / ${number}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# The rooms that `room` may include according to cmake/arrows.txt, as library names; `services/*` is every room below
# services/.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/arrows.txt gdnctl_arrows REGEX "^[^#].*->")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/arrows.txt)
function(gdnctl_arrows_of room variable)
  set(heads "")
  foreach(line IN LISTS gdnctl_arrows)
    string(REGEX REPLACE " *->.*" "" tail "${line}")
    if(tail STREQUAL room)
      string(REGEX REPLACE "^[^>]*> *" "" heads "${line}")
      separate_arguments(heads)
    endif()
  endforeach()
  set(libraries "")
  foreach(head IN LISTS heads)
    if(head MATCHES "/\\*$")
      string(REPLACE "*" "" prefix ${head})
      foreach(line IN LISTS gdnctl_arrows)
        string(REGEX REPLACE " *->.*" "" tail "${line}")
        string(FIND "${tail}" "${prefix}" at)
        if(at EQUAL 0)
          string(REPLACE "/" "_" library ${tail})
          list(APPEND libraries ${library})
        endif()
      endforeach()
    else()
      string(REPLACE "/" "_" library ${head})
      list(APPEND libraries ${library})
    endif()
  endforeach()
  set(${variable} ${libraries} PARENT_SCOPE)
endfunction()

# Before each access to a member, these look for what ASan finds, too, and for misaligned objects, which can only be where
# raw bytes are read as something else.
function(gdnctl_without_raw_bytes target room)
  if(GDNCTL_SANITIZE MATCHES "undefined" AND NOT room MATCHES "^(core|platform|harness|libgdn|oracle.*)$")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size)
  endif()
endfunction()

# gdnctl_module(ROOM [TOGETHER N] [FOLDERS FOLDER...] [DEPS MODULE...] [THIRD_PARTY NAME...]): builds src/ROOM/**.cpp, or
# the FOLDERS, as the static library gdnctl_ROOM ('/' becomes '_'). Links it by the room's line in arrows.txt or, if a room
# has several libraries, by DEPS. TOGETHER compiles N sources at a time, so that their templates of JSON and Result, which
# are most of the work, are instantiated once for all N. Their unnamed namespaces become one, so two sources of a folder
# must not use the same name there.
function(gdnctl_module module)
  cmake_parse_arguments(M "" "TOGETHER" "FOLDERS;DEPS;THIRD_PARTY" ${ARGN})
  string(REPLACE "/" "_" name ${module})
  if(NOT M_FOLDERS)
    set(M_FOLDERS ${module})
    set(M_WHOLE_ROOM TRUE)
  endif()
  if(NOT M_DEPS)
    gdnctl_arrows_of(${module} M_DEPS)
  endif()
  list(TRANSFORM M_FOLDERS PREPEND ${CMAKE_SOURCE_DIR}/src/)
  list(TRANSFORM M_FOLDERS APPEND /*.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${M_FOLDERS})
  foreach(line IN LISTS gdnctl_arrows)  # a room within the room is a library of its own
    if(M_WHOLE_ROOM AND line MATCHES "^${module}/[^ ]+")
      list(FILTER sources EXCLUDE REGEX "/src/${CMAKE_MATCH_0}/")
    endif()
  endforeach()
  add_library(gdnctl_${name} STATIC ${sources})
  target_link_libraries(gdnctl_${name} PRIVATE gdnctl_settings)
  foreach(dep IN LISTS M_DEPS)
    target_link_libraries(gdnctl_${name} PUBLIC gdnctl_${dep})
  endforeach()
  foreach(dep IN LISTS M_THIRD_PARTY)
    target_link_libraries(gdnctl_${name} PRIVATE dep_${dep})
  endforeach()
  if(NOT module MATCHES "^(oracle|oracle_kernels|harness|libgdn|cli|commands)$")  # no fuzzer links these
    gdnctl_fuzzed(gdnctl_${name})
  endif()
  if(GDNCTL_SANITIZE AND module MATCHES "^(core|runlog|sweep|oracle|oracle_inputs)$")
    gdnctl_optimised(gdnctl_${name})
  else()
    gdnctl_use_pch(gdnctl_${name})
  endif()
  gdnctl_without_raw_bytes(gdnctl_${name} ${module})
  gdnctl_together(gdnctl_${name} "${M_TOGETHER}")
endfunction()

function(gdnctl_program target)
  gdnctl_use_pch(${target})
  if(GDNCTL_STATIC_RUNTIME)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections
      -Wl,--undefined=arc4random)  # link our own before libstdc++ looks for it in glibc
  endif()
endfunction()
