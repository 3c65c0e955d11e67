# Finds every third-party library. Each has one INTERFACE target `dep_NAME`, which only modules that name it in
# CMakeLists.txt can use.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

function(gdnctl_dependency name)
  add_library(dep_${name} INTERFACE)
  target_link_libraries(dep_${name} INTERFACE ${ARGN})
endfunction()

# A library that is opened on first use (GDNCTL_LAZY_LIBS) or linked; both need its headers.
function(gdnctl_late_dependency name pkg)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${pkg})
  add_library(dep_${name}_headers INTERFACE)
  target_include_directories(dep_${name}_headers SYSTEM INTERFACE ${${name}_INCLUDE_DIRS})
  if(NOT GDNCTL_LAZY_LIBS)
    target_link_libraries(dep_${name}_headers INTERFACE PkgConfig::${name})
  endif()
endfunction()

# Debian ships fmt and spdlog only as shared objects, so core/fmt.cpp and core/log.cpp compile what is used.
find_path(FMT_INCLUDE fmt/format-inl.h REQUIRED)
find_path(SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
add_library(dep_fmt_headers INTERFACE)
target_include_directories(dep_fmt_headers SYSTEM INTERFACE ${FMT_INCLUDE})
add_library(dep_spdlog_headers INTERFACE)
target_include_directories(dep_spdlog_headers SYSTEM INTERFACE ${SPDLOG_INCLUDE})
target_compile_definitions(dep_spdlog_headers INTERFACE SPDLOG_FMT_EXTERNAL SPDLOG_HEADER_ONLY)

gdnctl_dependency(tl_expected tl::expected)
gdnctl_dependency(cli11 CLI11::CLI11)
gdnctl_dependency(json nlohmann_json::nlohmann_json)
gdnctl_dependency(dl ${CMAKE_DL_LIBS} Threads::Threads)
gdnctl_late_dependency(curl libcurl)
gdnctl_late_dependency(crypto libcrypto)
gdnctl_late_dependency(isal libisal)
gdnctl_late_dependency(git2 libgit2)

# Static archives if Debian has them: a shared library costs start-up time and must be installed on the host.
function(gdnctl_static_dependency name archive header)
  find_library(${name}_ARCHIVE NAMES lib${archive}.a REQUIRED)
  find_path(${name}_INCLUDE ${header} REQUIRED)
  add_library(dep_${name} INTERFACE)
  target_include_directories(dep_${name} SYSTEM INTERFACE ${${name}_INCLUDE})
  target_link_libraries(dep_${name} INTERFACE ${${name}_ARCHIVE} Threads::Threads)
endfunction()
gdnctl_static_dependency(re2 re2 re2/re2.h)
gdnctl_static_dependency(zlib z zlib.h)
gdnctl_static_dependency(yaml yaml-cpp yaml-cpp/yaml.h)

# The package's .pc file selects toml++'s shared object, but the headers are enough.
find_path(TOML_INCLUDE toml++/toml.h REQUIRED)
add_library(dep_toml INTERFACE)
target_include_directories(dep_toml SYSTEM INTERFACE ${TOML_INCLUDE})
