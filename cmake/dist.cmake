# cmake -P cmake/dist.cmake: build/release installed into a folder of its own, stripped, as a tarball with its sha256.
file(STRINGS build/release/CMakeCache.txt line REGEX "^CMAKE_PROJECT_VERSION:")
string(REGEX REPLACE ".*=" "" version "${line}")
cmake_host_system_information(RESULT machine QUERY OS_PLATFORM)
set(name gdnctl-${version}-linux-${machine})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

file(REMOVE_RECURSE build/dist)
file(MAKE_DIRECTORY dist build/dist)
run(${CMAKE_COMMAND} --install build/release --strip --prefix ${CMAKE_CURRENT_SOURCE_DIR}/build/dist/${name})
file(REMOVE dist/${name}.tar.gz)
execute_process(COMMAND tar --sort=name --owner=0 --group=0 --numeric-owner -C build/dist -czf dist/${name}.tar.gz ${name}
                COMMAND_ERROR_IS_FATAL ANY)
file(SHA256 dist/${name}.tar.gz sum)
file(WRITE dist/${name}.tar.gz.sha256 "${sum}  ${name}.tar.gz\n")
message(STATUS "dist/${name}.tar.gz ${sum}")
